package ops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// RoiAlign pools regions by averages of interpolated samples (He et al., "Mask R-CNN", 2017); its gradient is the
// adjoint. Regions get no gradient, as in torchvision.
var (
	RoiAlignDef     = ir.NewOp("roi_align")
	RoiAlignGradDef = ir.NewOp("roi_align_grad")
)

// RoiAlignAttrs: Height and Width are the bins of a region; Samples per bin and direction, 0 for as many as the bin has
// elements, rounded up; Scale brings regions to elements of x. HalfPixel puts element centres at whole numbers plus a
// half (torchvision's aligned), else regions are at least 1 by 1.
type RoiAlignAttrs struct {
	Height, Width, Samples int
	Scale                  float64
	HalfPixel              bool
}

// RoiAlignGradAttrs is RoiAlignAttrs and the dims [N,C,H,W] of x.
type RoiAlignGradAttrs struct {
	Height, Width, Samples int
	Scale                  float64
	HalfPixel              bool
	Dims                   []int
}

// RoiAlign pools x[N,C,H,W] over rois[R,4] (x1, y1, x2, y2), of which batch[R] (integers) names the sample:
// y[R,C,Height,Width].
func RoiAlign(b *ir.Builder, x, rois, batch *ir.Value, a RoiAlignAttrs) *ir.Value {
	return b.Emit(RoiAlignDef, a, x, rois, batch)
}

// RoiAlignGrad is the gradient of x[Dims] from that of the result, dy[R,C,Height,Width].
func RoiAlignGrad(b *ir.Builder, dy, rois, batch *ir.Value, a RoiAlignGradAttrs) *ir.Value {
	return b.Emit(RoiAlignGradDef, a, dy, rois, batch)
}

func (a RoiAlignAttrs) grad(dims []int) RoiAlignGradAttrs {
	return RoiAlignGradAttrs{a.Height, a.Width, a.Samples, a.Scale, a.HalfPixel, dims}
}

func (a RoiAlignGradAttrs) forward() RoiAlignAttrs {
	return RoiAlignAttrs{a.Height, a.Width, a.Samples, a.Scale, a.HalfPixel}
}

// roiOf gives the geometry of either op and the dims of x.
func roiOf(op *ir.Op) (RoiAlignAttrs, []int) {
	if a, ok := op.Attrs.(RoiAlignAttrs); ok {
		return a, in(op, 0)
	}
	a := op.Attrs.(RoiAlignGradAttrs)
	return a.forward(), a.Dims
}

func inferRoi(op *ir.Op) ([]ir.Type, error) {
	a, x := roiOf(op)
	rois, batch, grad := op.In[1].Type, op.In[2].Type, op.Def == RoiAlignGradDef
	if len(x) != 4 || slices.Min(x) < 0 || len(rois.Dims) != 2 || rois.Dims[1] != 4 || len(batch.Dims) != 1 || batch.Dims[0] != rois.Dims[0] {
		return wrong("operands are %s, %s and %s, but must be x[N,C,H,W], [R,4] and [R]", op.In[0].Type, rois, batch)
	}
	if err := needInt(op, 2); err != nil {
		return nil, err
	}
	if err := sameFloat(op, 0, 1); err != nil {
		return nil, err
	}
	if a.Height < 1 || a.Width < 1 || a.Samples < 0 || !(a.Scale > 0) {
		return nil, fmt.Errorf("%d by %d bins of %d samples at scale %g are not possible", a.Height, a.Width, a.Samples, a.Scale)
	}
	y := ir.T(op.In[0].Type.DType, rois.Dims[0], x[1], a.Height, a.Width)
	if !grad {
		return types(y)
	}
	if !op.In[0].Type.Equal(y) {
		return wrong("operand 0 is %s, but must be %s", op.In[0].Type, y)
	}
	return types(ir.T(y.DType, x...))
}

