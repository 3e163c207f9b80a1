package arrays

import (
	"math"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var pointwiseRows = []walk.Row{
	{Op: "Abs", Since: 6, Min: 1, Max: 1, Rule: Map1(ops.Abs)},
	{Op: "Ceil", Since: 6, Min: 1, Max: 1, Rule: Map1(ops.Ceil)},
	{Op: "Cos", Since: 7, Min: 1, Max: 1, Rule: Map1(ops.Cos)},
	{Op: "Erf", Since: 9, Min: 1, Max: 1, Rule: Map1(ops.Erf)},
	{Op: "Exp", Since: 6, Min: 1, Max: 1, Rule: Map1(ops.Exp)},
	{Op: "Floor", Since: 6, Min: 1, Max: 1, Rule: Map1(ops.Floor)},
	{Op: "Log", Since: 6, Min: 1, Max: 1, Rule: Map1(ops.Log)},
	{Op: "Neg", Since: 6, Min: 1, Max: 1, Rule: Map1(ops.Neg)},
	{Op: "Not", Since: 1, Min: 1, Max: 1, Rule: Map1(ops.Not)},
	{Op: "Reciprocal", Since: 6, Min: 1, Max: 1, Rule: Map1(ops.Recip)},
	{Op: "Relu", Since: 6, Min: 1, Max: 1, Rule: Map1(ops.Relu)},
	{Op: "Round", Since: 11, Min: 1, Max: 1, Rule: Map1(ops.Round)},
	{Op: "Sigmoid", Since: 6, Min: 1, Max: 1, Rule: Map1(ops.Sigmoid)},
	{Op: "Sign", Since: 9, Min: 1, Max: 1, Rule: Map1(ops.Sign)},
	{Op: "Sin", Since: 7, Min: 1, Max: 1, Rule: Map1(ops.Sin)},
	{Op: "Sqrt", Since: 6, Min: 1, Max: 1, Rule: Map1(ops.Sqrt)},
	{Op: "Tanh", Since: 6, Min: 1, Max: 1, Rule: Map1(ops.Tanh)},

	{Op: "Add", Since: 7, Min: 2, Max: 2, Rule: Map2(ops.Add)},
	{Op: "Sub", Since: 7, Min: 2, Max: 2, Rule: Map2(ops.Sub)},
	{Op: "Mul", Since: 7, Min: 2, Max: 2, Rule: Map2(ops.Mul)},
	{Op: "Div", Since: 7, Min: 2, Max: 2, Rule: Map2(ops.Div)},
	{Op: "Mod", Since: 10, Min: 2, Max: 2, Rule: importMod},
	{Op: "Pow", Since: 7, Min: 2, Max: 2, Rule: importPow},
	{Op: "And", Since: 7, Min: 2, Max: 2, Rule: Map2(ops.And)},
	{Op: "Or", Since: 7, Min: 2, Max: 2, Rule: Map2(ops.Or)},
	{Op: "Xor", Since: 7, Min: 2, Max: 2, Rule: Map2(ops.Xor)},
	{Op: "Equal", Since: 7, Min: 2, Max: 2, Rule: Map2(ops.Eq)},
	{Op: "Less", Since: 7, Min: 2, Max: 2, Rule: Map2(ops.Lt)},
	{Op: "LessOrEqual", Since: 12, Min: 2, Max: 2, Rule: Map2(ops.Le)},
	{Op: "Greater", Since: 7, Min: 2, Max: 2, Rule: Map2(ops.Gt)},
	{Op: "GreaterOrEqual", Since: 12, Min: 2, Max: 2, Rule: Map2(ops.Ge)},
	{Op: "Max", Since: 6, Min: 1, Max: -1, Rule: MapN(ops.Maximum)},
	{Op: "Min", Since: 6, Min: 1, Max: -1, Rule: MapN(ops.Minimum)},
	{Op: "Sum", Since: 6, Min: 1, Max: -1, Rule: MapN(ops.Add)},
	{Op: "Mean", Since: 6, Min: 1, Max: -1, Rule: importMean},
	{Op: "Where", Since: 9, Min: 3, Max: 3, Rule: importWhere},
	{Op: "Clip", Since: 6, Min: 1, Max: 3, Rule: importClip},
}

// Map1 is the rule of an operator of one operand that is one op.
func Map1(f func(*ir.Builder, *ir.Value) *ir.Value) walk.Rule {
	return func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		return walk.Results(f(w.B, w.Value(in[0])))
	}
}

// Pair brings two operands to their common shape.
func Pair(w *walk.Walker, n *model.Node, x, y *walk.Val) (*ir.Value, *ir.Value) {
	if x.Type.DType != y.Type.DType {
		n.Fail("operand 0 is %s, operand 1 is %s: element types must agree", x.Type, y.Type)
	}
	dims, ok := fold.Broadcast(x.Type.Dims, y.Type.Dims)
	if !ok {
		n.Fail("operand 0 is %s, operand 1 is %s: the shapes do not broadcast", x.Type, y.Type)
	}
	return w.Spread(x, dims), w.Spread(y, dims)
}

