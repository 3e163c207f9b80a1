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
	defineScatter()
	defineScatterElements()
}

// join combines an update with what is there.
func join(kind string, out *ir.Array, i int, upd *ir.Array, j int) {
	if out.F != nil {
		out.F[i] = joined(kind, out.F[i], upd.F[j], math.IsNaN(upd.F[j]) || upd.F[j] > out.F[i], math.IsNaN(upd.F[j]) || upd.F[j] < out.F[i])
		return
	}
	x, y := out.I[i], upd.I[j]
	more, less := y > x, y < x
	if out.Type.DType == dtype.U64 {
		more, less = uint64(y) > uint64(x), uint64(y) < uint64(x)
	}
	out.I[i] = out.Type.DType.Wrap(joined(kind, x, y, more, less))
}

func joined[T int64 | float64](kind string, x, y T, more, less bool) T {
	switch kind {
	case "add":
		return x + y
	case "mul":
		return x * y
	case "max":
		if !more {
			return x
		}
	case "min":
		if !less {
			return x
		}
	}
	return y
}

// scatterParts are the operands of a gradient rule; gather reads rows at the op's indices and add sums updates there.
type scatterParts struct {
	b           *ir.Builder
	x, upd, out *ir.Value
	dy          *ir.Value
	gather      func(v *ir.Value) *ir.Value
	scatter     func(x, upd *ir.Value, kind string) *ir.Value
}

// grads gives the gradients of data and updates.
func (p scatterParts) grads(kind string) (dx, du *ir.Value) {
	switch kind {
	case "", "same":
		return p.scatter(p.dy, Zeros(p.b, p.upd.Type), kind), p.gather(p.dy)
	case "add":
		return p.dy, p.gather(p.dy)
	case "mul":
		return p.productGrads()
	}
	return p.extremeGrads()
}

// extremeGrads divides the gradient among all that equal the result, as PyTorch's scatter_reduce does.
func (p scatterParts) extremeGrads() (dx, du *ir.Value) {
	b := p.b
	kept := Cast(b, Eq(b, p.x, p.out), p.x.Type.DType)
	won := Cast(b, Eq(b, p.upd, p.gather(p.out)), p.x.Type.DType)
	share := Div(b, p.dy, p.scatter(kept, won, "add"))
	return Mul(b, kept, share), Mul(b, won, p.gather(share))
}

// productGrads multiply dy with the product of the others: zeros are counted rather than divided by.
func (p scatterParts) productGrads() (dx, du *ir.Value) {
	b := p.b
	zeroX, zeroU := Eq(b, p.x, ScalarLike(b, p.x, 0)), Eq(b, p.upd, ScalarLike(b, p.upd, 0))
	safeX, safeU := Where(b, zeroX, ScalarLike(b, p.x, 1), p.x), Where(b, zeroU, ScalarLike(b, p.upd, 1), p.upd)
	whole := p.scatter(safeX, safeU, "mul") // the product of all that are not zero
	count := p.scatter(Cast(b, zeroX, p.x.Type.DType), Cast(b, zeroU, p.x.Type.DType), "add")
	part := func(zero, safe, count, whole, dy *ir.Value) *ir.Value {
		alone := Eq(b, count, Cast(b, zero, safe.Type.DType)) // no zero but, perhaps, this one
		return Where(b, alone, Mul(b, dy, Div(b, whole, safe)), ScalarLike(b, safe, 0))
	}
	return part(zeroX, safeX, count, whole, p.dy), part(zeroU, safeU, p.gather(count), p.gather(whole), p.gather(p.dy))
}

// half reports whether d is a float type of 16 bits or fewer, whose arithmetic templates leave to f32.
func half(d dtype.DType) bool { return d.IsFloat() && d.Size() < 4 }

func defineScatter() {
	ScatterDef.Define(ir.Rules{
		Attrs: ScatterAttrs{}, Operands: 3, Infer: inferScatter, Precision: "keep",
		Doc: "operand 0 with rows at the indices of operand 1 replaced by, or combined with, operand 2",
		Factors: func(op *ir.Op) factor.Rule {
			var m ruleMaker
			x, idx := in(op, 0), in(op, 1)
			table := []factor.Dim{m.add("v", x[0], factor.Blocked)}
			at, rest := m.addAll("i", idx, factor.Blocked), m.addAll("z", x[1:], factor.Free)
			table = append(table, rest...)
			return m.rule([][]factor.Dim{table, at, slices.Concat(at, rest)}, table)
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			idx := op.In[1]
			p := scatterParts{b: b, x: op.In[0], upd: op.In[2], out: op.Out[0], dy: dy[0]}
			p.gather = func(v *ir.Value) *ir.Value { return Gather(b, v, idx, 0) }
			p.scatter = func(x, upd *ir.Value, kind string) *ir.Value { return Scatter(b, x, idx, upd, kind) }
			dx, du := p.grads(op.Attrs.(ScatterAttrs).Reduce)
			return []*ir.Value{dx, nil, du}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out, kind := ir.NewArray(op.Out[0].Type), op.Attrs.(ScatterAttrs).Reduce
			_, size, width := rowForm(in(op, 0), 0)
			copyAll(out, x[0])
			for i, at := range x[1].I {
				if p := position(at, size); p >= 0 {
					for w := range width {
						join(kind, out, p*width+w, x[2], i*width+w)
					}
				}
			}
			return out
		}),
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			d, kind := op.In[0].Type.DType, op.Attrs.(ScatterAttrs).Reduce
			x, upd := op.In[0], op.In[2]
			if !replaces(kind) && half(d) {
				x, upd = Cast(b, x, dtype.F32), Cast(b, upd, dtype.F32)
			}
			return []*ir.Value{Cast(b, Scatter(b, x, Cast(b, op.In[1], dtype.I64), upd, kind), d)}
		},
		Impl: func(op *ir.Op) kir.Impl {
			kind, d := op.Attrs.(ScatterAttrs).Reduce, op.In[0].Type.DType
			code := elemCode(d)
			if replaces(kind) {
				code = bitsCode(d)
			}
			if op.In[1].Type.DType != dtype.I64 || !replaces(kind) && half(d) || code == 0 {
				return kir.Impl{}
			}
			_, size, width := rowForm(in(op, 0), 0)
			return kir.Impl{Kind: kir.Template, Template: "ScatterRows", Status: true, InPlace: 1,
				Ints: []int{size, width, op.In[1].Type.Elems(), code, scatterHow(kind)}}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			var out []ir.Sample
			for _, kind := range []string{"", "add", "mul", "max", "min", "same"} {
				s := indexed(sample(ScatterAttrs{kind}, []int{6, 4}, []int{2, 2}, []int{2, 2, 4}), 1, 6)
				s.Fill = scatterFill(kind, 6)
				i := ir.Sample{In: []ir.Type{ir.T(dtype.I64, 5), ir.T(dtype.I32, 3), ir.T(dtype.I64, 3)}, Attrs: ScatterAttrs{kind}, Limit: 5}
				h := of(dtype.BF16, sample(ScatterAttrs{kind}, []int{6, 4}, []int{3}, []int{3, 4}))
				h.In[1], h.Fill = ir.T(dtype.I32, 3), s.Fill
				out = append(out, s, i, h)
			}
			return out
		},
	})
}

