package ops

import (
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	ConvDef.Define(ir.Rules{
		Attrs: ConvAttrs{}, Operands: 2, Optional: 1, Factors: convRule, Resize: convResize, Precision: "low", Impl: convImpl, Decompose: convParts,
		Facts: ir.Facts{Linear: bilinear, Bias: func(*ir.Op) int { return 1 }},
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			_, d, err := convOf(op)
			return []ir.Type{ir.T(op.In[0].Type.DType, d.y...)}, err
		},
		Eval: convEval(func(r convRow) {
			w := *r.w
			for q := range r.y {
				r.y[q] += r.x[q*r.stride] * w
			}
		}),
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			a, x, w := op.Attrs.(ConvAttrs), op.In[0], op.In[1]
			grads := []*ir.Value{
				ConvInputGrad(b, dy[0], w, a.InputGrad(x.Type.Dims[2:])),
				ConvWeightGrad(b, x, dy[0], a.WeightGrad(w.Type.Dims[2:])),
				nil,
			}
			if bias := operand(op, 2); bias != nil {
				grads[2] = Reshape(b, ReduceSum(b, dy[0], batchDims(dy[0])...), bias.Type.Dims)
			}
			return grads[:len(op.In)]
		},
		Samples: func(*rand.Rand) []ir.Sample { return convSamples(ConvDef) },
		Doc:     "convolution of x[N,C,...] with w[O,C/g,...], plus an optional bias[O]",
	})
	ConvInputGradDef.Define(ir.Rules{
		Attrs: ConvInputGradAttrs{}, Operands: 2, Factors: convRule, Resize: convResize, Precision: "low", Impl: convImpl, Decompose: convParts,
		Facts: ir.Facts{Linear: bilinear},
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			_, d, err := convOf(op)
			return []ir.Type{ir.T(op.In[0].Type.DType, d.x...)}, err
		},
		Eval: convEval(func(r convRow) {
			w := *r.w
			for q, y := range r.y {
				r.x[q*r.stride] += y * w
			}
		}),
		VJP: func(b *ir.Builder, op *ir.Op, dx []*ir.Value) []*ir.Value {
			a, dy, w := op.Attrs.(ConvInputGradAttrs).Conv(), op.In[0], op.In[1]
			return []*ir.Value{Conv(b, dx[0], w, a), ConvWeightGrad(b, dx[0], dy, a.WeightGrad(w.Type.Dims[2:]))}
		},
		Samples: func(*rand.Rand) []ir.Sample { return convSamples(ConvInputGradDef) },
		Doc:     "transposed convolution: the gradient of conv in x, from dy and w",
	})
	ConvWeightGradDef.Define(ir.Rules{
		Attrs: ConvWeightGradAttrs{}, Operands: 2, Factors: convRule, Resize: convResize, Precision: "low", Impl: convImpl, Decompose: convParts,
		Facts: ir.Facts{Linear: bilinear, Out: func(op *ir.Op, d dtype.DType) any {
			a := op.Attrs.(ConvWeightGradAttrs)
			a.Out = d
			return a
		}},
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			_, d, err := convOf(op)
			if err != nil {
				return nil, err
			}
			out, err := productType(op.In[0].Type.DType, op.Attrs.(ConvWeightGradAttrs).Out)
			return []ir.Type{ir.T(out, d.w...)}, err
		},
		Eval: convEval(func(r convRow) {
			w := *r.w
			for q, y := range r.y {
				w += r.x[q*r.stride] * y
			}
			*r.w = w
		}),
		VJP: func(b *ir.Builder, op *ir.Op, dw []*ir.Value) []*ir.Value {
			a, x, dy := op.Attrs.(ConvWeightGradAttrs).Conv(), op.In[0], op.In[1]
			return []*ir.Value{ConvInputGrad(b, dy, dw[0], a.InputGrad(x.Type.Dims[2:])), Conv(b, x, dw[0], a)}
		},
		Samples: func(*rand.Rand) []ir.Sample { return convSamples(ConvWeightGradDef) },
		Doc:     "the gradient of conv in w, from x and dy",
	})
}

// convRow are products x[q*stride] * w * y[q] of the trilinear form.
type convRow struct {
	x, y   []float64
	w      *float64
	stride int
}

// convEval visits every product of the trilinear form; add adds those of a row to the tensor that is the result.
func convEval(add func(convRow)) func(op *ir.Op, in []*ir.Array) []*ir.Array {
	return func(op *ir.Op, in []*ir.Array) []*ir.Array {
		a, d, err := convOf(op)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		out := ir.NewArray(op.Out[0].Type)
		x, w, y := in[0], in[1], out
		switch op.Def {
		case ConvInputGradDef:
			x, w, y = out, in[1], in[0]
		case ConvWeightGradDef:
			x, w, y = in[0], out, in[1]
		}
		if len(in) > 2 && in[2] != nil {
			each(d.y, func(at []int, i int) { out.F[i] = in[2].F[at[1]] })
		}
		a.eachRow(d, func(xi, wi, yi, n int) { add(convRow{x.F[xi:], y.F[yi : yi+n], &w.F[wi], a.Strides[len(a.Strides)-1]}) })
		return []*ir.Array{out}
	}
}

