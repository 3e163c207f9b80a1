package onnx

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// importRotaryMS is rotary embedding with positions [B,S], or [1] for the first of all samples.
func importRotaryMS(w *walker, n *node, in []*val) []*val {
	heads, table := n.int("num_heads", 0), in[2].t.Dims
	if n.int("is_packed_batching", 0) != 0 {
		n.fail("is_packed_batching is not supported")
	}
	if len(table) != 2 {
		n.fail("the cosines are %s: want [positions,half]", in[2].t)
	}
	x := w.value(in[0])
	if len(x.Type.Dims) == 3 {
		if heads == 0 {
			heads = x.Type.Dims[2] / max(2*table[1], 1)
		}
		x = w.splitHeads(n, x, heads)
	} else if len(x.Type.Dims) != 4 {
		n.fail("operand 0 is %s: want three or four dimensions", in[0].t)
	}
	size := rotated(n, min(x.Type.Dims[3], 2*table[1]))
	place := w.places(n, in[1], x.Type.Dims[0], x.Type.Dims[2])
	cos, sin := w.angles(n, w.value(in[2]), place, x.Type.Dims, size/2), w.angles(n, w.value(in[3]), place, x.Type.Dims, size/2)
	y := w.rotate(x, cos, sin, n.int("interleaved", 0) != 0)
	if len(in[0].t.Dims) == 3 {
		y = w.joinHeads(y)
	}
	return outs(y)
}

// places is positions [B,S] as they are, or s positions from the one of x [1] on, as [1,S].
func (w *walker) places(n *node, x *val, batch, s int) *ir.Value {
	b := w.b
	if !x.t.DType.IsInt() {
		n.fail("positions are %s: want integers", x.t)
	}
	v := ops.Cast(b, w.value(x), dtype.I64)
	switch {
	case x.t.Elems() == 1 && len(x.t.Dims) < 2:
		first := ops.Expand(b, ops.Reshape(b, v, []int{1, 1}), []int{1, s})
		return ops.Add(b, first, ops.Iota(b, dtype.I64, []int{1, s}, 1))
	case slices.Equal(x.t.Dims, []int{batch, s}):
		return v
	}
	n.fail("positions are %s, want [1] or [%d,%d]", x.t, batch, s)
	return nil
}

// newAttentionMS reads what the attention operators of com.microsoft share.
func newAttentionMS(w *walker, n *node, q, k, v *ir.Value) *attention {
	a := &attention{w: w, n: n, q: q, k: k, v: v, left: -1, right: -1, output: -1}
	a.check()
	if a.scale = n.float("scale", 0); a.scale == 0 {
		a.scale = 1 / math.Sqrt(float64(max(q.Type.Dims[3], 1)))
	}
	return a
}

// setPast puts past keys and values [B,H,P,D] before the new ones.
func (a *attention) setPast(k, v *ir.Value) {
	if len(k.Type.Dims) != 4 || len(v.Type.Dims) != 4 {
		a.n.fail("past keys are %s, past values %s: want four dimensions", k.Type, v.Type)
	}
	a.offset = k.Type.Dims[2]
	a.k, a.v = ops.Concat(a.w.b, 2, k, a.k), ops.Concat(a.w.b, 2, v, a.v)
	a.check()
}

// addBias adds x to the bias that there is.
func (a *attention) addBias(x *ir.Value) {
	if a.bias == nil {
		a.bias = x
		return
	}
	y, z := ops.Broadcast2(a.w.b, a.bias, x)
	a.bias = ops.Add(a.w.b, y, z)
}

// hide adds mask_filter_value to the scores of keys that a mask of com.microsoft's forms leaves out: [B] lengths, [2B]
// ends and then starts, [3B+2] lengths and more, or zeros and ones [B,T], [B,S,T] or [B,1,max,max].
func (a *attention) hide(mask *val) {
	b, d := a.w.b, mask.t.Dims
	batch, _, sq, sk := a.sizes()
	if !mask.t.DType.IsInt() {
		a.n.fail("the mask is %s: want integers", mask.t)
	}
	m := ops.Cast(b, a.w.value(mask), dtype.I64)
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
		case len(d) == 4 && d[0] == batch && d[1] == 1 && d[2] >= a.offset+sq && d[3] >= sk:
			m = ops.SliceDim(b, ops.SliceDim(b, m, 2, a.offset, sq), 3, 0, sk)
		default:
			a.n.fail("the mask is %s for %d samples, %d queries and %d keys", mask.t, batch, sq, sk)
		}
		seen = ops.Gt(b, m, ops.Zeros(b, m.Type))
	}
	t := seen.Type.With(a.q.Type.DType)
	a.addBias(ops.Where(b, seen, ops.Zeros(b, t), ops.Full(b, t, a.n.float("mask_filter_value", -10000))))
}

