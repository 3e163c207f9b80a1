package onnx

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Operators that read or write at indices, or choose by order or condition.
var indexRows = []row{
	{op: "GatherElements", since: 11, min: 2, max: 2, rule: importGatherElements},
	{op: "GatherND", since: 11, min: 2, max: 2, rule: importGatherND},
	{op: "Scatter", since: 9, min: 3, max: 3, rule: importScatterElements},
	{op: "Scatter", since: 11, removed: true},
	{op: "ScatterElements", since: 11, min: 3, max: 3, rule: importScatterElements},
	{op: "ScatterND", since: 11, min: 3, max: 3, rule: importScatterND},
	{op: "TensorScatter", since: 24, min: 2, max: 3, rule: importTensorScatter},
	{op: "TopK", since: 1, min: 1, max: 1, rule: importTopK},
	{op: "TopK", since: 10, min: 2, max: 2, rule: importTopK},
	{op: "ArgMax", since: 1, min: 1, max: 1, rule: importArg(false)},
	{op: "ArgMin", since: 1, min: 1, max: 1, rule: importArg(true)},
	{op: "CumSum", since: 11, min: 2, max: 2, rule: importRunning(ops.Cumsum)},
	{op: "CumProd", since: 26, min: 2, max: 2, rule: importRunning(ops.Cumprod)},
	{op: "ReverseSequence", since: 10, min: 2, max: 2, rule: importReverseSequence},
	{op: "OneHot", since: 9, min: 3, max: 3, rule: importOneHot},
	{op: "Trilu", since: 14, min: 1, max: 2, rule: importTrilu},
	{op: "EyeLike", since: 9, min: 1, max: 1, rule: importEyeLike},
	{op: "Compress", since: 9, min: 2, max: 2, rule: importCompress},
	{op: "Range", since: 11, min: 3, max: 3},
	{op: "NonZero", since: 9, min: 1, max: 1},
	{op: "Unique", since: 11, min: 1, max: 1},
	{op: "NonMaxSuppression", since: 10, min: 2, max: 5},
}

func init() {
	for op, r := range map[string]rule{
		"Scatter": importScatterElements, "ScatterElements": importScatterElements, "ScatterND": importScatterND,
		"TensorScatter": importTensorScatter, "TopK": importTopK, "ArgMax": importArg(false), "ArgMin": importArg(true),
		"CumProd": importRunning(ops.Cumprod), "ReverseSequence": importReverseSequence, "OneHot": importOneHot,
		"Compress": importCompress, "EyeLike": importEyeLike,
	} {
		folders[op] = foldByRule(r)
	}
	folders["Unique"], folders["NonMaxSuppression"] = foldUnique, foldNonMaxSuppression
}

// inside fails when x is known and holds an index outside a dim of size.
func (w *walker) inside(n *node, x *val, size int) {
	if a := w.array(x); a != nil {
		toInts(n, a)
		for _, i := range a.I {
			wrap(n, i, size)
		}
	}
}

// vectorsInside is inside for the vectors in the last dim of x, which index dims.
func (w *walker) vectorsInside(n *node, x *val, dims []int) {
	if a := w.array(x); a != nil {
		toInts(n, a)
		for i, v := range a.I {
			wrap(n, v, dims[i%len(dims)])
		}
	}
}

func importGatherElements(w *walker, n *node, in []*val) []*val {
	axis := n.dim(n.int("axis", 0), len(in[0].t.Dims))
	w.inside(n, in[1], in[0].t.Dims[axis])
	return outs(ops.GatherElements(w.b, w.value(in[0]), w.value(in[1]), axis))
}

// importGatherND indexes the dims behind the batch dims. Known indices that count 0, 1, 2, … (how exporters index a
// mask by position) are a reshape.
func importGatherND(w *walker, n *node, in []*val) []*val {
	d, id := in[0].t.Dims, in[1].t.Dims
	batch := gatherNDBatch(n, d, id)
	depth := id[len(id)-1]
	w.vectorsInside(n, in[1], d[batch:batch+depth])
	a := w.array(in[1])
	if a == nil || batch > 0 {
		return outs(ops.GatherND(w.b, w.value(in[0]), w.value(in[1]), batch))
	}
	rows, want := ir.Product(d[:depth]), slices.Concat(id[:len(id)-1], d[depth:])
	strides := ir.Strides(d[:depth])
	flat := ir.NewArray(ir.Type{DType: dtype.I64, Dims: id[:len(id)-1]})
	counts := len(flat.I) == rows
	for i := range flat.I {
		for k := range depth {
			flat.I[i] += int64(wrap(n, a.I[i*depth+k], d[k]) * strides[k])
		}
		counts = counts && flat.I[i] == int64(i)
	}
	if counts {
		return outs(ops.Reshape(w.b, w.value(in[0]), want))
	}
	return outs(ops.GatherND(w.b, w.value(in[0]), w.value(in[1]), 0)) // known ones become a gather, or places of each sample, in recognize
}

