package ops

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// reduction describes one of the four: how elements combine, and the gradient.
type reduction struct {
	doc   string
	op    string // kir's and the collectives' name
	kind  factor.Kind
	start float64
	f     func(x, y float64) float64
	i     func(x, y int64) int64
	vjp   func(b *ir.Builder, op *ir.Op, dy *ir.Value) *ir.Value
	fill  func(r *rand.Rand, in []*ir.Array)
	keep  string // the autocast rule
}

func init() {
	defineReduction(ReduceSumDef, reduction{doc: "sum", op: "sum", kind: factor.Sum, keep: "keep",
		f: func(x, y float64) float64 { return x + y }, i: func(x, y int64) int64 { return x + y },
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) *ir.Value { return Expand(b, dy, in(op, 0)) }})
	defineReduction(ReduceMaxDef, reduction{doc: "greatest element", op: "max", kind: factor.Max, start: math.Inf(-1),
		f: func(x, y float64) float64 { return max(x, y) }, i: func(x, y int64) int64 { return max(x, y) },
		vjp: extremeVJP})
	defineReduction(ReduceMinDef, reduction{doc: "least element", op: "min", kind: factor.Min, start: math.Inf(1),
		f: func(x, y float64) float64 { return min(x, y) }, i: func(x, y int64) int64 { return min(x, y) },
		vjp: extremeVJP})
	defineReduction(ReduceProdDef, reduction{doc: "product", op: "prod", kind: factor.Prod, start: 1, keep: "keep",
		f: func(x, y float64) float64 { return x * y }, i: func(x, y int64) int64 { return x * y },
		vjp: prodVJP, fill: someZeros})
	defineArgmax()
	defineCumsum()
}

func defineReduction(d *ir.Def, r reduction) {
	d.Define(ir.Rules{
		Attrs: ReduceAttrs{}, Operands: 1, Precision: r.keep,
		Doc:   r.doc + " over Dims, which stay as size 1",
		Infer: inferReduce,
		Factors: func(op *ir.Op) factor.Rule {
			f := factor.Pointwise(in(op, 0), 1, 1)
			f.Out[0] = slices.Clone(f.Out[0])
			for _, d := range op.Attrs.(ReduceAttrs).Dims {
				f.Factors[d].Kind, f.Out[0][d] = r.kind, nil
			}
			return f
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			return []*ir.Value{r.vjp(b, op, dy[0])}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array { return r.eval(op, x[0]) }),
		Impl: func(op *ir.Op) kir.Impl {
			return kir.Impl{Kind: kir.Reduce, ReduceOp: r.op, Dims: op.Attrs.(ReduceAttrs).Dims}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			s := []ir.Sample{
				sample(ReduceAttrs{[]int{1}}, []int{4, 6}), sample(ReduceAttrs{[]int{0, 2}}, []int{2, 4, 2}),
				sample(ReduceAttrs{[]int{0}}, []int{6}),
				{In: []ir.Type{ir.T(dtype.I64, 2, 4)}, Attrs: ReduceAttrs{[]int{1}}},
			}
			for i := range s {
				s[i].Fill = r.fill
			}
			return s
		},
	})
}

func (r reduction) eval(op *ir.Op, x *ir.Array) *ir.Array {
	out, seen := ir.NewArray(op.Out[0].Type), make([]bool, op.Out[0].Type.Elems())
	fill(out, r.start)
	strides := ir.Strides(out.Type.Dims)
	for _, d := range op.Attrs.(ReduceAttrs).Dims {
		strides[d] = 0
	}
	each(x.Type.Dims, func(index []int, flat int) {
		switch to := dot(index, strides); {
		case !seen[to]:
			copyElem(out, to, x, flat)
			seen[to] = true
		case out.F != nil:
			out.F[to] = r.f(out.F[to], x.F[flat])
		default:
			out.I[to] = r.i(out.I[to], x.I[flat])
		}
	})
	return out
}

// extremeVJP divides the gradient evenly among the elements that attain the extreme, as torch.amax does.
func extremeVJP(b *ir.Builder, op *ir.Op, dy *ir.Value) *ir.Value {
	x, over := op.In[0], op.Attrs.(ReduceAttrs).Dims
	hit := Cast(b, Eq(b, x, Expand(b, op.Out[0], in(op, 0))), x.Type.DType)
	share := Div(b, dy, ReduceSum(b, hit, over...))
	return Mul(b, hit, Expand(b, share, in(op, 0)))
}

// prodVJP is dy times the product of the other elements: with no zero among them y/x, with one zero the
// product of the rest at that element only, with more zeros nothing.
func prodVJP(b *ir.Builder, op *ir.Op, dy *ir.Value) *ir.Value {
	x, over := op.In[0], op.Attrs.(ReduceAttrs).Dims
	zero, one := ScalarLike(b, x, 0), ScalarLike(b, x, 1)
	isZero := Eq(b, x, zero)
	rest := Where(b, isZero, one, x)
	count := Expand(b, ReduceSum(b, Cast(b, isZero, x.Type.DType), over...), in(op, 0))
	others := Div(b, Expand(b, ReduceProd(b, rest, over...), in(op, 0)), rest)
	lone := Eq(b, count, Cast(b, isZero, x.Type.DType)) // no zero but, perhaps, this one
	return Where(b, lone, Mul(b, Expand(b, dy, in(op, 0)), others), zero)
}

// someZeros puts a zero in most rows of a matrix, two in some.
func someZeros(r *rand.Rand, in []*ir.Array) {
	for _, a := range in {
		for range len(a.F) / 6 {
			a.F[r.IntN(len(a.F))] = 0
		}
	}
}

