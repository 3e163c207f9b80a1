package onnx

import (
	"slices"
	"strconv"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var shapeRows = []row{
	{op: "Reshape", since: 5, min: 2, max: 2, rule: importReshape},
	{op: "Flatten", since: 1, min: 1, max: 1, rule: func(w *walker, n *node, in []*val) []*val {
		return outs(ops.Reshape(w.b, w.value(in[0]), flattenDims(n, in[0].t.Dims)))
	}},
	{op: "Squeeze", since: 1, min: 1, max: 1, rule: importSqueeze},
	{op: "Squeeze", since: 13, min: 1, max: 2, rule: importSqueeze},
	{op: "Unsqueeze", since: 1, min: 1, max: 1, rule: importUnsqueeze},
	{op: "Unsqueeze", since: 13, min: 2, max: 2, rule: importUnsqueeze},
	{op: "Transpose", since: 1, min: 1, max: 1, rule: func(w *walker, n *node, in []*val) []*val {
		return outs(ops.Transpose(w.b, w.value(in[0]), permOf(n, len(in[0].t.Dims))))
	}},
	{op: "Expand", since: 8, min: 2, max: 2, rule: func(w *walker, n *node, in []*val) []*val {
		return outs(w.spread(in[0], expandDims(n, in[0].t.Dims, toInts(n, w.known(n, in, 1)))))
	}},
	{op: "Tile", since: 6, min: 2, max: 2, rule: importTile},
	{op: "Concat", since: 4, min: 1, max: -1, rule: importConcat},
	{op: "Slice", since: 1, min: 1, max: 1, rule: importSlice},
	{op: "Slice", since: 10, min: 3, max: 5, rule: importSlice},
	{op: "Split", since: 2, min: 1, max: 1, rule: importSplit},
	{op: "Split", since: 13, min: 1, max: 2, rule: importSplit},
	{op: "Gather", since: 1, min: 2, max: 2, rule: importGather},
}

// known is the contents of operand i, which must not depend on the model's inputs or parameters.
func (w *walker) known(n *node, in []*val, i int) *ir.Array {
	if i >= len(in) || in[i] == nil {
		return nil
	}
	a := w.array(in[i])
	if a == nil {
		n.fail("operand %d, %q, must be known when compiling, but it depends on the model's inputs or parameters%s", i, n.in[i], w.hintValue(in[i]))
	}
	return a
}

// knownInts is the integer list in operand i when it is present, else the attribute (older opsets).
func (w *walker) knownInts(n *node, in []*val, i int, attr string) []int {
	if a := w.known(n, in, i); a != nil {
		return toInts(n, a)
	}
	if attr == "" {
		return nil
	}
	return n.ints(attr)
}

func importReshape(w *walker, n *node, in []*val) []*val {
	return outs(ops.Reshape(w.b, w.value(in[0]), reshapeDims(n, in[0].t.Dims, w.knownInts(n, in, 1, ""))))
}

func importSqueeze(w *walker, n *node, in []*val) []*val {
	return outs(ops.Reshape(w.b, w.value(in[0]), squeezeDims(n, in[0].t.Dims, w.knownInts(n, in, 1, "axes"))))
}

func importUnsqueeze(w *walker, n *node, in []*val) []*val {
	return outs(ops.Reshape(w.b, w.value(in[0]), unsqueezeDims(n, in[0].t.Dims, w.knownInts(n, in, 1, "axes"))))
}

// importTile repeats by [d] -> [1,d] -> [r,d] -> [r*d] for each dim.
func importTile(w *walker, n *node, in []*val) []*val {
	reps, dims := w.knownInts(n, in, 1, ""), in[0].t.Dims
	if len(reps) != len(dims) {
		n.fail("%d repeats for %d dimensions", len(reps), len(dims))
	}
	var one, wide, out []int
	for i, d := range dims {
		one, wide, out = append(one, 1, d), append(wide, reps[i], d), append(out, reps[i]*d)
	}
	if _, err := product(wide); err != nil {
		n.fail("repeats %v: %v", reps, err)
	}
	x := ops.Reshape(w.b, w.value(in[0]), one)
	return outs(ops.Reshape(w.b, ops.Expand(w.b, x, wide), out))
}

// joinAxis is Concat's axis, which has no default.
func (n *node) joinAxis(rank int) int {
	if n.attrs["axis"] == nil {
		n.fail("attribute \"axis\" is missing")
	}
	return n.dim(n.int("axis", 0), rank)
}

func importConcat(w *walker, n *node, in []*val) []*val {
	var xs []*ir.Value
	axis := n.joinAxis(len(in[0].t.Dims))
	for _, x := range in {
		if x == nil {
			n.fail("an operand is left out")
		}
		if len(x.t.Dims) == len(in[0].t.Dims) && x.t.Dims[axis] == 0 {
			continue // an empty part, such as a key cache before the first token
		}
		xs = append(xs, w.value(x))
	}
	if len(xs) == 0 {
		return outs(w.value(in[0]))
	}
	return outs(ops.Concat(w.b, axis, xs...))
}

func importSlice(w *walker, n *node, in []*val) []*val {
	arrays := make([]*ir.Array, len(in))
	for i := 1; i < len(in); i++ {
		arrays[i] = w.known(n, in, i)
	}
	return outs(w.cut(w.value(in[0]), sliceInputs(n, in[0].t.Dims, arrays)))
}

// cut takes the elements of a slice; backward steps go through a gather of reversed indices.
func (w *walker) cut(x *ir.Value, cuts []cut) *ir.Value {
	starts, sizes, steps := make([]int, len(cuts)), make([]int, len(cuts)), make([]int, len(cuts))
	for i, c := range cuts {
		starts[i], sizes[i], steps[i] = c.start, c.count, c.step
		if c.step < 0 {
			starts[i], sizes[i], steps[i] = 0, x.Type.Dims[i], 1
		}
		if c.count <= 1 && c.step > 0 {
			steps[i] = 1
		}
		if c.count == 0 && c.step > 0 {
			starts[i] = 0
		}
	}
	x = ops.Slice(w.b, x, starts, sizes, steps)
	for i, c := range cuts {
		if c.step > 0 {
			continue
		}
		index := ir.NewArray(ir.T(dtype.I64, c.count))
		for k := range index.I {
			index.I[k] = int64(c.start + k*c.step)
		}
		x = ops.Gather(w.b, x, ops.Const(w.b, index.Tensor()), i)
	}
	return x
}

func importSplit(w *walker, n *node, in []*val) []*val {
	axis := n.dim(n.int("axis", 0), len(in[0].t.Dims))
	num := len(n.out)
	if n.opset >= 18 {
		num = n.int("num_outputs", num)
	}
	sizes := splitSizes(n, in[0].t.Dims[axis], w.knownInts(n, in, 1, "split"), num)
	return outs(w.parts(w.value(in[0]), axis, sizes)...)
}

func (w *walker) parts(x *ir.Value, axis int, sizes []int) []*ir.Value {
	var out []*ir.Value
	at := 0
	for _, s := range sizes {
		out = append(out, ops.SliceDim(w.b, x, axis, at, s))
		at += s
	}
	return out
}

// importGather is embedding lookup and indexing. One known index is a slice; known indices that repeat (all
// token types zero, for each sample of a batch) are gathered once and expanded.
func importGather(w *walker, n *node, in []*val) []*val {
	x, dims := w.value(in[0]), in[0].t.Dims
	axis := n.dim(n.int("axis", 0), len(dims))
	index := w.array(in[1])
	if pad := w.paddingRow(n, dims); pad >= 0 && axis == 0 {
		return outs(ops.Embed(w.b, x, w.value(in[1]), pad))
	}
	if index == nil {
		if axis == 0 {
			w.hintPadding(n, dims)
		}
		return outs(ops.Gather(w.b, x, w.value(in[1]), axis))
	}
	toInts(n, index)
	for _, i := range index.I {
		wrap(n, i, dims[axis])
	}
	small := shrink(index)
	want := slices.Concat(dims[:axis], index.Type.Dims, dims[axis+1:])
	var y *ir.Value
	if len(small.I) == 1 {
		y = ops.SliceDim(w.b, x, axis, wrap(n, small.I[0], dims[axis]), 1)
	} else {
		y = ops.Gather(w.b, x, ops.Const(w.b, small.Tensor()), axis)
	}
	y = ops.Reshape(w.b, y, slices.Concat(dims[:axis], small.Type.Dims, dims[axis+1:]))
	return outs(ops.Expand(w.b, y, want))
}

// padding is padding_idx of the embedding that PyTorch's record says n was made from, -1 when there is none.
func (n *node) padding(dims []int) int {
	if !n.fx.is("embedding") || len(n.fx.args) < 3 {
		return -1
	}
	i, err := strconv.Atoi(n.fx.args[2])
	if err != nil || i < 0 || i >= dims[0] {
		return -1
	}
	return i
}
