package domains

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/layers"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// importRotaryMS is rotary embedding with positions [B,S], or [1] for the first of all samples.
func importRotaryMS(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	heads, table := n.Int("num_heads", 0), in[2].Type.Dims
	if n.Int("is_packed_batching", 0) != 0 {
		n.Fail("is_packed_batching is not supported")
	}
	if len(table) != 2 {
		n.Fail("the cosines are %s, but must be [positions,half]", in[2].Type)
	}
	x := w.Value(in[0])
	if len(x.Type.Dims) == 3 {
		if heads == 0 {
			heads = x.Type.Dims[2] / max(2*table[1], 1)
		}
		x = layers.SplitHeads(w, n, x, heads)
	} else if len(x.Type.Dims) != 4 {
		n.Fail("operand 0 is %s, but must have three or four dimensions", in[0].Type)
	}
	size := layers.Rotated(n, min(x.Type.Dims[3], 2*table[1]))
	place := places(w, n, in[1], x.Type.Dims[0], x.Type.Dims[2])
	cos, sin := layers.Angles(w, n, w.Value(in[2]), place, x.Type.Dims, size/2), layers.Angles(w, n, w.Value(in[3]), place, x.Type.Dims, size/2)
	y := layers.Rotate(w, x, cos, sin, n.Int("interleaved", 0) != 0)
	if len(in[0].Type.Dims) == 3 {
		y = layers.JoinHeads(w, y)
	}
	return walk.Results(y)
}

// places is positions [B,S] as they are, or s positions from the one of x [1] on, as [1,S].
func places(w *walk.Walker, n *model.Node, x *walk.Val, batch, s int) *ir.Value {
	b := w.B
	if !x.Type.DType.IsInt() {
		n.Fail("positions are %s, but must be integers", x.Type)
	}
	v := ops.Cast(b, w.Value(x), dtype.I64)
	switch {
	case x.Type.Elems() == 1 && len(x.Type.Dims) < 2:
		first := ops.Expand(b, ops.Reshape(b, v, []int{1, 1}), []int{1, s})
		return ops.Add(b, first, ops.Iota(b, dtype.I64, []int{1, s}, 1))
	case slices.Equal(x.Type.Dims, []int{batch, s}):
		return v
	}
	n.Fail("positions are %s, but must be [1] or [%d,%d]", x.Type, batch, s)
	return nil
}

// newAttentionMS reads what the attention operators of com.microsoft share.
func newAttentionMS(w *walk.Walker, n *model.Node, q, k, v *ir.Value) *layers.Attention {
	a := &layers.Attention{W: w, N: n, Q: q, K: k, V: v, Left: -1, Right: -1, Output: -1}
	a.Check()
	if a.Scale = n.Float("scale", 0); a.Scale == 0 {
		a.Scale = 1 / math.Sqrt(float64(max(q.Type.Dims[3], 1)))
	}
	return a
}

// setPast puts past keys and values [B,H,P,D] before the new ones.
func setPast(a *layers.Attention, k, v *ir.Value) {
	if len(k.Type.Dims) != 4 || len(v.Type.Dims) != 4 {
		a.N.Fail("past keys are %s and past values %s, but must have four dimensions", k.Type, v.Type)
	}
	a.Offset = k.Type.Dims[2]
	a.K, a.V = ops.Concat(a.W.B, 2, k, a.K), ops.Concat(a.W.B, 2, v, a.V)
	a.Check()
}

// addBias adds x to the bias that there is.
func addBias(a *layers.Attention, x *ir.Value) {
	if a.Bias == nil {
		a.Bias = x
		return
	}
	y, z := ops.Broadcast2(a.W.B, a.Bias, x)
	a.Bias = ops.Add(a.W.B, y, z)
}

