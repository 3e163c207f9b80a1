package ops

import (
	"math"

	"github.com/gtc-compiler/gtc/ir"
)

// The unary elementwise ops without attributes.
var (
	NegDef     = ir.NewOp("neg")
	AbsDef     = ir.NewOp("abs")
	SignDef    = ir.NewOp("sign")
	ExpDef     = ir.NewOp("exp")
	LogDef     = ir.NewOp("log")
	Log1pDef   = ir.NewOp("log1p")
	SqrtDef    = ir.NewOp("sqrt")
	RsqrtDef   = ir.NewOp("rsqrt")
	RecipDef   = ir.NewOp("recip")
	SinDef     = ir.NewOp("sin")
	CosDef     = ir.NewOp("cos")
	TanhDef    = ir.NewOp("tanh")
	SigmoidDef = ir.NewOp("sigmoid")
	ErfDef     = ir.NewOp("erf")
	FloorDef   = ir.NewOp("floor")
	CeilDef    = ir.NewOp("ceil")
	RoundDef   = ir.NewOp("round")
	ReluDef    = ir.NewOp("relu")
	NotDef     = ir.NewOp("not")
	IsNaNDef   = ir.NewOp("isnan")
)

// Neg is -x, of numbers.
func Neg(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(NegDef, nil, x) }

// Abs is |x|, of numbers. Its gradient at 0 is 0.
func Abs(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(AbsDef, nil, x) }

// Sign is -1, 0 or 1 (NaN for NaN), of numbers.
func Sign(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(SignDef, nil, x) }

// Exp is e to the x.
func Exp(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(ExpDef, nil, x) }

// Log is the natural logarithm.
func Log(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(LogDef, nil, x) }

// Log1p is log(1+x).
func Log1p(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(Log1pDef, nil, x) }

// Sqrt is the square root.
func Sqrt(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(SqrtDef, nil, x) }

// Rsqrt is 1/sqrt(x).
func Rsqrt(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(RsqrtDef, nil, x) }

// Recip is 1/x.
func Recip(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(RecipDef, nil, x) }

// Sin is the sine of radians.
func Sin(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(SinDef, nil, x) }

// Cos is the cosine of radians.
func Cos(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(CosDef, nil, x) }

// Tanh is the hyperbolic tangent.
func Tanh(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(TanhDef, nil, x) }

// Sigmoid is 1/(1+exp(-x)).
func Sigmoid(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(SigmoidDef, nil, x) }

// Erf is the error function.
func Erf(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(ErfDef, nil, x) }

// Floor rounds down.
func Floor(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(FloorDef, nil, x) }

// Ceil rounds up.
func Ceil(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(CeilDef, nil, x) }

// Round rounds to the nearest integer, ties to even.
func Round(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(RoundDef, nil, x) }

// Relu is max(x, 0), NaN for NaN, of numbers. Its gradient at 0 is 0.
func Relu(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(ReluDef, nil, x) }

// Not negates bools.
func Not(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(NotDef, nil, x) }

// IsNaN tells (bool) which floats are NaN.
func IsNaN(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(IsNaNDef, nil, x) }

// un lifts a unary function of floats.
func un(f func(float64) float64) func(any, []float64) float64 {
	return func(_ any, x []float64) float64 { return f(x[0]) }
}

// times is the VJP dy times a factor.
func times(f func(b *ir.Builder, x, y *ir.Value) *ir.Value) func(*ir.Builder, *ir.Op, *ir.Value) []*ir.Value {
	return func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
		return []*ir.Value{Mul(b, dy, f(b, op.In[0], op.Out[0]))}
	}
}

// flat is the VJP of a piecewise constant function of one operand: zeros, as PyTorch has them (autograd's
// derivatives.yaml: floor, ceil, round and sign give zeros_like), so that a model which also uses x otherwise trains.
func flat(b *ir.Builder, op *ir.Op, _ *ir.Value) []*ir.Value {
	return []*ir.Value{ScalarLike(b, op.In[0], 0)}
}

