package arrays

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

var shapeRows = []walk.Row{
	{Op: "Reshape", Since: 5, Min: 2, Max: 2, Rule: importReshape},
	{Op: "Flatten", Since: 1, Min: 1, Max: 1, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		return walk.Results(ops.Reshape(w.B, w.Value(in[0]), fold.FlattenDims(n, in[0].Type.Dims)))
	}},
	{Op: "Squeeze", Since: 1, Min: 1, Max: 1, Rule: importSqueeze},
	{Op: "Squeeze", Since: 13, Min: 1, Max: 2, Rule: importSqueeze},
	{Op: "Unsqueeze", Since: 1, Min: 1, Max: 1, Rule: importUnsqueeze},
	{Op: "Unsqueeze", Since: 13, Min: 2, Max: 2, Rule: importUnsqueeze},
	{Op: "Transpose", Since: 1, Min: 1, Max: 1, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		return walk.Results(ops.Transpose(w.B, w.Value(in[0]), fold.PermOf(n, len(in[0].Type.Dims))))
	}},
	{Op: "Expand", Since: 8, Min: 2, Max: 2, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		return walk.Results(w.Spread(in[0], fold.ExpandDims(n, in[0].Type.Dims, fold.Ints(n, MustKnow(w, n, in, 1)))))
	}},
	{Op: "Tile", Since: 6, Min: 2, Max: 2, Rule: importTile},
	{Op: "Concat", Since: 4, Min: 1, Max: -1, Rule: importConcat},
	{Op: "Slice", Since: 1, Min: 1, Max: 1, Rule: importSlice},
	{Op: "Slice", Since: 10, Min: 3, Max: 5, Rule: importSlice},
	{Op: "Split", Since: 2, Min: 1, Max: 1, Rule: importSplit},
	{Op: "Split", Since: 13, Min: 1, Max: 2, Rule: importSplit},
	{Op: "Gather", Since: 1, Min: 2, Max: 2, Rule: importGather},
}

// MustKnow is the contents of operand i, which must not depend on the model's inputs or parameters.
func MustKnow(w *walk.Walker, n *model.Node, in []*walk.Val, i int) *ir.Array {
	if i >= len(in) || in[i] == nil {
		return nil
	}
	a := w.Array(in[i])
	if a == nil {
		n.Fail("operand %d, %q, must be known when compiling, but it depends on the model's inputs or parameters%s", i, n.In[i], w.HintValue(in[i]))
	}
	return a
}

// MustKnowInts is the integer list in operand i when it is present, else the attribute (older opsets).
func MustKnowInts(w *walk.Walker, n *model.Node, in []*walk.Val, i int, attr string) []int {
	if a := MustKnow(w, n, in, i); a != nil {
		return fold.Ints(n, a)
	}
	if attr == "" {
		return nil
	}
	return n.Ints(attr)
}

func importReshape(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	return walk.Results(ops.Reshape(w.B, w.Value(in[0]), fold.ReshapeDims(n, in[0].Type.Dims, MustKnowInts(w, n, in, 1, ""))))
}

func importSqueeze(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	return walk.Results(ops.Reshape(w.B, w.Value(in[0]), fold.SqueezeDims(n, in[0].Type.Dims, MustKnowInts(w, n, in, 1, "axes"))))
}

func importUnsqueeze(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	return walk.Results(ops.Reshape(w.B, w.Value(in[0]), fold.UnsqueezeDims(n, in[0].Type.Dims, MustKnowInts(w, n, in, 1, "axes"))))
}

// importTile repeats by [d] -> [1,d] -> [r,d] -> [r*d] for each dim.
func importTile(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	reps, dims := MustKnowInts(w, n, in, 1, ""), in[0].Type.Dims
	if len(reps) != len(dims) {
		n.Fail("there are %d repeats for a tensor of %s", len(reps), printable.Count(len(dims), "dimension"))
	}
	var one, wide, out []int
	for i, d := range dims {
		one, wide, out = append(one, 1, d), append(wide, reps[i], d), append(out, reps[i]*d)
	}
	if _, err := model.Elements(wide); err != nil {
		n.Fail("repeats %v: %v", reps, err)
	}
	x := ops.Reshape(w.B, w.Value(in[0]), one)
	return walk.Results(ops.Reshape(w.B, ops.Expand(w.B, x, wide), out))
}