// setAttentionBias takes a float bias of exactly [B|1,H|1,S,T].
func (a *attention) setAttentionBias(x *val) {
	batch, heads, sq, sk := a.sizes()
	d := x.t.Dims
	if len(d) != 4 || d[0] != 1 && d[0] != batch || d[1] != 1 && d[1] != heads || d[2] != sq || d[3] != sk || x.t.DType != a.q.Type.DType {
		a.n.fail("the attention bias is %s for queries %s and keys %s", x.t, a.q.Type, a.k.Type)
	}
	a.addBias(a.w.value(x))
}

// unpack takes part i of n out of [B,S,H,n,D] and brings it to [B,H,S,D].
func (w *walker) unpack(x *ir.Value, i int) *ir.Value {
	d := x.Type.Dims
	v := ops.Reshape(w.b, ops.SliceDim(w.b, x, 3, i, 1), []int{d[0], d[1], d[2], d[4]})
	return ops.Transpose(w.b, v, []int{0, 2, 1, 3})
}

// importMultiHead is attention of projected queries, keys and values, also packed together or in heads already.
func importMultiHead(w *walker, n *node, in []*val) []*val {
	in = slices.Concat(in, make([]*val, 10-len(in)))
	if in[8] != nil || in[9] != nil {
		n.fail("shared buffers of past keys and beams are not supported")
	}
	q, k, v := w.multiHeads(n, in)
	a := newAttentionMS(w, n, q, k, v)
	if (in[6] == nil) != (in[7] == nil) {
		n.fail("past keys and values come together")
	}
	if in[6] != nil {
		a.setPast(w.value(in[6]), w.value(in[7]))
	}
	a.causal = n.int("unidirectional", 0) != 0
	if in[4] != nil {
		a.hide(in[4])
	}
	if in[5] != nil {
		a.setAttentionBias(in[5])
	}
	if n.wants(3) {
		a.output = 2
	}
	k, v = a.k, a.v
	out, scores := a.emit()
	return outs(w.joinHeads(out), k, v, scores)
}

// multiHeads gives queries, keys and values [B,H,S,D] of MultiHeadAttention.
func (w *walker) multiHeads(n *node, in []*val) (q, k, v *ir.Value) {
	b, h, d := w.b, n.int("num_heads", 0), in[0].t.Dims
	if len(d) == 5 && d[2] == h && d[3] == 3 && in[1] == nil && in[2] == nil && in[3] == nil {
		x := w.value(in[0])
		return w.unpack(x, 0), w.unpack(x, 1), w.unpack(x, 2)
	}
	if len(d) != 3 || in[1] == nil {
		n.fail("queries are %s: want [batch,sequence,hidden] and keys, or [batch,sequence,%d,3,size] alone", in[0].t, h)
	}
	at := 0
	projected := func(x *val) *ir.Value { // with its part of the bias, in heads
		y, size := w.value(x), x.t.Dims[2]
		if in[3] != nil {
			if len(in[3].t.Dims) != 1 || at+size > in[3].t.Dims[0] || in[3].t.DType != x.t.DType {
				n.fail("the bias is %s, which has no %d values from %d on", in[3].t, size, at)
			}
			y = ops.Add(b, y, ops.BroadcastTo(b, ops.SliceDim(b, w.value(in[3]), 0, at, size), x.t.Dims))
			at += size
		}
		return w.splitHeads(n, y, h)
	}
	q = projected(in[0])
	kd := in[1].t.Dims
	switch {
	case in[2] == nil && len(kd) == 5 && kd[2] == h && kd[3] == 2:
		x := w.value(in[1])
		return q, w.unpack(x, 0), w.unpack(x, 1)
	case in[2] != nil && len(kd) == 3 && len(in[2].t.Dims) == 3:
		k = projected(in[1])
		return q, k, projected(in[2])
	case in[2] != nil && len(kd) == 4 && len(in[2].t.Dims) == 4:
		return q, w.value(in[1]), w.value(in[2])
	}
	n.fail("keys are %s: with values of as many dimensions, or packed as [batch,sequence,%d,2,size]", in[1].t, h)
	return nil, nil, nil
}