// reduction is the attribute of that name, as ops.Scatter wants it.
func (n *node) reduction() string {
	switch r := n.str("reduction", "none"); r {
	case "none":
		return ""
	case "add", "mul", "max", "min":
		return r
	default:
		n.fail("reduction %q", r)
		return ""
	}
}

func importScatterElements(w *walker, n *node, in []*val) []*val {
	axis := n.dim(n.int("axis", 0), len(in[0].t.Dims))
	w.inside(n, in[1], in[0].t.Dims[axis])
	return outs(ops.ScatterElements(w.b, w.value(in[0]), w.value(in[1]), w.value(in[2]), axis, n.reduction()))
}

func importScatterND(w *walker, n *node, in []*val) []*val {
	d, id := in[0].t.Dims, in[1].t.Dims
	if len(id) == 0 || id[len(id)-1] > len(d) {
		n.fail("indices %s do not fit data %s", in[1].t, in[0].t)
	}
	w.vectorsInside(n, in[1], d[:id[len(id)-1]])
	return outs(ops.ScatterND(w.b, w.value(in[0]), w.value(in[1]), w.value(in[2]), 0, n.reduction()))
}

// importTensorScatter writes each sample's update into its cache from its write index on, along the axis; the dims before
// the axis index nothing.
func importTensorScatter(w *walker, n *node, in []*val) []*val {
	d, u := in[0].t.Dims, in[1].t.Dims
	axis := n.dim(n.int("axis", -2), len(d))
	if axis == 0 || len(u) != len(d) || !slices.Equal(with(u, axis, d[axis]), d) || u[axis] > d[axis] {
		n.fail("updates %s do not fit the cache %s along axis %d", in[1].t, in[0].t, axis)
	}
	lanes := slices.Clone(u[:axis+1])
	at := ops.Iota(w.b, dtype.I64, lanes, axis)
	if len(in) > 2 && in[2] != nil {
		if !slices.Equal(in[2].t.Dims, d[:1]) || !in[2].t.DType.IsInt() {
			n.fail("write indices are %s, want %d integers", in[2].t, d[0])
		}
		one := slices.Concat(d[:1], slices.Repeat([]int{1}, axis))
		start := ops.Reshape(w.b, ops.Cast(w.b, w.value(in[2]), dtype.I64), one)
		at = ops.Add(w.b, at, ops.Expand(w.b, start, lanes))
	}
	size := ops.ScalarLike(w.b, at, float64(d[axis]))
	switch mode := n.str("mode", "linear"); mode {
	case "linear": // negative ones do not count from the end
		at = ops.Where(w.b, ops.Lt(w.b, at, ops.Zeros(w.b, at.Type)), size, at)
	case "circular":
		at = ops.Mod(w.b, at, size)
	default:
		n.fail("mode %q", mode)
	}
	return outs(ops.ScatterND(w.b, w.value(in[0]), ops.Reshape(w.b, at, append(lanes, 1)), w.value(in[1]), axis, ""))
}

// with is dims with one of them replaced.
func with(dims []int, d, size int) []int {
	out := slices.Clone(dims)
	out[d] = size
	return out
}

// importTopK always gives the elements in order, which sorted=0 leaves open.
func importTopK(w *walker, n *node, in []*val) []*val {
	d := in[0].t.Dims
	axis, k := n.dim(n.int("axis", -1), len(d)), n.int("k", -1)
	if n.opset >= 10 {
		k = scalarInt(n, w.known(n, in, 1))
	}
	if k < 0 || k > d[axis] {
		n.fail("k is %d, dimension %d of %s has %d elements", k, axis, in[0].t, d[axis])
	}
	values, at := ops.TopK(w.b, w.value(in[0]), ops.TopKAttrs{Dim: axis, K: k, Largest: n.int("largest", 1) != 0})
	return outs(values, at)
}

