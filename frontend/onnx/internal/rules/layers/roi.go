package layers

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// importDeformConv samples x linearly at each kernel point's place plus its offset (Dai et al., "Deformable
// convolutional networks", 2017) and multiplies the columns by the weights: one product over all samples.
func importDeformConv(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	size, kernel := in[0].Type.Dims, in[1].Type.Dims
	nd := len(size) - 2
	if nd < 1 || len(kernel) != len(size) {
		n.Fail("operands are %s and %s, but must be [N,C,…] and [O,C/group,…]", in[0].Type, in[1].Type)
	}
	g := windowOf(n, size[2:], kernel[2:])
	groups, og := n.Int("group", 1), n.Int("offset_group", 1)
	out := make([]int, nd)
	for k := range out {
		room := size[2+k] + g.pads[k] + g.pads[nd+k] - (g.kernel[k]-1)*g.dilations[k] - 1
		if out[k] = room/g.strides[k] + 1; room < 0 {
			n.Fail("the kernel does not fit into an input of dims %v", size)
		}
	}
	c, points, places := size[1], ir.Product(g.kernel), ir.Product(out)
	if groups < 1 || og < 1 || c%groups != 0 || c%og != 0 || kernel[0]%groups != 0 || kernel[1] != c/groups {
		n.Fail("group %d and offset_group %d must divide the channels of operand 0, %s, and fit the weight, %s", groups, og, in[0].Type, in[1].Type)
	}
	if !slices.Equal(in[2].Type.Dims, slices.Concat([]int{size[0], og * points * nd}, out)) {
		n.Fail("the offset is %s, but must have dims %v", in[2].Type, slices.Concat([]int{size[0], og * points * nd}, out))
	}
	b, lanes := w.B, size[0]*og
	offset := ops.Reshape(b, w.Value(in[2]), []int{lanes, points, nd, places})
	axes := make([]taps, nd)
	for k := range axes {
		at := ops.Reshape(b, ops.SliceDim(b, offset, 2, k, 1), []int{lanes, points * places})
		base := w.Spread(walk.Known(kernelPlaces(n, in[0].Type.DType, g, out, k))[0], at.Type.Dims)
		axes[k] = linearTaps(b, ops.Add(b, at, base), size[2+k])
	}
	x := ops.Reshape(b, w.Value(in[0]), slices.Concat([]int{lanes, c / og}, size[2:]))
	cols := sample(b, channelsLast(b, x), size[2:], axes) // [N*og, points*places, C/og]
	if len(in) > 4 && in[4] != nil {
		if !slices.Equal(in[4].Type.Dims, slices.Concat([]int{size[0], og * points}, out)) {
			n.Fail("the mask is %s, but must have dims %v", in[4].Type, slices.Concat([]int{size[0], og * points}, out))
		}
		mask := ops.Reshape(b, w.Value(in[4]), []int{lanes, points * places, 1})
		cols = ops.Mul(b, cols, ops.Expand(b, mask, cols.Type.Dims))
	}
	cols = ops.Transpose(b, ops.Reshape(b, cols, []int{size[0], og, points, places, c / og}), []int{1, 4, 0, 3, 2})
	cols = ops.Reshape(b, cols, []int{groups, c / groups, size[0] * places, points}) // channels are [og, C/og] or [groups, C/groups]
	cols = ops.Reshape(b, ops.Transpose(b, cols, []int{0, 2, 1, 3}), []int{groups, size[0] * places, c / groups * points})
	o := kernel[0]
	weight := ops.Reshape(b, w.Value(in[1]), []int{groups, o / groups, c / groups * points})
	y := ops.MatMul(b, cols, ops.Transpose(b, weight, []int{0, 2, 1})) // [groups, N*places, O/groups]
	y = ops.Transpose(b, ops.Reshape(b, y, []int{groups, size[0], places, o / groups}), []int{1, 0, 3, 2})
	y = ops.Reshape(b, y, slices.Concat([]int{size[0], o}, out))
	if len(in) > 3 && in[3] != nil {
		y = ops.Add(b, y, perChannel(w, in[3], y.Type.Dims))
	}
	return walk.Results(y)
}

