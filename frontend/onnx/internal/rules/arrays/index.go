package arrays

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Operators that read or write at indices, or choose by order or condition.
var indexRows = []walk.Row{
	{Op: "GatherElements", Since: 11, Min: 2, Max: 2, Rule: importGatherElements},
	{Op: "GatherND", Since: 11, Min: 2, Max: 2, Rule: importGatherND},
	{Op: "Scatter", Since: 9, Min: 3, Max: 3, Rule: importScatterElements},
	{Op: "Scatter", Since: 11, Removed: true},
	{Op: "ScatterElements", Since: 11, Min: 3, Max: 3, Rule: importScatterElements},
	{Op: "ScatterND", Since: 11, Min: 3, Max: 3, Rule: importScatterND},
	{Op: "TensorScatter", Since: 24, Min: 2, Max: 3, Rule: importTensorScatter},
	{Op: "TopK", Since: 1, Min: 1, Max: 1, Rule: importTopK},
	{Op: "TopK", Since: 10, Min: 2, Max: 2, Rule: importTopK},
	{Op: "ArgMax", Since: 1, Min: 1, Max: 1, Rule: importArg(false)},
	{Op: "ArgMin", Since: 1, Min: 1, Max: 1, Rule: importArg(true)},
	{Op: "CumSum", Since: 11, Min: 2, Max: 2, Rule: importRunning(ops.Cumsum)},
	{Op: "CumProd", Since: 26, Min: 2, Max: 2, Rule: importRunning(ops.Cumprod)},
	{Op: "ReverseSequence", Since: 10, Min: 2, Max: 2, Rule: importReverseSequence},
	{Op: "OneHot", Since: 9, Min: 3, Max: 3, Rule: importOneHot},
	{Op: "Trilu", Since: 14, Min: 1, Max: 2, Rule: importTrilu},
	{Op: "EyeLike", Since: 9, Min: 1, Max: 1, Rule: importEyeLike},
	{Op: "Compress", Since: 9, Min: 2, Max: 2, Rule: importCompress},
	{Op: "Range", Since: 11, Min: 3, Max: 3},
	{Op: "NonZero", Since: 9, Min: 1, Max: 1},
	{Op: "Unique", Since: 11, Min: 1, Max: 1},
	{Op: "NonMaxSuppression", Since: 10, Min: 2, Max: 5},
}

func init() {
	for op, r := range map[string]walk.Rule{
		"Scatter": importScatterElements, "ScatterElements": importScatterElements, "ScatterND": importScatterND,
		"TensorScatter": importTensorScatter, "TopK": importTopK, "ArgMax": importArg(false), "ArgMin": importArg(true),
		"CumProd": importRunning(ops.Cumprod), "ReverseSequence": importReverseSequence, "OneHot": importOneHot,
		"Compress": importCompress, "EyeLike": importEyeLike,
	} {
		fold.Funcs[op] = walk.FoldByRule(r)
	}
	fold.Funcs["Unique"], fold.Funcs["NonMaxSuppression"] = fold.Unique, fold.NonMaxSuppression
}

// inside fails when x is known and holds an index outside a dim of size.
func inside(w *walk.Walker, n *model.Node, x *walk.Val, size int) {
	if a := w.Array(x); a != nil {
		fold.Ints(n, a)
		for _, i := range a.I {
			fold.Wrap(n, i, size)
		}
	}
}

// vectorsInside is inside for the vectors in the last dim of x, which index dims.
func vectorsInside(w *walk.Walker, n *model.Node, x *walk.Val, dims []int) {
	if a := w.Array(x); a != nil {
		fold.Ints(n, a)
		for i, v := range a.I {
			fold.Wrap(n, v, dims[i%len(dims)])
		}
	}
}

func importGatherElements(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	axis := n.Dim(n.Int("axis", 0), len(in[0].Type.Dims))
	inside(w, n, in[1], in[0].Type.Dims[axis])
	return walk.Results(ops.GatherElements(w.B, w.Value(in[0]), w.Value(in[1]), axis))
}

