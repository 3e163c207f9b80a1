package onnx

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var attentionRows = []row{
	{op: "Attention", since: 23, min: 3, max: 6, rule: importAttention},
	{op: "Attention", since: 24, min: 3, max: 7, rule: importAttention},
	{op: "RotaryEmbedding", since: 23, min: 3, max: 4, rule: importRotary},
}

// heads brings [B,S,H*D] to [B,H,S,D]; four dims are there already.
func (w *walker) heads(n *node, x *val, attr string) *ir.Value {
	v := w.value(x)
	if len(x.t.Dims) == 4 {
		return v
	}
	if len(x.t.Dims) != 3 {
		n.fail("operand is %s: want three or four dimensions", x.t)
	}
	return w.splitHeads(n, v, n.int(attr, 0))
}

// importAttention is softmax(cap(scale*q.k') + mask).v with grouped key and value heads, a cache put in front or given
// whole with the lengths of its samples, and windows (opset 25).
func importAttention(w *walker, n *node, in []*val) []*val {
	b := w.b
	a := &attention{w: w, n: n, left: -1, right: -1, output: -1, causal: n.int("is_causal", 0) != 0, softcap: n.float("softcap", 0)}
	a.q, a.k, a.v = w.heads(n, in[0], "q_num_heads"), w.heads(n, in[1], "kv_num_heads"), w.heads(n, in[2], "kv_num_heads")
	in = slices.Concat(in, make([]*val, 7-len(in)))
	if (in[4] == nil) != (in[5] == nil) || in[4] != nil && in[6] != nil {
		n.fail("past keys and values come together, and without nonpad_kv_seqlen")
	}
	if in[4] != nil {
		pk, pv := w.value(in[4]), w.value(in[5])
		if len(pk.Type.Dims) != 4 || len(pv.Type.Dims) != 4 {
			n.fail("past keys are %s, past values %s: want four dimensions", in[4].t, in[5].t)
		}
		a.offset = pk.Type.Dims[2]
		a.k, a.v = ops.Concat(b, 2, pk, a.k), ops.Concat(b, 2, pv, a.v)
	}
	a.check()
	a.scale = n.float("scale", 1/math.Sqrt(float64(max(a.q.Type.Dims[3], 1))))
	if in[3] != nil {
		a.setBias(in[3])
	}
	if in[6] != nil {
		a.setValid(in[6])
		a.perSample = true
	}
	if n.opset >= 25 {
		a.left, a.right = n.int("left_window_size", -1), n.int("right_window_size", -1)
		if a.left < -1 || a.right < -1 {
			n.fail("windows of %d and %d keys: want -1 or a size", a.left, a.right)
		}
	}
	a.precision = n.softmaxPrecision(a.q.Type.DType)
	if n.wants(3) {
		if a.output = n.int("qk_matmul_output_mode", 0); a.output < 0 || a.output > 3 {
			n.fail("qk_matmul_output_mode %d is none of 0 to 3", a.output)
		}
	}
	k, v := a.k, a.v
	out, scores := a.emit()
	if len(in[0].t.Dims) == 3 {
		out = w.joinHeads(out)
	}
	return outs(out, k, v, scores)
}

// softmaxPrecision is the element type that the node wants its softmax computed in, def when it says nothing.
func (n *node) softmaxPrecision(def dtype.DType) dtype.DType {
	if n.attrs["softmax_precision"] == nil {
		return def
	}
	d, err := convertType(int32(n.int("softmax_precision", 0)))
	if err != nil || !d.IsFloat() {
		n.fail("softmax_precision %d is no float type", n.int("softmax_precision", 0))
	}
	return d
}

// importRotary turns pairs of features by an angle of position: halves, or neighbours when interleaved.
func importRotary(w *walker, n *node, in []*val) []*val {
	x := w.heads(n, in[0], "num_heads")
	var place *ir.Value
	if len(in) > 3 && in[3] != nil {
		place = w.value(in[3])
	}
	size := rotated(n, x.Type.Dims[3])
	cos, sin := w.angles(n, w.value(in[1]), place, x.Type.Dims, size/2), w.angles(n, w.value(in[2]), place, x.Type.Dims, size/2)
	y := w.rotate(x, cos, sin, n.int("interleaved", 0) != 0)
	if len(in[0].t.Dims) == 3 {
		y = w.joinHeads(y)
	}
	return outs(y)
}

// rotated is how many of width features are turned: rotary_embedding_dim, or all.
func rotated(n *node, width int) int {
	size := n.int("rotary_embedding_dim", 0)
	if size == 0 {
		size = width
	}
	if size < 2 || size > width || size%2 != 0 {
		n.fail("rotary_embedding_dim %d of %d", size, width)
	}
	return size
}

// rotate turns the first 2*R features of x[B,H,S,D] by angles whose cosines and sines are [B,H,S,R].
func (w *walker) rotate(x, cos, sin *ir.Value, interleaved bool) *ir.Value {
	b, dims, half := w.b, x.Type.Dims, cos.Type.Dims
	width, size := dims[3], 2*half[3]
	first, second := ops.SliceDim(b, x, 3, 0, size/2), ops.SliceDim(b, x, 3, size/2, size/2)
	if interleaved {
		p := ops.Reshape(b, ops.SliceDim(b, x, 3, 0, size), append(slices.Clone(half), 2))
		first = ops.Reshape(b, ops.SliceDim(b, p, 4, 0, 1), half)
		second = ops.Reshape(b, ops.SliceDim(b, p, 4, 1, 1), half)
	}
	re := ops.Sub(b, ops.Mul(b, cos, first), ops.Mul(b, sin, second))
	im := ops.Add(b, ops.Mul(b, sin, first), ops.Mul(b, cos, second))
	var y *ir.Value
	if interleaved {
		one := append(slices.Clone(half), 1)
		y = ops.Concat(b, 4, ops.Reshape(b, re, one), ops.Reshape(b, im, one))
		y = ops.Reshape(b, y, []int{dims[0], dims[1], dims[2], size})
	} else {
		y = ops.Concat(b, 3, re, im)
	}
	if size < width {
		y = ops.Concat(b, 3, y, ops.SliceDim(b, x, 3, size, width-size))
	}
	return y
}

// angles brings a cache of cosines or sines to [B,H,S,half] for x of dims [B,H,S,D]: rows of [positions,half] by place
// [B|1,S], or with no place one row for each of [B|1,S,half].
func (w *walker) angles(n *node, cache, place *ir.Value, dims []int, half int) *ir.Value {
	b := w.b
	if place != nil {
		if len(cache.Type.Dims) != 2 || !place.Type.DType.IsInt() {
			n.fail("a cache of angles is %s, positions are %s: want [positions,%d] and integers", cache.Type, place.Type, half)
		}
		cache = ops.Gather(b, cache, place, 0)
	}
	if d := cache.Type.Dims; len(d) != 3 || d[2] < half || d[1] != dims[2] || d[0] != 1 && d[0] != dims[0] {
		n.fail("angles are %s for %v", cache.Type, dims)
	}
	cache = ops.SliceDim(b, cache, 2, 0, half)
	d := cache.Type.Dims
	return ops.BroadcastTo(b, ops.Reshape(b, cache, []int{d[0], 1, d[1], d[2]}), []int{dims[0], dims[1], dims[2], half})
}
