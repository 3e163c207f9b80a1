package onnx

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// importResize does nearest neighbours, by gathering source positions along each dim, and linear interpolation,
// by a product with each dim's small matrix of weights.
func importResize(w *walker, n *node, in []*val) []*val {
	x, d := w.value(in[0]), in[0].t.Dims
	sizes, scales := w.resizeDims(n, in)
	mode := n.str("mode", "nearest")
	for k := range d {
		if sizes[k] == d[k] && scales[k] == 1 {
			continue
		}
		if sizes[k] > maxFold/max(d[k], 1) || sizes[k] < 1 || d[k] < 1 {
			n.fail("resizes dimension %d of %v to %d", k, d, sizes[k])
		}
		at := func(i int) float64 { return n.sourcePos(i, d[k], sizes[k], scales[k]) }
		switch mode {
		case "nearest":
			x = w.resizeNearest(n, x, k, sizes[k], at)
		case "linear":
			x = w.resizeLinear(x, k, sizes[k], at)
		default:
			n.fail("mode %q is not supported (nearest and linear are)", mode)
		}
	}
	return outs(x)
}

// resizeDims gives the result's dims and each dim's scale from the sizes or scales operand.
func (w *walker) resizeDims(n *node, in []*val) (sizes []int, scales []float64) {
	d := in[0].t.Dims
	at := 2
	if n.op == "Upsample" || n.opset < 11 {
		at = 1
	}
	if n.ints("axes") != nil || n.int("antialias", 0) != 0 || n.str("keep_aspect_ratio_policy", "stretch") != "stretch" {
		n.fail("axes, antialias and keep_aspect_ratio_policy are not supported")
	}
	if a := w.known(n, in, at); a != nil && len(a.F) > 0 {
		scales = a.F
		for i, s := range scales {
			if !(s > 0 && s < maxDim) || i >= len(d) {
				n.fail("scales %v for %v", scales, d)
			}
			sizes = append(sizes, int(math.Floor(float64(d[i])*s)))
		}
	} else {
		sizes = w.knownInts(n, in, 3, "")
		for i, s := range sizes {
			if i < len(d) {
				scales = append(scales, float64(s)/float64(max(d[i], 1)))
			}
		}
	}
	if len(sizes) != len(d) || len(scales) != len(d) {
		n.fail("sizes %v for %v", sizes, d)
	}
	return sizes, scales
}

// sourcePos maps a result position to one of the input (ONNX Resize, coordinate_transformation_mode).
func (n *node) sourcePos(i, from, to int, scale float64) float64 {
	x, def := float64(i), "half_pixel"
	if n.op == "Upsample" || n.opset < 11 {
		def = "asymmetric"
	}
	switch mode := n.str("coordinate_transformation_mode", def); mode {
	case "half_pixel":
		return (x+0.5)/scale - 0.5
	case "pytorch_half_pixel":
		if to == 1 {
			return 0
		}
		return (x+0.5)/scale - 0.5
	case "align_corners":
		if to == 1 {
			return 0
		}
		return x * float64(from-1) / (scale*float64(from) - 1)
	case "asymmetric":
		return x / scale
	default:
		n.fail("coordinate_transformation_mode %q is not supported", mode)
		return 0
	}
}

func (w *walker) resizeNearest(n *node, x *ir.Value, dim, size int, at func(int) float64) *ir.Value {
	from := x.Type.Dims[dim]
	index := ir.NewArray(ir.T(i64, size))
	repeat := size%from == 0
	def := "round_prefer_floor"
	if n.op == "Upsample" || n.opset < 11 {
		def = "floor"
	}
	for i := range index.I {
		p := at(i)
		switch mode := n.str("nearest_mode", def); mode {
		case "round_prefer_floor":
			p = math.Ceil(p - 0.5)
		case "round_prefer_ceil":
			p = math.Floor(p + 0.5)
		case "floor":
			p = math.Floor(p)
		case "ceil":
			p = math.Ceil(p)
		default:
			n.fail("nearest_mode %q", mode)
		}
		index.I[i] = int64(min(max(p, 0), float64(from-1)))
		repeat = repeat && index.I[i] == int64(i/(size/from))
	}
	if step := from / size; from%size == 0 && allAt(index.I, func(i int) int64 { return int64(i * step) }) {
		cuts := sliceCuts(n, x.Type.Dims, []int{0}, []int{from}, []int{dim}, []int{step})
		return w.cut(x, cuts)
	}
	if repeat { // each element several times: a reshape and an expand, whose gradient is a sum
		d := x.Type.Dims
		one := slices.Concat(d[:dim+1], []int{1}, d[dim+1:])
		wide := slices.Concat(d[:dim+1], []int{size / from}, d[dim+1:])
		y := ops.Expand(w.b, ops.Reshape(w.b, x, one), wide)
		return ops.Reshape(w.b, y, slices.Concat(d[:dim], []int{size}, d[dim+1:]))
	}
	return ops.Gather(w.b, x, ops.Const(w.b, index.Tensor()), dim)
}

func allAt(list []int64, want func(int) int64) bool {
	for i, v := range list {
		if v != want(i) {
			return false
		}
	}
	return true
}

func (w *walker) resizeLinear(x *ir.Value, dim, size int, at func(int) float64) *ir.Value {
	from := x.Type.Dims[dim]
	weights := ir.NewArray(ir.T(x.Type.DType, from, size))
	for i := range size {
		p := min(max(at(i), 0), float64(from-1))
		lo := int(p)
		hi := min(lo+1, from-1)
		weights.F[lo*size+i] += 1 - (p - float64(lo))
		weights.F[hi*size+i] += p - float64(lo)
	}
	perm := ops.AllDims(x)
	last := len(perm) - 1
	perm[dim], perm[last] = last, dim
	y := ops.Transpose(w.b, x, perm)
	flat := ops.Reshape(w.b, y, []int{ir.Product(y.Type.Dims[:last]), from})
	flat = ops.MatMul(w.b, flat, ops.Const(w.b, weights.Tensor()))
	y = ops.Reshape(w.b, flat, append(slices.Clone(y.Type.Dims[:last]), size))
	return ops.Transpose(w.b, y, perm)
}
