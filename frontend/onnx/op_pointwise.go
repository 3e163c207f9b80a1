package onnx

import (
	"math"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var pointwiseRows = []row{
	{op: "Abs", since: 6, min: 1, max: 1, rule: map1(ops.Abs)},
	{op: "Ceil", since: 6, min: 1, max: 1, rule: map1(ops.Ceil)},
	{op: "Cos", since: 7, min: 1, max: 1, rule: map1(ops.Cos)},
	{op: "Erf", since: 9, min: 1, max: 1, rule: map1(ops.Erf)},
	{op: "Exp", since: 6, min: 1, max: 1, rule: map1(ops.Exp)},
	{op: "Floor", since: 6, min: 1, max: 1, rule: map1(ops.Floor)},
	{op: "Log", since: 6, min: 1, max: 1, rule: map1(ops.Log)},
	{op: "Neg", since: 6, min: 1, max: 1, rule: map1(ops.Neg)},
	{op: "Not", since: 1, min: 1, max: 1, rule: map1(ops.Not)},
	{op: "Reciprocal", since: 6, min: 1, max: 1, rule: map1(ops.Recip)},
	{op: "Relu", since: 6, min: 1, max: 1, rule: map1(ops.Relu)},
	{op: "Round", since: 11, min: 1, max: 1, rule: map1(ops.Round)},
	{op: "Sigmoid", since: 6, min: 1, max: 1, rule: map1(ops.Sigmoid)},
	{op: "Sign", since: 9, min: 1, max: 1, rule: map1(ops.Sign)},
	{op: "Sin", since: 7, min: 1, max: 1, rule: map1(ops.Sin)},
	{op: "Sqrt", since: 6, min: 1, max: 1, rule: map1(ops.Sqrt)},
	{op: "Tanh", since: 6, min: 1, max: 1, rule: map1(ops.Tanh)},

	{op: "Add", since: 7, min: 2, max: 2, rule: map2(ops.Add)},
	{op: "Sub", since: 7, min: 2, max: 2, rule: map2(ops.Sub)},
	{op: "Mul", since: 7, min: 2, max: 2, rule: map2(ops.Mul)},
	{op: "Div", since: 7, min: 2, max: 2, rule: map2(ops.Div)},
	{op: "Mod", since: 10, min: 2, max: 2, rule: importMod},
	{op: "Pow", since: 7, min: 2, max: 2, rule: importPow},
	{op: "And", since: 7, min: 2, max: 2, rule: map2(ops.And)},
	{op: "Or", since: 7, min: 2, max: 2, rule: map2(ops.Or)},
	{op: "Xor", since: 7, min: 2, max: 2, rule: map2(ops.Xor)},
	{op: "Equal", since: 7, min: 2, max: 2, rule: map2(ops.Eq)},
	{op: "Less", since: 7, min: 2, max: 2, rule: map2(ops.Lt)},
	{op: "LessOrEqual", since: 12, min: 2, max: 2, rule: map2(ops.Le)},
	{op: "Greater", since: 7, min: 2, max: 2, rule: map2(ops.Gt)},
	{op: "GreaterOrEqual", since: 12, min: 2, max: 2, rule: map2(ops.Ge)},
	{op: "Max", since: 6, min: 1, max: -1, rule: mapN(ops.Maximum)},
	{op: "Min", since: 6, min: 1, max: -1, rule: mapN(ops.Minimum)},
	{op: "Sum", since: 6, min: 1, max: -1, rule: mapN(ops.Add)},
	{op: "Mean", since: 6, min: 1, max: -1, rule: importMean},
	{op: "Where", since: 9, min: 3, max: 3, rule: importWhere},
	{op: "Clip", since: 6, min: 1, max: 3, rule: importClip},
}

// outs wraps program values as results.
func outs(vs ...*ir.Value) []*val {
	out := make([]*val, len(vs))
	for i, v := range vs {
		if v != nil {
			out[i] = &val{t: v.Type, v: v}
		}
	}
	return out
}

func map1(f func(*ir.Builder, *ir.Value) *ir.Value) rule {
	return func(w *walker, n *node, in []*val) []*val { return outs(f(w.b, w.value(in[0]))) }
}

// pair brings two operands to their common shape.
func (w *walker) pair(n *node, x, y *val) (*ir.Value, *ir.Value) {
	if x.t.DType != y.t.DType {
		n.fail("operand 0 is %s, operand 1 is %s: element types must agree", x.t, y.t)
	}
	dims, ok := broadcast(x.t.Dims, y.t.Dims)
	if !ok {
		n.fail("operand 0 is %s, operand 1 is %s: the shapes do not broadcast", x.t, y.t)
	}
	return w.spread(x, dims), w.spread(y, dims)
}

func map2(f func(b *ir.Builder, x, y *ir.Value) *ir.Value) rule {
	return func(w *walker, n *node, in []*val) []*val {
		x, y := w.pair(n, in[0], in[1])
		return outs(f(w.b, x, y))
	}
}

func mapN(f func(b *ir.Builder, x, y *ir.Value) *ir.Value) rule {
	two := map2(f)
	return func(w *walker, n *node, in []*val) []*val {
		acc := in[0]
		for _, x := range in[1:] {
			if x == nil {
				n.fail("an operand is left out")
			}
			acc = two(w, n, []*val{acc, x})[0]
		}
		return outs(w.value(acc))
	}
}

func importMean(w *walker, n *node, in []*val) []*val {
	sum := mapN(ops.Add)(w, n, in)[0]
	return outs(ops.MulScalar(w.b, sum.v, 1/float64(len(in))))
}

func importMod(w *walker, n *node, in []*val) []*val {
	if n.int("fmod", 0) != 0 {
		return map2(ops.FMod)(w, n, in)
	}
	return map2(ops.Mod)(w, n, in)
}

// importPow writes small constant powers as products: exporters spell x*x and x*x*x so, and the general power
// is slow and has no gradient for negative bases.
func importPow(w *walker, n *node, in []*val) []*val {
	x := w.value(in[0])
	if e := w.array(in[1]); e != nil && e.Type.Elems() == 1 && len(e.Type.Dims) <= len(x.Type.Dims) {
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
			return outs(x)
		case 2:
			return outs(ops.Square(w.b, x))
		case 3:
			return outs(ops.Mul(w.b, ops.Square(w.b, x), x))
		case 0.5:
			return outs(ops.Sqrt(w.b, x))
		case -0.5:
			return outs(ops.Rsqrt(w.b, x))
		case -1:
			return outs(ops.Recip(w.b, x))
		}
	}
	to, y := x.Type.DType, in[1]
	if !to.IsFloat() { // as NumPy: raised as f64, then truncated
		x = ops.Cast(w.b, x, dtype.F64)
	}
	if y.t.DType != x.Type.DType {
		y = outs(ops.Cast(w.b, w.value(y), x.Type.DType))[0]
	}
	z := map2(ops.Pow)(w, n, []*val{outs(x)[0], y})[0]
	return outs(ops.Cast(w.b, z.v, to))
}

