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
	v, d := w.value(x), x.t.Dims
	switch len(d) {
	case 4:
		return v
	case 3:
		h := n.int(attr, 0)
		if h < 1 || d[2]%h != 0 {
			n.fail("%s is %d for %s", attr, h, x.t)
		}
		v = ops.Reshape(w.b, v, []int{d[0], d[1], h, d[2] / h})
		return ops.Transpose(w.b, v, []int{0, 2, 1, 3})
	}
	n.fail("operand is %s: want three or four dimensions", x.t)
	return nil
}

// importAttention is softmax(scale*q.k' + mask).v with grouped key and value heads, a cache put in front and a
// soft cap. The product of queries and keys is not a result here.
func importAttention(w *walker, n *node, in []*val) []*val {
	b := w.b
	q, k, v := w.heads(n, in[0], "q_num_heads"), w.heads(n, in[1], "kv_num_heads"), w.heads(n, in[2], "kv_num_heads")
	if len(in) > 6 && in[6] != nil {
		n.fail("nonpad_kv_seqlen is not supported; give a mask")
	}
	if len(in) > 5 && in[4] != nil && in[5] != nil {
		k, v = ops.Concat(b, 2, w.value(in[4]), k), ops.Concat(b, 2, w.value(in[5]), v)
	}
	past := k.Type.Dims[2] - in[1].t.Dims[len(in[1].t.Dims)-2]
	dq, dk, dv := q.Type.Dims, k.Type.Dims, v.Type.Dims
	if dq[0] != dk[0] || dk[0] != dv[0] || dk[1] != dv[1] || dk[2] != dv[2] || dq[3] != dk[3] || dk[1] < 1 || dq[1]%dk[1] != 0 {
		n.fail("queries %v, keys %v and values %v do not fit", dq, dk, dv)
	}
	scale := n.float("scale", 1/math.Sqrt(float64(max(dq[3], 1))))
	softcap := n.float("softcap", 0)
	causal := n.int("is_causal", 0) != 0 && dq[2] == dk[2] && past == 0 && softcap == 0 && (len(in) < 4 || in[3] == nil)
	var mask *ir.Value
	if !causal {
		mask = w.attentionMask(n, in, dq, dk, past)
	}
	var out *ir.Value
	if softcap == 0 {
		out, _ = ops.Attention(b, ops.AttentionAttrs{Causal: causal, Scale: scale}, q, k, v, mask)
	} else {
		out = w.cappedAttention(q, k, v, mask, scale, softcap)
	}
	if len(in[0].t.Dims) == 3 {
		d := out.Type.Dims
		out = ops.Reshape(b, ops.Transpose(b, out, []int{0, 2, 1, 3}), []int{d[0], d[2], d[1] * d[3]})
	}
	return outs(out, k, v)
}

// attentionMask adds the given mask and the causal one into [1|B,1|H,Sq,Sk] of q's type; nil when there is none.
func (w *walker) attentionMask(n *node, in []*val, dq, dk []int, past int) *ir.Value {
	b, d := w.b, in[0].t.DType
	low := math.Inf(-1)
	var mask *ir.Value
	if len(in) > 3 && in[3] != nil {
		m := w.value(in[3])
		if r := len(m.Type.Dims); r < 2 || r > 4 || m.Type.Dims[r-1] > dk[2] {
			n.fail("the mask is %s", m.Type)
		}
		m = ops.Reshape(b, m, slices.Concat(slices.Repeat([]int{1}, 4-len(m.Type.Dims)), m.Type.Dims))
		if m.Type.DType == dtype.Bool {
			t := m.Type.With(d)
			m = ops.Where(b, m, ops.Zeros(b, t), ops.Full(b, t, low))
		}
		if short := dk[2] - m.Type.Dims[3]; short > 0 { // keys beyond the mask are hidden
			m = ops.Pad(b, m, make([]int, 4), []int{0, 0, 0, short}, nil, low)
		}
		full := []int{m.Type.Dims[0], m.Type.Dims[1], dq[2], dk[2]}
		if _, ok := broadcast(full, []int{dq[0], dq[1], dq[2], dk[2]}); !ok || m.Type.DType != d {
			n.fail("the mask is %s for queries %v and keys %v", m.Type, dq, dk)
		}
		mask = ops.BroadcastTo(b, m, full)
	}
	if n.int("is_causal", 0) == 0 {
		return mask
	}
	c := n.array(ir.T(d, 1, 1, dq[2], dk[2]))
	for e := range c.F {
		if e%dk[2] > e/dk[2]+past {
			c.F[e] = low
		}
	}
	causal := ops.Const(b, c.Tensor())
	if mask == nil {
		return causal
	}
	return ops.Add(b, mask, ops.Expand(b, causal, mask.Type.Dims))
}

