package ops

import (
	"math/rand/v2"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

func init() {
	RandDef.Define(ir.Rules{
		Attrs: RandAttrs{}, Operands: 1, Infer: inferRand, NoGrad: "random numbers depend on no operand",
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
	RandAtDef.Define(ir.Rules{
		Attrs: RandAtAttrs{}, Operands: 2, Infer: inferRandAt, NoGrad: "integer operands",
		Factors: func(op *ir.Op) factor.Rule { return factor.Pointwise(op.In[0].Type.Dims, 2, 1) },
		Eval: func(op *ir.Op, in []*ir.Array) []*ir.Array {
			out, seed := arrays(op), op.Attrs.(RandAtAttrs).Seed
			for i := range out[0].F {
				out[0].F[i] = uniform(seed, in[0].I[i], in[1].I[i])
			}
			return out
		},
		Impl: func(op *ir.Op) kir.Impl {
			return kir.Impl{Kind: kir.Pointwise, Expr: []*kir.Expr{uniformExpr(op.Attrs.(RandAtAttrs).Seed)}}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			t := ir.T(dtype.I64, 4, 6)
			return []ir.Sample{{In: []ir.Type{t, t}, Attrs: RandAtAttrs{7}, Limit: 1 << 40}}
		},
		Doc: "a uniform random number in [0,1) for each counter and index",
	})
	DropoutDef.Define(ir.Rules{
		Attrs: DropoutAttrs{}, Operands: 2, Infer: inferDropout,
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

// randParts numbers the elements of the whole tensor through one small iota per dim. Split over ranks, each rank
// slices its part of those, so that its numbers are those of the unsplit program.
func randParts(b *ir.Builder, counter *ir.Value, seed int, dims []int) *ir.Value {
	index := Zeros(b, ir.T(dtype.I64, dims...))
	for d, stride := range ir.Strides(dims) {
		if dims[d] == 1 {
			continue
		}
		line := MulScalar(b, Iota(b, dtype.I64, with(filled(len(dims), 1), d, dims[d]), d), float64(stride))
		index = Add(b, index, Expand(b, line, dims))
	}
	return RandAt(b, BroadcastTo(b, counter, dims), index, seed)
}

// The generator hashes counter and index into 32 bits, in signed 64-bit arithmetic that never overflows, so that C,
// CUDA and Go agree without unsigned types: every multiplier is below 2^31 less a margin, every other factor below 2^32
// plus a little. Additions of a number's own high part stand for the usual xor-shifts.
const (
	word     = 1 << 32
	randMul  = 0x5bd1e995 // MurmurHash2's multiplier
	randMul2 = 0x2545f491 // the high half of xorshift*'s
	randMul3 = 0x61c88647 // 2^32 less the golden ratio's
)

// seedWord spreads seed over 32 bits (SplitMix64's finaliser).
func seedWord(seed int) int64 {
	z := uint64(seed)*0x9e3779b97f4a7c15 + 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int64((z ^ z>>31) >> 32)
}

// uniform is what rand_at computes for one element; counter and index are not negative.
func uniform(seed int, counter, index int64) float64 {
	h := mixWord((counter%word*randMul3)%word + seedWord(seed))
	h = mixWord(h + index%word)
	return float64(h/(1<<8)) * (1.0 / (1 << 24))
}

// mixWord expects less than 2^33.
func mixWord(h int64) int64 {
	h %= word
	h = (h + h/(1<<15)) % word * randMul % word
	h = (h + h/(1<<13)) % word * randMul2 % word
	return (h + h/(1<<16)) % word
}

// uniformExpr is uniform as a kernel expression of counter (operand 0) and index (operand 1).
func uniformExpr(seed int) *kir.Expr {
	num := func(v int64) *kir.Expr { return kir.Const(dtype.I64, float64(v)) }
	low := func(x *kir.Expr) *kir.Expr { return kir.Bin("mod", x, num(word)) }
	add := func(x, y *kir.Expr) *kir.Expr { return kir.Bin("add", x, y) }
	mul := func(x *kir.Expr, v int64) *kir.Expr { return low(kir.Bin("mul", x, num(v))) }
	fold := func(x *kir.Expr, by int64) *kir.Expr { return low(add(x, kir.Bin("div", x, num(by)))) }
	mix := func(x *kir.Expr) *kir.Expr {
		return fold(mul(fold(mul(fold(low(x), 1<<15), randMul), 1<<13), randMul2), 1<<16)
	}
	h := mix(add(mul(low(kir.Arg(0)), randMul3), num(seedWord(seed))))
	h = mix(add(h, low(kir.Arg(1))))
	return kir.Bin("mul", kir.Cast(dtype.F32, kir.Bin("div", h, num(1<<8))), kir.Const(dtype.F32, 1.0/(1<<24)))
}