// kernelPlaces gives, for every kernel point and result place, where dim k is read without an offset: [1, points*places].
func kernelPlaces(n *model.Node, d dtype.DType, g window, out []int, k int) *ir.Array {
	points, places := ir.Product(g.kernel), ir.Product(out)
	a := n.Array(ir.T(d, 1, points*places))
	ks, os := ir.Strides(g.kernel)[k], ir.Strides(out)[k]
	for i := range a.F {
		p, q := i/places/ks%g.kernel[k], i%places/os%out[k]
		a.F[i] = float64(q*g.strides[k] - g.pads[k] + p*g.dilations[k])
	}
	return a
}

// roiShape checks the operands of a region pool: x[N,C,H,W] and rois[R,columns].
func roiShape(n *model.Node, in []*walk.Val, columns int) {
	x, r := in[0].Type, in[1].Type
	if len(x.Dims) != 4 || len(r.Dims) != 2 || r.Dims[1] != columns || r.DType != x.DType || !x.DType.IsFloat() {
		n.Fail("operands are %s and %s, but must be floats [N,C,H,W] and [R,%d]", x, r, columns)
	}
}

// importRoiAlign is torchvision's roi_align. Regions get no gradient, as there.
func importRoiAlign(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	roiShape(n, in, 4)
	if !slices.Equal(in[2].Type.Dims, in[1].Type.Dims[:1]) || !in[2].Type.DType.IsInt() {
		n.Fail("batch indices are %s, but must be %d integers", in[2].Type, in[1].Type.Dims[0])
	}
	def := "half_pixel"
	if n.Opset < 16 {
		def = "output_half_pixel"
	}
	a := ops.RoiAlignAttrs{Height: n.Int("output_height", 1), Width: n.Int("output_width", 1),
		Samples: n.Int("sampling_ratio", 0), Scale: n.Float("spatial_scale", 1)}
	switch mode := n.Str("coordinate_transformation_mode", def); mode {
	case "half_pixel":
		a.HalfPixel = true
	case "output_half_pixel":
	default:
		n.Fail("coordinate_transformation_mode is %q, but must be half_pixel or output_half_pixel", mode)
	}
	if a.Height < 1 || a.Width < 1 || max(a.Height, a.Width, a.Samples) > maxWindow || a.Samples < 0 {
		n.Fail("output_height is %d, output_width %d and sampling_ratio %d: one of them is out of range", a.Height, a.Width, a.Samples)
	}
	switch mode := n.Str("mode", "avg"); mode {
	case "avg":
		return walk.Results(ops.RoiAlign(w.B, w.Value(in[0]), w.Value(in[1]), w.Value(in[2]), a))
	case "max":
		return walk.Results(roiMax(w, n, in, a))
	default:
		n.Fail("mode is %q, but must be avg or max", mode)
		return nil
	}
}

// lane is one direction of a region pool: for every region, the samples of all bins [R, bins*samples], as taps and
// whether each sample is in use.
type lane struct {
	taps
	used *ir.Value
}

// roiMax takes in each bin the largest of the samples' weighted neighbours, as ONNX defines mode max. Where the number
// of samples follows the region's size, room is made for the largest region: of those known, else the whole input.
func roiMax(w *walk.Walker, n *model.Node, in []*walk.Val, a ops.RoiAlignAttrs) *ir.Value {
	b, x, d := w.B, w.Value(in[0]), in[0].Type.Dims
	rois := ops.MulScalar(b, w.Value(in[1]), a.Scale)
	h, sy := roiLane(w, n, in, rois, a, 1)
	v, sx := roiLane(w, n, in, rois, a, 0)
	r := in[1].Type.Dims[0]
	rows, columns := a.Height*sy, a.Width*sx
	if _, err := model.Elements([]int{r, rows, columns, d[1]}); err != nil {
		n.Fail("samples of %d regions: %v", r, err)
	}
	grid := []int{r, rows, columns}
	down := func(p *ir.Value) *ir.Value { return ops.Expand(b, ops.Reshape(b, p, []int{r, rows, 1}), grid) }
	across := func(p *ir.Value) *ir.Value { return ops.Expand(b, ops.Reshape(b, p, []int{r, 1, columns}), grid) }
	batch := ops.Cast(b, w.Value(in[2]), dtype.I64)
	batch = ops.Expand(b, ops.Reshape(b, ops.MulScalar(b, batch, float64(d[2]*d[3])), []int{r, 1, 1}), grid)
	last := channelsLast(b, x)
	table := ops.Reshape(b, last, []int{d[0] * d[2] * d[3], d[1]})
	var best *ir.Value
	for i := range h.index {
		for j := range v.index {
			at := ops.Add(b, ops.Add(b, batch, ops.MulScalar(b, down(h.index[i]), float64(d[3]))), across(v.index[j]))
			weight := ops.Mul(b, down(h.weight[i]), across(v.weight[j]))
			y := ops.Gather(b, table, ops.Reshape(b, at, []int{r * rows * columns}), 0)
			y = ops.Mul(b, y, ops.Expand(b, ops.Reshape(b, weight, []int{r * rows * columns, 1}), y.Type.Dims))
			if best != nil {
				y = ops.Maximum(b, best, y)
			}
			best = y
		}
	}
	used := ops.And(b, down(h.used), across(v.used))
	return binMax(b, best, used, []int{r, a.Height, sy, a.Width, sx, d[1]})
}

