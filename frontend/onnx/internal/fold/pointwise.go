// Package fold evaluates nodes whose operands are all known when a model is imported, and has the shape rules that this shares
// with the rules of operators.
package fold

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Func evaluates one node on the host. It panics through node.fail on inputs the operator does not allow;
// a nil entry of in is an optional input left out.
type Func func(n *model.Node, in []*ir.Array) []*ir.Array

// Funcs has the operators that are evaluated when all their inputs are known. Operators that depend on
// types alone (Shape, Size) or on subgraphs and sequences are rules.
var Funcs map[string]Func

func init() {
	Funcs = map[string]Func{
		"Identity": func(_ *model.Node, in []*ir.Array) []*ir.Array { return in[:1] },
		"Neg":      Unary(func(x float64) float64 { return -x }, func(x int64) int64 { return -x }),
		"Abs":      Unary(math.Abs, func(x int64) int64 { return max(x, -x) }),
		"Sign":     Unary(sign, func(x int64) int64 { return int64(sign(float64(x))) }),
		"Floor":    Unary(math.Floor, nil), "Ceil": Unary(math.Ceil, nil), "Round": Unary(math.RoundToEven, nil),
		"Sqrt": Unary(math.Sqrt, nil), "Exp": Unary(math.Exp, nil), "Log": Unary(math.Log, nil),
		"Sin": Unary(math.Sin, nil), "Cos": Unary(math.Cos, nil), "Tanh": Unary(math.Tanh, nil),
		"Erf": Unary(math.Erf, nil), "Reciprocal": Unary(func(x float64) float64 { return 1 / x }, nil),
		"Sigmoid": Unary(func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }, nil),
		"Relu":    Unary(func(x float64) float64 { return max(x, 0) }, func(x int64) int64 { return max(x, 0) }),
		"Not":     foldNot, "IsNaN": foldIsNaN, "IsInf": foldIsInf,
		"Add": Pointwise(func(a, b float64) float64 { return a + b }, func(a, b int64) int64 { return a + b }),
		"Sub": Pointwise(func(a, b float64) float64 { return a - b }, func(a, b int64) int64 { return a - b }),
		"Mul": Pointwise(func(a, b float64) float64 { return a * b }, func(a, b int64) int64 { return a * b }),
		"Div": foldDiv, "Mod": foldMod, "Pow": foldPow,
		"Max":         variadic(math.Max, func(a, b int64) int64 { return max(a, b) }),
		"Min":         variadic(math.Min, func(a, b int64) int64 { return min(a, b) }),
		"Sum":         variadic(func(a, b float64) float64 { return a + b }, func(a, b int64) int64 { return a + b }),
		"Equal":       compare(func(c int) bool { return c == 0 }),
		"Less":        compare(func(c int) bool { return c == -1 }),
		"LessOrEqual": compare(func(c int) bool { return c == -1 || c == 0 }),
		"Greater":     compare(func(c int) bool { return c == 1 }),
		"And":         Pointwise(nil, func(a, b int64) int64 { return a & b }),
		"Or":          Pointwise(nil, func(a, b int64) int64 { return a | b }),
		"Xor":         Pointwise(nil, func(a, b int64) int64 { return a ^ b }),
		"Where":       foldWhere,
		"Clip":        foldClip,
		"Reshape":     foldReshape,
		"Flatten":     foldFlatten,
		"Squeeze":     foldSqueeze,
		"Unsqueeze":   foldUnsqueeze,
		"Transpose":   foldTranspose,
		"Expand":      foldExpand,
		"Tile":        foldTile,
		"Concat":      Concat,
		"Slice":       foldSlice,
		"Split":       foldSplit,
		"Gather":      foldGather,
		"GatherND":    foldGatherND,
		"Range":       foldRange,
		"Trilu":       Trilu,
		"CumSum":      foldCumSum,
		"MatMul":      foldMatMul,
		"NonZero":     foldNonZero,
		"ReduceSum":   reduce(0, func(a, b float64) float64 { return a + b }, func(a, b int64) int64 { return a + b }, false),
		"ReduceProd":  reduce(1, func(a, b float64) float64 { return a * b }, func(a, b int64) int64 { return a * b }, false),
		"ReduceMean":  reduce(0, func(a, b float64) float64 { return a + b }, func(a, b int64) int64 { return a + b }, true),
		"ReduceMax":   reduce(math.Inf(-1), math.Max, func(a, b int64) int64 { return max(a, b) }, false),
		"ReduceMin":   reduce(math.Inf(1), math.Min, func(a, b int64) int64 { return min(a, b) }, false),
		"ConstantOfShape": func(n *model.Node, in []*ir.Array) []*ir.Array {
			return []*ir.Array{fill(n, ConstantValue(n), Ints(n, in[0]))}
		},
		"GreaterOrEqual": compare(func(c int) bool { return c == 1 || c == 0 }),
		"GatherElements": foldGatherElements,
	}
}

