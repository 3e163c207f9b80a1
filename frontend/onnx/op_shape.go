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
<<<<<<< HEAD
	{op: "Pad", since: 2, min: 1, max: 1, rule: importPad},
	{op: "Pad", since: 11, min: 2, max: 4, rule: importPad},
	{op: "Resize", since: 10, min: 2, max: 2, rule: importResize},
	{op: "Resize", since: 11, min: 1, max: 4, rule: importResize},
	{op: "Upsample", since: 9, min: 2, max: 2, rule: importResize},
	{op: "Upsample", since: 10, removed: true},
	{op: "DepthToSpace", since: 1, min: 1, max: 1, rule: importDepthToSpace},
	{op: "SpaceToDepth", since: 1, min: 1, max: 1, rule: importSpaceToDepth},
=======
	{op: "GatherElements", since: 11, min: 2, max: 2, rule: importGatherElements},
	{op: "GatherND", since: 11, min: 2, max: 2, rule: importGatherND},
	{op: "Trilu", since: 14, min: 1, max: 2, rule: importTrilu},
	{op: "OneHot", since: 9, min: 3, max: 3, rule: importOneHot},
	{op: "Range", since: 11, min: 3, max: 3},
	{op: "NonZero", since: 9, min: 1, max: 1},
	{op: "ScatterND", since: 11, min: 3, max: 3},
>>>>>>> e568765 (frontend/onnx, ir/ops: trigonometry, resampling, regions, signal, einsum, random numbers)
}