// importGatherND indexes the dims behind the batch dims. Known indices that count 0, 1, 2, … (how exporters index a
// mask by position) are a reshape.
func importGatherND(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d, id := in[0].Type.Dims, in[1].Type.Dims
	batch := fold.GatherNDBatch(n, d, id)
	depth := id[len(id)-1]
	vectorsInside(w, n, in[1], d[batch:batch+depth])
	a := w.Array(in[1])
	if a == nil || batch > 0 {
		return walk.Results(ops.GatherND(w.B, w.Value(in[0]), w.Value(in[1]), batch))
	}
	rows, want := ir.Product(d[:depth]), slices.Concat(id[:len(id)-1], d[depth:])
	strides := ir.Strides(d[:depth])
	flat := ir.NewArray(ir.Type{DType: dtype.I64, Dims: id[:len(id)-1]})
	counts := len(flat.I) == rows
	for i := range flat.I {
		for k := range depth {
			flat.I[i] += int64(fold.Wrap(n, a.I[i*depth+k], d[k]) * strides[k])
		}
		counts = counts && flat.I[i] == int64(i)
	}
	if counts {
		return walk.Results(ops.Reshape(w.B, w.Value(in[0]), want))
	}
	return walk.Results(ops.GatherND(w.B, w.Value(in[0]), w.Value(in[1]), 0)) // known ones become a gather, or places of each sample, in recognize
}

// reduction is the attribute of that name, as ops.Scatter wants it.
func reduction(n *model.Node) string {
	switch r := n.Str("reduction", "none"); r {
	case "none":
		return ""
	case "add", "mul", "max", "min":
		return r
	default:
		n.Fail("reduction is %q, but must be none, add, mul, max or min", r)
		return ""
	}
}

func importScatterElements(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	axis := n.Dim(n.Int("axis", 0), len(in[0].Type.Dims))
	inside(w, n, in[1], in[0].Type.Dims[axis])
	return walk.Results(ops.ScatterElements(w.B, w.Value(in[0]), w.Value(in[1]), w.Value(in[2]), axis, reduction(n)))
}

func importScatterND(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d, id := in[0].Type.Dims, in[1].Type.Dims
	if len(id) == 0 || id[len(id)-1] > len(d) {
		n.Fail("indices %s do not fit data %s", in[1].Type, in[0].Type)
	}
	vectorsInside(w, n, in[1], d[:id[len(id)-1]])
	return walk.Results(ops.ScatterND(w.B, w.Value(in[0]), w.Value(in[1]), w.Value(in[2]), 0, reduction(n)))
}

// importTensorScatter writes each sample's update into its cache from its write index on, along the axis; the dims before
// the axis index nothing.
func importTensorScatter(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d, u := in[0].Type.Dims, in[1].Type.Dims
	axis := n.Dim(n.Int("axis", -2), len(d))
	if axis == 0 || len(u) != len(d) || !slices.Equal(fold.WithDim(u, axis, d[axis]), d) || u[axis] > d[axis] {
		n.Fail("updates %s do not fit the cache %s along axis %d", in[1].Type, in[0].Type, axis)
	}
	lanes := slices.Clone(u[:axis+1])
	at := ops.Iota(w.B, dtype.I64, lanes, axis)
	if len(in) > 2 && in[2] != nil {
		if !slices.Equal(in[2].Type.Dims, d[:1]) || !in[2].Type.DType.IsInt() {
			n.Fail("write indices are %s, but must be %d integers", in[2].Type, d[0])
		}
		one := slices.Concat(d[:1], slices.Repeat([]int{1}, axis))
		start := ops.Reshape(w.B, ops.Cast(w.B, w.Value(in[2]), dtype.I64), one)
		at = ops.Add(w.B, at, ops.Expand(w.B, start, lanes))
	}
	size := ops.ScalarLike(w.B, at, float64(d[axis]))
	switch mode := n.Str("mode", "linear"); mode {
	case "linear": // negative ones do not count from the end
		at = ops.Where(w.B, ops.Lt(w.B, at, ops.Zeros(w.B, at.Type)), size, at)
	case "circular":
		at = ops.Mod(w.B, at, size)
	default:
		n.Fail("mode is %q, but must be linear or circular", mode)
	}
	return walk.Results(ops.ScatterND(w.B, w.Value(in[0]), ops.Reshape(w.B, at, append(lanes, 1)), w.Value(in[1]), axis, ""))
}

// importTopK always gives the elements in order, which sorted=0 leaves open.
func importTopK(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d := in[0].Type.Dims
	axis, k := n.Dim(n.Int("axis", -1), len(d)), n.Int("k", -1)
	if n.Opset >= 10 {
		k = fold.Int(n, MustKnow(w, n, in, 1))
	}
	if k < 0 || k > d[axis] {
		n.Fail("k is %d, but dimension %d of %s has %d elements", k, axis, in[0].Type, d[axis])
	}
	values, at := ops.TopK(w.B, w.Value(in[0]), ops.TopKAttrs{Dim: axis, K: k, Largest: n.Int("largest", 1) != 0})
	return walk.Results(values, at)
}

