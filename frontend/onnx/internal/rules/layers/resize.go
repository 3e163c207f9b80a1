package layers

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/arrays"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var resizeRows = []walk.Row{
	{Op: "Resize", Since: 10, Min: 2, Max: 2, Rule: importResize},
	{Op: "Resize", Since: 11, Min: 1, Max: 4, Rule: importResize},
	{Op: "Upsample", Since: 7, Min: 1, Max: 1, Rule: importResize},
	{Op: "Upsample", Since: 9, Min: 2, Max: 2, Rule: importResize},
	{Op: "Upsample", Since: 10, Removed: true},
}

// resize is how one dim is resampled: to positions of a source of from elements. roi is the part of it, as
// fractions, that tf_crop_and_resize looks at.
type resize struct {
	from, to int
	scale    float64
	roi      [2]float64
}

// still reports whether the dim stays as it is.
func (r resize) still() bool { return r.from == r.to && r.scale == 1 && r.roi == [2]float64{0, 1} }

// importResize resamples dim after dim: the interpolation is separable. Nearest neighbours are gathered; the other
// modes are a product with each dim's matrix of weights, or a few gathers where the dim is long.
func importResize(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, dims := w.Value(in[0]), resizeDims(w, n, in)
	d := x.Type.DType
	mode := n.Str("mode", "nearest")
	if mode == "bilinear" || mode == "trilinear" { // before opset 9
		mode = "linear"
	}
	if !d.IsFloat() && mode != "nearest" {
		x = ops.Cast(w.B, x, dtype.F32)
	}
	for k, r := range dims {
		if r.still() {
			continue
		}
		if r.to < 1 || r.from < 1 || r.to > model.MaxFold/r.from {
			n.Fail("it resizes dimension %d of dims %v to %d, which is not possible, or too large", k, in[0].Type.Dims, r.to)
		}
		switch mode {
		case "nearest":
			x = resizeNearest(w, n, x, k, r)
		case "linear", "cubic":
			x = resample(w, n, x, k, r, mode)
		default:
			n.Fail("mode is %q, but must be nearest, linear or cubic", mode)
		}
	}
	return walk.Results(ops.Cast(w.B, extrapolate(w, n, x, dims), d))
}

// resizeDims gives each dim's resampling from the sizes or scales operand.
func resizeDims(w *walk.Walker, n *model.Node, in []*walk.Val) []resize {
	d, old := in[0].Type.Dims, n.Op == "Upsample" || n.Opset < 11
	axes := make([]int, 0, len(d))
	for _, a := range n.Ints("axes") {
		axes = append(axes, n.Dim(a, len(d)))
	}
	if n.Ints("axes") == nil {
		for k := range d {
			axes = append(axes, k)
		}
	}
	out := make([]resize, len(d))
	for k := range out {
		out[k] = resize{d[k], d[k], 1, [2]float64{0, 1}}
	}
	at := 2
	if old {
		at = 1
	}
	var scales []float64
	if a := arrays.MustKnow(w, n, in, at); a != nil {
		scales = a.F
	} else if f := n.Floats("scales"); f != nil {
		scales = f
	}
	if len(scales) > 0 {
		if len(scales) != len(axes) {
			n.Fail("there are scales %v for %d dimensions", scales, len(axes))
		}
		for i, s := range scales {
			k := axes[i]
			if !(s > 0 && s < model.MaxDim) || float64(d[k])*s > model.MaxDim {
				n.Fail("scales %v are out of range for dims %v", scales, d)
			}
			out[k].scale, out[k].to = s, int(math.Floor(float64(d[k])*s))
		}
	} else {
		resizeTo(n, out, axes, arrays.MustKnowInts(w, n, in, 3, ""))
	}
	if n.Str("coordinate_transformation_mode", "") == "tf_crop_and_resize" {
		regions(w, n, in, out, axes)
	}
	return out
}

// resizeTo takes the sizes wanted, stretched or by one factor for all of the axes.
func resizeTo(n *model.Node, out []resize, axes, sizes []int) {
	if len(sizes) != len(axes) || len(axes) == 0 {
		n.Fail("there are sizes %v for %d dimensions", sizes, len(axes))
	}
	factors := make([]float64, len(axes))
	for i, k := range axes {
		if sizes[i] < 1 || sizes[i] > model.MaxDim || out[k].from < 1 {
			n.Fail("sizes are %v, but each must be at least 1, of a dimension that is not empty", sizes)
		}
		factors[i] = float64(sizes[i]) / float64(out[k].from)
	}
	policy := n.Str("keep_aspect_ratio_policy", "stretch")
	for i, k := range axes {
		switch policy {
		case "stretch":
			out[k].scale, out[k].to = factors[i], sizes[i]
			continue
		case "not_larger":
			out[k].scale = slices.Min(factors)
		case "not_smaller":
			out[k].scale = slices.Max(factors)
		default:
			n.Fail("keep_aspect_ratio_policy is %q, but must be stretch, not_larger or not_smaller", policy)
		}
		out[k].to = int(out[k].scale*float64(out[k].from) + 0.5)
	}
}

