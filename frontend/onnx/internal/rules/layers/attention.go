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

var attentionRows = []walk.Row{
	{Op: "Attention", Since: 23, Min: 3, Max: 6, Rule: importAttention},
	{Op: "Attention", Since: 24, Min: 3, Max: 7, Rule: importAttention},
	{Op: "RotaryEmbedding", Since: 23, Min: 3, Max: 4, Rule: importRotary},
}

// heads brings [B,S,H*D] to [B,H,S,D]; four dims are there already.
func heads(w *walk.Walker, n *model.Node, x *walk.Val, attr string) *ir.Value {
	v := w.Value(x)
	if len(x.Type.Dims) == 4 {
		return v
	}
	if len(x.Type.Dims) != 3 {
		n.Fail("the operand is %s, but must have three or four dimensions", x.Type)
	}
	return SplitHeads(w, n, v, n.Int(attr, 0))
}

// importAttention is softmax(cap(scale*q.k') + mask).v with grouped key and value heads, a cache put in front or given
// whole with the lengths of its samples, and windows (opset 25).
func importAttention(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	b := w.B
	a := &Attention{W: w, N: n, Left: -1, Right: -1, Output: -1, Causal: n.Int("is_causal", 0) != 0, Softcap: n.Float("softcap", 0)}
	a.Q, a.K, a.V = heads(w, n, in[0], "q_num_heads"), heads(w, n, in[1], "kv_num_heads"), heads(w, n, in[2], "kv_num_heads")
	in = slices.Concat(in, make([]*walk.Val, 7-len(in)))
	if (in[4] == nil) != (in[5] == nil) || in[4] != nil && in[6] != nil {
		n.Fail("past keys and past values must be given together, and without nonpad_kv_seqlen")
	}
	if in[4] != nil {
		pk, pv := w.Value(in[4]), w.Value(in[5])
		if len(pk.Type.Dims) != 4 || len(pv.Type.Dims) != 4 {
			n.Fail("past keys are %s and past values %s, but must have four dimensions", in[4].Type, in[5].Type)
		}
		a.Offset = pk.Type.Dims[2]
		a.K, a.V = ops.Concat(b, 2, pk, a.K), ops.Concat(b, 2, pv, a.V)
	}
	a.Check()
	a.Scale = n.Float("scale", 1/math.Sqrt(float64(max(a.Q.Type.Dims[3], 1))))
	if in[3] != nil {
		a.setBias(in[3])
	}
	if in[6] != nil {
		a.setValid(in[6])
		a.perSample = true
	}
	if n.Opset >= 25 {
		a.Left, a.Right = n.Int("left_window_size", -1), n.Int("right_window_size", -1)
		if a.Left < -1 || a.Right < -1 {
			n.Fail("left_window_size is %d and right_window_size %d, but each must be -1 (no bound) or a number of keys", a.Left, a.Right)
		}
	}
	a.Precision = SoftmaxPrecision(n, a.Q.Type.DType)
	if n.Wants(3) {
		if a.Output = n.Int("qk_matmul_output_mode", 0); a.Output < 0 || a.Output > 3 {
			n.Fail("qk_matmul_output_mode is %d, but must be from 0 to 3", a.Output)
		}
	}
	k, v := a.K, a.V
	out, scores := a.Emit()
	if len(in[0].Type.Dims) == 3 {
		out = JoinHeads(w, out)
	}
	return walk.Results(out, k, v, scores)
}

// SoftmaxPrecision is the element type that the node wants its softmax computed in, def when it says nothing.
func SoftmaxPrecision(n *model.Node, def dtype.DType) dtype.DType {
	if n.Attrs["softmax_precision"] == nil {
		return def
	}
	d, err := model.DTypeOf(int32(n.Int("softmax_precision", 0)))
	if err != nil || !d.IsFloat() {
		n.Fail("softmax_precision %d is not a supported float type", n.Int("softmax_precision", 0))
	}
	return d
}

// importRotary turns pairs of features by an angle of position: halves, or neighbours when interleaved.
func importRotary(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x := heads(w, n, in[0], "num_heads")
	var place *ir.Value
	if len(in) > 3 && in[3] != nil {
		place = w.Value(in[3])
	}
	size := Rotated(n, x.Type.Dims[3])
	cos, sin := Angles(w, n, w.Value(in[1]), place, x.Type.Dims, size/2), Angles(w, n, w.Value(in[2]), place, x.Type.Dims, size/2)
	y := Rotate(w, x, cos, sin, n.Int("interleaved", 0) != 0)
	if len(in[0].Type.Dims) == 3 {
		y = JoinHeads(w, y)
	}
	return walk.Results(y)
}

// Rotated is how many of width features are turned: rotary_embedding_dim, or all.
func Rotated(n *model.Node, width int) int {
	size := n.Int("rotary_embedding_dim", 0)
	if size == 0 {
		size = width
	}
	if size < 2 || size > width || size%2 != 0 {
		n.Fail("rotary_embedding_dim is %d, but must be even and from 2 to the size of a head, %d", size, width)
	}
	return size
}

// Rotate turns the first 2*R features of x[B,H,S,D] by angles whose cosines and sines are [B,H,S,R].
func Rotate(w *walk.Walker, x, cos, sin *ir.Value, interleaved bool) *ir.Value {
	b, dims, half := w.B, x.Type.Dims, cos.Type.Dims
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

// Angles brings a cache of cosines or sines to [B,H,S,half] for x of dims [B,H,S,D]: rows of [positions,half] by place
// [B|1,S], or with no place one row for each of [B|1,S,half].
func Angles(w *walk.Walker, n *model.Node, cache, place *ir.Value, dims []int, half int) *ir.Value {
	b := w.B
	if place != nil {
		if len(cache.Type.Dims) != 2 || !place.Type.DType.IsInt() {
			n.Fail("a cache of angles is %s and positions are %s, but must be [positions,%d] and integers", cache.Type, place.Type, half)
		}
		cache = ops.Gather(b, cache, place, 0)
	}
	if d := cache.Type.Dims; len(d) != 3 || d[2] < half || d[1] != dims[2] || d[0] != 1 && d[0] != dims[0] {
		n.Fail("a cache of angles is %s, which does not fit an input of dims %v", cache.Type, dims)
	}
	cache = ops.SliceDim(b, cache, 2, 0, half)
	d := cache.Type.Dims
	return ops.BroadcastTo(b, ops.Reshape(b, cache, []int{d[0], 1, d[1], d[2]}), []int{dims[0], dims[1], dims[2], half})
}