// hide adds mask_filter_value to the scores of keys that a mask of com.microsoft's forms leaves out: [B] lengths, [2B]
// ends and then starts, [3B+2] lengths and more, or zeros and ones [B,T], [B,S,T] or [B,1,max,max].
func hide(a *layers.Attention, mask *walk.Val) {
	b, d := a.W.B, mask.Type.Dims
	batch, _, sq, sk := a.Sizes()
	if !mask.Type.DType.IsInt() {
		a.N.Fail("the mask is %s, but must be integers", mask.Type)
	}
	m := ops.Cast(b, a.W.Value(mask), dtype.I64)
	limit := func(from int) *ir.Value { // batch numbers from a place on, against every key
		x := ops.Reshape(b, ops.SliceDim(b, m, 0, from, batch), []int{batch, 1, 1, 1})
		return ops.Expand(b, x, []int{batch, 1, 1, sk})
	}
	key := func() *ir.Value {
		return ops.Expand(b, ops.Iota(b, dtype.I64, []int{1, 1, 1, sk}, 3), []int{batch, 1, 1, sk})
	}
	var seen *ir.Value
	switch {
	case slices.Equal(d, []int{batch}), slices.Equal(d, []int{3*batch + 2}):
		seen = ops.Lt(b, key(), limit(0))
	case slices.Equal(d, []int{2 * batch}):
		seen = ops.And(b, ops.Lt(b, key(), limit(0)), ops.Ge(b, key(), limit(batch)))
	default:
		switch {
		case slices.Equal(d, []int{batch, sk}):
			m = ops.Reshape(b, m, []int{batch, 1, 1, sk})
		case slices.Equal(d, []int{batch, sq, sk}):
			m = ops.Reshape(b, m, []int{batch, 1, sq, sk})
		case len(d) == 4 && d[0] == batch && d[1] == 1 && d[2] >= a.Offset+sq && d[3] >= sk:
			m = ops.SliceDim(b, ops.SliceDim(b, m, 2, a.Offset, sq), 3, 0, sk)
		default:
			a.N.Fail("the mask is %s, which does not fit %d samples, %d queries and %d keys", mask.Type, batch, sq, sk)
		}
		seen = ops.Gt(b, m, ops.Zeros(b, m.Type))
	}
	t := seen.Type.With(a.Q.Type.DType)
	addBias(a, ops.Where(b, seen, ops.Zeros(b, t), ops.Full(b, t, a.N.Float("mask_filter_value", -10000))))
}

// setAttentionBias takes a float bias of exactly [B|1,H|1,S,T].
func setAttentionBias(a *layers.Attention, x *walk.Val) {
	batch, heads, sq, sk := a.Sizes()
	d := x.Type.Dims
	if len(d) != 4 || d[0] != 1 && d[0] != batch || d[1] != 1 && d[1] != heads || d[2] != sq || d[3] != sk || x.Type.DType != a.Q.Type.DType {
		a.N.Fail("the attention bias is %s, which does not fit queries %s and keys %s", x.Type, a.Q.Type, a.K.Type)
	}
	addBias(a, a.W.Value(x))
}

// unpack takes part i of n out of [B,S,H,n,D] and brings it to [B,H,S,D].
func unpack(w *walk.Walker, x *ir.Value, i int) *ir.Value {
	d := x.Type.Dims
	v := ops.Reshape(w.B, ops.SliceDim(w.B, x, 3, i, 1), []int{d[0], d[1], d[2], d[4]})
	return ops.Transpose(w.B, v, []int{0, 2, 1, 3})
}

// importMultiHead is attention of projected queries, keys and values, also packed together or in heads already.
func importMultiHead(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	in = slices.Concat(in, make([]*walk.Val, 10-len(in)))
	if in[8] != nil || in[9] != nil {
		n.Fail("shared buffers of past keys and beams are not supported")
	}
	q, k, v := multiHeads(w, n, in)
	a := newAttentionMS(w, n, q, k, v)
	if (in[6] == nil) != (in[7] == nil) {
		n.Fail("past keys and past values must be given together")
	}
	if in[6] != nil {
		setPast(a, w.Value(in[6]), w.Value(in[7]))
	}
	a.Causal = n.Int("unidirectional", 0) != 0
	if in[4] != nil {
		hide(a, in[4])
	}
	if in[5] != nil {
		setAttentionBias(a, in[5])
	}
	if n.Wants(3) {
		a.Output = 2
	}
	k, v = a.K, a.V
	out, scores := a.Emit()
	return walk.Results(layers.JoinHeads(w, out), k, v, scores)
}

// multiHeads gives queries, keys and values [B,H,S,D] of MultiHeadAttention.
func multiHeads(w *walk.Walker, n *model.Node, in []*walk.Val) (q, k, v *ir.Value) {
	b, h, d := w.B, n.Int("num_heads", 0), in[0].Type.Dims
	if len(d) == 5 && d[2] == h && d[3] == 3 && in[1] == nil && in[2] == nil && in[3] == nil {
		x := w.Value(in[0])
		return unpack(w, x, 0), unpack(w, x, 1), unpack(w, x, 2)
	}
	if len(d) != 3 || in[1] == nil {
		n.Fail("queries are %s, but must be [batch,sequence,hidden] and keys, or [batch,sequence,%d,3,size] alone", in[0].Type, h)
	}
	at := 0
	projected := func(x *walk.Val) *ir.Value { // with its part of the bias, in heads
		y, size := w.Value(x), x.Type.Dims[2]
		if in[3] != nil {
			if len(in[3].Type.Dims) != 1 || at+size > in[3].Type.Dims[0] || in[3].Type.DType != x.Type.DType {
				n.Fail("the bias is %s, which does not have %d values from index %d on", in[3].Type, size, at)
			}
			y = ops.Add(b, y, ops.BroadcastTo(b, ops.SliceDim(b, w.Value(in[3]), 0, at, size), x.Type.Dims))
			at += size
		}
		return layers.SplitHeads(w, n, y, h)
	}
	q = projected(in[0])
	kd := in[1].Type.Dims
	switch {
	case in[2] == nil && len(kd) == 5 && kd[2] == h && kd[3] == 2:
		x := w.Value(in[1])
		return q, unpack(w, x, 0), unpack(w, x, 1)
	case in[2] != nil && len(kd) == 3 && len(in[2].Type.Dims) == 3:
		k = projected(in[1])
		return q, k, projected(in[2])
	case in[2] != nil && len(kd) == 4 && len(in[2].Type.Dims) == 4:
		return q, w.Value(in[1]), w.Value(in[2])
	}
	n.Fail("keys are %s, but must come with values of as many dimensions, or be packed as [batch,sequence,%d,2,size]", in[1].Type, h)
	return nil, nil, nil
}