// regions reads the roi operand: all starts, then all ends.
func regions(w *walk.Walker, n *model.Node, in []*walk.Val, out []resize, axes []int) {
	roi := arrays.MustKnow(w, n, in, 1)
	if roi == nil || len(roi.F) != 2*len(axes) {
		n.Fail("tf_crop_and_resize needs %d region bounds", 2*len(axes))
	}
	for i, k := range axes {
		out[k].roi = [2]float64{roi.F[i], roi.F[len(axes)+i]}
	}
}

// sourcePos maps a result position to one of the input (ONNX Resize, coordinate_transformation_mode).
func sourcePos(n *model.Node, i int, r resize) float64 {
	x, def := float64(i), "half_pixel"
	if n.Op == "Upsample" || n.Opset < 11 {
		def = "asymmetric"
	}
	from, wide := float64(r.from), r.scale*float64(r.from)
	switch mode := n.Str("coordinate_transformation_mode", def); mode {
	case "half_pixel":
		return (x+0.5)/r.scale - 0.5
	case "pytorch_half_pixel":
		if r.to == 1 {
			return 0
		}
		return (x+0.5)/r.scale - 0.5
	case "half_pixel_symmetric":
		return from/2*(1-float64(r.to)/wide) + (x+0.5)/r.scale - 0.5
	case "align_corners":
		if wide == 1 {
			return 0
		}
		return x * (from - 1) / (wide - 1)
	case "asymmetric":
		return x / r.scale
	case "tf_crop_and_resize":
		size := (r.roi[1] - r.roi[0]) * (from - 1)
		if wide == 1 {
			return r.roi[0]*(from-1) + size/2
		}
		return r.roi[0]*(from-1) + x*size/(wide-1)
	case "tf_half_pixel_for_nn": // opset 11 and 12
		return (x + 0.5) / r.scale
	default:
		n.Fail("coordinate_transformation_mode %q is not supported", mode)
		return 0
	}
}

// extrapolate sets what tf_crop_and_resize takes from outside of the input.
func extrapolate(w *walk.Walker, n *model.Node, x *ir.Value, dims []resize) *ir.Value {
	if n.Str("coordinate_transformation_mode", "") != "tf_crop_and_resize" {
		return x
	}
	value := n.Float("extrapolation_value", 0)
	for k, r := range dims {
		if r.still() {
			continue
		}
		shape := slices.Repeat([]int{1}, len(dims))
		shape[k] = r.to
		inside, some := n.Array(ir.T(dtype.Bool, shape...)), false
		for i := range inside.I {
			p := sourcePos(n, i, r)
			inside.I[i] = int64(fold.BoolInt(p >= 0 && p <= float64(r.from-1)))
			some = some || inside.I[i] == 0
		}
		if some {
			x = ops.Where(w.B, w.Spread(&walk.Val{Type: inside.Type, Array: inside}, x.Type.Dims), x, ops.ScalarLike(w.B, x, value))
		}
	}
	return x
}

func resizeNearest(w *walk.Walker, n *model.Node, x *ir.Value, dim int, r resize) *ir.Value {
	from, size := r.from, r.to
	index := n.Array(ir.T(dtype.I64, size))
	repeat := size%from == 0
	def := "round_prefer_floor"
	if n.Op == "Upsample" || n.Opset < 11 {
		def = "floor"
	}
	for i := range index.I {
		p := sourcePos(n, i, r)
		switch mode := n.Str("nearest_mode", def); mode {
		case "round_prefer_floor":
			p = math.Ceil(p - 0.5)
		case "round_prefer_ceil":
			p = math.Floor(p + 0.5)
		case "floor":
			p = math.Floor(p)
		case "ceil":
			p = math.Ceil(p)
		default:
			n.Fail("nearest_mode is %q, but must be round_prefer_floor, round_prefer_ceil, floor or ceil", mode)
		}
		index.I[i] = int64(min(max(p, 0), float64(from-1)))
		repeat = repeat && index.I[i] == int64(i/(size/from))
	}
	if step := from / size; from%size == 0 && allAt(index.I, func(i int) int64 { return int64(i * step) }) {
		cuts := fold.Cuts(n, x.Type.Dims, []int{0}, []int{from}, []int{dim}, []int{step})
		return arrays.Cut(w, x, cuts)
	}
	if repeat { // each element several times: a reshape and an expand, whose gradient is a sum
		d := x.Type.Dims
		one := slices.Concat(d[:dim+1], []int{1}, d[dim+1:])
		wide := slices.Concat(d[:dim+1], []int{size / from}, d[dim+1:])
		y := ops.Expand(w.B, ops.Reshape(w.B, x, one), wide)
		return ops.Reshape(w.B, y, slices.Concat(d[:dim], []int{size}, d[dim+1:]))
	}
	return ops.Gather(w.B, x, ops.Const(w.B, index.Tensor()), dim)
}