// scatterFill makes operands that are off kinks: distinct indices where updates replace, distinct values for maxima and
// minima, some zeros in products. Indices are operand 1, below limit, some counted from the end.
func scatterFill(kind string, limit int) func(r *rand.Rand, in []*ir.Array) {
	return func(r *rand.Rand, in []*ir.Array) {
		switch kind {
		case "", "same":
			for i, p := range r.Perm(limit)[:len(in[1].I)] {
				in[1].I[i] = int64(p)
			}
		case "max", "min":
			n := len(in[0].F)
			for i, p := range r.Perm(n + len(in[2].F)) {
				if v := 0.1*float64(p) - 1; i < n {
					in[0].F[i] = v
				} else {
					in[2].F[i-n] = v
				}
			}
		case "mul":
			someZeros(r, []*ir.Array{in[0], in[2]})
		}
		in[1].I[0] -= int64(limit)
	}
}

// copyAll sets dst to src.
func copyAll(dst, src *ir.Array) {
	copy(dst.F, src.F)
	copy(dst.I, src.I)
}

func defineScatterElements() {
	ScatterElementsDef.Define(ir.Rules{
		Attrs: ScatterElementsAttrs{}, Operands: 3, Infer: inferScatterElements, Precision: "keep",
		Doc: "torch.scatter: operand 0 with elements at the indices of operand 1 along Dim replaced by, or combined with, operand 2",
		Factors: func(op *ir.Op) factor.Rule {
			var m ruleMaker
			table, idx := elementsRule(&m, in(op, 0), in(op, 1), op.Attrs.(ScatterElementsAttrs).Dim, factor.Blocked, factor.Blocked)
			return m.rule([][]factor.Dim{table, idx, idx}, table)
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			idx, a := op.In[1], op.Attrs.(ScatterElementsAttrs)
			p := scatterParts{b: b, x: op.In[0], upd: op.In[2], out: op.Out[0], dy: dy[0]}
			p.gather = func(v *ir.Value) *ir.Value { return GatherElements(b, v, idx, a.Dim) }
			p.scatter = func(x, upd *ir.Value, kind string) *ir.Value { return ScatterElements(b, x, idx, upd, a.Dim, kind) }
			dx, du := p.grads(a.Reduce)
			return []*ir.Value{dx, nil, du}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out, a := ir.NewArray(op.Out[0].Type), op.Attrs.(ScatterElementsAttrs)
			copyAll(out, x[0])
			elementAt(x[1], in(op, 0), a.Dim, func(flat, at int) { join(a.Reduce, out, at, x[2], flat) })
			return out
		}),
		Decompose: func(b *ir.Builder, op *ir.Op) []*ir.Value {
			a, x, upd := op.Attrs.(ScatterElementsAttrs), op.In[0], op.In[2]
			at := flatIndex(b, op.In[1], x.Type.Dims, a.Dim)
			y := Scatter(b, Reshape(b, x, []int{x.Type.Elems()}), at, Reshape(b, upd, []int{upd.Type.Elems()}), a.Reduce)
			return []*ir.Value{Reshape(b, y, x.Type.Dims)}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			var out []ir.Sample
			for _, kind := range []string{"", "add", "mul", "max", "min"} {
				s := indexed(sample(ScatterElementsAttrs{1, kind}, []int{4, 6}, []int{4, 2}, []int{4, 2}), 1, 6)
				s.Fill = scatterFill(kind, 6)
				if kind == "" {
					s.Fill = func(r *rand.Rand, in []*ir.Array) { // distinct within each row
						for i := range in[1].I {
							in[1].I[i] = int64(i%2*3 + r.IntN(3) - 6*(i%2))
						}
					}
				}
				out = append(out, s)
			}
			return append(out,
				ir.Sample{In: []ir.Type{ir.T(dtype.I32, 4, 3, 2), ir.T(dtype.I32, 2, 3, 2), ir.T(dtype.I32, 2, 3, 2)},
					Attrs: ScatterElementsAttrs{0, "max"}, Limit: 4})
		},
	})
}