// Settle rounds floats to the element type and wraps integers to its width, as the operator would have.
func Settle(a *ir.Array) *ir.Array {
	switch d := a.Type.DType; {
	case d.IsFloat() && d != dtype.F64:
		Each(a.F, d.Round)
	case d.IsInt() && d.Bits() < 64:
		Each(a.I, d.Wrap)
	}
	return a
}

// Each replaces every element x of s by f(x).
func Each[T any](s []T, f func(T) T) {
	for i, x := range s {
		s[i] = f(x)
	}
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x
}

// Unary evaluates an operator of one operand by element: f on floats, g on integers; nil where it has none.
func Unary(f func(float64) float64, g func(int64) int64) Func {
	return func(n *model.Node, in []*ir.Array) []*ir.Array {
		out := n.Array(in[0].Type)
		switch {
		case in[0].F != nil && f != nil:
			for i, x := range in[0].F {
				out.F[i] = f(x)
			}
		case in[0].I != nil && g != nil:
			for i, x := range in[0].I {
				out.I[i] = g(x)
			}
		default:
			n.Fail("it is not defined for elements of type %s", in[0].Type.DType)
		}
		return []*ir.Array{Settle(out)}
	}
}

// Broadcast gives the NumPy broadcast of two shapes (ONNX Broadcasting.md), or false.
func Broadcast(a, b []int) ([]int, bool) {
	out := make([]int, max(len(a), len(b)))
	for i := range out {
		x, y := 1, 1
		if j := i - len(out) + len(a); j >= 0 {
			x = a[j]
		}
		if j := i - len(out) + len(b); j >= 0 {
			y = b[j]
		}
		switch {
		case x == y || y == 1:
			out[i] = x
		case x == 1:
			out[i] = y
		default:
			return nil, false
		}
	}
	return out, true
}

// spread copies a out to the larger dims by repeating dims of size 1.
func spread(n *model.Node, a *ir.Array, dims []int) *ir.Array {
	if slices.Equal(a.Type.Dims, dims) {
		return a
	}
	out := n.Array(ir.Type{DType: a.Type.DType, Dims: dims})
	strides, own := make([]int, len(dims)), ir.Strides(a.Type.Dims)
	for i, d := range a.Type.Dims {
		if d != 1 {
			strides[i+len(dims)-len(a.Type.Dims)] = own[i]
		}
	}
	pick(out, a, dims, strides, 0)
	return out
}

// pick fills out, row-major over dims, with the elements of a at base plus strides.
func pick(out, a *ir.Array, dims, strides []int, base int) {
	total := ir.Product(dims)
	index := make([]int, len(dims))
	at := base
	for i := range total {
		if a.F != nil {
			out.F[i] = a.F[at]
		} else {
			out.I[i] = a.I[at]
		}
		for d := len(dims) - 1; d >= 0; d-- {
			index[d]++
			at += strides[d]
			if index[d] < dims[d] {
				break
			}
			at -= strides[d] * dims[d]
			index[d] = 0
		}
	}
}

// pair checks two operands' types and broadcasts them against each other.
func pair(n *model.Node, a, b *ir.Array) (*ir.Array, *ir.Array) {
	if a.Type.DType != b.Type.DType {
		n.Fail("operands have different element types, %s and %s", a.Type.DType, b.Type.DType)
	}
	dims, ok := Broadcast(a.Type.Dims, b.Type.Dims)
	if !ok {
		n.Fail("operands of dims %v and %v do not broadcast", a.Type.Dims, b.Type.Dims)
	}
	return spread(n, a, dims), spread(n, b, dims)
}

// Pointwise evaluates an operator of two operands, broadcast to one another: f on floats, g on integers; nil where it has none.
func Pointwise(f func(a, b float64) float64, g func(a, b int64) int64) Func {
	return func(n *model.Node, in []*ir.Array) []*ir.Array {
		a, b := pair(n, in[0], in[1])
		out := n.Array(a.Type)
		switch {
		case a.F != nil && f != nil:
			for i, x := range a.F {
				out.F[i] = f(x, b.F[i])
			}
		case a.I != nil && g != nil:
			for i, x := range a.I {
				out.I[i] = g(x, b.I[i])
			}
		default:
			n.Fail("it is not defined for elements of type %s", a.Type.DType)
		}
		return []*ir.Array{Settle(out)}
	}
}

func variadic(f func(a, b float64) float64, g func(a, b int64) int64) Func {
	two := Pointwise(f, g)
	return func(n *model.Node, in []*ir.Array) []*ir.Array {
		acc := in[0]
		for _, x := range in[1:] {
			acc = two(n, []*ir.Array{acc, x})[0]
		}
		return []*ir.Array{acc}
	}
}

