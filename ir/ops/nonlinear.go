package ops

import (
	"math"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// The elementwise activation functions and bounds.
var (
	GeluDef      = ir.NewOp("gelu")
	SiluDef      = ir.NewOp("silu")
	SoftplusDef  = ir.NewOp("softplus")
	EluDef       = ir.NewOp("elu")
	LeakyReluDef = ir.NewOp("leaky_relu")
	ClipDef      = ir.NewOp("clip")
)

// GeluAttrs: Tanh chooses the approximation by tanh.
type GeluAttrs struct{ Tanh bool }

// EluAttrs holds the value approached at minus infinity, negated.
type EluAttrs struct{ Alpha float64 }

// LeakyReluAttrs holds the slope of negative values.
type LeakyReluAttrs struct{ Alpha float64 }

// ClipAttrs holds the bounds; infinities for none.
type ClipAttrs struct{ Min, Max float64 }

// Gelu is x·Φ(x) (Hendrycks and Gimpel 2016), or its approximation by tanh.
func Gelu(b *ir.Builder, x *ir.Value, tanh bool) *ir.Value {
	return b.Emit(GeluDef, GeluAttrs{tanh}, x)
}

// Silu is x·sigmoid(x).
func Silu(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(SiluDef, nil, x) }

// Softplus is log(1+exp(x)).
func Softplus(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(SoftplusDef, nil, x) }

// Elu is x where positive, else alpha·(exp(x)-1).
func Elu(b *ir.Builder, x *ir.Value, alpha float64) *ir.Value {
	return b.Emit(EluDef, EluAttrs{alpha}, x)
}

// LeakyRelu is x where positive, else alpha·x.
func LeakyRelu(b *ir.Builder, x *ir.Value, alpha float64) *ir.Value {
	return b.Emit(LeakyReluDef, LeakyReluAttrs{alpha}, x)
}

// Clip bounds numbers; NaN stays NaN. The gradient is 1 inside and 0 at the bounds and beyond, as torch.clamp's.
func Clip(b *ir.Builder, x *ir.Value, min, max float64) *ir.Value {
	return b.Emit(ClipDef, ClipAttrs{min, max}, x)
}

func gelu(a any, x []float64) float64 {
	v := x[0]
	if a.(GeluAttrs).Tanh {
		return 0.5 * v * (1 + math.Tanh(geluRoot*(v+geluCube*v*v*v)))
	}
	return 0.5 * v * math.Erfc(-v/math.Sqrt2)
}

func init() {
	pointwise(GeluDef, pw{n: 1, doc: "x·Φ(x), or its tanh approximation", attrs: GeluAttrs{},
		facts: ir.Facts{Activation: geluName("gelu", func(op *ir.Op) bool { return op.Attrs.(GeluAttrs).Tanh })},
		try:   []any{GeluAttrs{}, GeluAttrs{true}}, f: gelu, expr: geluExpr,
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
			return []*ir.Value{GeluGrad(b, op.In[0], dy, op.Attrs.(GeluAttrs).Tanh)}
		}})
	pointwise(SiluDef, pw{n: 1, doc: "x·sigmoid(x)", f: un(func(x float64) float64 { return x * sigmoid(x) }),
		expr: func(_ lit, _ any, x []*kir.Expr) *kir.Expr { return mulE(x[0], kir.Un("sigmoid", x[0])) },
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
			return []*ir.Value{SiluGrad(b, op.In[0], dy)}
		}})
	pointwise(SoftplusDef, pw{n: 1, doc: "log(1+exp(x))", keep: true,
		f: un(func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }),
		expr: func(_ lit, _ any, x []*kir.Expr) *kir.Expr {
			return addE(kir.Un("relu", x[0]), kir.Un("log1p", kir.Un("exp", kir.Un("neg", kir.Un("abs", x[0])))))
		},
		vjp: times(func(b *ir.Builder, x, _ *ir.Value) *ir.Value { return Sigmoid(b, x) })})
	pointwise(EluDef, pw{n: 1, doc: "x where positive, else Alpha·(exp(x)-1)", attrs: EluAttrs{}, fill: awayFrom(0),
		try: []any{EluAttrs{1}, EluAttrs{0.5}}, f: elu,
		expr: func(num lit, a any, x []*kir.Expr) *kir.Expr {
			return kir.Select(kir.Bin("gt", x[0], num(0)), x[0], mulE(num(a.(EluAttrs).Alpha), kir.Un("expm1", x[0])))
		},
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
			slope := AddScalar(b, op.Out[0], op.Attrs.(EluAttrs).Alpha)
			return []*ir.Value{Where(b, above0(b, op.In[0]), dy, Mul(b, dy, slope))}
		}})
	defineClips()
}

