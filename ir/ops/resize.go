package ops

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// ResizeMode says how a resized dimension reads its source, in the words of ONNX's Resize. Coord is half_pixel,
// pytorch_half_pixel, align_corners or asymmetric; Nearest (for Linear false) is floor, ceil, round_prefer_floor or
// round_prefer_ceil.
type ResizeMode struct {
	Linear         bool
	Coord, Nearest string
}

// ResizeAxis resizes one dimension of x to size out. scale is out/in as ONNX gives it, 0 for exactly out/in. Several
// dimensions are resized one after another: nearest and linear are separable.
func ResizeAxis(b *ir.Builder, x *ir.Value, dim, out int, scale float64, m ResizeMode) *ir.Value {
	in := x.Type.Dims[dim]
	if in < 1 || out < 1 {
		panic(ir.Errorf(b.Loc, "cannot resize dimension %d from %d to %d", dim, in, out))
	}
	if scale == 0 {
		scale = float64(out) / float64(in)
	}
	source, ok := m.source(in, out, scale)
	if !ok {
		panic(ir.Errorf(b.Loc, "resize with coordinate mode %q is not supported", m.Coord).
			Note("supported are half_pixel, pytorch_half_pixel, align_corners and asymmetric"))
	}
	low, high, weight := make([]int64, out), make([]int64, out), make([]float64, out)
	clamp := func(v float64) int64 { return int64(min(max(v, 0), float64(in-1))) }
	for i := range out {
		c := source(float64(i))
		if !m.Linear {
			near, ok := m.round(c)
			if !ok {
				panic(ir.Errorf(b.Loc, "resize with nearest mode %q is not supported", m.Nearest).
					Note("supported are floor, ceil, round_prefer_floor and round_prefer_ceil"))
			}
			low[i] = clamp(near)
			continue
		}
		f := math.Floor(c)
		low[i], high[i], weight[i] = clamp(f), clamp(f+1), c-f
	}
	near := take(b, x, dim, low)
	if !m.Linear || slices.Equal(low, high) || !slices.ContainsFunc(weight, func(w float64) bool { return w != 0 }) {
		return near
	}
	dims := with(filled(len(x.Type.Dims), 1), dim, out)
	w := Expand(b, Const(b, ir.Floats(ir.T(x.Type.DType, dims...), weight...)), near.Type.Dims)
	return Add(b, near, Mul(b, Sub(b, take(b, x, dim, high), near), w))
}

// source maps an output position to an input coordinate.
func (m ResizeMode) source(in, out int, scale float64) (func(x float64) float64, bool) {
	half := func(x float64) float64 { return (x+0.5)/scale - 0.5 }
	zero := func(float64) float64 { return 0 }
	switch m.Coord {
	case "half_pixel":
		return half, true
	case "pytorch_half_pixel":
		if out == 1 {
			return zero, true
		}
		return half, true
	case "align_corners":
		if out == 1 {
			return zero, true
		}
		return func(x float64) float64 { return x * float64(in-1) / float64(out-1) }, true
	case "asymmetric":
		return func(x float64) float64 { return x / scale }, true
	}
	return nil, false
}

func (m ResizeMode) round(c float64) (float64, bool) {
	switch m.Nearest {
	case "floor":
		return math.Floor(c), true
	case "ceil":
		return math.Ceil(c), true
	case "round_prefer_floor":
		return math.Ceil(c - 0.5), true
	case "round_prefer_ceil":
		return math.Floor(c + 0.5), true
	}
	return 0, false
}

// take gathers along dim. Where every element is repeated equally often it expands instead, whose gradient is a
// sum over neighbours rather than a scatter.
func take(b *ir.Builder, x *ir.Value, dim int, idx []int64) *ir.Value {
	in, d := x.Type.Dims[dim], x.Type.Dims
	times := len(idx) / in
	repeats := len(idx) == times*in
	for i, v := range idx {
		repeats = repeats && v == int64(i/times)
	}
	if repeats {
		wide := slices.Concat(d[:dim+1], []int{times}, d[dim+1:])
		return Reshape(b, Expand(b, Reshape(b, x, with(wide, dim+1, 1)), wide), with(d, dim, len(idx)))
	}
	return Gather(b, x, Const(b, ir.Ints(ir.T(dtype.I64, len(idx)), idx...)), dim)
}