// known is the contents of operand i, which must not depend on the model's inputs or parameters.
func (w *walker) known(n *node, in []*val, i int) *ir.Array {
	if i >= len(in) || in[i] == nil {
		return nil
	}
	a := w.array(in[i])
	if a == nil {
		n.fail("operand %d, %q, must be known when compiling, but it depends on the model's inputs or parameters", i, n.in[i])
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

func importConcat(w *walker, n *node, in []*val) []*val {
	var xs []*ir.Value
	axis := n.dim(n.int("axis", 0), len(in[0].t.Dims))
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
	if pad := n.padding(dims); pad >= 0 && axis == 0 {
		return outs(ops.Embed(w.b, x, w.value(in[1]), pad))
	}
	if index == nil {
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

<<<<<<< HEAD
func importPad(w *walker, n *node, in []*val) []*val {
	x, rank := w.value(in[0]), len(in[0].t.Dims)
	pads, value := w.knownInts(n, in, 1, "pads"), 0.0
	if n.opset < 11 {
		value = n.float("value", 0)
	} else if a := w.known(n, in, 2); a != nil && a.Type.Elems() == 1 {
		if a.F != nil {
			value = a.F[0]
		} else {
			value = float64(a.I[0])
		}
	}
	low, high := make([]int, rank), make([]int, rank)
	axes := w.knownInts(n, in, 3, "")
	if axes == nil {
		axes = ops.AllDims(x)
	}
	if len(pads) != 2*len(axes) {
		n.fail("%d pads for %d dimensions", len(pads), len(axes))
	}
	for i, a := range axes {
		a = n.dim(a, rank)
		low[a], high[a] = pads[i], pads[len(axes)+i]
		if max(low[a], high[a]) > maxDim || min(low[a], high[a]) < -maxDim {
			n.fail("pads %v", pads)
		}
	}
	switch mode := n.str("mode", "constant"); mode {
	case "constant":
		return outs(ops.Pad(w.b, x, low, high, nil, value))
	case "reflect", "edge", "wrap":
		return outs(w.padBy(n, x, low, high, mode))
	default:
		n.fail("pad mode %q", mode)
		return nil
	}
}

// padBy pads by gathering mirrored, repeated or wrapped positions.
func (w *walker) padBy(n *node, x *ir.Value, low, high []int, mode string) *ir.Value {
	for d, size := range x.Type.Dims {
		if low[d] == 0 && high[d] == 0 {
			continue
		}
		if size == 0 || mode == "reflect" && max(low[d], high[d]) >= size || low[d]+high[d]+size < 0 {
			n.fail("pads of %d and %d on a dimension of %d in mode %s", low[d], high[d], size, mode)
		}
		if low[d]+high[d]+size > maxFold {
			n.fail("pads of %d and %d", low[d], high[d])
		}
		index := ir.NewArray(ir.T(dtype.I64, low[d]+high[d]+size))
		for i := range index.I {
			p := i - low[d]
			switch mode {
			case "reflect":
				if p < 0 {
					p = -p
				}
				if p >= size {
					p = 2*size - 2 - p
				}
			case "edge":
				p = min(max(p, 0), size-1)
			case "wrap":
				p = (p%size + size) % size
			}
			index.I[i] = int64(p)
		}
		x = ops.Gather(w.b, x, ops.Const(w.b, index.Tensor()), d)
	}
	return x
}

func (n *node) blocks(d []int) int {
	b := n.int("blocksize", 0)
	if len(d) != 4 || b < 1 || b > maxDim {
		n.fail("blocks of %d in %v: want [N,C,H,W]", b, d)
	}
	return b
}

func importDepthToSpace(w *walker, n *node, in []*val) []*val {
	d := in[0].t.Dims
	b := n.blocks(d)
	if d[1]%(b*b) != 0 {
		n.fail("%d channels do not split into blocks of %d by %d", d[1], b, b)
	}
	c := d[1] / (b * b)
	split, perm := []int{d[0], b, b, c, d[2], d[3]}, []int{0, 3, 4, 1, 5, 2}
	if n.str("mode", "DCR") == "CRD" {
		split, perm = []int{d[0], c, b, b, d[2], d[3]}, []int{0, 1, 4, 2, 5, 3}
	}
	y := ops.Transpose(w.b, ops.Reshape(w.b, w.value(in[0]), split), perm)
	return outs(ops.Reshape(w.b, y, []int{d[0], c, d[2] * b, d[3] * b}))
}

func importSpaceToDepth(w *walker, n *node, in []*val) []*val {
	d := in[0].t.Dims
	b := n.blocks(d)
	if d[2]%b != 0 || d[3]%b != 0 {
		n.fail("%v does not split into blocks of %d by %d", d, b, b)
	}
	y := ops.Reshape(w.b, w.value(in[0]), []int{d[0], d[1], d[2] / b, b, d[3] / b, b})
	y = ops.Transpose(w.b, y, []int{0, 3, 5, 1, 2, 4})
	return outs(ops.Reshape(w.b, y, []int{d[0], d[1] * b * b, d[2] / b, d[3] / b}))
=======
func importGatherElements(w *walker, n *node, in []*val) []*val {
	axis := n.dim(n.int("axis", 0), len(in[0].t.Dims))
	return outs(ops.GatherElements(w.b, w.value(in[0]), w.value(in[1]), axis))
}

// importGatherND indexes the leading dims, taken as one, by flat indices. Known indices that count 0, 1, 2, …
// (how exporters index a mask by position) are a reshape.
func importGatherND(w *walker, n *node, in []*val) []*val {
	d, id := in[0].t.Dims, in[1].t.Dims
	batch := gatherNDBatch(n, d, id)
	if batch != 0 {
		n.fail("batch_dims %d is not supported on values that depend on inputs", batch)
	}
	depth := id[len(id)-1]
	rows, want := ir.Product(d[:depth]), slices.Concat(id[:len(id)-1], d[depth:])
	strides := ir.Strides(d[:depth])
	x := ops.Reshape(w.b, w.value(in[0]), slices.Concat([]int{rows}, d[depth:]))
	if a := w.array(in[1]); a != nil {
		toInts(n, a)
		flat := ir.NewArray(ir.Type{DType: dtype.I64, Dims: id[:len(id)-1]})
		counts := len(flat.I) == rows
		for i := range flat.I {
			for k := range depth {
				flat.I[i] += int64(wrap(n, a.I[i*depth+k], d[k]) * strides[k])
			}
			counts = counts && flat.I[i] == int64(i)
		}
		if counts {
			return outs(ops.Reshape(w.b, x, want))
		}
		return outs(ops.Gather(w.b, x, ops.Const(w.b, flat.Tensor()), 0))
	}
	index := ops.Cast(w.b, w.value(in[1]), dtype.I64)
	scale := ir.NewArray(ir.T(dtype.I64, depth))
	for k, s := range strides {
		scale.I[k] = int64(s)
	}
	flat := ops.Mul(w.b, index, w.spread(&val{t: scale.Type, arr: scale}, id))
	flat = ops.Reshape(w.b, ops.ReduceSum(w.b, flat, len(id)-1), id[:len(id)-1])
	return outs(ops.Gather(w.b, x, flat, 0))
}

func importTrilu(w *walker, n *node, in []*val) []*val {
	x, d := w.value(in[0]), in[0].t.Dims
	if len(d) < 2 {
		n.fail("%v is not a matrix", d)
	}
	rows, cols := d[len(d)-2], d[len(d)-1]
	ones := n.array(ir.T(dtype.Bool, rows, cols))
	each(ones.I, func(int64) int64 { return 1 })
	keep := foldTrilu(n, []*ir.Array{ones, w.known(n, in, 1)})[0]
	mask := w.spread(&val{t: keep.Type, arr: keep}, d)
	return outs(ops.Where(w.b, mask, x, ops.Zeros(w.b, x.Type)))
}

// importOneHot compares indices with 0, 1, … along the new dim.
func importOneHot(w *walker, n *node, in []*val) []*val {
	depthArr, values := w.known(n, in, 1), w.known(n, in, 2)
	if depthArr.Type.Elems() != 1 || values.Type.Elems() != 2 || depthArr.I == nil || !in[0].t.DType.IsInt() {
		n.fail("wants integer indices, a known integer depth and two known values")
	}
	depth := int(depthArr.I[0])
	axis := n.dim(n.int("axis", -1), len(in[0].t.Dims)+1)
	d := in[0].t.Dims
	one := slices.Concat(d[:axis], []int{1}, d[axis:])
	wide := slices.Concat(d[:axis], []int{depth}, d[axis:])
	if _, err := product(wide); err != nil {
		n.fail("depth %d: %v", depth, err)
	}
	i64 := ops.Cast(w.b, w.value(in[0]), dtype.I64)
	negative := ops.Lt(w.b, i64, ops.Zeros(w.b, i64.Type))
	i64 = ops.Where(w.b, negative, ops.AddScalar(w.b, i64, float64(depth)), i64)
	hit := ops.Eq(w.b, ops.Expand(w.b, ops.Reshape(w.b, i64, one), wide), ops.Iota(w.b, dtype.I64, wide, axis))
	at := func(i int) *ir.Value {
		v := 0.0
		if values.F != nil {
			v = values.F[i]
		} else {
			v = float64(values.I[i])
		}
		return ops.Full(w.b, ir.T(values.Type.DType, wide...), v)
	}
	return outs(ops.Where(w.b, hit, at(1), at(0)))
>>>>>>> e568765 (frontend/onnx, ir/ops: trigonometry, resampling, regions, signal, einsum, random numbers)
}
