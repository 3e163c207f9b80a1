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

// reduction describes one of the four, of which package kir knows how elements combine, and the gradient.
type reduction struct {
	doc   string
	op    string // kir's and the collectives' name
	kind  factor.Kind
	vjp   func(b *ir.Builder, op *ir.Op, dy *ir.Value) *ir.Value
	fill  func(r *rand.Rand, in []*ir.Array)
	keep  string // the autocast rule
	facts ir.Facts
}

func init() {
	defineReduction(ReduceSumDef, reduction{doc: "sum", op: "sum", kind: factor.Sum, keep: "keep", facts: ir.Facts{Linear: linear([]int{0})},
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) *ir.Value { return Expand(b, dy, in(op, 0)) }})
	defineReduction(ReduceMaxDef, reduction{doc: "greatest element", op: "max", kind: factor.Max, facts: ir.Facts{Unseen: less},
		vjp: extremeVJP})
	defineReduction(ReduceMinDef, reduction{doc: "least element", op: "min", kind: factor.Min, facts: ir.Facts{Unseen: more},
		vjp: extremeVJP})
	defineReduction(ReduceProdDef, reduction{doc: "product", op: "prod", kind: factor.Prod, keep: "keep",
		vjp: prodVJP, fill: someZeros})
	defineArgmax()
}

func defineReduction(d *ir.Def, r reduction) {
	d.Define(ir.Rules{
		Attrs: ReduceAttrs{}, Operands: 1, Precision: r.keep, Facts: r.facts,
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
	for to := range seen {
		copyElem(out, to, OfNothing(out.Type.DType, r.op), 0)
	}
	strides := ir.Strides(out.Type.Dims)
	for _, d := range op.Attrs.(ReduceAttrs).Dims {
		strides[d] = 0
	}
	combine, d, f, i := kir.ReductionOf(r.op).Func(), out.Type.DType, make([]float64, 2), make([]int64, 2)
	each(x.Type.Dims, func(index []int, flat int) {
		switch to := dot(index, strides); {
		case !seen[to]:
			copyElem(out, to, x, flat)
			seen[to] = true
		case out.F != nil:
			f[0], f[1] = out.F[to], x.F[flat]
			out.F[to] = combine.Float(f)
		default:
			i[0], i[1] = out.I[to], x.I[flat]
			out.I[to] = d.Wrap(combine.Int(d, i))
		}
	})
	return out
}

// OfNothing is the scalar of type d that reduction op (sum, prod, max or min) of no elements gives: for max and min the
// end of the type from which every element is a step.
func OfNothing(d dtype.DType, op string) *ir.Array {
	t, n := ir.NewArray(ir.T(d)), kir.Identity(op, d)
	if t.F != nil {
		t.F[0] = n.F
	} else {
		t.I[0] = n.I
	}
	return t
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
		Facts: ir.Facts{Over: "ranks", Apart: always, Unseen: func(op *ir.Op) int {
			if op.Attrs.(ArgmaxAttrs).Least {
				return more(op)
			}
			return less(op)
		}},
		Doc: "index of the first (Last: last) greatest (Least: least) element along Dim, NaN winning over all",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			t, dim := op.In[0].Type, op.Attrs.(ArgmaxAttrs).Dim
			if err := needDim(dim, len(t.Dims)); err != nil {
				return nil, err
			}
			if t.Dims[dim] == 0 || !numeric(t.DType) {
				return wrong("operand 0 is %s, but must hold numbers, with a dim %d that is not empty", t, dim)
			}
			return types(ir.T(dtype.I64, with(t.Dims, dim, 1)...))
		},
		Factors: func(op *ir.Op) factor.Rule {
			return partly(op, func(d int) bool { return d == op.Attrs.(ArgmaxAttrs).Dim })
		},
		Eval:      one(evalArgmax),
		Decompose: decomposeArgmax,
		Samples: samples(sample(ArgmaxAttrs{Dim: 1}, []int{4, 6}), sample(ArgmaxAttrs{Dim: 0}, []int{4, 2}),
			ir.Sample{In: []ir.Type{ir.T(dtype.I64, 4, 5)}, Attrs: ArgmaxAttrs{Dim: 1}, Limit: 3},
			ir.Sample{In: []ir.Type{ir.T(dtype.I64, 4, 5)}, Attrs: ArgmaxAttrs{Dim: 1, Last: true}, Limit: 3},
			ir.Sample{In: []ir.Type{ir.T(dtype.I32, 4, 5)}, Attrs: ArgmaxAttrs{Dim: 0, Least: true}, Limit: 3},
			ir.Sample{In: []ir.Type{ir.T(dtype.I64, 4, 5)}, Attrs: ArgmaxAttrs{Dim: 1, Last: true, Least: true}, Limit: 3}),
	})
}

func evalArgmax(op *ir.Op, x []*ir.Array) *ir.Array {
	out, a := ir.NewArray(op.Out[0].Type), op.Attrs.(ArgmaxAttrs)
	strides, step := ir.Strides(in(op, 0)), ir.Strides(in(op, 0))[a.Dim]
	each(out.Type.Dims, func(index []int, flat int) {
		base, best := dot(index, strides), 0
		for i := range in(op, 0)[a.Dim] {
			p, q := base+i*step, base+best*step
			c := compareElems(x[0], p, q)
			if a.Least && (x[0].F == nil || !math.IsNaN(x[0].F[p]) && !math.IsNaN(x[0].F[q])) {
				c = -c
			}
			if c > 0 || c == 0 && a.Last {
				best = i
			}
		}
		out.I[flat] = int64(best)
	})
	return out
}

func decomposeArgmax(b *ir.Builder, op *ir.Op) []*ir.Value {
	x, a := op.In[0], op.Attrs.(ArgmaxAttrs)
	extreme := ReduceMax
	if a.Least {
		extreme = ReduceMin
	}
	hit := Eq(b, x, Expand(b, extreme(b, x, a.Dim), x.Type.Dims))
	if x.Type.DType.IsFloat() {
		hit = Or(b, hit, IsNaN(b, x))
	}
	at := Iota(b, dtype.I64, x.Type.Dims, a.Dim)
	if a.Last {
		return []*ir.Value{ReduceMax(b, Where(b, hit, at, ScalarLike(b, at, -1)), a.Dim)}
	}
	return []*ir.Value{ReduceMin(b, Where(b, hit, at, ScalarLike(b, at, float64(x.Type.Dims[a.Dim]))), a.Dim)}
}
