package ops

import (
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	MaxPoolDef.Define(ir.Rules{
		Attrs: MaxPoolAttrs{}, Operands: 1, Precision: "own", Infer: inferPool, Factors: poolRule, Impl: poolImpl, Decompose: inF32,
		Eval: evalMaxPool,
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			a := op.Attrs.(MaxPoolAttrs).InputGrad(op.In[0].Type.Dims[2:])
			return []*ir.Value{MaxPoolGrad(b, dy[0], op.Out[1], a)}
		},
		Samples: func(*rand.Rand) []ir.Sample { return maxPoolSamples(false) },
		Doc:     "largest element of each window, and its place in the plane",
	})
	MaxPoolGradDef.Define(ir.Rules{
		Attrs: MaxPoolGradAttrs{}, Operands: 2, Precision: "own", Infer: inferPool, Factors: poolRule, Impl: poolImpl, Decompose: inF32,
		Eval: evalMaxPoolGrad,
		VJP: func(b *ir.Builder, op *ir.Op, dx []*ir.Value) []*ir.Value {
			t, idx := dx[0].Type, op.In[1]
			planes := []int{t.Dims[0], t.Dims[1]}
			all := Reshape(b, dx[0], append(planes, ir.Product(t.Dims[2:])))
			at := Reshape(b, idx, append(planes, ir.Product(idx.Type.Dims[2:])))
			return []*ir.Value{Reshape(b, GatherElements(b, all, at, 2), idx.Type.Dims), nil}
		},
		Samples: func(*rand.Rand) []ir.Sample { return maxPoolSamples(true) },
		Doc:     "gradient of max_pool: dy added at the places of the maxima",
	})
	AvgPoolDef.Define(ir.Rules{
		Attrs: AvgPoolAttrs{}, Operands: 1, Precision: "own", Infer: inferPool, Factors: poolRule, Impl: poolImpl, Decompose: inF32,
		Eval: evalAvgPool,
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			return []*ir.Value{AvgPoolGrad(b, dy[0], op.Attrs.(AvgPoolAttrs).InputGrad(op.In[0].Type.Dims[2:]))}
		},
		Samples: func(*rand.Rand) []ir.Sample { return avgPoolSamples(false) },
		Doc:     "mean of each window",
	})
	AvgPoolGradDef.Define(ir.Rules{
		Attrs: AvgPoolGradAttrs{}, Operands: 1, Precision: "own", Infer: inferPool, Factors: poolRule, Impl: poolImpl, Decompose: inF32,
		Eval: evalAvgPool,
		VJP: func(b *ir.Builder, op *ir.Op, dx []*ir.Value) []*ir.Value {
			return []*ir.Value{AvgPool(b, dx[0], op.Attrs.(AvgPoolGradAttrs).Pool())}
		},
		Samples: func(*rand.Rand) []ir.Sample { return avgPoolSamples(true) },
		Doc:     "gradient of avg_pool: dy spread over the windows",
	})
}

// eachWindow calls f for every output position of every plane with the flat positions in the plane of the
// elements that its window covers, in order.
func (a MaxPoolAttrs) eachWindow(x, y []int, f func(plane, out int, window []int)) {
	sx, perPlane := ir.Strides(x[2:]), ir.Product(y[2:])
	var window []int
	each(y, func(iy []int, flat int) {
		window = window[:0]
		each(a.Kernel, func(ik []int, _ int) {
			at := 0
			for i, s := range sx {
				p := iy[i+2]*a.Strides[i] - a.Pads[i] + ik[i]*a.Dilations[i]
				if p < 0 || p >= x[i+2] {
					return
				}
				at += p * s
			}
			window = append(window, at)
		})
		f(flat/perPlane, flat, window)
	})
}

func evalMaxPool(op *ir.Op, in []*ir.Array) []*ir.Array {
	a, x, y, _ := poolOf(op)
	out, idx := ir.NewArray(op.Out[0].Type), ir.NewArray(op.Out[1].Type)
	size := ir.Product(x[2:])
	a.eachWindow(x, y, func(plane, o int, window []int) {
		from := int64(-1)
		for _, p := range window {
			if at := plane*size + p; from < 0 || compareElems(in[0], at, plane*size+int(from)) > 0 {
				from = int64(p)
			}
		}
		if idx.I[o] = from; from >= 0 {
			copyElem(out, o, in[0], plane*size+int(from))
		}
	})
	return []*ir.Array{out, idx}
}

func evalMaxPoolGrad(op *ir.Op, in []*ir.Array) []*ir.Array {
	_, x, y, _ := poolOf(op)
	out := ir.NewArray(op.Out[0].Type)
	for o, at := range in[1].I {
		if plane := o / ir.Product(y[2:]); at >= 0 {
			out.F[plane*ir.Product(x[2:])+int(at)] += in[0].F[o]
		}
	}
	return []*ir.Array{out}
}

// evalAvgPool evaluates the mean and, for the grad def, its adjoint.
func evalAvgPool(op *ir.Op, in []*ir.Array) []*ir.Array {
	g, x, y, _ := poolOf(op)
	var a AvgPoolAttrs
	grad := op.Def == AvgPoolGradDef
	if grad {
		a = op.Attrs.(AvgPoolGradAttrs).Pool()
	} else {
		a = op.Attrs.(AvgPoolAttrs)
	}
	out, size := ir.NewArray(op.Out[0].Type), ir.Product(x[2:])
	g.eachWindow(x, y, func(plane, o int, window []int) {
		n := float64(len(window))
		switch a.divisor() {
		case 1:
			n = a.paddedSize(x, y, o)
		case 2:
			n = 1
		}
		for _, p := range window {
			if at := plane*size + p; grad {
				out.F[at] += in[0].F[o] / n
			} else {
				out.F[o] += in[0].F[at] / n
			}
		}
	})
	return []*ir.Array{out}
}

