package layers

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/arrays"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var samplingRows = []walk.Row{
	{Op: "GridSample", Since: 16, Min: 2, Max: 2, Rule: importGridSample},
	{Op: "AffineGrid", Since: 20, Min: 2, Max: 2, Rule: importAffineGrid},
	{Op: "DeformConv", Since: 19, Min: 3, Max: 5, Rule: importDeformConv},
	{Op: "RoiAlign", Since: 10, Min: 3, Max: 3, Rule: importRoiAlign},
	{Op: "MaxRoiPool", Since: 1, Min: 2, Max: 2, Rule: importMaxRoiPool},
}

// taps are the places along one dim that each sample reads: indices (i64, always inside the dim) and weights, which
// are 0 where the place is outside. All values have the same dims.
type taps struct{ index, weight []*ir.Value }

// tap appends the place p, a float that holds a whole number.
func (t *taps) tap(b *ir.Builder, p, weight *ir.Value, size int) {
	zero := ops.ScalarLike(b, p, 0)
	inside := ops.And(b, ops.Ge(b, p, zero), ops.Le(b, p, ops.ScalarLike(b, p, float64(size-1)))) // false for NaN
	t.index = append(t.index, ops.Cast(b, ops.Where(b, inside, p, zero), dtype.I64))
	t.weight = append(t.weight, ops.Where(b, inside, weight, ops.ScalarLike(b, weight, 0)))
}

// linearTaps are the two neighbours of pos.
func linearTaps(b *ir.Builder, pos *ir.Value, size int) taps {
	var t taps
	base := ops.Floor(b, pos)
	frac := ops.Sub(b, pos, base)
	t.tap(b, base, ops.Sub(b, ops.ScalarLike(b, frac, 1), frac), size)
	t.tap(b, ops.AddScalar(b, base, 1), frac, size)
	return t
}

// nearestTaps is the nearest place, halves going to the even one, as in PyTorch.
func nearestTaps(b *ir.Builder, pos *ir.Value, size int) taps {
	var t taps
	t.tap(b, ops.Round(b, pos), ops.ScalarLike(b, pos, 1), size)
	return t
}

// cubicTaps are the four neighbours of pos, each brought inside by the padding rule pad.
func cubicTaps(b *ir.Builder, pos *ir.Value, size int, pad func(*ir.Value) *ir.Value) taps {
	const a = -0.75
	var t taps
	base := ops.Floor(b, pos)
	frac := ops.Sub(b, pos, base)
	rest := ops.Sub(b, ops.ScalarLike(b, frac, 1), frac)
	near := func(x *ir.Value) *ir.Value { // ((a+2)x - (a+3))x² + 1
		return ops.AddScalar(b, ops.Mul(b, ops.AddScalar(b, ops.MulScalar(b, x, a+2), -(a+3)), ops.Square(b, x)), 1)
	}
	far := func(x *ir.Value) *ir.Value { // the outer piece at 1+x: a·x·(x-1)², as ((ax-5a)x+8a)x-4a is there
		return ops.MulScalar(b, ops.Mul(b, x, ops.Square(b, ops.AddScalar(b, x, -1))), a)
	}
	for k, weight := range []*ir.Value{far(frac), near(frac), near(rest), far(rest)} {
		t.tap(b, pad(ops.AddScalar(b, base, float64(k-1))), weight, size)
	}
	return t
}

// clamped bounds pos to [0,size-1]. No gradient passes at or outside of the bounds, nor for NaN, which becomes 0, as
// in PyTorch's grid_sample.
func clamped(b *ir.Builder, pos *ir.Value, size int) *ir.Value {
	zero, last := ops.ScalarLike(b, pos, 0), ops.ScalarLike(b, pos, float64(size-1))
	inside := ops.And(b, ops.Gt(b, pos, zero), ops.Lt(b, pos, last))
	return ops.Where(b, inside, pos, ops.Where(b, ops.Ge(b, pos, last), last, zero))
}

// reflected mirrors pos at lo and at hi until it is between them.
func reflected(b *ir.Builder, pos *ir.Value, lo, hi float64) *ir.Value {
	if lo == hi {
		return ops.Zeros(b, pos.Type)
	}
	span := ops.ScalarLike(b, pos, hi-lo)
	d := ops.AddScalar(b, pos, -lo)
	d = ops.Where(b, ops.Lt(b, d, ops.Zeros(b, d.Type)), ops.Neg(b, d), d)
	flips := ops.Floor(b, ops.Div(b, d, span))
	rest := ops.Sub(b, d, ops.Mul(b, flips, span))
	odd := ops.Ne(b, ops.Sub(b, flips, ops.MulScalar(b, ops.Floor(b, ops.MulScalar(b, flips, 0.5)), 2)), ops.Zeros(b, d.Type))
	return ops.AddScalar(b, ops.Where(b, odd, ops.Sub(b, span, rest), rest), lo)
}

// channelsLast brings x[N,C,spatial…] to [N,R,C].
func channelsLast(b *ir.Builder, x *ir.Value) *ir.Value {
	d, all := x.Type.Dims, ops.AllDims(x)
	x = ops.Transpose(b, x, slices.Concat(all[:1], all[2:], all[1:2]))
	return ops.Reshape(b, x, []int{d[0], ir.Product(d[2:]), d[1]})
}