func importConcat(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	var xs []*ir.Value
	axis := fold.ConcatAxis(n, len(in[0].Type.Dims))
	for _, x := range in {
		if x == nil {
			n.Fail("an operand is left out")
		}
		if len(x.Type.Dims) == len(in[0].Type.Dims) && x.Type.Dims[axis] == 0 {
			continue // an empty part, such as a key cache before the first token
		}
		xs = append(xs, w.Value(x))
	}
	if len(xs) == 0 {
		return walk.Results(w.Value(in[0]))
	}
	return walk.Results(ops.Concat(w.B, axis, xs...))
}

func importSlice(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	arrays := make([]*ir.Array, len(in))
	for i := 1; i < len(in); i++ {
		arrays[i] = MustKnow(w, n, in, i)
	}
	return walk.Results(Cut(w, w.Value(in[0]), fold.SliceInputs(n, in[0].Type.Dims, arrays)))
}

// Cut takes the elements of a slice; backward steps go through a gather of reversed indices.
func Cut(w *walk.Walker, x *ir.Value, cuts []fold.Cut) *ir.Value {
	starts, sizes, steps := make([]int, len(cuts)), make([]int, len(cuts)), make([]int, len(cuts))
	for i, c := range cuts {
		starts[i], sizes[i], steps[i] = c.Start, c.Count, c.Step
		if c.Step < 0 {
			starts[i], sizes[i], steps[i] = 0, x.Type.Dims[i], 1
		}
		if c.Count <= 1 && c.Step > 0 {
			steps[i] = 1
		}
		if c.Count == 0 && c.Step > 0 {
			starts[i] = 0
		}
	}
	x = ops.Slice(w.B, x, starts, sizes, steps)
	for i, c := range cuts {
		if c.Step > 0 {
			continue
		}
		index := ir.NewArray(ir.T(dtype.I64, c.Count))
		for k := range index.I {
			index.I[k] = int64(c.Start + k*c.Step)
		}
		x = ops.Gather(w.B, x, ops.Const(w.B, index.Tensor()), i)
	}
	return x
}

func importSplit(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	axis := n.Dim(n.Int("axis", 0), len(in[0].Type.Dims))
	num := len(n.Out)
	if n.Opset >= 18 {
		num = n.Int("num_outputs", num)
	}
	sizes := fold.SplitSizes(n, in[0].Type.Dims[axis], MustKnowInts(w, n, in, 1, "split"), num)
	return walk.Results(Parts(w, w.Value(in[0]), axis, sizes)...)
}

// Parts cuts x along axis into parts of the given sizes.
func Parts(w *walk.Walker, x *ir.Value, axis int, sizes []int) []*ir.Value {
	var out []*ir.Value
	at := 0
	for _, s := range sizes {
		out = append(out, ops.SliceDim(w.B, x, axis, at, s))
		at += s
	}
	return out
}

// importGather is embedding lookup and indexing. One known index is a slice; known indices that repeat (all
// token types zero, for each sample of a batch) are gathered once and expanded.
func importGather(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, dims := w.Value(in[0]), in[0].Type.Dims
	axis := n.Dim(n.Int("axis", 0), len(dims))
	index := w.Array(in[1])
	if pad := w.PaddingRow(n, dims); pad >= 0 && axis == 0 {
		return walk.Results(ops.Embed(w.B, x, w.Value(in[1]), pad))
	}
	if index == nil {
		if axis == 0 {
			w.HintPadding(n, dims)
		}
		return walk.Results(ops.Gather(w.B, x, w.Value(in[1]), axis))
	}
	fold.Ints(n, index)
	for _, i := range index.I {
		fold.Wrap(n, i, dims[axis])
	}
	small := walk.Shrink(index)
	want := slices.Concat(dims[:axis], index.Type.Dims, dims[axis+1:])
	var y *ir.Value
	if len(small.I) == 1 {
		y = ops.SliceDim(w.B, x, axis, fold.Wrap(n, small.I[0], dims[axis]), 1)
	} else {
		y = ops.Gather(w.B, x, ops.Const(w.B, small.Tensor()), axis)
	}
	y = ops.Reshape(w.B, y, slices.Concat(dims[:axis], small.Type.Dims, dims[axis+1:]))
	return walk.Results(ops.Expand(w.B, y, want))
}
