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

func init() {
	defineTopK()
	defineCumsum()
	defineCumprod()
}

func defineTopK() {
	TopKDef.Define(ir.Rules{
		Attrs: TopKAttrs{}, Operands: 1, Precision: "own", Infer: inferTopK, Facts: ir.Facts{Over: "ranks"},
		Doc: "the K greatest or least elements along Dim, best first, and their positions",
		Factors: func(op *ir.Op) factor.Rule {
			var m ruleMaker
			dim := op.Attrs.(TopKAttrs).Dim
			x := m.addAll("a", in(op, 0), factor.Free)
			if f := x[dim]; f != nil {
				m.factors[f[0]].Kind = factor.Blocked
			}
			out := slices.Clone(x)
			out[dim] = m.add("k", op.Attrs.(TopKAttrs).K, factor.Blocked)
			return m.rule([][]factor.Dim{x}, out, out)
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			return []*ir.Value{ScatterElementsAdd(b, op.Out[1], dy[0], op.Attrs.(TopKAttrs).Dim, in(op, 0))}
		},
		Eval:      evalTopK,
		Decompose: inF32,
		Impl: func(op *ir.Op) kir.Impl {
			a, code := op.Attrs.(TopKAttrs), elemCode(op.In[0].Type.DType)
			if code == 0 {
				return kir.Impl{}
			}
			outer, n, inner := rowForm(in(op, 0), a.Dim)
			return kir.Impl{Kind: kir.Template, Template: "TopK", Ints: []int{outer, n, inner, a.K, int(b2i(a.Largest)), code}}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			ties := func(d dtype.DType) ir.Sample {
				return ir.Sample{In: []ir.Type{ir.T(d, 4, 7)}, Attrs: TopKAttrs{1, 5, true}, Limit: 3}
			}
			s := samples(sample(TopKAttrs{1, 3, true}, []int{4, 16}), sample(TopKAttrs{0, 2, false}, []int{5, 2, 2}),
				sample(TopKAttrs{1, 6, false}, []int{2, 6, 2}))(nil)
			for i := range s {
				s[i].Fill = distinct
			}
			for _, d := range []dtype.DType{dtype.F16, dtype.BF16, dtype.F64} {
				s = append(s, ir.Sample{In: []ir.Type{ir.T(d, 2, 9)}, Attrs: TopKAttrs{1, 9, d == dtype.F16}, Fill: eighths})
			}
			return append(s, ties(dtype.I64), ties(dtype.U8), ties(dtype.I32))
		},
	})
}

// eighths makes distinct floats of either sign that every type holds exactly.
func eighths(r *rand.Rand, in []*ir.Array) {
	for i, p := range r.Perm(len(in[0].F)) {
		in[0].F[i] = float64(p)/8 - 1
	}
}

func evalTopK(op *ir.Op, x []*ir.Array) []*ir.Array {
	a, out := op.Attrs.(TopKAttrs), arrays(op)
	_, n, inner := rowForm(in(op, 0), a.Dim)
	at := make([]int, n)
	for lane := range ir.Product(in(op, 0)) / max(n, 1) {
		o, w := lane/inner, lane%inner
		place := func(i int) int { return (o*n+i)*inner + w }
		for i := range at {
			at[i] = i
		}
		slices.SortStableFunc(at, func(i, j int) int {
			c := compareElems(x[0], place(i), place(j))
			if a.Largest {
				return -c
			}
			return c
		})
		for k, i := range at[:a.K] {
			to := (o*a.K+k)*inner + w
			copyElem(out[0], to, x[0], place(i))
			out[1].I[to] = int64(i)
		}
	}
	return out
}

// compareElems orders elements i and j of x: -1, 0 or 1. NaN is greater than every number.
func compareElems(x *ir.Array, i, j int) int {
	less := func(i, j int) bool {
		switch {
		case x.F != nil:
			return x.F[i] < x.F[j] || math.IsNaN(x.F[j]) && !math.IsNaN(x.F[i])
		case x.Type.DType == dtype.U64:
			return uint64(x.I[i]) < uint64(x.I[j])
		}
		return x.I[i] < x.I[j]
	}
	return int(b2i(less(j, i)) - b2i(less(i, j)))
}

// scanFactors: lanes are independent.
func scanFactors(op *ir.Op) factor.Rule {
	r := factor.Pointwise(in(op, 0), 1, 1)
	r.Factors[op.Attrs.(CumsumAttrs).Dim].Kind = factor.Blocked
	return r
}

// scanImpl calls Scan. Types of 16 bits go through f32.
func scanImpl(product bool) func(op *ir.Op) kir.Impl {
	return func(op *ir.Op) kir.Impl {
		a, d := op.Attrs.(CumsumAttrs), op.In[0].Type.DType
		if half(d) || elemCode(d) == 0 {
			return kir.Impl{}
		}
		outer, n, inner := rowForm(in(op, 0), a.Dim)
		return kir.Impl{Kind: kir.Template, Template: "Scan",
			Ints: []int{outer, n, inner, elemCode(d), int(b2i(product)), int(b2i(a.Exclusive)), int(b2i(a.Reverse))}}
	}
}