func importArg(least bool) walk.Rule {
	return func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		axis := n.Dim(n.Int("axis", 0), len(in[0].Type.Dims))
		y := ops.ArgExtreme(w.B, w.Value(in[0]), ops.ArgmaxAttrs{Dim: axis, Last: n.Int("select_last_index", 0) != 0, Least: least})
		if n.Int("keepdims", 1) == 0 {
			y = ops.Reshape(w.B, y, Without(y.Type.Dims, []int{axis}))
		}
		return walk.Results(y)
	}
}

func importRunning(f func(*ir.Builder, *ir.Value, ops.CumsumAttrs) *ir.Value) walk.Rule {
	return func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		axis := n.Dim(fold.Int(n, MustKnow(w, n, in, 1)), len(in[0].Type.Dims))
		return walk.Results(f(w.B, w.Value(in[0]), ops.CumsumAttrs{Dim: axis, Exclusive: n.Int("exclusive", 0) != 0,
			Reverse: n.Int("reverse", 0) != 0}))
	}
}

// importReverseSequence gathers, in each sample, step len-1-t where t < len, else t.
func importReverseSequence(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d := in[0].Type.Dims
	if len(d) < 2 {
		n.Fail("operand 0 is %s, but must have at least two dimensions", in[0].Type)
	}
	batch, time := n.Dim(n.Int("batch_axis", 1), len(d)), n.Dim(n.Int("time_axis", 0), len(d))
	if batch == time || !slices.Equal(in[1].Type.Dims, []int{d[batch]}) || !in[1].Type.DType.IsInt() {
		n.Fail("lengths %s do not fit %s with batch axis %d and time axis %d", in[1].Type, in[0].Type, batch, time)
	}
	inside(w, n, in[1], d[time]+1)
	perm := []int{batch, time}
	for i := range d {
		if i != batch && i != time {
			perm = append(perm, i)
		}
	}
	steps := []int{d[batch], d[time]}
	t := ops.Iota(w.B, dtype.I64, steps, 1)
	lens := ops.Cast(w.B, w.Value(in[1]), dtype.I64)
	lens = ops.Expand(w.B, ops.Reshape(w.B, lens, []int{d[batch], 1}), steps)
	back := ops.Sub(w.B, ops.AddScalar(w.B, lens, -1), t)
	at := ops.Reshape(w.B, ops.Where(w.B, ops.Lt(w.B, t, lens), back, t), append(steps, 1))
	y := ops.GatherND(w.B, ops.Transpose(w.B, w.Value(in[0]), perm), at, 1)
	undo := make([]int, len(perm))
	for i, p := range perm {
		undo[p] = i
	}
	return walk.Results(ops.Transpose(w.B, y, undo))
}

// importOneHot compares indices with 0, 1, … along the new dim. Indices out of range hit nothing.
func importOneHot(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	depthArr, d := MustKnow(w, n, in, 1), in[0].Type.Dims
	if depthArr.Type.Elems() != 1 || in[2].Type.Elems() != 2 || in[0].Type.DType == dtype.Bool {
		n.Fail("operands are %s, %s and %s, but must be numbers, one depth and two values", in[0].Type, in[1].Type, in[2].Type)
	}
	depth := int(fold.Cast(n, depthArr, dtype.I64).I[0])
	axis := n.Dim(n.Int("axis", -1), len(d)+1)
	one := slices.Concat(d[:axis], []int{1}, d[axis:])
	wide := slices.Concat(d[:axis], []int{depth}, d[axis:])
	if depth < 1 {
		n.Fail("depth is %d, but must be at least 1", depth)
	}
	if _, err := model.Elements(wide); err != nil {
		n.Fail("depth %d: %v", depth, err)
	}
	i64 := ops.Cast(w.B, w.Value(in[0]), dtype.I64)
	negative := ops.Lt(w.B, i64, ops.Zeros(w.B, i64.Type))
	i64 = ops.Where(w.B, negative, ops.AddScalar(w.B, i64, float64(depth)), i64)
	hit := ops.Eq(w.B, ops.Expand(w.B, ops.Reshape(w.B, i64, one), wide), ops.Iota(w.B, dtype.I64, wide, axis))
	return walk.Results(ops.Where(w.B, hit, element(w, in[2], 1, wide), element(w, in[2], 0, wide)))
}

