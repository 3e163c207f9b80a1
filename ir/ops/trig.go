package ops

import (
	"math/rand/v2"

	"github.com/gtc-compiler/gtc/ir"
)

// The trigonometric and hyperbolic functions that are no short compositions of others, and their inverses. Their
// gradients are the closed forms, as in PyTorch: infinite at the ends of asin, acos, acosh and atanh.
var (
	TanDef   = ir.NewOp("tan")
	AsinDef  = ir.NewOp("asin")
	AcosDef  = ir.NewOp("acos")
	AtanDef  = ir.NewOp("atan")
	SinhDef  = ir.NewOp("sinh")
	CoshDef  = ir.NewOp("cosh")
	AsinhDef = ir.NewOp("asinh")
	AcoshDef = ir.NewOp("acosh")
	AtanhDef = ir.NewOp("atanh")
)

// Tan is the tangent of radians.
func Tan(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(TanDef, nil, x) }

// Asin is the inverse sine in radians, NaN outside [-1,1].
func Asin(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(AsinDef, nil, x) }

// Acos is the inverse cosine in radians, NaN outside [-1,1].
func Acos(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(AcosDef, nil, x) }

// Atan is the inverse tangent in radians.
func Atan(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(AtanDef, nil, x) }

// Sinh is the hyperbolic sine.
func Sinh(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(SinhDef, nil, x) }

// Cosh is the hyperbolic cosine.
func Cosh(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(CoshDef, nil, x) }

// Asinh is the inverse hyperbolic sine.
func Asinh(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(AsinhDef, nil, x) }

// Acosh is the inverse hyperbolic cosine, NaN below 1.
func Acosh(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(AcoshDef, nil, x) }

// Atanh is the inverse hyperbolic tangent, NaN outside [-1,1].
func Atanh(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(AtanhDef, nil, x) }

// between makes floats in [lo, hi).
func between(lo, hi float64) func(r *rand.Rand, in []*ir.Array) {
	return func(r *rand.Rand, in []*ir.Array) {
		for _, a := range in {
			for i := range a.F {
				a.F[i] = lo + (hi-lo)*r.Float64()
			}
		}
	}
}

func init() {
	angle := func(d *ir.Def, doc string, fill func(r *rand.Rand, in []*ir.Array),
		slope func(b *ir.Builder, x, y *ir.Value) *ir.Value) {
		pointwise(d, pw{doc: doc, fill: fill, vjp: times(slope)})
	}
	// over is 1/f(x²), the shape of most of these derivatives.
	over := func(f func(b *ir.Builder, xx *ir.Value) *ir.Value) func(b *ir.Builder, x, y *ir.Value) *ir.Value {
		return func(b *ir.Builder, x, _ *ir.Value) *ir.Value { return f(b, Square(b, x)) }
	}
	angle(TanDef, "tangent of radians", between(-1.2, 1.2), func(b *ir.Builder, _, y *ir.Value) *ir.Value {
		return AddScalar(b, Square(b, y), 1)
	})
	angle(AsinDef, "inverse sine", between(-0.9, 0.9), over(func(b *ir.Builder, xx *ir.Value) *ir.Value {
		return Rsqrt(b, oneMinus(b, xx))
	}))
	angle(AcosDef, "inverse cosine", between(-0.9, 0.9), over(func(b *ir.Builder, xx *ir.Value) *ir.Value {
		return Neg(b, Rsqrt(b, oneMinus(b, xx)))
	}))
	angle(AtanDef, "inverse tangent", nil, over(func(b *ir.Builder, xx *ir.Value) *ir.Value {
		return Recip(b, AddScalar(b, xx, 1))
	}))
	angle(SinhDef, "hyperbolic sine", nil, func(b *ir.Builder, x, _ *ir.Value) *ir.Value { return Cosh(b, x) })
	angle(CoshDef, "hyperbolic cosine", nil, func(b *ir.Builder, x, _ *ir.Value) *ir.Value { return Sinh(b, x) })
	angle(AsinhDef, "inverse hyperbolic sine", nil, over(func(b *ir.Builder, xx *ir.Value) *ir.Value {
		return Rsqrt(b, AddScalar(b, xx, 1))
	}))
	angle(AcoshDef, "inverse hyperbolic cosine", between(1.2, 3), over(func(b *ir.Builder, xx *ir.Value) *ir.Value {
		return Rsqrt(b, AddScalar(b, xx, -1))
	}))
	angle(AtanhDef, "inverse hyperbolic tangent", between(-0.9, 0.9), over(func(b *ir.Builder, xx *ir.Value) *ir.Value {
		return Recip(b, oneMinus(b, xx))
	}))
}