// paddedSize counts the positions of output o's window in the padded input: what ceil mode adds beyond it
// does not count (as PyTorch).
func (a AvgPoolAttrs) paddedSize(x, y []int, o int) float64 {
	n := 1
	for i := len(a.Kernel) - 1; i >= 0; i-- {
		start := o%y[i+2]*a.Strides[i] - a.Pads[i]
		room := (x[i+2]+a.Pads[len(a.Kernel)+i]-1-start)/a.Dilations[i] + 1
		n *= min(a.Kernel[i], room)
		o /= y[i+2]
	}
	return float64(n)
}

func maxPoolSamples(grad bool) []ir.Sample {
	var out []ir.Sample
	add := func(a MaxPoolAttrs, x ...int) {
		a = a.filled()
		y, err := a.poolOut(x[2:])
		if err != nil {
			panic("BUG: " + err.Error())
		}
		if !grad {
			out = append(out, ir.Sample{In: []ir.Type{ir.T(dtype.F32, x...)}, Attrs: a, Fill: distinct})
			return
		}
		dims := append([]int{x[0], x[1]}, y...)
		out = append(out, ir.Sample{
			In: []ir.Type{ir.T(dtype.F32, dims...), ir.T(dtype.I32, dims...)}, Attrs: a.InputGrad(x[2:]), Limit: ir.Product(x[2:]),
			Fill: func(_ *rand.Rand, in []*ir.Array) { a.spread(x, dims, in[1].I) },
		})
	}
	add(MaxPoolAttrs{Kernel: []int{2, 2}, Strides: []int{2, 2}}, 2, 2, 4, 6)
	add(MaxPoolAttrs{Kernel: []int{3, 2}, Strides: []int{2, 1}, Pads: []int{1, 0, 1, 1}, Dilations: []int{1, 2}}, 2, 2, 5, 4)
	add(MaxPoolAttrs{Kernel: []int{3}, Strides: []int{2}, CeilMode: true}, 2, 4, 6)
	add(MaxPoolAttrs{Kernel: []int{2, 3, 2}, Strides: []int{2, 1, 2}, Pads: []int{1, 0, 1, 0, 1, 0}, Dilations: []int{1, 1, 2}}, 2, 1, 5, 4, 6)
	if !grad {
		out = append(out, ir.Sample{In: []ir.Type{ir.T(dtype.U8, 2, 1, 4, 5)}, Attrs: MaxPoolAttrs{Kernel: []int{2, 2}}.filled()},
			ir.Sample{In: []ir.Type{ir.T(dtype.F64, 2, 1, 4, 5)}, Attrs: MaxPoolAttrs{Kernel: []int{2, 2}}.filled(), Fill: distinct})
	}
	return out
}

// spread fills idx with a position of each window, not always the first.
func (a MaxPoolAttrs) spread(x, y []int, idx []int64) {
	a.eachWindow(x, y, func(_, o int, window []int) { idx[o] = int64(window[o%len(window)]) })
}

// distinct makes floats that are at least 0.1 apart, so that a small step changes no maximum.
func distinct(r *rand.Rand, in []*ir.Array) {
	for _, a := range in {
		for i, p := range r.Perm(len(a.F)) {
			a.F[i] = 0.1*float64(p) - 0.05*float64(len(a.F))
		}
	}
}

func avgPoolSamples(grad bool) []ir.Sample {
	var out []ir.Sample
	add := func(a AvgPoolAttrs, x ...int) {
		a = a.filled()
		y, err := a.asMax().poolOut(x[2:])
		if err != nil {
			panic("BUG: " + err.Error())
		}
		if grad {
			dims := append([]int{x[0], x[1]}, y...)
			out = append(out, ir.Sample{In: []ir.Type{ir.T(dtype.F32, dims...)}, Attrs: a.InputGrad(x[2:])})
		} else {
			out = append(out, ir.Sample{In: []ir.Type{ir.T(dtype.F32, x...)}, Attrs: a})
		}
	}
	add(AvgPoolAttrs{Kernel: []int{2, 2}, Strides: []int{2, 2}}, 2, 2, 4, 4)
	add(AvgPoolAttrs{Kernel: []int{3, 3}, Strides: []int{2, 2}, Pads: []int{1, 1, 1, 1}}, 2, 2, 5, 4)
	add(AvgPoolAttrs{Kernel: []int{3, 2}, Strides: []int{2, 2}, Pads: []int{1, 0, 1, 1}, CeilMode: true, IncludePad: true}, 2, 2, 4, 6)
	add(AvgPoolAttrs{Kernel: []int{3}, Strides: []int{2}, CeilMode: true, IncludePad: true}, 2, 2, 6)
	add(AvgPoolAttrs{Kernel: []int{2, 3}, Pads: []int{1, 2, 1, 2}, Dilations: []int{2, 2}, IncludePad: true}, 2, 2, 4, 6)
	add(AvgPoolAttrs{Kernel: []int{2, 3}, Strides: []int{1, 2}, Pads: []int{1, 1, 0, 1}, Sum: true}, 2, 2, 4, 6)
	for _, a := range []AvgPoolAttrs{{}, {IncludePad: true, CeilMode: true}, {Sum: true}} {
		a.Kernel, a.Strides, a.Pads, a.Dilations = []int{2, 3, 2}, []int{2, 1, 2}, []int{0, 1, 1, 1, 1, 1}, []int{1, 1, 2}
		add(a, 2, 1, 4, 3, 6)
	}
	for _, d := range []dtype.DType{dtype.F64, dtype.F16} {
		out = append(out, of(d, ir.Sample{In: slices.Clone(out[0].In), Attrs: out[0].Attrs}))
	}
	return out
}