func importWhere(w *walker, n *node, in []*val) []*val {
	if in[0].t.DType != dtype.Bool || in[1].t.DType != in[2].t.DType {
		n.fail("operands are %s, %s and %s: want a condition and two of one type", in[0].t, in[1].t, in[2].t)
	}
	dims, ok := broadcast(in[1].t.Dims, in[2].t.Dims)
	if ok {
		dims, ok = broadcast(in[0].t.Dims, dims)
	}
	if !ok {
		n.fail("operands %s, %s and %s do not broadcast", in[0].t, in[1].t, in[2].t)
	}
	return outs(ops.Where(w.b, w.spread(in[0], dims), w.spread(in[1], dims), w.spread(in[2], dims)))
}

func importClip(w *walker, n *node, in []*val) []*val {
	lo, hi := math.Inf(-1), math.Inf(1)
	known := true
	bound := func(i int, name string, to *float64) {
		switch {
		case n.opset < 11:
			*to = n.float(name, *to)
		case i < len(in) && in[i] != nil:
			a := w.array(in[i])
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
	x := w.value(in[0])
	if known && x.Type.DType.IsFloat() {
		return outs(ops.Clip(w.b, x, lo, hi))
	}
	acc := in[0]
	if len(in) > 1 && in[1] != nil {
		acc = map2(ops.Maximum)(w, n, []*val{acc, in[1]})[0]
	}
	if len(in) > 2 && in[2] != nil {
		acc = map2(ops.Minimum)(w, n, []*val{acc, in[2]})[0]
	}
	return outs(w.value(acc))
}