func defineArgmax() {
	ArgmaxDef.Define(ir.Rules{
		Attrs: ArgmaxAttrs{}, Operands: 1, NoGrad: "integer result",
		Doc: "index of the first greatest element along Dim, NaN counting as greatest",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			t, dim := op.In[0].Type, op.Attrs.(ArgmaxAttrs).Dim
			if err := needDim(dim, len(t.Dims)); err != nil {
				return nil, err
			}
			if t.Dims[dim] == 0 || !numeric(t.DType) {
				return wrong("operand 0 is %s, want numbers, dim %d not empty", t, dim)
			}
			return types(ir.T(dtype.I64, with(t.Dims, dim, 1)...))
		},
		Factors: func(op *ir.Op) factor.Rule {
			return partly(op, func(d int) bool { return d == op.Attrs.(ArgmaxAttrs).Dim })
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out, dim := ir.NewArray(op.Out[0].Type), op.Attrs.(ArgmaxAttrs).Dim
			strides, step := ir.Strides(in(op, 0)), ir.Strides(in(op, 0))[dim]
			each(out.Type.Dims, func(index []int, flat int) {
				base, best := dot(index, strides), 0
				for i := range in(op, 0)[dim] {
					if greater(x[0], base+i*step, base+best*step) {
						best = i
					}
				}
				out.I[flat] = int64(best)
			})
			return out
		}),
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			x, dim := op.In[0], op.Attrs.(ArgmaxAttrs).Dim
			hit := Eq(b, x, Expand(b, ReduceMax(b, x, dim), x.Type.Dims))
			if x.Type.DType.IsFloat() {
				hit = Or(b, hit, IsNaN(b, x))
			}
			at := Iota(b, dtype.I64, x.Type.Dims, dim)
			return []*ir.Value{ReduceMin(b, Where(b, hit, at, ScalarLike(b, at, float64(x.Type.Dims[dim]))), dim)}
		},
		Samples: samples(sample(ArgmaxAttrs{1}, []int{4, 6}), sample(ArgmaxAttrs{0}, []int{4, 2}),
			ir.Sample{In: []ir.Type{ir.T(dtype.I64, 4, 5)}, Attrs: ArgmaxAttrs{1}, Limit: 3}),
	})
}

func greater(x *ir.Array, i, j int) bool {
	if x.F == nil {
		return x.I[i] > x.I[j]
	}
	return x.F[i] > x.F[j] || math.IsNaN(x.F[i]) && !math.IsNaN(x.F[j])
}

func defineCumsum() {
	CumsumDef.Define(ir.Rules{
		Attrs: CumsumAttrs{}, Operands: 1, Precision: "keep",
		Doc: "running sum along Dim",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			t := op.In[0].Type
			if !numeric(t.DType) {
				return wrong("operand 0 is %s, want numbers", t.DType)
			}
			if err := needDim(op.Attrs.(CumsumAttrs).Dim, len(t.Dims)); err != nil {
				return nil, err
			}
			return types(t)
		},
		Factors: func(op *ir.Op) factor.Rule {
			r := factor.Pointwise(in(op, 0), 1, 1)
			r.Factors[op.Attrs.(CumsumAttrs).Dim].Kind = factor.Blocked
			return r
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			a := op.Attrs.(CumsumAttrs)
			a.Reverse = !a.Reverse
			return []*ir.Value{Cumsum(b, dy[0], a)}
		},
		Eval:      one(evalCumsum),
		Decompose: decomposeCumsum,
		Samples: samples(sample(CumsumAttrs{Dim: 1}, []int{2, 7}), sample(CumsumAttrs{Dim: 0, Exclusive: true}, []int{5, 2}),
			sample(CumsumAttrs{Dim: 0, Reverse: true}, []int{4, 2}), sample(CumsumAttrs{1, true, true}, []int{2, 6}),
			ir.Sample{In: []ir.Type{ir.T(dtype.I64, 6)}, Attrs: CumsumAttrs{}}),
	})
}

func evalCumsum(op *ir.Op, x []*ir.Array) *ir.Array {
	a, out := op.Attrs.(CumsumAttrs), ir.NewArray(op.Out[0].Type)
	n, step := in(op, 0)[a.Dim], ir.Strides(in(op, 0))[a.Dim]
	each(in(op, 0), func(index []int, flat int) {
		from, to := 0, index[a.Dim] // the range that is summed here
		if a.Reverse {
			from, to = index[a.Dim], n-1
		}
		for i := from; i <= to; i++ {
			if !a.Exclusive || i != index[a.Dim] {
				addElem(out, flat, x[0], flat+(i-index[a.Dim])*step)
			}
		}
	})
	return out
}

// decomposeCumsum adds the tensor to itself shifted by 1, 2, 4, … (Hillis and Steele 1986).
func decomposeCumsum(b *ir.Builder, op *ir.Op) []*ir.Value {
	a, y := op.Attrs.(CumsumAttrs), op.In[0]
	shift := func(y *ir.Value, by int) *ir.Value {
		low, high := make([]int, len(y.Type.Dims)), make([]int, len(y.Type.Dims))
		if low[a.Dim], high[a.Dim] = by, -by; a.Reverse {
			low, high = high, low
		}
		return Pad(b, y, low, high, nil, 0)
	}
	if a.Exclusive {
		y = shift(y, 1)
	}
	for by := 1; by < in(op, 0)[a.Dim]; by *= 2 {
		y = Add(b, y, shift(y, by))
	}
	return []*ir.Value{y}
}
