package ops

import (
	"math"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
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

// unI lifts a unary function of integers.
func unI(f func(int64) int64) func(any, []int64) int64 {
	return func(_ any, x []int64) int64 { return f(x[0]) }
}

func unU(f func(uint64) uint64) func(any, []uint64) uint64 {
	return func(_ any, x []uint64) uint64 { return f(x[0]) }
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
	pointwise(NegDef, pw{n: 1, doc: "-x", takes: numbers, facts: ir.Facts{Linear: linear([]int{0})},
		f: un(func(x float64) float64 { return -x }), i: unI(func(x int64) int64 { return -x }),
		vjp: func(b *ir.Builder, _ *ir.Op, dy *ir.Value) []*ir.Value { return []*ir.Value{Neg(b, dy)} }})
	pointwise(AbsDef, pw{n: 1, doc: "|x|", takes: numbers, fill: awayFrom(0), facts: ir.Facts{Zero: [][]int{{0}}},
		f: un(math.Abs), i: unI(func(x int64) int64 { return max(x, -x) }), u: unU(func(x uint64) uint64 { return x }),
		vjp: times(func(b *ir.Builder, x, _ *ir.Value) *ir.Value { return Sign(b, x) })})
	pointwise(SignDef, pw{n: 1, doc: "-1, 0 or 1", takes: numbers, fill: awayFrom(0), f: un(sign),
		i: unI(func(x int64) int64 { return int64(sign(float64(x))) }), u: unU(func(x uint64) uint64 { return min(x, 1) }), vjp: flat})
	pointwise(ExpDef, pw{n: 1, doc: "e to the x", f: un(math.Exp), keep: true,
		vjp: times(func(_ *ir.Builder, _, y *ir.Value) *ir.Value { return y })})
	pointwise(LogDef, pw{n: 1, doc: "natural logarithm", f: un(math.Log), keep: true, fill: positive,
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value { return []*ir.Value{Div(b, dy, op.In[0])} }})
	pointwise(Log1pDef, pw{n: 1, doc: "log(1+x)", f: un(math.Log1p), keep: true, fill: positive,
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
			return []*ir.Value{Div(b, dy, AddScalar(b, op.In[0], 1))}
		}})
	pointwise(SinDef, pw{n: 1, doc: "sine of radians", f: un(math.Sin),
		vjp: times(func(b *ir.Builder, x, _ *ir.Value) *ir.Value { return Cos(b, x) })})
	pointwise(CosDef, pw{n: 1, doc: "cosine of radians", f: un(math.Cos),
		vjp: times(func(b *ir.Builder, x, _ *ir.Value) *ir.Value { return Neg(b, Sin(b, x)) })})
	pointwise(ErfDef, pw{n: 1, doc: "error function", f: un(math.Erf),
		vjp: times(func(b *ir.Builder, x, _ *ir.Value) *ir.Value {
			return MulScalar(b, Exp(b, Neg(b, Square(b, x))), 2/math.Sqrt(math.Pi))
		})})
	pointwise(TanhDef, pw{n: 1, doc: "hyperbolic tangent", f: un(math.Tanh),
		vjp: times(func(b *ir.Builder, _, y *ir.Value) *ir.Value { return oneMinus(b, Square(b, y)) })})
	pointwise(SigmoidDef, pw{n: 1, doc: "1/(1+exp(-x))", f: un(sigmoid),
		vjp: times(func(b *ir.Builder, _, y *ir.Value) *ir.Value { return Mul(b, y, oneMinus(b, y)) })})
	pointwise(ReluDef, pw{n: 1, doc: "max(x, 0)", takes: numbers, fill: awayFrom(0), facts: ir.Facts{Zero: [][]int{{0}}},
		f: un(func(x float64) float64 { return max(x, 0) }), i: unI(func(x int64) int64 { return max(x, 0) }),
		u: unU(func(x uint64) uint64 { return x }),
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
			y := op.Out[0]
			return []*ir.Value{Where(b, Gt(b, y, ScalarLike(b, y, 0)), dy, ScalarLike(b, dy, 0))}
		}})
	pointwise(NotDef, pw{n: 1, doc: "logical negation", takes: bools, noGrad: "bool result",
		i: unI(func(x int64) int64 { return 1 - x })})
	pointwise(IsNaNDef, pw{n: 1, doc: "whether x is not a number", result: dtype.Bool, noGrad: "bool result",
		f: un(func(x float64) float64 { return b2f(math.IsNaN(x)) })})
	definePowers()
	defineRounding()
}

func definePowers() {
	pointwise(SqrtDef, pw{n: 1, doc: "square root", f: un(math.Sqrt), fill: positive, facts: ir.Facts{Zero: [][]int{{0}}},
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
			return []*ir.Value{Div(b, dy, MulScalar(b, op.Out[0], 2))}
		}})
	pointwise(RsqrtDef, pw{n: 1, doc: "1/sqrt(x)", keep: true, fill: positive,
		f: un(func(x float64) float64 { return 1 / math.Sqrt(x) }),
		vjp: times(func(b *ir.Builder, _, y *ir.Value) *ir.Value {
			return MulScalar(b, Mul(b, y, Square(b, y)), -0.5)
		})})
	pointwise(RecipDef, pw{n: 1, doc: "1/x", keep: true, fill: positive,
		f:   un(func(x float64) float64 { return 1 / x }),
		vjp: times(func(b *ir.Builder, _, y *ir.Value) *ir.Value { return Neg(b, Square(b, y)) })})
}

func defineRounding() {
	halves := []float64{-3, -2, -1, 0, 1, 2, 3, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5}
	pointwise(FloorDef, pw{n: 1, doc: "x rounded down", f: un(math.Floor), vjp: flat, fill: awayFrom(halves...)})
	pointwise(CeilDef, pw{n: 1, doc: "x rounded up", f: un(math.Ceil), vjp: flat, fill: awayFrom(halves...)})
	pointwise(RoundDef, pw{n: 1, doc: "x rounded to the nearest integer, ties to even", f: un(math.RoundToEven),
		vjp: flat, fill: awayFrom(halves...)})
}

// oneMinus is 1 - x.
func oneMinus(b *ir.Builder, x *ir.Value) *ir.Value { return Sub(b, ScalarLike(b, x, 1), x) }

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x // zero or NaN
}

func b2f(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

func b2i(v bool) int64 { return int64(b2f(v)) }