// binMax reduces values[R*ph*sy*pw*sx, C] over the samples in use of each bin, 0 for a bin without any:
// [R, C, ph, pw].
func binMax(b *ir.Builder, values, used *ir.Value, dims []int) *ir.Value {
	used = ops.Expand(b, ops.Reshape(b, used, append(slices.Clone(dims[:5]), 1)), dims)
	values = ops.Reshape(b, values, dims)
	y := ops.ReduceMax(b, ops.Where(b, used, values, ops.ScalarLike(b, values, math.Inf(-1))), 2, 4)
	some := ops.Gt(b, ops.ReduceMax(b, ops.Cast(b, used, dtype.I32), 2, 4), ops.Zeros(b, y.Type.With(dtype.I32)))
	y = ops.Where(b, some, y, ops.ScalarLike(b, y, 0))
	y = ops.Reshape(b, y, []int{dims[0], dims[1], dims[3], dims[5]})
	return ops.Transpose(b, y, []int{0, 3, 1, 2})
}

// roiLane places the samples along y (axis 1) or x (axis 0) of scaled regions.
func roiLane(w *walk.Walker, n *model.Node, in []*walk.Val, rois *ir.Value, a ops.RoiAlignAttrs, axis int) (lane, int) {
	b, r, size, bins := w.B, in[1].Type.Dims[0], in[0].Type.Dims[2], a.Height
	if axis == 0 {
		size, bins = in[0].Type.Dims[3], a.Width
	}
	edge := func(k int) *ir.Value { return ops.SliceDim(b, rois, 1, k, 1) } // [R,1]
	start, length := edge(axis), ops.Sub(b, edge(axis+2), edge(axis))
	if a.HalfPixel {
		start = ops.AddScalar(b, start, -0.5)
	} else {
		length = ops.Maximum(b, length, ops.ScalarLike(b, length, 1))
	}
	step := ops.MulScalar(b, length, 1/float64(bins))
	samples, count := a.Samples, ops.ScalarLike(b, step, float64(a.Samples))
	if samples == 0 {
		samples = mostSamples(w, in, a, axis, size, bins)
		count = ops.Clip(b, ops.Ceil(b, step), 0, float64(samples))
	}
	if _, err := model.Elements([]int{r, bins, samples}); err != nil || samples*bins > model.MaxFold {
		n.Fail("%d samples in each of %d bins are too many", samples, bins)
	}
	dims := []int{r, bins * samples}
	bin, k := n.Array(ir.T(rois.Type.DType, 1, dims[1])), n.Array(ir.T(rois.Type.DType, 1, dims[1]))
	for i := range bin.F {
		bin.F[i], k.F[i] = float64(i/samples), float64(i%samples)
	}
	wide := func(v *ir.Value) *ir.Value { return ops.Expand(b, v, dims) }
	spread := func(c *ir.Array) *ir.Value { return w.Spread(walk.Known(c)[0], dims) }
	within := ops.Div(b, ops.AddScalar(b, spread(k), 0.5), wide(ops.Maximum(b, count, ops.ScalarLike(b, count, 1))))
	pos := ops.Add(b, wide(start), ops.Mul(b, ops.Add(b, spread(bin), within), wide(step)))
	inside := ops.And(b, ops.Ge(b, pos, ops.ScalarLike(b, pos, -1)), ops.Le(b, pos, ops.ScalarLike(b, pos, float64(size))))
	pos = ops.Where(b, inside, clamped(b, pos, size), ops.ScalarLike(b, pos, -2)) // -2: both neighbours are outside
	return lane{linearTaps(b, pos, size), ops.Lt(b, spread(k), wide(count))}, samples
}

