package ops

import (
	"math/rand/v2"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

func init() {
	RandDef.Define(ir.Rules{
		Attrs: RandAttrs{}, Operands: 1, Infer: inferRand, Facts: ir.Facts{Draws: always}, NoGrad: "random numbers depend on no operand",
		Eval: func(op *ir.Op, in []*ir.Array) []*ir.Array {
			out, a := arrays(op), op.Attrs.(RandAttrs)
			for i := range out[0].F {
				out[0].F[i] = uniform(a.Seed, in[0].I[0], int64(i))
			}
			return out
		},
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			a := op.Attrs.(RandAttrs)
			return []*ir.Value{randParts(b, op.In[0], a.Seed, a.Dims)}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			in := []ir.Type{ir.T(dtype.I64)}
			return []ir.Sample{{In: in, Attrs: RandAttrs{1, []int{4, 6}}}, {In: in, Attrs: RandAttrs{2, nil}}}
		},
		Doc: "uniform random numbers in [0,1), a function of seed, counter and position",
	})
	RandBitsDef.Define(ir.Rules{
		Attrs: RandBitsAttrs{}, Operands: 1, Infer: inferRandBits, Facts: ir.Facts{Draws: always}, NoGrad: "integer operands", Factors: pointwiseRule,
		Eval: func(op *ir.Op, in []*ir.Array) []*ir.Array {
			out, seed := arrays(op), op.Attrs.(RandBitsAttrs).Seed
			for i, x := range in[0].I {
				out[0].I[i] = randBits(seed, x)
			}
			return out
		},
		Impl: func(op *ir.Op) kir.Impl {
			return kir.Impl{Kind: kir.Pointwise, Expr: []*kir.Expr{randBitsExpr(op.Attrs.(RandBitsAttrs).Seed)}}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			return []ir.Sample{{In: []ir.Type{ir.T(dtype.I64, 4, 6)}, Attrs: RandBitsAttrs{7}, Limit: 1 << 40}}
		},
		Doc: "each element hashed into [0,2^31)",
	})
	defineDropout()
}

func defineDropout() {
	DropoutDef.Define(ir.Rules{
		Attrs: DropoutAttrs{}, Operands: 2, Infer: inferDropout,
		Facts: ir.Facts{Draws: always, Inference: func(_ *ir.Builder, op *ir.Op) []*ir.Value { return op.In[:1] }},
		Eval: func(op *ir.Op, in []*ir.Array) []*ir.Array {
			out, a := arrays(op), op.Attrs.(DropoutAttrs)
			for i, x := range in[0].F {
				if uniform(a.Seed, in[1].I[0], int64(i)) >= a.P {
					out[0].F[i] = x / (1 - a.P)
				}
			}
			return out
		},
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			a, x := op.Attrs.(DropoutAttrs), op.In[0]
			u := randParts(b, op.In[1], a.Seed, x.Type.Dims)
			kept := Ge(b, u, ScalarLike(b, u, a.P))
			return []*ir.Value{Where(b, kept, MulScalar(b, x, 1/(1-a.P)), ScalarLike(b, x, 0))}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			c := ir.T(dtype.I64)
			return []ir.Sample{
				{In: []ir.Type{ir.T(dtype.F32, 4, 6), c}, Attrs: DropoutAttrs{0.25, 3}},
				{In: []ir.Type{ir.T(dtype.F32, 4), c}, Attrs: DropoutAttrs{}},
			}
		},
		Doc: "random zeros with probability p, the rest divided by 1-p",
	})
}

// randParts numbers the elements of the whole tensor and hashes the numbers.
func randParts(b *ir.Builder, counter *ir.Value, seed int, dims []int) *ir.Value {
	return uniformParts(b, counter, seed, positions(b, dims))
}

