package onnx

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var padRows = []row{
	{op: "Pad", since: 2, min: 1, max: 1, rule: importPad},
	{op: "Pad", since: 11, min: 2, max: 3, rule: importPad},
	{op: "Pad", since: 18, min: 2, max: 4, rule: importPad},
	{op: "CenterCropPad", since: 18, min: 2, max: 2, rule: importCenterCropPad},
	{op: "DepthToSpace", since: 1, min: 1, max: 1, rule: importDepthToSpace},
	{op: "SpaceToDepth", since: 1, min: 1, max: 1, rule: importSpaceToDepth},
}

// importPad pads, or crops where pads are negative. A fill value that is computed gets a gradient: the sum over the
// padding.
func importPad(w *walker, n *node, in []*val) []*val {
	x, rank := w.value(in[0]), len(in[0].t.Dims)
	pads := w.knownInts(n, in, 1, "pads")
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
		if max(low[a], high[a]) > maxDim || min(low[a], high[a]) < -maxDim || low[a]+high[a]+x.Type.Dims[a] < 0 {
			n.fail("pads %v for %v", pads, x.Type.Dims)
		}
	}
	switch mode := n.str("mode", "constant"); mode {
	case "constant":
		return outs(w.padConstant(n, in, low, high))
	case "reflect", "edge", "wrap":
		return outs(w.padBy(n, x, low, high, mode))
	default:
		n.fail("pad mode %q", mode)
		return nil
	}
}

func (w *walker) padConstant(n *node, in []*val, low, high []int) *ir.Value {
	x := w.value(in[0])
	if n.opset < 11 {
		return ops.Pad(w.b, x, low, high, nil, n.float("value", 0))
	}
	if len(in) < 3 || in[2] == nil {
		return ops.Pad(w.b, x, low, high, nil, 0)
	}
	if in[2].t.Elems() != 1 || in[2].t.DType != x.Type.DType {
		n.fail("the fill value is %s, want one %s", in[2].t, x.Type.DType)
	}
	if a := w.array(in[2]); a != nil && a.F != nil {
		return ops.Pad(w.b, x, low, high, nil, a.F[0])
	} else if a != nil && a.I[0] > -1<<53 && a.I[0] < 1<<53 {
		return ops.Pad(w.b, x, low, high, nil, float64(a.I[0]))
	}
	y := ops.Pad(w.b, x, low, high, nil, 0)
	inside := ops.Pad(w.b, ops.Full(w.b, x.Type.With(dtype.Bool), 1), low, high, nil, 0)
	fill := ops.BroadcastTo(w.b, ops.Reshape(w.b, w.value(in[2]), nil), y.Type.Dims)
	return ops.Where(w.b, inside, y, fill)
}

// padBy pads by gathering mirrored, repeated or wrapped positions.
func (w *walker) padBy(n *node, x *ir.Value, low, high []int, mode string) *ir.Value {
	if mode == "wrap" { // around what is left, as in PyTorch; the other modes look no further than the end
		less := func(v []int) []int {
			out := make([]int, len(v))
			for i := range v {
				out[i], v[i] = min(v[i], 0), max(v[i], 0)
			}
			return out
		}
		x = ops.Pad(w.b, x, less(low), less(high), nil, 0)
	}
	for d, size := range x.Type.Dims {
		if low[d] == 0 && high[d] == 0 {
			continue
		}
		if size == 0 || mode == "reflect" && max(low[d], high[d]) >= size {
			n.fail("pads of %d and %d on a dimension of %d in mode %s", low[d], high[d], size, mode)
		}
		if low[d]+high[d]+size > maxFold {
			n.fail("pads of %d and %d", low[d], high[d])
		}
		index := n.array(ir.T(dtype.I64, low[d]+high[d]+size))
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

// importCenterCropPad cuts or pads each of the axes to a size, about its middle: what is odd goes to the end.
func importCenterCropPad(w *walker, n *node, in []*val) []*val {
	x, d := w.value(in[0]), in[0].t.Dims
	sizes, axes := w.knownInts(n, in, 1, ""), n.ints("axes")
	if axes == nil {
		axes = ops.AllDims(x)
	}
	if len(sizes) != len(axes) {
		n.fail("%d sizes for %d axes", len(sizes), len(axes))
	}
	low, high := make([]int, len(d)), make([]int, len(d))
	for i, a := range axes {
		a = n.dim(a, len(d))
		more := sizes[i] - d[a]
		if sizes[i] < 0 || sizes[i] > maxDim {
			n.fail("sizes %v", sizes)
		}
		low[a] = more / 2 // towards zero: a crop starts at the rounded-down half
		high[a] = more - low[a]
	}
	return outs(ops.Pad(w.b, x, low, high, nil, 0))
}

// blocks is the block size of a four-dimensional operand.
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
	switch mode := n.str("mode", "DCR"); mode {
	case "DCR":
	case "CRD":
		split, perm = []int{d[0], c, b, b, d[2], d[3]}, []int{0, 1, 4, 2, 5, 3}
	default:
		n.fail("mode %q is neither DCR nor CRD", mode)
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
}