// roiRule splits channels, and regions, whose gradients add up.
func roiRule(op *ir.Op) factor.Rule {
	var m ruleMaker
	a, x := roiOf(op)
	r, c := in(op, 1)[0], m.add("c", x[1], factor.Free)
	kind := factor.Free
	if op.Def == RoiAlignGradDef {
		kind = factor.Sum
	}
	regions := m.add("r", r, kind)
	image := []factor.Dim{m.add("n", x[0], factor.Blocked), c, m.add("h", x[2], factor.Blocked), m.add("w", x[3], factor.Blocked)}
	pooled := []factor.Dim{regions, c, m.add("p", a.Height, factor.Blocked), m.add("q", a.Width, factor.Blocked)}
	rest := [][]factor.Dim{{regions, m.add("four", 4, factor.Blocked)}, {regions}}
	if op.Def == RoiAlignGradDef {
		return m.rule(append([][]factor.Dim{pooled}, rest...), image)
	}
	return m.rule(append([][]factor.Dim{image}, rest...), pooled)
}

// roiTap is one place that a bin reads along one direction.
type roiTap struct {
	at     int
	weight float64
}

// bins lists the taps of every bin of one region along a direction from lo to hi (scaled already) of size elements, and
// the samples of a bin.
func (a RoiAlignAttrs) bins(lo, hi float64, size, bins int) (taps [][]roiTap, samples int) {
	length := hi - lo
	if a.HalfPixel {
		lo -= 0.5
	} else {
		length = max(length, 1)
	}
	step := length / float64(bins)
	if samples = a.Samples; samples == 0 {
		samples = max(0, int(math.Ceil(step)))
	}
	taps = make([][]roiTap, bins)
	for p := range taps {
		for i := range samples {
			y := lo + float64(p)*step + (float64(i)+0.5)*step/float64(samples)
			if y < -1 || y > float64(size) {
				continue
			}
			y = min(max(y, 0), float64(size-1))
			at := int(y)
			taps[p] = append(taps[p], roiTap{at, 1 - (y - float64(at))}, roiTap{min(at+1, size-1), y - float64(at)})
		}
	}
	return taps, samples
}

// roiTerms calls f with every term of the sums: flat places in the pooled tensor and in x, without the channel, and the
// weight.
func roiTerms(op *ir.Op, in []*ir.Array, f func(r, pooled, n, place int, weight float64)) {
	a, x := roiOf(op)
	for r := range in[2].I {
		n := position(in[2].I[r], x[0])
		if n < 0 {
			continue
		}
		box := func(k int) float64 { return in[1].F[4*r+k] * a.Scale }
		rows, sy := a.bins(box(1), box(3), x[2], a.Height)
		columns, sx := a.bins(box(0), box(2), x[3], a.Width)
		count := float64(max(sy*sx, 1))
		for p, row := range rows {
			for q, column := range columns {
				for _, y := range row {
					for _, x1 := range column {
						f(r, p*a.Width+q, n, y.at*x[3]+x1.at, y.weight*x1.weight/count)
					}
				}
			}
		}
	}
}

func roiImpl(op *ir.Op) kir.Impl {
	a, x := roiOf(op)
	d := op.In[0].Type.DType
	if d != dtype.F32 && d != dtype.F64 || op.In[2].Type.DType != dtype.I64 {
		return kir.Impl{}
	}
	name := "RoiAlignFwd"
	if op.Def == RoiAlignGradDef {
		name = "RoiAlignBwd"
	}
	return kir.Impl{Kind: kir.Template, Template: name, Status: true, Floats: []float64{a.Scale},
		Ints: []int{d.Size(), x[0], x[1], x[2], x[3], in(op, 1)[0], a.Height, a.Width, a.Samples, int(b2i(a.HalfPixel))}}
}