func init() {
	pointwise(NegDef, pw{doc: "-x", facts: ir.Facts{Linear: linear([]int{0})},
		vjp: func(b *ir.Builder, _ *ir.Op, dy *ir.Value) []*ir.Value { return []*ir.Value{Neg(b, dy)} }})
	pointwise(AbsDef, pw{doc: "|x|", fill: awayFrom(0), facts: ir.Facts{Zero: [][]int{{0}}},
		vjp: times(func(b *ir.Builder, x, _ *ir.Value) *ir.Value { return Sign(b, x) })})
	pointwise(SignDef, pw{doc: "-1, 0 or 1", fill: awayFrom(0), vjp: flat})
	pointwise(ExpDef, pw{doc: "e to the x",
		vjp: times(func(_ *ir.Builder, _, y *ir.Value) *ir.Value { return y })})
	pointwise(LogDef, pw{doc: "natural logarithm", fill: positive,
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value { return []*ir.Value{Div(b, dy, op.In[0])} }})
	pointwise(Log1pDef, pw{doc: "log(1+x)", fill: positive,
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
			return []*ir.Value{Div(b, dy, AddScalar(b, op.In[0], 1))}
		}})
	pointwise(SinDef, pw{doc: "sine of radians",
		vjp: times(func(b *ir.Builder, x, _ *ir.Value) *ir.Value { return Cos(b, x) })})
	pointwise(CosDef, pw{doc: "cosine of radians",
		vjp: times(func(b *ir.Builder, x, _ *ir.Value) *ir.Value { return Neg(b, Sin(b, x)) })})
	pointwise(ErfDef, pw{doc: "error function",
		vjp: times(func(b *ir.Builder, x, _ *ir.Value) *ir.Value {
			return MulScalar(b, Exp(b, Neg(b, Square(b, x))), 2/math.Sqrt(math.Pi))
		})})
	pointwise(TanhDef, pw{doc: "hyperbolic tangent",
		vjp: times(func(b *ir.Builder, _, y *ir.Value) *ir.Value { return oneMinus(b, Square(b, y)) })})
	pointwise(SigmoidDef, pw{doc: "1/(1+exp(-x))",
		vjp: times(func(b *ir.Builder, _, y *ir.Value) *ir.Value { return Mul(b, y, oneMinus(b, y)) })})
	pointwise(ReluDef, pw{doc: "max(x, 0)", fill: awayFrom(0), facts: ir.Facts{Zero: [][]int{{0}}, Activation: func(*ir.Op) string { return "relu" }},
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
			y := op.Out[0]
			return []*ir.Value{Where(b, Gt(b, y, ScalarLike(b, y, 0)), dy, ScalarLike(b, dy, 0))}
		}})
	pointwise(NotDef, pw{doc: "logical negation", noGrad: "bool result"})
	pointwise(IsNaNDef, pw{doc: "whether x is not a number", noGrad: "bool result"})
	definePowers()
	defineRounding()
}

func definePowers() {
	pointwise(SqrtDef, pw{doc: "square root", fill: positive, facts: ir.Facts{Zero: [][]int{{0}}},
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
			return []*ir.Value{Div(b, dy, MulScalar(b, op.Out[0], 2))}
		}})
	pointwise(RsqrtDef, pw{doc: "1/sqrt(x)", fill: positive,
		vjp: times(func(b *ir.Builder, _, y *ir.Value) *ir.Value {
			return MulScalar(b, Mul(b, y, Square(b, y)), -0.5)
		})})
	pointwise(RecipDef, pw{doc: "1/x", fill: positive,
		vjp: times(func(b *ir.Builder, _, y *ir.Value) *ir.Value { return Neg(b, Square(b, y)) })})
}

func defineRounding() {
	halves := []float64{-3, -2, -1, 0, 1, 2, 3, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5}
	pointwise(FloorDef, pw{doc: "x rounded down", vjp: flat, fill: awayFrom(halves...)})
	pointwise(CeilDef, pw{doc: "x rounded up", vjp: flat, fill: awayFrom(halves...)})
	pointwise(RoundDef, pw{doc: "x rounded to the nearest integer, ties to even",
		vjp: flat, fill: awayFrom(halves...)})
}

// oneMinus is 1 - x.
func oneMinus(b *ir.Builder, x *ir.Value) *ir.Value { return Sub(b, ScalarLike(b, x, 1), x) }

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func b2f(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

func b2i(v bool) int64 { return int64(b2f(v)) }