func importArg(least bool) rule {
	return func(w *walker, n *node, in []*val) []*val {
		axis := n.dim(n.int("axis", 0), len(in[0].t.Dims))
		y := ops.ArgExtreme(w.b, w.value(in[0]), ops.ArgmaxAttrs{Dim: axis, Last: n.int("select_last_index", 0) != 0, Least: least})
		if n.int("keepdims", 1) == 0 {
			y = ops.Reshape(w.b, y, without(y.Type.Dims, []int{axis}))
		}
		return outs(y)
	}
}

func importRunning(f func(*ir.Builder, *ir.Value, ops.CumsumAttrs) *ir.Value) rule {
	return func(w *walker, n *node, in []*val) []*val {
		axis := n.dim(scalarInt(n, w.known(n, in, 1)), len(in[0].t.Dims))
		return outs(f(w.b, w.value(in[0]), ops.CumsumAttrs{Dim: axis, Exclusive: n.int("exclusive", 0) != 0,
			Reverse: n.int("reverse", 0) != 0}))
	}
}

// importReverseSequence gathers, in each sample, step len-1-t where t < len, else t.
func importReverseSequence(w *walker, n *node, in []*val) []*val {
	d := in[0].t.Dims
	if len(d) < 2 {
		n.fail("operand 0 is %s: want at least two dimensions", in[0].t)
	}
	batch, time := n.dim(n.int("batch_axis", 1), len(d)), n.dim(n.int("time_axis", 0), len(d))
	if batch == time || !slices.Equal(in[1].t.Dims, []int{d[batch]}) || !in[1].t.DType.IsInt() {
		n.fail("lengths %s do not fit %s with batch axis %d and time axis %d", in[1].t, in[0].t, batch, time)
	}
	w.inside(n, in[1], d[time]+1)
	perm := []int{batch, time}
	for i := range d {
		if i != batch && i != time {
			perm = append(perm, i)
		}
	}
	steps := []int{d[batch], d[time]}
	t := ops.Iota(w.b, dtype.I64, steps, 1)
	lens := ops.Cast(w.b, w.value(in[1]), dtype.I64)
	lens = ops.Expand(w.b, ops.Reshape(w.b, lens, []int{d[batch], 1}), steps)
	back := ops.Sub(w.b, ops.AddScalar(w.b, lens, -1), t)
	at := ops.Reshape(w.b, ops.Where(w.b, ops.Lt(w.b, t, lens), back, t), append(steps, 1))
	y := ops.GatherND(w.b, ops.Transpose(w.b, w.value(in[0]), perm), at, 1)
	undo := make([]int, len(perm))
	for i, p := range perm {
		undo[p] = i
	}
	return outs(ops.Transpose(w.b, y, undo))
}

// importOneHot compares indices with 0, 1, … along the new dim. Indices out of range hit nothing.
func importOneHot(w *walker, n *node, in []*val) []*val {
	depthArr, d := w.known(n, in, 1), in[0].t.Dims
	if depthArr.Type.Elems() != 1 || in[2].t.Elems() != 2 || in[0].t.DType == dtype.Bool {
		n.fail("wants numbers, one depth and two values, not %s, %s and %s", in[0].t, in[1].t, in[2].t)
	}
	depth := int(n.castArray(depthArr, dtype.I64).I[0])
	axis := n.dim(n.int("axis", -1), len(d)+1)
	one := slices.Concat(d[:axis], []int{1}, d[axis:])
	wide := slices.Concat(d[:axis], []int{depth}, d[axis:])
	if _, err := product(wide); err != nil || depth < 1 {
		n.fail("depth %d: %v", depth, err)
	}
	i64 := ops.Cast(w.b, w.value(in[0]), dtype.I64)
	negative := ops.Lt(w.b, i64, ops.Zeros(w.b, i64.Type))
	i64 = ops.Where(w.b, negative, ops.AddScalar(w.b, i64, float64(depth)), i64)
	hit := ops.Eq(w.b, ops.Expand(w.b, ops.Reshape(w.b, i64, one), wide), ops.Iota(w.b, dtype.I64, wide, axis))
	return outs(ops.Where(w.b, hit, w.element(in[2], 1, wide), w.element(in[2], 0, wide)))
}