func elu(a any, x []float64) float64 {
	if x[0] > 0 {
		return x[0]
	}
	return a.(EluAttrs).Alpha * math.Expm1(x[0])
}

func defineClips() {
	pointwise(LeakyReluDef, pw{n: 1, doc: "x where positive, else Alpha·x", attrs: LeakyReluAttrs{}, fill: awayFrom(0),
		try: []any{LeakyReluAttrs{0.1}},
		f: func(a any, x []float64) float64 {
			if x[0] > 0 {
				return x[0]
			}
			return x[0] * a.(LeakyReluAttrs).Alpha
		},
		expr: func(num lit, a any, x []*kir.Expr) *kir.Expr {
			return kir.Select(kir.Bin("gt", x[0], num(0)), x[0], mulE(x[0], num(a.(LeakyReluAttrs).Alpha)))
		},
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
			return []*ir.Value{Where(b, above0(b, op.In[0]), dy, MulScalar(b, dy, op.Attrs.(LeakyReluAttrs).Alpha))}
		}})
	pointwise(ClipDef, pw{n: 1, doc: "x bounded by Min and Max", attrs: ClipAttrs{}, takes: numbers, fill: awayFrom(-0.5, 1),
		try: []any{ClipAttrs{-0.5, 1}, ClipAttrs{math.Inf(-1), 1}},
		f:   func(a any, x []float64) float64 { return min(max(x[0], a.(ClipAttrs).Min), a.(ClipAttrs).Max) },
		i:   clipInt[int64](math.MinInt64, math.MaxInt64), u: clipInt[uint64](0, math.MaxUint64),
		expr: func(num lit, a any, x []*kir.Expr) *kir.Expr {
			c := a.(ClipAttrs)
			return boundE(num, boundE(num, x[0], "max", c.Min), "min", c.Max)
		},
		vjp: func(b *ir.Builder, op *ir.Op, dy *ir.Value) []*ir.Value {
			x, a := op.In[0], op.Attrs.(ClipAttrs)
			d := dy // nothing at the ends themselves, as PyTorch 2.15 has it for clamp, hardtanh and relu6
			if !math.IsInf(a.Min, -1) {
				d = Where(b, Gt(b, x, ScalarLike(b, x, a.Min)), d, ScalarLike(b, dy, 0))
			}
			if !math.IsInf(a.Max, 1) {
				d = Where(b, Lt(b, x, ScalarLike(b, x, a.Max)), d, ScalarLike(b, dy, 0))
			}
			return []*ir.Value{d}
		}})
}

// clipInt bounds integers by whole numbers within the type's ends.
func clipInt[T int64 | uint64](lo, hi T) func(a any, x []T) T {
	return func(a any, x []T) T {
		c := a.(ClipAttrs)
		least, most := lo, hi
		if v := math.Ceil(c.Min); v >= float64(hi) {
			least = hi
		} else if v > float64(lo) {
			least = T(v)
		}
		if v := math.Floor(c.Max); v <= float64(lo) {
			most = lo
		} else if v < float64(hi) {
			most = T(v)
		}
		return min(max(x[0], least), most)
	}
}

// boundE leaves out a bound that is no bound: an infinite one, and for integers one at an end of the type or beyond,
// which they may not hold.
func boundE(num lit, x *kir.Expr, op string, v float64) *kir.Expr {
	if d := num(0).DType; d.IsInt() {
		lo, hi := d.Range()
		if op == "max" {
			v = math.Ceil(v)
		} else {
			v = math.Floor(v)
		}
		if op == "max" && v <= lo || op == "min" && v >= hi {
			return x
		}
		v = min(max(v, lo), hi)
	} else if math.IsInf(v, 0) {
		return x
	}
	return kir.Bin(op, x, num(v))
}

func above0(b *ir.Builder, x *ir.Value) *ir.Value { return Gt(b, x, ScalarLike(b, x, 0)) }

func addE(x, y *kir.Expr) *kir.Expr { return kir.Bin("add", x, y) }
func mulE(x, y *kir.Expr) *kir.Expr { return kir.Bin("mul", x, y) }

// geluExpr is gelu in scalar form.
func geluExpr(num lit, a any, x []*kir.Expr) *kir.Expr {
	v := x[0]
	if a.(GeluAttrs).Tanh {
		return mulE(mulE(num(0.5), v), addE(num(1), geluTanhE(num, v)))
	}
	return mulE(v, kir.Un("ncdf", v))
}

func geluTanhE(num lit, v *kir.Expr) *kir.Expr {
	cube := mulE(v, mulE(v, v))
	return kir.Un("tanh", mulE(num(geluRoot), addE(v, mulE(num(geluCube), cube))))
}
