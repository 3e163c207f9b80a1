package ops

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Ops whose gradient passes straight through a rounding that has none of use (Bengio et al., arXiv 1308.3432): the
// parts of fake quantisation. With clip, they give the gradients of torch.fake_quantize for values, and those of LSQ
// (arXiv 1902.08153) for scales.
var (
	RoundThroughDef = ir.NewOp("round_through")
	CastThroughDef  = ir.NewOp("cast_through")
	DetachDef       = ir.NewOp("detach")
)

// CastThroughAttrs gives the float type whose values are kept.
type CastThroughAttrs struct{ To dtype.DType }

// RoundThrough is the float x rounded to the nearest integer, ties to even, in x's type. Its gradient is that of x.
func RoundThrough(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(RoundThroughDef, nil, x) }

// CastThrough is the float x rounded to the values of another float type, which are values of x's type, as a cast
// there and back rounds. Its gradient is that of x. With x's own type it changes nothing in a kernel, but makes the
// evaluator, which computes in float64, go on from the number that a kernel holds.
func CastThrough(b *ir.Builder, x *ir.Value, to dtype.DType) *ir.Value {
	return b.Emit(CastThroughDef, CastThroughAttrs{to}, x)
}

// Detach is the float x, of any dims, through which no gradient passes: PyTorch's Tensor.detach, with which models spell
// straight-through choices (Jang et al., arXiv 1611.01144) and the two sides of a codebook's loss (arXiv 1711.00937).
func Detach(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(DetachDef, nil, x) }

func straight(_ *ir.Builder, _ *ir.Op, dy []*ir.Value) []*ir.Value { return dy }

func init() {
	pointwise(DetachDef, pw{n: 1, doc: "x, through which no gradient passes", noGrad: "that is its meaning", facts: ir.Facts{Zero: [][]int{{0}}},
		f:    func(_ any, x []float64) float64 { return x[0] },
		expr: func(_ lit, _ any, x []*kir.Expr) *kir.Expr { return x[0] },
	})
	RoundThroughDef.Define(ir.Rules{
		Operands: 1, Doc: "x rounded to the nearest integer, ties to even; the gradient is x's",
		Infer: throughType, Factors: pointwiseRule, VJP: straight, Precision: "keep",
		Eval: one(func(op *ir.Op, in []*ir.Array) *ir.Array {
			out := ir.NewArray(op.Out[0].Type)
			for e, x := range in[0].F { // of the value that the type holds: ties must be seen as kernels see them
				out.F[e] = math.RoundToEven(out.Type.DType.Round(x))
			}
			return out
		}),
		Impl: func(*ir.Op) kir.Impl {
			return kir.Impl{Kind: kir.Pointwise, Expr: []*kir.Expr{kir.Un("round", kir.Arg(0))}}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			return []ir.Sample{{In: []ir.Type{ir.T(dtype.F32, 4, 6)}}, {In: []ir.Type{ir.T(dtype.F64)}}}
		},
	})
	CastThroughDef.Define(ir.Rules{
		Attrs: CastThroughAttrs{}, Operands: 1, Doc: "x rounded to the values of float type To; the gradient is x's",
		Infer: throughType, Factors: pointwiseRule, VJP: straight, Precision: "keep",
		Eval: one(func(op *ir.Op, in []*ir.Array) *ir.Array {
			out := ir.NewArray(op.Out[0].Type)
			to := op.Attrs.(CastThroughAttrs).To
			for e, x := range in[0].F {
				out.F[e] = to.Round(x)
			}
			return out
		}),
		Impl: func(op *ir.Op) kir.Impl {
			e := kir.Cast(op.Out[0].Type.DType, kir.Cast(op.Attrs.(CastThroughAttrs).To, kir.Arg(0)))
			return kir.Impl{Kind: kir.Pointwise, Expr: []*kir.Expr{e}}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			var out []ir.Sample
			for _, d := range []dtype.DType{dtype.F8E4M3, dtype.F8E4M3Z, dtype.F8E5M2, dtype.F8E5M2Z, dtype.F4E2M1} {
				out = append(out, ir.Sample{In: []ir.Type{ir.T(dtype.F32, 4, 6)}, Attrs: CastThroughAttrs{d}})
			}
			return out
		},
	})
}

func throughType(op *ir.Op) ([]ir.Type, error) {
	t := op.In[0].Type
	if !floats.Has(t.DType) {
		return nil, fmt.Errorf("operand 0 is %s, but must be a float type", t)
	}
	if a, ok := op.Attrs.(CastThroughAttrs); ok && !a.To.IsFloat() {
		return nil, fmt.Errorf("attribute to is %s, but must be a float type", a.To)
	}
	return types(t)
}