// eachRow calls f with the positions of the elements of x, w and y of every product in the sum
// y[n,o,p] += x[n, (o's group)*Cg + c, p*stride - pad + k*dilation] * w[o,c,k].
//
// It goes along rows of the last dim: those of its positions whose operand is no padding are a range, and f gets the
// first of it and their number. y goes on by 1, x by the stride.
func (a ConvAttrs) eachRow(d convDims, f func(xi, wi, yi, n int)) {
	last := len(d.x) - 1
	sx, sy := ir.Strides(d.x), ir.Strides(d.y)
	perGroup, stride := d.w[0]/a.Groups, a.Strides[last-2]
	each(d.w, func(iw []int, wi int) {
		o, c := iw[0], iw[1]
		shift := iw[last]*a.Dilations[last-2] - a.Pads[last-2]
		room := d.x[last] - 1 - shift
		if room < 0 {
			return
		}
		from, to := max(0, (stride-1-shift)/stride), min(d.y[last], room/stride+1)
		for n := range d.x[0] {
			each(d.y[2:last], func(iy []int, _ int) {
				xi, yi := n*sx[0]+(o/perGroup*d.w[1]+c)*sx[1]+shift, n*sy[0]+o*sy[1]
				for i, q := range iy {
					p := q*a.Strides[i] - a.Pads[i] + iw[i+2]*a.Dilations[i]
					if p < 0 || p >= d.x[i+2] {
						return
					}
					xi, yi = xi+p*sx[i+2], yi+q*sy[i+2]
				}
				if from < to {
					f(xi+from*stride, wi, yi+from, to-from)
				}
			})
		}
	})
}

// convSamples are one convolution in several geometries, as operands of the given def.
func convSamples(def *ir.Def) []ir.Sample {
	var out []ir.Sample
	add := func(a ConvAttrs, xd, wd []int) {
		a = a.filled(len(xd) - 2)
		d, err := a.convForwardDims(xd, wd)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		x, w, y := ir.T(dtype.F32, d.x...), ir.T(dtype.F32, d.w...), ir.T(dtype.F32, d.y...)
		switch def {
		case ConvDef:
			out = append(out, ir.Sample{In: []ir.Type{x, w}, Attrs: a})
		case ConvInputGradDef:
			out = append(out, ir.Sample{In: []ir.Type{y, w}, Attrs: a.InputGrad(d.x[2:])})
		case ConvWeightGradDef:
			out = append(out, ir.Sample{In: []ir.Type{x, y}, Attrs: a.WeightGrad(d.w[2:])})
		}
	}
	add(ConvAttrs{Pads: []int{1, 1, 1, 1}}, []int{2, 2, 4, 5}, []int{4, 2, 3, 3})
	add(ConvAttrs{Strides: []int{2, 1}, Pads: []int{1, 0, 0, 2}, Dilations: []int{1, 2}}, []int{2, 2, 5, 4}, []int{2, 2, 2, 3})
	add(ConvAttrs{Groups: 2, Strides: []int{2, 2}}, []int{2, 4, 4, 4}, []int{6, 2, 2, 2})
	add(ConvAttrs{Groups: 4, Pads: []int{1, 1}}, []int{2, 4, 5}, []int{4, 1, 3})
	add(ConvAttrs{Strides: []int{3}}, []int{2, 2, 8}, []int{2, 2, 2})
	add(ConvAttrs{Strides: []int{2, 1, 1}, Pads: []int{1, 0, 1, 0, 1, 0}, Dilations: []int{1, 2, 1}, Groups: 2}, []int{2, 4, 4, 5, 3}, []int{2, 2, 3, 2, 2})
	add(ConvAttrs{Pads: []int{1, 1, 0, 0, 0, 0, 0, 0}}, []int{2, 1, 2, 2, 2, 3}, []int{2, 1, 2, 2, 1, 2})
	if def == ConvDef {
		s := out[0]
		out = append(out, ir.Sample{In: append(s.In, ir.T(dtype.F32, s.In[1].Dims[0])), Attrs: s.Attrs})
	}
	for i, d := range []dtype.DType{dtype.F64, dtype.F64, dtype.BF16} { // without groups, with, in one dim
		s := ir.Sample{Attrs: out[i+1].Attrs, In: slices.Clone(out[i+1].In)}
		out = append(out, of(d, s))
	}
	return out
}
