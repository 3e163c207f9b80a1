package walk

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Opsets 1 to 6 (2017) differ from 7 in how operands broadcast and where attributes are. Their nodes are raised to opset 7
// when they are listed; what depends on operands' shapes is done when the node is visited. Sources: Changelog.md of
// ONNX, versions 1, 2, 4, 5 and 6 of each operator.

// axisBroadcast are the operators whose second operand, before opset 7, is repeated to the first's dims when broadcast is
// set, its own dims beginning at axis.
var axisBroadcast = []string{"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater"}

// aligned brings operands of a node from before opset 7 to the form that the later operator wants.
func (w *Walker) aligned(n *model.Node, in []*Val) []*Val {
	switch {
	case n.From == 0 || len(in) < 2 || in[0] == nil || in[1] == nil:
		return in
	case slices.Contains(axisBroadcast, n.Op):
		if n.Int("broadcast", 0) == 0 {
			if len(in[0].Type.Dims) != 0 && !slices.Equal(in[0].Type.Dims, in[1].Type.Dims) {
				n.Fail("operands are %s and %s, but must have equal dims, without broadcasting", in[0].Type, in[1].Type)
			}
			return in
		}
		if n.Attrs["axis"] != nil {
			return []*Val{in[0], w.placed(n, in[1], in[0].Type.Dims, n.Int("axis", 0))}
		}
	case n.Op == "PRelu" && len(in[0].Type.Dims) > 1 && len(in[1].Type.Dims) == 1 && in[1].Type.Elems() > 1:
		return []*Val{in[0], w.placed(n, in[1], in[0].Type.Dims, 1)} // one slope per channel
	case n.Op == "Tile" && len(in) == 3 && in[2] != nil:
		return w.tiles(n, in)
	}
	return in
}

// placed reshapes x so that its dims lie at those of dims from axis on.
func (w *Walker) placed(n *model.Node, x *Val, dims []int, axis int) *Val {
	axis = n.Dim(axis, len(dims))
	if axis+len(x.Type.Dims) > len(dims) {
		n.Fail("operand 1 is %s, which does not fit into dims %v from axis %d on", x.Type, dims, axis)
	}
	d := append(slices.Repeat([]int{1}, axis), x.Type.Dims...)
	d = append(d, slices.Repeat([]int{1}, len(dims)-len(d))...)
	d = d[axis:] // leading ones need not be written
	if a := w.Array(x); a != nil {
		return &Val{Type: ir.Type{DType: x.Type.DType, Dims: d}, Array: &ir.Array{Type: ir.Type{DType: x.Type.DType, Dims: d}, F: a.F, I: a.I}}
	}
	return Results(ops.Reshape(w.B, w.Value(x), d))[0]
}

// tiles gives the operands of Tile from those of its first form: a number of copies, and the axis to make them along.
func (w *Walker) tiles(n *model.Node, in []*Val) []*Val {
	count, axis := w.Array(in[1]), w.Array(in[2])
	if count == nil || axis == nil || count.Type.Elems() != 1 || axis.Type.Elems() != 1 {
		n.Fail("the number of tiles and the axis must be known when compiling%s", w.HintValue(in[1:]...))
	}
	number := func(a *ir.Array) int64 {
		if a.F != nil {
			return int64(a.F[0])
		}
		return a.I[0]
	}
	repeats := ir.NewArray(ir.T(dtype.I64, len(in[0].Type.Dims)))
	for i := range repeats.I {
		repeats.I[i] = 1
	}
	repeats.I[n.Dim(int(number(axis)), len(in[0].Type.Dims))] = number(count)
	return []*Val{in[0], {Type: repeats.Type, Array: repeats}}
}