func compare(keep func(c int) bool) Func {
	return func(n *model.Node, in []*ir.Array) []*ir.Array {
		a, b := pair(n, in[0], in[1])
		out := n.Array(a.Type.With(dtype.Bool))
		for i := range out.I {
			var c int
			if a.F != nil {
				c = order(a.F[i], b.F[i])
			} else {
				c = order(a.I[i], b.I[i])
			}
			if keep(c) {
				out.I[i] = 1
			}
		}
		return []*ir.Array{out}
	}
}

// order is -1, 0 or 1, or 2 when a NaN makes the two unordered.
func order[T int64 | float64](x, y T) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	case x == y:
		return 0
	}
	return 2
}

func foldNot(n *model.Node, in []*ir.Array) []*ir.Array {
	if in[0].Type.DType != dtype.Bool {
		n.Fail("it is not defined for elements of type %s", in[0].Type.DType)
	}
	return Unary(nil, func(x int64) int64 { return 1 - x })(n, in)
}

func foldIsNaN(n *model.Node, in []*ir.Array) []*ir.Array {
	return flag(n, in[0], math.IsNaN)
}

func foldIsInf(n *model.Node, in []*ir.Array) []*ir.Array {
	neg, pos := n.Int("detect_negative", 1) != 0, n.Int("detect_positive", 1) != 0
	return flag(n, in[0], func(x float64) bool {
		return math.IsInf(x, 1) && pos || math.IsInf(x, -1) && neg
	})
}

func flag(n *model.Node, a *ir.Array, f func(float64) bool) []*ir.Array {
	out := n.Array(a.Type.With(dtype.Bool))
	for i, x := range a.F {
		if f(x) {
			out.I[i] = 1
		}
	}
	return []*ir.Array{out}
}

func foldDiv(n *model.Node, in []*ir.Array) []*ir.Array {
	return Pointwise(func(a, b float64) float64 { return a / b }, func(a, b int64) int64 {
		if b == 0 {
			n.Fail("integer division by zero")
		}
		return a / b
	})(n, in)
}

func foldMod(n *model.Node, in []*ir.Array) []*ir.Array {
	fmod := n.Int("fmod", 0) != 0
	return Pointwise(math.Mod, func(a, b int64) int64 {
		if b == 0 {
			n.Fail("integer division by zero")
		}
		r := a % b
		if !fmod && r != 0 && (r < 0) != (b < 0) {
			r += b // the sign of the divisor, as in Python
		}
		return r
	})(n, in)
}

func foldPow(n *model.Node, in []*ir.Array) []*ir.Array {
	to := in[0].Type.DType
	wide := to
	if !to.IsFloat() { // as NumPy: raised as f64, then truncated
		wide = dtype.F64
	}
	x, y := Cast(n, in[0], wide), Cast(n, in[1], wide) // exponents may have a type of their own
	return []*ir.Array{Cast(n, Pointwise(math.Pow, nil)(n, []*ir.Array{x, y})[0], to)}
}

func foldWhere(n *model.Node, in []*ir.Array) []*ir.Array {
	if in[0].Type.DType != dtype.Bool {
		n.Fail("the condition is %s, not bool", in[0].Type.DType)
	}
	a, b := pair(n, in[1], in[2])
	dims, ok := Broadcast(a.Type.Dims, in[0].Type.Dims)
	if !ok {
		n.Fail("a condition of dims %v and values of dims %v do not broadcast", in[0].Type.Dims, a.Type.Dims)
	}
	c := spread(n, in[0], dims)
	a, b = spread(n, a, dims), spread(n, b, dims)
	out := n.Array(a.Type)
	for i, yes := range c.I {
		from := b
		if yes != 0 {
			from = a
		}
		if out.F != nil {
			out.F[i] = from.F[i]
		} else {
			out.I[i] = from.I[i]
		}
	}
	return []*ir.Array{out}
}

func foldClip(n *model.Node, in []*ir.Array) []*ir.Array {
	out := in[0]
	lo, hi := n.Attrs["min"], n.Attrs["max"]
	if lo != nil || hi != nil { // opset 6 to 10
		l, h := n.Float("min", math.Inf(-1)), n.Float("max", math.Inf(1))
		return Unary(func(x float64) float64 { return min(max(x, l), h) }, nil)(n, in[:1])
	}
	if len(in) > 1 && in[1] != nil {
		out = Funcs["Max"](n, []*ir.Array{out, in[1]})[0]
	}
	if len(in) > 2 && in[2] != nil {
		out = Funcs["Min"](n, []*ir.Array{out, in[2]})[0]
	}
	return []*ir.Array{out}
}

// ConstantValue is ConstantOfShape's fill: the value attribute's one element, or f32 zero.
func ConstantValue(n *model.Node) *ir.Array {
	a := n.Attr("value", onnxpb.AttributeProto_TENSOR)
	if a == nil {
		return ir.NewArray(ir.T(dtype.F32, 1))
	}
	arr := n.TensorAttr(a)
	if arr.Type.Elems() != 1 {
		n.Fail("the value to fill with has %d elements, but must have one", arr.Type.Elems())
	}
	return arr
}