func (w *walker) cappedAttention(q, k, v, mask *ir.Value, scale, softcap float64) *ir.Value {
	b, groups := w.b, q.Type.Dims[1]/k.Type.Dims[1]
	repeat := func(x *ir.Value) *ir.Value {
		d := x.Type.Dims
		x = ops.Expand(b, ops.Reshape(b, x, []int{d[0], d[1], 1, d[2], d[3]}), []int{d[0], d[1], groups, d[2], d[3]})
		return ops.Reshape(b, x, []int{d[0], d[1] * groups, d[2], d[3]})
	}
	s := ops.MatMulT(b, ops.MulScalar(b, q, scale), repeat(k), false, true)
	s = ops.MulScalar(b, ops.Tanh(b, ops.MulScalar(b, s, 1/softcap)), softcap)
	if mask != nil {
		s = ops.Add(b, s, ops.BroadcastTo(b, mask, s.Type.Dims))
	}
	return ops.MatMul(b, ops.Softmax(b, s, 3), repeat(v))
}

// importRotary turns pairs of features by an angle of position: halves, or neighbours when interleaved.
func importRotary(w *walker, n *node, in []*val) []*val {
	b, d := w.b, in[0].t.Dims
	x := w.heads(n, in[0], "num_heads")
	if len(d) == 4 {
		d = x.Type.Dims
	}
	size := n.int("rotary_embedding_dim", 0)
	width := x.Type.Dims[3]
	if size == 0 {
		size = width
	}
	if size < 2 || size > width || size%2 != 0 {
		n.fail("rotary_embedding_dim %d of %d", size, width)
	}
	dims := slices.Clone(x.Type.Dims)
	half := slices.Clone(dims)
	half[3] = size / 2
	cos, sin := w.angles(n, in, 1, half), w.angles(n, in, 2, half)
	first, second := ops.SliceDim(b, x, 3, 0, size/2), ops.SliceDim(b, x, 3, size/2, size/2)
	interleaved := n.int("interleaved", 0) != 0
	pairs := append(slices.Clone(half), 2)
	if interleaved {
		p := ops.Reshape(b, ops.SliceDim(b, x, 3, 0, size), pairs)
		first = ops.Reshape(b, ops.SliceDim(b, p, 4, 0, 1), half)
		second = ops.Reshape(b, ops.SliceDim(b, p, 4, 1, 1), half)
	}
	re := ops.Sub(b, ops.Mul(b, cos, first), ops.Mul(b, sin, second))
	im := ops.Add(b, ops.Mul(b, sin, first), ops.Mul(b, cos, second))
	var y *ir.Value
	if interleaved {
		one := append(slices.Clone(half), 1)
		y = ops.Concat(b, 4, ops.Reshape(b, re, one), ops.Reshape(b, im, one))
		whole := slices.Clone(dims)
		whole[3] = size
		y = ops.Reshape(b, y, whole)
	} else {
		y = ops.Concat(b, 3, re, im)
	}
	if size < width {
		y = ops.Concat(b, 3, y, ops.SliceDim(b, x, 3, size, width-size))
	}
	if len(in[0].t.Dims) == 3 {
		y = ops.Reshape(b, ops.Transpose(b, y, []int{0, 2, 1, 3}), d)
	}
	return outs(y)
}

// angles brings a cache of cosines or sines to [B,H,S,size/2]: rows by position id, or one for each place.
func (w *walker) angles(n *node, in []*val, i int, want []int) *ir.Value {
	b, v := w.b, w.value(in[i])
	if len(in) > 3 && in[3] != nil {
		if len(v.Type.Dims) != 2 {
			n.fail("operand %d is %s: want [positions,%d]", i, v.Type, want[3])
		}
		v = ops.Gather(b, v, w.value(in[3]), 0)
	}
	if d := v.Type.Dims; len(d) != 3 || d[2] < want[3] || d[1] != want[2] {
		n.fail("operand %d is %s for %v", i, v.Type, want)
	}
	v = ops.SliceDim(b, v, 2, 0, want[3])
	d := v.Type.Dims
	return ops.BroadcastTo(b, ops.Reshape(b, v, []int{d[0], 1, d[1], d[2]}), want)
}