// sample adds up, over all combinations of taps, the rows of table[N,R,C] times their weights: [N,M,C]. The taps of
// each dim of size dims[k] have dims [N,M].
func sample(b *ir.Builder, table *ir.Value, dims []int, axes []taps) *ir.Value {
	strides := ir.Strides(dims)
	var sum *ir.Value
	var walk func(k int, index, weight *ir.Value)
	walk = func(k int, index, weight *ir.Value) {
		if k == len(axes) {
			rows := ops.BatchGather(b, table, index)
			d := index.Type.Dims
			weight = ops.Cast(b, ops.Reshape(b, weight, []int{d[0], d[1], 1}), table.Type.DType)
			rows = ops.Mul(b, rows, ops.Expand(b, weight, rows.Type.Dims))
			if sum != nil {
				rows = ops.Add(b, sum, rows)
			}
			sum = rows
			return
		}
		for t, i := range axes[k].index {
			v := axes[k].weight[t]
			i = ops.MulScalar(b, i, float64(strides[k]))
			if index != nil {
				i, v = ops.Add(b, index, i), ops.Mul(b, weight, v)
			}
			walk(k+1, i, v)
		}
	}
	walk(0, nil, nil)
	return sum
}

// importGridSample is PyTorch's grid_sample, with its gradients for x and grid. grid holds x, y(, z) in [-1,1].
func importGridSample(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d, g := in[0].Type.Dims, in[1].Type.Dims
	nd := len(d) - 2
	if nd < 1 || len(g) != len(d) || g[len(g)-1] != nd || g[0] != d[0] || !in[1].Type.DType.IsFloat() || slices.Contains(d, 0) {
		n.Fail("operands are %s and %s, but must be [N,C,…] and [N,…,%d]", in[0].Type, in[1].Type, nd)
	}
	b, x, grid := w.B, w.Value(in[0]), w.Value(in[1])
	if !x.Type.DType.IsFloat() {
		x = ops.Cast(b, x, dtype.F32)
	}
	if grid.Type.DType.Size() < 4 { // positions need more digits than half precision has
		grid = ops.Cast(b, grid, dtype.F32)
	}
	m := ir.Product(g[1 : len(g)-1])
	grid = ops.Reshape(b, grid, []int{g[0], m, nd})
	axes := make([]taps, nd)
	for k, size := range d[2:] {
		at := ops.Reshape(b, ops.SliceDim(b, grid, 2, nd-1-k, 1), []int{g[0], m})
		axes[k] = gridTaps(n, b, at, size)
	}
	y := ops.Transpose(b, sample(b, channelsLast(b, x), d[2:], axes), []int{0, 2, 1})
	y = ops.Reshape(b, y, slices.Concat(d[:2], g[1:len(g)-1]))
	return walk.Results(ops.Cast(b, y, in[0].Type.DType))
}

// gridTaps are the taps at normalized positions along a dim.
func gridTaps(n *model.Node, b *ir.Builder, at *ir.Value, size int) taps {
	lo, hi := -0.5, float64(size)-0.5
	if n.Int("align_corners", 0) != 0 {
		lo, hi = 0, float64(size-1)
	}
	pos := ops.AddScalar(b, ops.MulScalar(b, ops.AddScalar(b, at, 1), (hi-lo)/2), lo)
	pad := func(p *ir.Value) *ir.Value { return p }
	switch mode := n.Str("padding_mode", "zeros"); mode {
	case "zeros":
	case "border":
		pad = func(p *ir.Value) *ir.Value { return clamped(b, p, size) }
	case "reflection":
		pad = func(p *ir.Value) *ir.Value { return clamped(b, reflected(b, p, lo, hi), size) }
	default:
		n.Fail("padding_mode is %q, but must be zeros, border or reflection", mode)
	}
	switch mode := n.Str("mode", "linear"); mode {
	case "linear", "bilinear":
		return linearTaps(b, pad(pos), size)
	case "nearest":
		return nearestTaps(b, pad(pos), size)
	case "cubic", "bicubic":
		return cubicTaps(b, pos, size, pad)
	default:
		n.Fail("mode is %q, but must be linear, nearest or cubic", mode)
		return taps{}
	}
}

// importAffineGrid multiplies the homogeneous positions of the result by theta: PyTorch's affine_grid.
func importAffineGrid(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	size, t := arrays.MustKnowInts(w, n, in, 1, ""), in[0].Type.Dims
	nd := len(size) - 2
	if nd < 2 || nd > 3 || !slices.Equal(t, []int{size[0], nd, nd + 1}) {
		n.Fail("theta is %s and size %v, but must be [N,2,3] and [N,C,H,W], or [N,3,4] and [N,C,D,H,W]", in[0].Type, size)
	}
	if m, err := model.Elements(size); err != nil || m > model.MaxFold {
		n.Fail("size %v is too large", size)
	}
	m := ir.Product(size[2:])
	base := n.Array(ir.T(in[0].Type.DType, nd+1, m)) // rows x, y(, z) and ones
	strides := ir.Strides(size[2:])
	for i := range m {
		for k, s := range size[2:] {
			p := float64(i / strides[k] % s)
			v := (2*p+1)/float64(s) - 1
			if n.Int("align_corners", 0) != 0 {
				v = 2*p/float64(max(s-1, 1)) - 1
				if s == 1 {
					v = 0
				}
			}
			base.F[(nd-1-k)*m+i] = v
		}
		base.F[nd*m+i] = 1
	}
	theta := ops.Reshape(w.B, w.Value(in[0]), []int{size[0] * nd, nd + 1})
	y := ops.MatMul(w.B, theta, ops.Const(w.B, base.Tensor()))
	y = ops.Transpose(w.B, ops.Reshape(w.B, y, []int{size[0], nd, m}), []int{0, 2, 1})
	return walk.Results(ops.Reshape(w.B, y, slices.Concat(size[:1], size[2:], []int{nd})))
}
