package ops

import (
	"math"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// The gradients of the activations that are not short compositions.
var (
	GeluGradDef = ir.NewOp("gelu_grad")
	SiluGradDef = ir.NewOp("silu_grad")
)

// GeluGradAttrs: Tanh means the tanh approximation.
type GeluGradAttrs struct{ Tanh bool }

// GeluGrad is dy*gelu'(x).
func GeluGrad(b *ir.Builder, x, dy *ir.Value, tanh bool) *ir.Value {
	return b.Emit(GeluGradDef, GeluGradAttrs{tanh}, x, dy)
}

// SiluGrad is dy*silu'(x).
func SiluGrad(b *ir.Builder, x, dy *ir.Value) *ir.Value { return b.Emit(SiluGradDef, nil, x, dy) }

// The tanh form of gelu is x/2*(1+tanh(geluRoot*(x+geluCube*x^3))) (Hendrycks and Gimpel, 2016).
const (
	geluRoot = 0.7978845608028654 // sqrt(2/pi)
	geluCube = 0.044715
)

func init() {
	pointwise(GeluGradDef, pw{n: 2, doc: "dy times the derivative of gelu at x", attrs: GeluGradAttrs{},
		facts: ir.Facts{Activation: geluName("dgelu", func(op *ir.Op) bool { return op.Attrs.(GeluGradAttrs).Tanh })},
		try:   []any{GeluGradAttrs{}, GeluGradAttrs{true}}, f: evalGeluGrad, expr: geluGradExpr, vjp: geluGradVJP})
	pointwise(SiluGradDef, pw{n: 2, doc: "dy times the derivative of silu at x",
		f: func(_ any, x []float64) float64 {
			s := 1 / (1 + math.Exp(-x[0]))
			return x[1] * s * (1 + x[0]*(1-s))
		},
		expr: siluGradExpr, vjp: siluGradVJP})
}

// geluName is ir.Facts.Activation of gelu or its derivative, from the name of the exact form.
func geluName(exact string, tanh func(op *ir.Op) bool) func(op *ir.Op) string {
	return func(op *ir.Op) string {
		if tanh(op) {
			return exact + "_tanh"
		}
		return exact
	}
}

// evalGeluGrad: for the exact form, Phi(x) + x*phi(x).
func evalGeluGrad(a any, x []float64) float64 {
	v, dy := x[0], x[1]
	if a.(GeluGradAttrs).Tanh {
		t := math.Tanh(geluRoot * (v + geluCube*v*v*v))
		return dy * (0.5*(1+t) + 0.5*v*(1-t*t)*geluRoot*(1+3*geluCube*v*v))
	}
	return dy * (0.5*(1+math.Erf(v/math.Sqrt2)) + v*math.Exp(-v*v/2)/math.Sqrt(2*math.Pi))
}

// term is a tiny algebra over expressions of one type, so that formulas read as such.
type term struct {
	e   *kir.Expr
	num lit
}

func (t term) bin(op string, u term) term { return term{kir.Bin(op, t.e, u.e), t.num} }
func (t term) add(u term) term            { return t.bin("add", u) }
func (t term) mul(u term) term            { return t.bin("mul", u) }
func (t term) un(op string) term          { return term{kir.Un(op, t.e), t.num} }
func (t term) lit(v float64) term         { return term{t.num(v), t.num} }
func (t term) plus(v float64) term        { return t.add(t.lit(v)) }
func (t term) scaled(v float64) term      { return t.mul(t.lit(v)) }
func (t term) oneMinus() term             { return t.lit(1).bin("sub", t) }

func geluGradExpr(num lit, a any, arg []*kir.Expr) *kir.Expr {
	x, dy := term{arg[0], num}, term{arg[1], num}
	if a.(GeluGradAttrs).Tanh {
		t := x.mul(x.mul(x).scaled(geluCube).plus(1)).scaled(geluRoot).un("tanh")
		slope := x.mul(x).scaled(3 * geluCube * geluRoot).plus(geluRoot)
		return dy.mul(t.plus(1).add(x.mul(t.mul(t).oneMinus()).mul(slope)).scaled(0.5)).e
	}
	phi := x.mul(x).scaled(-0.5).un("exp").scaled(1 / math.Sqrt(2*math.Pi))
	return dy.mul(x.un("ncdf").add(x.mul(phi))).e
}

func siluGradExpr(num lit, _ any, arg []*kir.Expr) *kir.Expr {
	x, dy := term{arg[0], num}, term{arg[1], num}
	s := x.un("sigmoid")
	return dy.mul(s).mul(x.mul(s.oneMinus()).plus(1)).e
}

// geluGradVJP: dy's gradient is gelu' itself, x's needs the second derivative.
func geluGradVJP(b *ir.Builder, op *ir.Op, g *ir.Value) []*ir.Value {
	x, tanh := op.In[0], op.Attrs.(GeluGradAttrs).Tanh
	gdy := Mul(b, g, op.In[1])
	xx := Square(b, x)
	var second *ir.Value
	if tanh {
		// With t = tanh(u): gelu'' = (1-t^2)*(u' + x*u''/2 - x*t*u'^2).
		t := Tanh(b, MulScalar(b, Mul(b, x, AddScalar(b, MulScalar(b, xx, geluCube), 1)), geluRoot))
		u1 := AddScalar(b, MulScalar(b, xx, 3*geluCube*geluRoot), geluRoot)
		half := MulScalar(b, xx, 3*geluCube*geluRoot) // x*u''/2
		second = Mul(b, oneMinus(b, Square(b, t)), Sub(b, Add(b, u1, half), Mul(b, Mul(b, x, t), Square(b, u1))))
	} else {
		phi := MulScalar(b, Exp(b, MulScalar(b, xx, -0.5)), 1/math.Sqrt(2*math.Pi))
		second = Mul(b, phi, Sub(b, ScalarLike(b, x, 2), xx))
	}
	return []*ir.Value{Mul(b, gdy, second), GeluGrad(b, x, g, tanh)}
}

// siluGradVJP: silu” = s(1-s)(2 + x(1-2s)).
func siluGradVJP(b *ir.Builder, op *ir.Op, g *ir.Value) []*ir.Value {
	x := op.In[0]
	s := Sigmoid(b, x)
	curve := AddScalar(b, Mul(b, x, oneMinus(b, MulScalar(b, s, 2))), 2)
	second := Mul(b, Mul(b, s, oneMinus(b, s)), curve)
	return []*ir.Value{Mul(b, Mul(b, g, op.In[1]), second), SiluGrad(b, x, g)}
}