// decomposeRoi brings the operands to the element types that the kernels take.
func decomposeRoi(b *ir.Builder, op *ir.Op) []*ir.Value {
	from := op.In[0].Type.DType
	to := from
	if to.Size() < 4 {
		to = dtype.F32
	}
	y := b.Emit(op.Def, op.Attrs, Cast(b, op.In[0], to), Cast(b, op.In[1], to), Cast(b, op.In[2], dtype.I64))
	return []*ir.Value{Cast(b, y, from)}
}

func init() {
	samples := func(grad bool) func(r *rand.Rand) []ir.Sample {
		return func(*rand.Rand) []ir.Sample {
			var out []ir.Sample
			for _, a := range []RoiAlignAttrs{{2, 3, 2, 0.5, true}, {2, 2, 0, 1, false}} {
				x, f := []int{2, 4, 6, 5}, dtype.F32
				s := ir.Sample{In: []ir.Type{ir.T(f, x...), ir.T(f, 4, 4), ir.T(dtype.I64, 4)}, Attrs: a, Limit: 2, Fill: fillRois}
				if grad {
					s.In[0], s.Attrs = ir.T(f, 4, 4, a.Height, a.Width), a.grad(x)
				}
				out = append(out, s)
			}
			return out
		}
	}
	RoiAlignDef.Define(ir.Rules{
		Attrs: RoiAlignAttrs{}, Operands: 3, Infer: inferRoi, Factors: roiRule, Impl: roiImpl, Decompose: decomposeRoi,
		Samples: samples(false), Doc: "averages of interpolated samples in the bins of regions",
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			return []*ir.Value{RoiAlignGrad(b, dy[0], op.In[1], op.In[2], op.Attrs.(RoiAlignAttrs).grad(in(op, 0))), stopped(b, op), nil}
		},
		Eval: one(func(op *ir.Op, in []*ir.Array) *ir.Array {
			out, x := ir.NewArray(op.Out[0].Type), op.In[0].Type.Dims
			bins := ir.Product(out.Type.Dims[2:])
			roiTerms(op, in, func(r, pooled, n, place int, weight float64) {
				for c := range x[1] {
					out.F[(r*x[1]+c)*bins+pooled] += weight * in[0].F[(n*x[1]+c)*x[2]*x[3]+place]
				}
			})
			return out
		}),
	})
	RoiAlignGradDef.Define(ir.Rules{
		Attrs: RoiAlignGradAttrs{}, Operands: 3, Infer: inferRoi, Factors: roiRule, Impl: roiImpl, Decompose: decomposeRoi,
		Samples: samples(true), Doc: "the gradient of roi_align's operand 0", Precision: "keep",
		Resize: func(op *ir.Op, _, out [][]int) any {
			a := op.Attrs.(RoiAlignGradAttrs)
			a.Dims = out[0]
			return a
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			return []*ir.Value{RoiAlign(b, dy[0], op.In[1], op.In[2], op.Attrs.(RoiAlignGradAttrs).forward()), stopped(b, op), nil}
		},
		Eval: one(func(op *ir.Op, in []*ir.Array) *ir.Array {
			out, x := ir.NewArray(op.Out[0].Type), op.Out[0].Type.Dims
			bins := ir.Product(in[0].Type.Dims[2:])
			roiTerms(op, in, func(r, pooled, n, place int, weight float64) {
				for c := range x[1] {
					out.F[(n*x[1]+c)*x[2]*x[3]+place] += weight * in[0].F[(r*x[1]+c)*bins+pooled]
				}
			})
			return out
		}),
	})
}

// stopped is the gradient of regions: zeros, so that what proposes them need not be cut off by hand.
func stopped(b *ir.Builder, op *ir.Op) *ir.Value { return Zeros(b, op.In[1].Type) }

// fillRois makes boxes of which some reach outside of a 6 by 5 image.
func fillRois(r *rand.Rand, in []*ir.Array) {
	for i := 0; i < len(in[1].F); i += 4 {
		x, y := 6*r.Float64()-1, 7*r.Float64()-1
		copy(in[1].F[i:], []float64{x, y, x + 5*r.Float64(), y + 6*r.Float64()})
	}
}