// element is element i of the list x, repeated to dims.
func element(w *walk.Walker, x *walk.Val, i int, dims []int) *ir.Value {
	if a := w.Array(x); a != nil {
		if a.F != nil {
			return ops.Full(w.B, ir.T(x.Type.DType, dims...), a.F[i])
		}
		return ops.Full(w.B, ir.T(x.Type.DType, dims...), float64(a.I[i]))
	}
	flat := ops.Reshape(w.B, w.Value(x), []int{x.Type.Elems()})
	return ops.BroadcastTo(w.B, ops.SliceDim(w.B, flat, 0, i, 1), dims)
}

// importTrilu masks; a diagonal that is known makes a constant mask.
func importTrilu(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, d := w.Value(in[0]), in[0].Type.Dims
	if len(d) < 2 {
		n.Fail("operand 0 has dims %v, but must be a matrix", d)
	}
	rows, cols := d[len(d)-2], d[len(d)-1]
	var mask *ir.Value
	if len(in) > 1 && in[1] != nil && w.Array(in[1]) == nil {
		if in[1].Type.Elems() != 1 || !in[1].Type.DType.IsInt() {
			n.Fail("the diagonal is %s, but must be one integer", in[1].Type)
		}
		k := ops.BroadcastTo(w.B, ops.Reshape(w.B, ops.Cast(w.B, w.Value(in[1]), dtype.I64), []int{1}), []int{rows, cols})
		off := ops.Sub(w.B, ops.Iota(w.B, dtype.I64, []int{rows, cols}, 1), ops.Iota(w.B, dtype.I64, []int{rows, cols}, 0))
		keep := ops.Ge
		if n.Int("upper", 1) == 0 {
			keep = ops.Le
		}
		mask = ops.BroadcastTo(w.B, keep(w.B, off, k), d)
	} else {
		ones := n.Array(ir.T(dtype.Bool, rows, cols))
		fold.Each(ones.I, func(int64) int64 { return 1 })
		keep := fold.Trilu(n, []*ir.Array{ones, MustKnow(w, n, in, 1)})[0]
		mask = w.Spread(&walk.Val{Type: keep.Type, Array: keep}, d)
	}
	if in[0].Type.DType == dtype.Bool {
		return walk.Results(ops.And(w.B, mask, x))
	}
	return walk.Results(ops.Where(w.B, mask, x, ops.Zeros(w.B, x.Type)))
}

// importEyeLike depends on the type of its operand alone.
func importEyeLike(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	t, k := in[0].Type, n.Int("k", 0)
	if len(t.Dims) != 2 {
		n.Fail("operand 0 is %s, but must be a matrix", t)
	}
	if n.Attrs["dtype"] != nil {
		d, err := model.DTypeOf(int32(n.Int("dtype", 0)))
		if err != nil {
			n.Fail("%v", err)
		}
		t = t.With(d)
	}
	row, col := ops.Iota(w.B, dtype.I64, t.Dims, 0), ops.Iota(w.B, dtype.I64, t.Dims, 1)
	return walk.Results(ops.Cast(w.B, ops.Eq(w.B, ops.AddScalar(w.B, row, float64(k)), col), t.DType))
}

// importCompress gathers the places where a known condition holds.
func importCompress(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	cond, x := MustKnow(w, n, in, 1), w.Value(in[0])
	if cond.Type.DType != dtype.Bool || len(cond.Type.Dims) != 1 {
		n.Fail("the condition is %s, but must be a list of bools", in[1].Type)
	}
	axis := 0
	if n.Attrs["axis"] == nil {
		x = ops.Reshape(w.B, x, []int{x.Type.Elems()})
	} else {
		axis = n.Dim(n.Int("axis", 0), len(x.Type.Dims))
	}
	at := ir.NewArray(ir.T(dtype.I64, 0))
	for i, c := range cond.I {
		if c == 0 {
			continue
		}
		if i >= x.Type.Dims[axis] {
			n.Fail("the condition holds at index %d, but the dimension has %d elements", i, x.Type.Dims[axis])
		}
		at.I = append(at.I, int64(i))
	}
	at.Type.Dims[0] = len(at.I)
	return walk.Results(ops.Gather(w.B, x, ops.Const(w.B, at.Tensor()), axis))
}