// importPackedAttention projects one input to queries, keys and values and attends.
func importPackedAttention(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	b := w.B
	in = slices.Concat(in, make([]*walk.Val, 7-len(in)))
	d, wd, h := in[0].Type.Dims, in[1].Type.Dims, n.Int("num_heads", 0)
	if len(d) != 3 || len(wd) != 2 || wd[0] != d[2] {
		n.Fail("operands are %s and %s, but must be [batch,sequence,inputs] and [inputs,outputs]", in[0].Type, in[1].Type)
	}
	if n.Int("past_present_share_buffer", 0) != 0 || in[6] != nil || n.Int("do_rotary", 0) != 0 {
		n.Fail("shared buffers of past keys and rotary embedding inside the operator are not supported")
	}
	sizes := n.Ints("qkv_hidden_sizes")
	if len(sizes) == 0 {
		sizes = slices.Repeat([]int{wd[1] / 3}, 3)
	}
	if len(sizes) != 3 || slices.Min(sizes) < 1 || slices.Max(sizes) > wd[1] || sizes[0]+sizes[1]+sizes[2] != wd[1] {
		n.Fail("qkv_hidden_sizes are %v, but must be three positive sizes that add up to the %d outputs of the weight", sizes, wd[1])
	}
	var bias *ir.Value
	if in[2] != nil {
		bias = w.Value(in[2])
	}
	y := ops.MatMulBias(b, w.Value(in[0]), w.Value(in[1]), bias, false, false)
	part := func(at, size int) *ir.Value { return layers.SplitHeads(w, n, ops.SliceDim(b, y, 2, at, size), h) }
	a := newAttentionMS(w, n, part(0, sizes[0]), part(sizes[0], sizes[1]), part(sizes[0]+sizes[1], sizes[2]))
	if in[4] != nil { // [2,B,H,P,D]
		pd := in[4].Type.Dims
		if len(pd) != 5 || pd[0] != 2 {
			n.Fail("the past is %s, but must be [2,batch,heads,sequence,size]", in[4].Type)
		}
		past := func(i int) *ir.Value { return ops.Reshape(b, ops.SliceDim(b, w.Value(in[4]), 0, i, 1), pd[1:]) }
		setPast(a, past(0), past(1))
	}
	a.Causal = n.Int("unidirectional", 0) != 0
	if in[3] != nil {
		hide(a, in[3])
	}
	if in[5] != nil {
		setAttentionBias(a, in[5])
	}
	var present *ir.Value
	if n.Wants(1) {
		one := slices.Concat([]int{1}, a.K.Type.Dims)
		if !slices.Equal(a.K.Type.Dims, a.V.Type.Dims) {
			n.Fail("present holds keys of dims %v and values of dims %v in one tensor, so they must have the same dims", a.K.Type.Dims, a.V.Type.Dims)
		}
		present = ops.Concat(b, 0, ops.Reshape(b, a.K, one), ops.Reshape(b, a.V, one))
	}
	out, _ := a.Emit()
	return walk.Results(layers.JoinHeads(w, out), present)
}