// mostSamples is the number of samples that the largest region takes in one bin along an axis.
func mostSamples(w *walk.Walker, in []*walk.Val, a ops.RoiAlignAttrs, axis, size, bins int) int {
	longest := float64(size)
	if rois := w.Array(in[1]); rois != nil {
		longest = 1
		for i := 0; i+3 < len(rois.F); i += 4 {
			longest = max(longest, (rois.F[i+axis+2]-rois.F[i+axis])*a.Scale)
		}
	}
	return max(1, int(math.Ceil(min(longest, model.MaxFold)/float64(bins))))
}

// importMaxRoiPool is Fast R-CNN's pooling: the maximum over whole elements of each bin. rois are [batch, x1, y1, x2, y2].
func importMaxRoiPool(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	roiShape(n, in, 5)
	shape, b, d, r := n.Ints("pooled_shape"), w.B, in[0].Type.Dims, in[1].Type.Dims[0]
	if len(shape) != 2 || min(shape[0], shape[1]) < 1 || max(shape[0], shape[1]) > maxWindow {
		n.Fail("pooled_shape is %v, but must be two sizes from 1 to %d", shape, maxWindow)
	}
	rois := w.Value(in[1])
	scaled := ops.Round(b, ops.MulScalar(b, rois, n.Float("spatial_scale", 1)))
	// bins gives the elements of each bin along an axis and which of them count: [R, bins*room].
	bins := func(axis, size, bins int) (index, used *ir.Value, room int) {
		room = (size+bins-1)/bins + 1
		start := ops.SliceDim(b, scaled, 1, 1+axis, 1)
		length := ops.AddScalar(b, ops.Sub(b, ops.SliceDim(b, scaled, 1, 3+axis, 1), start), 1)
		step := ops.MulScalar(b, ops.Maximum(b, length, ops.ScalarLike(b, length, 1)), 1/float64(bins))
		dims := []int{r, bins * room}
		bin, k := n.Array(ir.T(step.Type.DType, 1, dims[1])), n.Array(ir.T(step.Type.DType, 1, dims[1]))
		for i := range bin.F {
			bin.F[i], k.F[i] = float64(i/room), float64(i%room)
		}
		spread := func(c *ir.Array) *ir.Value { return w.Spread(walk.Known(c)[0], dims) }
		wide := func(v *ir.Value) *ir.Value { return ops.Expand(b, v, dims) }
		bound := func(p *ir.Value) *ir.Value { return ops.Clip(b, ops.Add(b, p, wide(start)), 0, float64(size)) }
		lo := bound(ops.Floor(b, ops.Mul(b, spread(bin), wide(step))))
		hi := bound(ops.Ceil(b, ops.Mul(b, ops.AddScalar(b, spread(bin), 1), wide(step))))
		at := ops.Add(b, lo, spread(k))
		used = ops.Lt(b, at, hi)
		return ops.Cast(b, ops.Where(b, used, at, ops.ScalarLike(b, at, 0)), dtype.I64), used, room
	}
	y, usedY, roomY := bins(1, d[2], shape[0])
	x, usedX, roomX := bins(0, d[3], shape[1])
	grid := []int{r, shape[0] * roomY, shape[1] * roomX}
	if _, err := model.Elements(append(slices.Clone(grid), d[1])); err != nil {
		n.Fail("bins of %d regions: %v", r, err)
	}
	down := func(p *ir.Value) *ir.Value { return ops.Expand(b, ops.Reshape(b, p, []int{r, grid[1], 1}), grid) }
	across := func(p *ir.Value) *ir.Value { return ops.Expand(b, ops.Reshape(b, p, []int{r, 1, grid[2]}), grid) }
	batch := ops.MulScalar(b, ops.Cast(b, ops.SliceDim(b, rois, 1, 0, 1), dtype.I64), float64(d[2]*d[3]))
	at := ops.Add(b, ops.Expand(b, ops.Reshape(b, batch, []int{r, 1, 1}), grid), ops.MulScalar(b, down(y), float64(d[3])))
	at = ops.Reshape(b, ops.Add(b, at, across(x)), []int{ir.Product(grid)})
	table := ops.Reshape(b, channelsLast(b, w.Value(in[0])), []int{d[0] * d[2] * d[3], d[1]})
	used := ops.And(b, down(usedY), across(usedX))
	return walk.Results(binMax(b, ops.Gather(b, table, at, 0), used, []int{r, shape[0], roomY, shape[1], roomX, d[1]}))
}