// Map2 is the rule of an operator of two operands, broadcast to one another, that is one op.
func Map2(f func(b *ir.Builder, x, y *ir.Value) *ir.Value) walk.Rule {
	return func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		x, y := Pair(w, n, in[0], in[1])
		return walk.Results(f(w.B, x, y))
	}
}

// MapN is map2 applied from the left to any number of operands.
func MapN(f func(b *ir.Builder, x, y *ir.Value) *ir.Value) walk.Rule {
	two := Map2(f)
	return func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		acc := in[0]
		for _, x := range in[1:] {
			if x == nil {
				n.Fail("an operand is left out")
			}
			acc = two(w, n, []*walk.Val{acc, x})[0]
		}
		return walk.Results(w.Value(acc))
	}
}

func importMean(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	sum := MapN(ops.Add)(w, n, in)[0]
	return walk.Results(ops.MulScalar(w.B, sum.Value, 1/float64(len(in))))
}

func importMod(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	if n.Int("fmod", 0) != 0 {
		return Map2(ops.FMod)(w, n, in)
	}
	return Map2(ops.Mod)(w, n, in)
}

// importPow writes small constant powers as products: exporters spell x*x and x*x*x so, and the general power
// is slow and has no gradient for negative bases.
func importPow(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x := w.Value(in[0])
	if e := w.Array(in[1]); e != nil && e.Type.Elems() == 1 && len(e.Type.Dims) <= len(x.Type.Dims) {
		p := 0.0
		if e.F != nil {
			p = e.F[0]
		} else {
			p = float64(e.I[0])
		}
		if p != 1 && p != 2 && p != 3 && !x.Type.DType.IsFloat() {
			p = 0 // none of the roots
		}
		switch p {
		case 1:
			return walk.Results(x)
		case 2:
			return walk.Results(ops.Square(w.B, x))
		case 3:
			return walk.Results(ops.Mul(w.B, ops.Square(w.B, x), x))
		case 0.5:
			return walk.Results(ops.Sqrt(w.B, x))
		case -0.5:
			return walk.Results(ops.Rsqrt(w.B, x))
		case -1:
			return walk.Results(ops.Recip(w.B, x))
		}
	}
	to, y := x.Type.DType, in[1]
	if !to.IsFloat() { // as NumPy: raised as f64, then truncated
		x = ops.Cast(w.B, x, dtype.F64)
	}
	if y.Type.DType != x.Type.DType {
		y = walk.Results(ops.Cast(w.B, w.Value(y), x.Type.DType))[0]
	}
	z := Map2(ops.Pow)(w, n, []*walk.Val{walk.Results(x)[0], y})[0]
	return walk.Results(ops.Cast(w.B, z.Value, to))
}

func importWhere(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	if in[0].Type.DType != dtype.Bool || in[1].Type.DType != in[2].Type.DType {
		n.Fail("operands are %s, %s and %s, but must be a bool condition and two tensors of the same type", in[0].Type, in[1].Type, in[2].Type)
	}
	dims, ok := fold.Broadcast(in[1].Type.Dims, in[2].Type.Dims)
	if ok {
		dims, ok = fold.Broadcast(in[0].Type.Dims, dims)
	}
	if !ok {
		n.Fail("operands are %s, %s and %s, which do not broadcast", in[0].Type, in[1].Type, in[2].Type)
	}
	return walk.Results(ops.Where(w.B, w.Spread(in[0], dims), w.Spread(in[1], dims), w.Spread(in[2], dims)))
}

func importClip(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	lo, hi := math.Inf(-1), math.Inf(1)
	known := true
	bound := func(i int, name string, to *float64) {
		switch {
		case n.Opset < 11:
			*to = n.Float(name, *to)
		case i < len(in) && in[i] != nil:
			a := w.Array(in[i])
			if a == nil || a.Type.Elems() != 1 {
				known = false
			} else if a.F != nil {
				*to = a.F[0]
			} else {
				*to = float64(a.I[0])
			}
		}
	}
	bound(1, "min", &lo)
	bound(2, "max", &hi)
	x := w.Value(in[0])
	if known && x.Type.DType.IsFloat() {
		return walk.Results(ops.Clip(w.B, x, lo, hi))
	}
	acc := in[0]
	if len(in) > 1 && in[1] != nil {
		acc = Map2(ops.Maximum)(w, n, []*walk.Val{acc, in[1]})[0]
	}
	if len(in) > 2 && in[2] != nil {
		acc = Map2(ops.Minimum)(w, n, []*walk.Val{acc, in[2]})[0]
	}
	return walk.Results(w.Value(acc))
}

// Root is the p-th root of sums of powers. Its gradient at zero is zero, as that of a norm in PyTorch.
func Root(b *ir.Builder, s *ir.Value, p float64) *ir.Value {
	if p == 1 {
		return s
	}
	none, one := ops.Eq(b, s, ops.Zeros(b, s.Type)), ops.ScalarLike(b, s, 1)
	safe := ops.Where(b, none, one, s)
	r := ops.Sqrt(b, safe)
	if p != 2 {
		r = ops.Pow(b, safe, ops.ScalarLike(b, s, 1/p))
	}
	return ops.Where(b, none, ops.Zeros(b, s.Type), r)
}