// importPackedAttention projects one input to queries, keys and values and attends.
func importPackedAttention(w *walker, n *node, in []*val) []*val {
	b := w.b
	in = slices.Concat(in, make([]*val, 7-len(in)))
	d, wd, h := in[0].t.Dims, in[1].t.Dims, n.int("num_heads", 0)
	if len(d) != 3 || len(wd) != 2 || wd[0] != d[2] {
		n.fail("operands are %s and %s: want [batch,sequence,inputs] and [inputs,outputs]", in[0].t, in[1].t)
	}
	if n.int("past_present_share_buffer", 0) != 0 || in[6] != nil || n.int("do_rotary", 0) != 0 {
		n.fail("shared buffers of past keys and rotary embedding inside the operator are not supported")
	}
	sizes := n.ints("qkv_hidden_sizes")
	if len(sizes) == 0 {
		sizes = slices.Repeat([]int{wd[1] / 3}, 3)
	}
	if len(sizes) != 3 || slices.Min(sizes) < 1 || slices.Max(sizes) > wd[1] || sizes[0]+sizes[1]+sizes[2] != wd[1] {
		n.fail("qkv_hidden_sizes %v for %d outputs", sizes, wd[1])
	}
	var bias *ir.Value
	if in[2] != nil {
		bias = w.value(in[2])
	}
	y := ops.MatMulBias(b, w.value(in[0]), w.value(in[1]), bias, false, false)
	part := func(at, size int) *ir.Value { return w.splitHeads(n, ops.SliceDim(b, y, 2, at, size), h) }
	a := newAttentionMS(w, n, part(0, sizes[0]), part(sizes[0], sizes[1]), part(sizes[0]+sizes[1], sizes[2]))
	if in[4] != nil { // [2,B,H,P,D]
		pd := in[4].t.Dims
		if len(pd) != 5 || pd[0] != 2 {
			n.fail("the past is %s: want [2,batch,heads,sequence,size]", in[4].t)
		}
		past := func(i int) *ir.Value { return ops.Reshape(b, ops.SliceDim(b, w.value(in[4]), 0, i, 1), pd[1:]) }
		a.setPast(past(0), past(1))
	}
	a.causal = n.int("unidirectional", 0) != 0
	if in[3] != nil {
		a.hide(in[3])
	}
	if in[5] != nil {
		a.setAttentionBias(in[5])
	}
	var present *ir.Value
	if n.wants(1) {
		one := slices.Concat([]int{1}, a.k.Type.Dims)
		if !slices.Equal(a.k.Type.Dims, a.v.Type.Dims) {
			n.fail("keys %v and values %v have no common present", a.k.Type.Dims, a.v.Type.Dims)
		}
		present = ops.Concat(b, 0, ops.Reshape(b, a.k, one), ops.Reshape(b, a.v, one))
	}
	out, _ := a.emit()
	return outs(w.joinHeads(out), present)
}