func allAt(list []int64, want func(int) int64) bool {
	for i, v := range list {
		if v != want(i) {
			return false
		}
	}
	return true
}

// longDim is the size from which a few gathers of whole rows cost less than a product with a dim's matrix of
// weights, which takes as many steps per element as the dim has elements: at 160 the product is three times as fast.
const longDim = 512

// resample is linear or cubic interpolation along dim.
func resample(w *walk.Walker, n *model.Node, x *ir.Value, dim int, r resize, mode string) *ir.Value {
	taps := make([][]float64, r.to) // weights of each result position, from position first on
	n.Work(2 * r.from * r.to)
	first, width := make([]int, r.to), 0
	for i := range taps {
		first[i], taps[i] = weightsAt(n, sourcePos(n, i, r), r, mode)
		width = max(width, len(taps[i]))
	}
	if width <= 4 && r.from > longDim {
		return weighRows(w, n, x, dim, first, taps)
	}
	weights := n.Array(ir.T(x.Type.DType, r.from, r.to))
	for i, list := range taps {
		for t, v := range list {
			weights.F[min(max(first[i]+t, 0), r.from-1)*r.to+i] += v
		}
	}
	return alongDim(w, x, dim, ops.Const(w.B, weights.Tensor()))
}

// alongDim multiplies the vectors along dim by a matrix [old size, new size].
func alongDim(w *walk.Walker, x *ir.Value, dim int, matrix *ir.Value) *ir.Value {
	perm := ops.AllDims(x)
	last := len(perm) - 1
	perm[dim], perm[last] = last, dim
	y := ops.Transpose(w.B, x, perm)
	lead := slices.Clone(y.Type.Dims[:last])
	flat := ops.Reshape(w.B, y, []int{ir.Product(lead), y.Type.Dims[last]})
	flat = ops.MatMul(w.B, flat, matrix)
	y = ops.Reshape(w.B, flat, append(lead, matrix.Type.Dims[1]))
	return ops.Transpose(w.B, y, perm)
}

// weighRows adds, for every tap, the rows along dim that it reads, times its weights.
func weighRows(w *walk.Walker, n *model.Node, x *ir.Value, dim int, first []int, taps [][]float64) *ir.Value {
	d := x.Type.Dims
	perm := slices.Concat([]int{dim}, ops.AllDims(x)[:dim], ops.AllDims(x)[dim+1:])
	rows := ops.Reshape(w.B, ops.Transpose(w.B, x, perm), []int{d[dim], ir.Product(d) / d[dim]})
	var sum *ir.Value
	for t := range taps[0] {
		index, weight := n.Array(ir.T(dtype.I64, len(taps))), n.Array(ir.T(x.Type.DType, len(taps), 1))
		for i := range taps {
			index.I[i] = int64(min(max(first[i]+t, 0), d[dim]-1))
			weight.F[i] = taps[i][t]
		}
		y := ops.Gather(w.B, rows, ops.Const(w.B, index.Tensor()), 0)
		y = ops.Mul(w.B, y, w.Spread(&walk.Val{Type: weight.Type, Array: weight}, y.Type.Dims))
		if sum != nil {
			y = ops.Add(w.B, sum, y)
		}
		sum = y
	}
	dims := make([]int, len(d))
	back := make([]int, len(d))
	for i, p := range perm {
		dims[i], back[p] = d[p], i
	}
	dims[0] = len(taps)
	return ops.Transpose(w.B, ops.Reshape(w.B, sum, dims), back)
}

// weightsAt gives the weights of the source positions around p and where they start; positions outside repeat the edge,
// or count for nothing with exclude_outside.
func weightsAt(n *model.Node, p float64, r resize, mode string) (first int, weights []float64) {
	base := int(math.Ceil(p)) - 1 // so that p - base is in (0,1]
	ratio, scale := p-float64(base), 1.0
	if n.Int("antialias", 0) != 0 {
		scale = min(r.scale, 1)
	}
	kernel, reach := linearKernel, 1.0
	if mode == "cubic" {
		kernel, reach = cubicKernel(n.Float("cubic_coeff_a", -0.75)), 2
	}
	start := int(math.Floor(-reach/scale)) + 1
	for k := start; k < 2-start; k++ {
		v := kernel(scale * math.Abs(float64(k)-ratio))
		if at := base + k; n.Int("exclude_outside", 0) != 0 && (at < 0 || at >= r.from) {
			v = 0
		}
		weights = append(weights, v)
	}
	sum := 0.0
	for _, v := range weights {
		sum += v
	}
	for i := range weights {
		weights[i] /= sum
	}
	return base + start, weights
}

func linearKernel(x float64) float64 { return max(1-x, 0) }

// cubicKernel is Keys' kernel ("Cubic convolution interpolation for digital image processing", 1981).
func cubicKernel(a float64) func(x float64) float64 {
	return func(x float64) float64 {
		switch {
		case x <= 1:
			return ((a+2)*x-(a+3))*x*x + 1
		case x < 2:
			return ((a*x-5*a)*x+8*a)*x - 4*a
		}
		return 0
	}
}
