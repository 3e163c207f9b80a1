package arrays

import (
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var padRows = []walk.Row{
	{Op: "Pad", Since: 2, Min: 1, Max: 1, Rule: importPad},
	{Op: "Pad", Since: 11, Min: 2, Max: 3, Rule: importPad},
	{Op: "Pad", Since: 18, Min: 2, Max: 4, Rule: importPad},
	{Op: "CenterCropPad", Since: 18, Min: 2, Max: 2, Rule: importCenterCropPad},
	{Op: "DepthToSpace", Since: 1, Min: 1, Max: 1, Rule: importDepthToSpace},
	{Op: "SpaceToDepth", Since: 1, Min: 1, Max: 1, Rule: importSpaceToDepth},
}

// importPad pads, or crops where pads are negative. A fill value that is computed gets a gradient: the sum over the
// padding.
func importPad(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, rank := w.Value(in[0]), len(in[0].Type.Dims)
	pads := MustKnowInts(w, n, in, 1, "pads")
	low, high := make([]int, rank), make([]int, rank)
	axes := MustKnowInts(w, n, in, 3, "")
	if axes == nil {
		axes = ops.AllDims(x)
	}
	if len(pads) != 2*len(axes) {
		n.Fail("there are %d pads for %d dimensions, which need two each", len(pads), len(axes))
	}
	for i, a := range axes {
		a = n.Dim(a, rank)
		low[a], high[a] = pads[i], pads[len(axes)+i]
		if max(low[a], high[a]) > model.MaxDim || min(low[a], high[a]) < -model.MaxDim || low[a]+high[a]+x.Type.Dims[a] < 0 {
			n.Fail("pads %v are out of range for dims %v", pads, x.Type.Dims)
		}
	}
	switch mode := n.Str("mode", "constant"); mode {
	case "constant":
		return walk.Results(padConstant(w, n, in, low, high))
	case "reflect", "edge", "wrap":
		return walk.Results(padBy(w, n, x, low, high, mode))
	default:
		n.Fail("mode is %q, but must be constant, reflect, edge or wrap", mode)
		return nil
	}
}

func padConstant(w *walk.Walker, n *model.Node, in []*walk.Val, low, high []int) *ir.Value {
	x := w.Value(in[0])
	if n.Opset < 11 {
		return ops.Pad(w.B, x, low, high, nil, n.Float("value", 0))
	}
	if len(in) < 3 || in[2] == nil {
		return ops.Pad(w.B, x, low, high, nil, 0)
	}
	if in[2].Type.Elems() != 1 || in[2].Type.DType != x.Type.DType {
		n.Fail("the fill value is %s, but must be one %s", in[2].Type, x.Type.DType)
	}
	if a := w.Array(in[2]); a != nil && a.F != nil {
		return ops.Pad(w.B, x, low, high, nil, a.F[0])
	} else if a != nil && a.I[0] > -1<<53 && a.I[0] < 1<<53 {
		return ops.Pad(w.B, x, low, high, nil, float64(a.I[0]))
	}
	y := ops.Pad(w.B, x, low, high, nil, 0)
	inside := ops.Pad(w.B, ops.Full(w.B, x.Type.With(dtype.Bool), 1), low, high, nil, 0)
	fill := ops.BroadcastTo(w.B, ops.Reshape(w.B, w.Value(in[2]), nil), y.Type.Dims)
	return ops.Where(w.B, inside, y, fill)
}

// padBy pads by gathering mirrored, repeated or wrapped positions.
func padBy(w *walk.Walker, n *model.Node, x *ir.Value, low, high []int, mode string) *ir.Value {
	if mode == "wrap" { // around what is left, as in PyTorch; the other modes look no further than the end
		less := func(v []int) []int {
			out := make([]int, len(v))
			for i := range v {
				out[i], v[i] = min(v[i], 0), max(v[i], 0)
			}
			return out
		}
		x = ops.Pad(w.B, x, less(low), less(high), nil, 0)
	}
	for d, size := range x.Type.Dims {
		if low[d] == 0 && high[d] == 0 {
			continue
		}
		if size == 0 || mode == "reflect" && max(low[d], high[d]) >= size {
			n.Fail("pads of %d and %d are too large for a dimension of size %d in mode %s", low[d], high[d], size, mode)
		}
		if low[d]+high[d]+size > model.MaxFold {
			n.Fail("pads of %d and %d make a dimension of more than %d elements", low[d], high[d], model.MaxFold)
		}
		index := n.Array(ir.T(dtype.I64, low[d]+high[d]+size))
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
		x = ops.Gather(w.B, x, ops.Const(w.B, index.Tensor()), d)
	}
	return x
}

// importCenterCropPad cuts or pads each of the axes to a size, about its middle: what is odd goes to the end.
func importCenterCropPad(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, d := w.Value(in[0]), in[0].Type.Dims
	sizes, axes := MustKnowInts(w, n, in, 1, ""), n.Ints("axes")
	if axes == nil {
		axes = ops.AllDims(x)
	}
	if len(sizes) != len(axes) {
		n.Fail("there are %d sizes for %d axes", len(sizes), len(axes))
	}
	low, high := make([]int, len(d)), make([]int, len(d))
	for i, a := range axes {
		a = n.Dim(a, len(d))
		more := sizes[i] - d[a]
		if sizes[i] < 0 || sizes[i] > model.MaxDim {
			n.Fail("sizes are %v, but each must be from 0 to %d", sizes, model.MaxDim)
		}
		low[a] = more / 2 // towards zero: a crop starts at the rounded-down half
		high[a] = more - low[a]
	}
	return walk.Results(ops.Pad(w.B, x, low, high, nil, 0))
}

// blocks is the block size of a four-dimensional operand.
func blocks(n *model.Node, d []int) int {
	b := n.Int("blocksize", 0)
	if len(d) != 4 || b < 1 || b > model.MaxDim {
		n.Fail("blocksize is %d and operand 0 has dims %v: it needs [N,C,H,W] and a blocksize of at least 1", b, d)
	}
	return b
}

func importDepthToSpace(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d := in[0].Type.Dims
	b := blocks(n, d)
	if d[1]%(b*b) != 0 {
		n.Fail("%d channels cannot be split into blocks of %d by %d", d[1], b, b)
	}
	c := d[1] / (b * b)
	split, perm := []int{d[0], b, b, c, d[2], d[3]}, []int{0, 3, 4, 1, 5, 2}
	switch mode := n.Str("mode", "DCR"); mode {
	case "DCR":
	case "CRD":
		split, perm = []int{d[0], c, b, b, d[2], d[3]}, []int{0, 1, 4, 2, 5, 3}
	default:
		n.Fail("mode is %q, but must be DCR or CRD", mode)
	}
	y := ops.Transpose(w.B, ops.Reshape(w.B, w.Value(in[0]), split), perm)
	return walk.Results(ops.Reshape(w.B, y, []int{d[0], c, d[2] * b, d[3] * b}))
}

func importSpaceToDepth(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d := in[0].Type.Dims
	b := blocks(n, d)
	if d[2]%b != 0 || d[3]%b != 0 {
		n.Fail("dims %v cannot be split into blocks of %d by %d", d, b, b)
	}
	y := ops.Reshape(w.B, w.Value(in[0]), []int{d[0], d[1], d[2] / b, b, d[3] / b, b})
	y = ops.Transpose(w.B, y, []int{0, 3, 5, 1, 2, 4})
	return walk.Results(ops.Reshape(w.B, y, []int{d[0], d[1] * b * b, d[2] / b, d[3] / b}))
}