// importGroupQuery is causal attention with grouped heads, rotary embedding and a window. A cache of past keys is joined
// whole: every sample must fill it, which seqlens_k, known when compiling, says.
func importGroupQuery(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	in = slices.Concat(in, make([]*walk.Val, 17-len(in)))
	for _, i := range []int{12, 13, 16} {
		if in[i] != nil {
			n.Fail("%s is not supported", map[int]string{12: "a quantized cache", 13: "a quantized cache", 16: "query_seqlens"}[i])
		}
	}
	if n.Int("sliding_window_cache", 0) != 0 || n.Int("qk_output", 0) != 0 || n.Wants(3) {
		n.Fail("sliding_window_cache and the output of scores are not supported")
	}
	q, k, v := groupHeads(w, n, in)
	past := 0
	if in[3] != nil && in[4] != nil && len(in[3].Type.Dims) == 4 {
		past = in[3].Type.Dims[2]
	}
	if past > 0 {
		wholeCache(w, n, in[5], past+k.Type.Dims[2])
	}
	if in[14] != nil && in[15] != nil {
		eps := n.Float("qk_norm_epsilon", 1e-6)
		q, _ = ops.RMSNorm(w.B, q, w.Value(in[14]), ops.NormAttrs{Eps: n.Float("q_norm_epsilon", eps), Dims: 1})
		k, _ = ops.RMSNorm(w.B, k, w.Value(in[15]), ops.NormAttrs{Eps: n.Float("k_norm_epsilon", eps), Dims: 1})
	}
	if n.Int("do_rotary", 0) != 0 {
		q, k = rotateGroups(w, n, in, q, k, past)
	}
	a := newAttentionMS(w, n, q, k, v)
	if past > 0 {
		setPast(a, w.Value(in[3]), w.Value(in[4]))
	}
	a.Causal, a.Softcap = n.Int("causal", 1) != 0, n.Float("softcap", 0)
	if window := n.Int("local_window_size", -1); window > 0 {
		a.Left = window - 1
	}
	if in[10] != nil {
		setAttentionBias(a, in[10])
	}
	heads := q.Type.Dims[1]
	switch {
	case in[11] != nil && !in[11].Type.Equal(ir.T(q.Type.DType, heads)):
		n.Fail("the sinks are %s, but must be one for each of %d heads", in[11].Type, heads)
	case in[11] != nil:
		a.Sink = w.Value(in[11])
	case n.Int("smooth_softmax", 0) == 1:
		a.Sink = ops.Zeros(w.B, ir.T(q.Type.DType, heads))
	}
	k, v = a.K, a.V
	out, _ := a.Emit()
	return walk.Results(layers.JoinHeads(w, out), k, v)
}

// groupHeads gives queries, keys and values [B,H,S,D] of GroupQueryAttention.
func groupHeads(w *walk.Walker, n *model.Node, in []*walk.Val) (q, k, v *ir.Value) {
	h, hkv, d := n.Int("num_heads", 0), n.Int("kv_num_heads", 0), in[0].Type.Dims
	if len(d) != 3 || h < 1 || hkv < 1 || h > max(d[2], 1) || hkv > h {
		n.Fail("queries are %s, which do not fit %d heads and %d key heads", in[0].Type, h, hkv)
	}
	if (in[1] == nil) != (in[2] == nil) {
		n.Fail("keys and values must be given together")
	}
	if in[1] != nil {
		return layers.SplitHeads(w, n, w.Value(in[0]), h), layers.SplitHeads(w, n, w.Value(in[1]), hkv), layers.SplitHeads(w, n, w.Value(in[2]), hkv)
	}
	all := layers.SplitHeads(w, n, w.Value(in[0]), h+2*hkv)
	part := func(at, count int) *ir.Value { return ops.SliceDim(w.B, all, 1, at, count) }
	return part(0, h), part(h, hkv), part(h+hkv, hkv)
}

// rotateGroups turns queries and keys by the angles of their positions, which go on after the past.
func rotateGroups(w *walk.Walker, n *model.Node, in []*walk.Val, q, k *ir.Value, past int) (*ir.Value, *ir.Value) {
	if in[7] == nil || in[8] == nil {
		n.Fail("do_rotary needs cos_cache and sin_cache")
	}
	turn := func(x *ir.Value) *ir.Value {
		d := x.Type.Dims
		place := ops.AddScalar(w.B, ops.Iota(w.B, dtype.I64, []int{1, d[2]}, 1), float64(past))
		if in[9] != nil {
			place = places(w, n, in[9], d[0], d[2])
		}
		cos := w.Value(in[7])
		if len(cos.Type.Dims) != 2 || 2*cos.Type.Dims[1] > d[3] {
			n.Fail("the cosines are %s, which do not fit heads of size %d", cos.Type, d[3])
		}
		half := cos.Type.Dims[1]
		return layers.Rotate(w, x, layers.Angles(w, n, cos, place, d, half), layers.Angles(w, n, w.Value(in[8]), place, d, half), n.Int("rotary_interleaved", 0) != 0)
	}
	return turn(q), turn(k)
}

// wholeCache refuses a cache that some sample does not fill up to total keys.
func wholeCache(w *walk.Walker, n *model.Node, seqlens *walk.Val, total int) {
	if seqlens == nil {
		n.Fail("past keys need seqlens_k as an input")
	}
	a := w.Array(seqlens)
	if a == nil {
		n.Fail("past keys need seqlens_k to be known when compiling%s", w.HintValue(seqlens))
	}
	for _, l := range fold.Ints(n, a) {
		if l+1 != total {
			n.Fail("seqlens_k is %v, but every sample must use all %d keys", a.I, total)
		}
	}
}