// positions numbers the elements of a tensor, from 0 on, through one small iota per dim. Split over ranks, each rank slices
// its part of those, so that its numbers are those of the unsplit program.
func positions(b *ir.Builder, dims []int) *ir.Value {
	index := Zeros(b, ir.T(dtype.I64, dims...))
	for d, stride := range ir.Strides(dims) {
		if dims[d] == 1 {
			continue
		}
		line := MulScalar(b, Iota(b, dtype.I64, with(filled(len(dims), 1), d, dims[d]), d), float64(stride))
		index = Add(b, index, Expand(b, line, dims))
	}
	return index
}

// uniformParts is uniform of each element of index. Two keys made of the counter go in before and after the first hash of
// the index, so that no two counters' numbers are shifts of each other.
func uniformParts(b *ir.Builder, counter *ir.Value, seed int, index *ir.Value) *ir.Value {
	dims := index.Type.Dims
	key := RandBits(b, counter, 4*seed)
	h := RandBits(b, Add(b, index, BroadcastTo(b, key, dims)), 4*seed+1)
	h = RandBits(b, Add(b, h, BroadcastTo(b, RandBits(b, key, 4*seed+2), dims)), 4*seed+3)
	return MulScalar(b, Cast(b, Div(b, h, ScalarLike(b, h, 1<<7)), dtype.F32), 1.0/(1<<24))
}

// uniform is what uniformParts computes for one element: 24 random bits as a fraction.
func uniform(seed int, counter, index int64) float64 {
	key := randBits(4*seed, counter)
	h := randBits(4*seed+1, index+key)
	return float64(randBits(4*seed+3, h+randBits(4*seed+2, key))>>7) / (1 << 24)
}

// The hash works modulo the prime p = 2^31-1 in signed 64-bit arithmetic that never overflows, so that C, CUDA and
// Go agree without unsigned types or shifts. x^5 is a permutation modulo p (5 does not divide p-1) and far from
// linear. Values are reduced only to below word+2: y%word + y/word is y modulo p.
const (
	word    = 1 << 31
	randMul = 0x5bd1e995 // any multiplier below 2^30.9 does; this is MurmurHash2's
)

// seedWord spreads seed over a number below word (SplitMix64's finaliser).
func seedWord(seed int) int64 {
	z := uint64(seed)*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int64((z ^ z>>31) >> 33)
}

// modular is the arithmetic of the hash, over int64 or over kernel expressions.
type modular[T any] struct {
	num                func(v int64) T
	add, mul, div, mod func(x, y T) T
}

// reduce brings less than 2^63 below word+2.
func (m modular[T]) reduce(x T) T {
	for range 2 {
		x = m.add(m.mod(x, m.num(word)), m.div(x, m.num(word)))
	}
	return x
}

func (m modular[T]) times(x, y T) T { return m.reduce(m.mul(x, y)) }

// bits is (x*randMul + seed)^5 modulo p.
func (m modular[T]) bits(seed int, x T) T {
	x = m.reduce(m.add(m.mul(m.mod(x, m.num(2*word)), m.num(randMul)), m.num(seedWord(seed))))
	square := m.times(x, x)
	return m.mod(m.times(m.times(square, square), x), m.num(word))
}

func randBits(seed int, x int64) int64 {
	m := modular[int64]{
		num: func(v int64) int64 { return v },
		add: func(x, y int64) int64 { return x + y }, mul: func(x, y int64) int64 { return x * y },
		div: func(x, y int64) int64 { return x / y }, mod: func(x, y int64) int64 { return x % y },
	}
	return m.bits(seed, x)
}

func randBitsExpr(seed int) *kir.Expr {
	bin := func(op string) func(x, y *kir.Expr) *kir.Expr {
		return func(x, y *kir.Expr) *kir.Expr { return kir.Bin(op, x, y) }
	}
	m := modular[*kir.Expr]{
		num: func(v int64) *kir.Expr { return kir.Const(dtype.I64, float64(v)) },
		add: bin("add"), mul: bin("mul"), div: bin("div"), mod: bin("mod"),
	}
	return m.bits(seed, kir.Arg(0))
}