// importGroupQuery is causal attention with grouped heads, rotary embedding and a window. A cache of past keys is joined
// whole: every sample must fill it, which seqlens_k, known when compiling, says.
func importGroupQuery(w *walker, n *node, in []*val) []*val {
	in = slices.Concat(in, make([]*val, 17-len(in)))
	for _, i := range []int{12, 13, 16} {
		if in[i] != nil {
			n.fail("%s is not supported", map[int]string{12: "a quantized cache", 13: "a quantized cache", 16: "query_seqlens"}[i])
		}
	}
	if n.int("sliding_window_cache", 0) != 0 || n.int("qk_output", 0) != 0 || n.wants(3) {
		n.fail("sliding_window_cache and the output of scores are not supported")
	}
	q, k, v := w.groupHeads(n, in)
	past := 0
	if in[3] != nil && in[4] != nil && len(in[3].t.Dims) == 4 {
		past = in[3].t.Dims[2]
	}
	if past > 0 {
		w.wholeCache(n, in[5], past+k.Type.Dims[2])
	}
	if in[14] != nil && in[15] != nil {
		eps := n.float("qk_norm_epsilon", 1e-6)
		q, _ = ops.RMSNorm(w.b, q, w.value(in[14]), ops.NormAttrs{Eps: n.float("q_norm_epsilon", eps), Dims: 1})
		k, _ = ops.RMSNorm(w.b, k, w.value(in[15]), ops.NormAttrs{Eps: n.float("k_norm_epsilon", eps), Dims: 1})
	}
	if n.int("do_rotary", 0) != 0 {
		q, k = w.rotateGroups(n, in, q, k, past)
	}
	a := newAttentionMS(w, n, q, k, v)
	if past > 0 {
		a.setPast(w.value(in[3]), w.value(in[4]))
	}
	a.causal, a.softcap = n.int("causal", 1) != 0, n.float("softcap", 0)
	if window := n.int("local_window_size", -1); window > 0 {
		a.left = window - 1
	}
	if in[10] != nil {
		a.setAttentionBias(in[10])
	}
	heads := q.Type.Dims[1]
	switch {
	case in[11] != nil && !in[11].t.Equal(ir.T(q.Type.DType, heads)):
		n.fail("the sinks are %s, want one for each of %d heads", in[11].t, heads)
	case in[11] != nil:
		a.sink = w.value(in[11])
	case n.int("smooth_softmax", 0) == 1:
		a.sink = ops.Zeros(w.b, ir.T(q.Type.DType, heads))
	}
	k, v = a.k, a.v
	out, _ := a.emit()
	return outs(w.joinHeads(out), k, v)
}

// groupHeads gives queries, keys and values [B,H,S,D] of GroupQueryAttention.
func (w *walker) groupHeads(n *node, in []*val) (q, k, v *ir.Value) {
	h, hkv, d := n.int("num_heads", 0), n.int("kv_num_heads", 0), in[0].t.Dims
	if len(d) != 3 || h < 1 || hkv < 1 || h > max(d[2], 1) || hkv > h {
		n.fail("queries are %s for %d heads and %d key heads", in[0].t, h, hkv)
	}
	if (in[1] == nil) != (in[2] == nil) {
		n.fail("keys and values come together")
	}
	if in[1] != nil {
		return w.splitHeads(n, w.value(in[0]), h), w.splitHeads(n, w.value(in[1]), hkv), w.splitHeads(n, w.value(in[2]), hkv)
	}
	all := w.splitHeads(n, w.value(in[0]), h+2*hkv)
	part := func(at, count int) *ir.Value { return ops.SliceDim(w.b, all, 1, at, count) }
	return part(0, h), part(h, hkv), part(h+hkv, hkv)
}

// rotateGroups turns queries and keys by the angles of their positions, which go on after the past.
func (w *walker) rotateGroups(n *node, in []*val, q, k *ir.Value, past int) (*ir.Value, *ir.Value) {
	if in[7] == nil || in[8] == nil {
		n.fail("do_rotary needs caches of cosines and sines")
	}
	turn := func(x *ir.Value) *ir.Value {
		d := x.Type.Dims
		place := ops.AddScalar(w.b, ops.Iota(w.b, dtype.I64, []int{1, d[2]}, 1), float64(past))
		if in[9] != nil {
			place = w.places(n, in[9], d[0], d[2])
		}
		cos := w.value(in[7])
		if len(cos.Type.Dims) != 2 || 2*cos.Type.Dims[1] > d[3] {
			n.fail("the cosines are %s for heads of %d", cos.Type, d[3])
		}
		half := cos.Type.Dims[1]
		return w.rotate(x, w.angles(n, cos, place, d, half), w.angles(n, w.value(in[8]), place, d, half), n.int("rotary_interleaved", 0) != 0)
	}
	return turn(q), turn(k)
}

// wholeCache refuses a cache that some sample does not fill up to total keys.
func (w *walker) wholeCache(n *node, seqlens *val, total int) {
	if seqlens == nil {
		n.fail("past keys need seqlens_k")
	}
	a := w.array(seqlens)
	if a == nil {
		n.fail("past keys need seqlens_k to be known when compiling%s", w.hintValue(seqlens))
	}
	for _, l := range toInts(n, a) {
		if l+1 != total {
			n.fail("seqlens_k %v: every sample must use all %d keys", a.I, total)
		}
	}
}