// element is element i of the list x, repeated to dims.
func (w *walker) element(x *val, i int, dims []int) *ir.Value {
	if a := w.array(x); a != nil {
		if a.F != nil {
			return ops.Full(w.b, ir.T(x.t.DType, dims...), a.F[i])
		}
		return ops.Full(w.b, ir.T(x.t.DType, dims...), float64(a.I[i]))
	}
	flat := ops.Reshape(w.b, w.value(x), []int{x.t.Elems()})
	return ops.BroadcastTo(w.b, ops.SliceDim(w.b, flat, 0, i, 1), dims)
}

// importTrilu masks; a diagonal that is known makes a constant mask.
func importTrilu(w *walker, n *node, in []*val) []*val {
	x, d := w.value(in[0]), in[0].t.Dims
	if len(d) < 2 {
		n.fail("%v is not a matrix", d)
	}
	rows, cols := d[len(d)-2], d[len(d)-1]
	var mask *ir.Value
	if len(in) > 1 && in[1] != nil && w.array(in[1]) == nil {
		if in[1].t.Elems() != 1 || !in[1].t.DType.IsInt() {
			n.fail("the diagonal is %s, want one integer", in[1].t)
		}
		k := ops.BroadcastTo(w.b, ops.Reshape(w.b, ops.Cast(w.b, w.value(in[1]), dtype.I64), []int{1}), []int{rows, cols})
		off := ops.Sub(w.b, ops.Iota(w.b, dtype.I64, []int{rows, cols}, 1), ops.Iota(w.b, dtype.I64, []int{rows, cols}, 0))
		keep := ops.Ge
		if n.int("upper", 1) == 0 {
			keep = ops.Le
		}
		mask = ops.BroadcastTo(w.b, keep(w.b, off, k), d)
	} else {
		ones := n.array(ir.T(dtype.Bool, rows, cols))
		each(ones.I, func(int64) int64 { return 1 })
		keep := foldTrilu(n, []*ir.Array{ones, w.known(n, in, 1)})[0]
		mask = w.spread(&val{t: keep.Type, arr: keep}, d)
	}
	if in[0].t.DType == dtype.Bool {
		return outs(ops.And(w.b, mask, x))
	}
	return outs(ops.Where(w.b, mask, x, ops.Zeros(w.b, x.Type)))
}

// importEyeLike depends on the type of its operand alone.
func importEyeLike(w *walker, n *node, in []*val) []*val {
	t, k := in[0].t, n.int("k", 0)
	if len(t.Dims) != 2 {
		n.fail("operand 0 is %s: want a matrix", t)
	}
	if n.attrs["dtype"] != nil {
		d, err := convertType(int32(n.int("dtype", 0)))
		if err != nil {
			n.fail("%v", err)
		}
		t = t.With(d)
	}
	row, col := ops.Iota(w.b, dtype.I64, t.Dims, 0), ops.Iota(w.b, dtype.I64, t.Dims, 1)
	return outs(ops.Cast(w.b, ops.Eq(w.b, ops.AddScalar(w.b, row, float64(k)), col), t.DType))
}

// importCompress gathers the places where a known condition holds.
func importCompress(w *walker, n *node, in []*val) []*val {
	cond, x := w.known(n, in, 1), w.value(in[0])
	if cond.Type.DType != dtype.Bool || len(cond.Type.Dims) != 1 {
		n.fail("the condition is %s, want a list of bools", in[1].t)
	}
	axis := 0
	if n.attrs["axis"] == nil {
		x = ops.Reshape(w.b, x, []int{x.Type.Elems()})
	} else {
		axis = n.dim(n.int("axis", 0), len(x.Type.Dims))
	}
	at := ir.NewArray(ir.T(dtype.I64, 0))
	for i, c := range cond.I {
		if c == 0 {
			continue
		}
		if i >= x.Type.Dims[axis] {
			n.fail("the condition holds at %d, the dimension has %d elements", i, x.Type.Dims[axis])
		}
		at.I = append(at.I, int64(i))
	}
	at.Type.Dims[0] = len(at.I)
	return outs(ops.Gather(w.b, x, ops.Const(w.b, at.Tensor()), axis))
}