// evalScan combines elements along the dim by f or g.
func evalScan(f func(x, y float64) float64, g func(x, y int64) int64, start float64) func(op *ir.Op, x []*ir.Array) *ir.Array {
	return func(op *ir.Op, x []*ir.Array) *ir.Array {
		a, out := op.Attrs.(CumsumAttrs), ir.NewArray(op.Out[0].Type)
		_, n, inner := rowForm(in(op, 0), a.Dim)
		for lane := range ir.Product(in(op, 0)) / max(n, 1) {
			sum, total := start, int64(start)
			for i := range n {
				if a.Reverse {
					i = n - 1 - i
				}
				at := (lane/inner*n+i)*inner + lane%inner
				before, so := sum, total
				if out.F != nil {
					sum = f(sum, x[0].F[at])
					if out.F[at] = sum; a.Exclusive {
						out.F[at] = before
					}
					continue
				}
				total = out.Type.DType.Wrap(g(total, x[0].I[at]))
				if out.I[at] = total; a.Exclusive {
					out.I[at] = so
				}
			}
		}
		return out
	}
}

var scanSamples = samples(sample(CumsumAttrs{Dim: 1}, []int{2, 7}), sample(CumsumAttrs{Dim: 0, Exclusive: true}, []int{5, 2}),
	sample(CumsumAttrs{Dim: 0, Reverse: true}, []int{4, 2}), sample(CumsumAttrs{1, true, true}, []int{2, 6}),
	ir.Sample{In: []ir.Type{ir.T(dtype.I64, 6)}, Attrs: CumsumAttrs{}}, ir.Sample{In: []ir.Type{ir.T(dtype.I8, 3, 6, 2)}, Attrs: CumsumAttrs{Dim: 1}},
	ir.Sample{In: []ir.Type{ir.T(dtype.F64, 3, 6)}, Attrs: CumsumAttrs{Dim: 1}},
	ir.Sample{In: []ir.Type{ir.T(dtype.F16, 3, 6)}, Attrs: CumsumAttrs{Dim: 1}})

func defineCumsum() {
	CumsumDef.Define(ir.Rules{
		Attrs: CumsumAttrs{}, Operands: 1, Precision: "keep", Infer: inferScan, Factors: scanFactors,
		Doc: "running sum along Dim",
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			a := op.Attrs.(CumsumAttrs)
			a.Reverse = !a.Reverse
			return []*ir.Value{Cumsum(b, dy[0], a)}
		},
		Eval:      one(evalScan(func(x, y float64) float64 { return x + y }, func(x, y int64) int64 { return x + y }, 0)),
		Decompose: inF32, Impl: scanImpl(false), Samples: scanSamples,
	})
}

func defineCumprod() {
	CumprodDef.Define(ir.Rules{
		Attrs: CumsumAttrs{}, Operands: 1, Precision: "keep", Infer: inferScan, Factors: scanFactors,
		Doc:       "running product along Dim",
		VJP:       cumprodVJP,
		Eval:      one(evalScan(func(x, y float64) float64 { return x * y }, func(x, y int64) int64 { return x * y }, 1)),
		Decompose: inF32, Impl: scanImpl(true),
		Samples: func(r *rand.Rand) []ir.Sample {
			s := scanSamples(r)
			for i := range s {
				s[i].Fill = someZeros
			}
			return s
		},
	})
}

// cumprodVJP is the sum, over the products that an element is in, of dy times the product of the others. Before the
// first zero of a lane that is the product divided by the element. At the first zero it is what the products would be
// without it. After it every product has that zero.
func cumprodVJP(b *ir.Builder, op *ir.Op, dys []*ir.Value) []*ir.Value {
	a, x, dy := op.Attrs.(CumsumAttrs), op.In[0], dys[0]
	zero, one := ScalarLike(b, x, 0), ScalarLike(b, x, 1)
	isZero := Eq(b, x, zero)
	seen := Cumsum(b, Where(b, isZero, one, zero), CumsumAttrs{Dim: a.Dim, Reverse: a.Reverse})
	first := And(b, isZero, Eq(b, seen, one))
	adjoint := CumsumAttrs{Dim: a.Dim, Exclusive: a.Exclusive, Reverse: !a.Reverse}
	early := Div(b, Cumsum(b, Mul(b, dy, op.Out[0]), adjoint), Where(b, isZero, one, x))
	others := Cumsum(b, Mul(b, dy, Cumprod(b, Where(b, first, one, x), a)), adjoint)
	return []*ir.Value{Where(b, first, others, Where(b, Eq(b, seen, zero), early, zero))}
}
