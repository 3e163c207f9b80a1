package onnx

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var linearAttentionRows = []row{
	{op: "LinearAttention", since: 27, min: 3, max: 6, rule: importLinearAttention},
	{op: "CausalConvWithState", since: 27, min: 2, max: 4, rule: importCausalConv},
	{op: "ai.onnx.preview.FlexAttention", since: 1, min: 3, max: 3, rule: importFlexAttention},
}

// importFlexAttention is attention whose scores and probabilities pass through subgraphs of the node. They are computed
// in softmax_precision, f32 for half precision when it is not given.
func importFlexAttention(w *walker, n *node, in []*val) []*val {
	b := w.b
	a := &attention{w: w, n: n, left: -1, right: -1, output: -1}
	a.q, a.k, a.v = w.value(in[0]), w.value(in[1]), w.value(in[2])
	if len(in[0].t.Dims) != 4 || len(in[1].t.Dims) != 4 || len(in[2].t.Dims) != 4 {
		n.fail("operands are %s, %s and %s: want four dimensions", in[0].t, in[1].t, in[2].t)
	}
	a.check()
	a.scale = n.float("scale", 1/math.Sqrt(float64(max(a.q.Type.Dims[3], 1))))
	t := in[0].t.DType
	compute := t
	if t == dtype.F16 || t == dtype.BF16 {
		compute = dtype.F32
	}
	a.precision = n.softmaxPrecision(compute)
	if n.attrs["score_mod"] == nil && n.attrs["prob_mod"] == nil {
		out, _ := a.emit()
		return outs(out)
	}
	if compute = a.precision; compute == dtype.F16 || compute == dtype.BF16 {
		compute = dtype.F32 // the product itself is never computed in half precision
	}
	wide := func(v *ir.Value) *ir.Value { return ops.Cast(b, v, compute) }
	s := ops.MatMulT(b, ops.MulScalar(b, wide(a.q), a.scale), a.repeat(wide(a.k)), false, true)
	s = w.modify(n, "score_mod", ops.Cast(b, s, a.precision))
	p := w.modify(n, "prob_mod", ops.Softmax(b, s, 3))
	return outs(ops.Cast(b, ops.MatMul(b, wide(p), a.repeat(wide(a.v))), t))
}

// modify runs x through the subgraph in an attribute, of one input and one result of x's type; x itself without one.
func (w *walker) modify(n *node, attr string, x *ir.Value) *ir.Value {
	if n.attrs[attr] == nil {
		return x
	}
	g := w.body(n, attr)
	if len(g.in) != 1 || len(g.out) != 1 {
		n.fail("%s has %d inputs and %d results, want one of each", attr, len(g.in), len(g.out))
	}
	y := w.call(g, nil, outs(x)...)
	if y[0].isSeq || !y[0].t.Equal(x.Type) {
		n.fail("%s gives %s, want %s", attr, y[0].t, x.Type)
	}
	return w.value(y[0])
}

// importCausalConv is a depthwise 1-D convolution of the past and present positions, with the last of them as the next
// state. Half precision is computed in f32.
func importCausalConv(w *walker, n *node, in []*val) []*val {
	b, t := w.b, in[0].t.DType
	d, k := in[0].t.Dims, in[1].t.Dims
	if len(d) != 3 || len(k) != 3 || k[0] != d[1] || k[1] != 1 || k[2] < 1 || !t.IsFloat() || in[1].t.DType != t {
		n.fail("operands are %s and %s: want [N,C,L] and [C,1,K]", in[0].t, in[1].t)
	}
	in = slices.Concat(in, make([]*val, 4-len(in)))
	x := w.value(in[0])
	switch state := ir.T(t, d[0], d[1], k[2]-1); {
	case in[3] == nil:
		x = ops.Pad(b, x, []int{0, 0, k[2] - 1}, make([]int, 3), nil, 0)
	case !in[3].t.Equal(state):
		n.fail("the past state is %s, want %s", in[3].t, state)
	case k[2] > 1:
		x = ops.Concat(b, 2, w.value(in[3]), x)
	}
	compute := t
	if t != dtype.F64 {
		compute = dtype.F32
	}
	var bias *ir.Value
	if in[2] != nil {
		if !in[2].t.Equal(ir.T(t, d[1])) {
			n.fail("the bias is %s, want %s", in[2].t, ir.T(t, d[1]))
		}
		bias = ops.Cast(b, w.value(in[2]), compute)
	}
	y := ops.ConvBias(b, ops.Cast(b, x, compute), ops.Cast(b, w.value(in[1]), compute), bias,
		ops.ConvAttrs{Strides: []int{1}, Pads: []int{0, 0}, Dilations: []int{1}, Groups: d[1]})
	switch act := n.str("activation", "none"); act {
	case "none":
	case "silu", "swish":
		y = ops.Silu(b, y)
	default:
		n.fail("activation %q is none of none, silu and swish", act)
	}
	return outs(ops.Cast(b, y, t), ops.SliceDim(b, x, 2, d[2], k[2]-1))
}

// recurrence is one LinearAttention: a state S[B,H,K,V] that each position decays, writes its key and value to and
// reads with its query.
type recurrence struct {
	w           *walker
	n           *node
	batch, time int
	q, k, v     *ir.Value // [B,H,T,K or V]; k and v have Hkv heads
	decay       *ir.Value // [B,Hkv,T,1|K], the logarithm; nil for none
	beta        *ir.Value // [B,1|Hkv,T,1]; nil for none
	state       *ir.Value // [B,Hkv,K,V]; nil for zeros
	scale       float64
}

// importLinearAttention follows the operator's four update rules in f32 (f64 for f64). Without a correction by beta and
// with at most one decay per head, all positions are computed at once; else time is unrolled.
func importLinearAttention(w *walker, n *node, in []*val) []*val {
	in = slices.Concat(in, make([]*val, 6-len(in)))
	r := newRecurrence(w, n, in)
	t, stateType := in[0].t.DType, in[0].t.DType
	if in[3] != nil {
		stateType = in[3].t.DType
	}
	var out, state *ir.Value
	if r.beta == nil && (r.decay == nil || r.decay.Type.Dims[3] == 1) {
		out, state = r.together()
	} else {
		out, state = r.unroll()
	}
	return outs(ops.Cast(w.b, w.joinHeads(out), t), ops.Cast(w.b, state, stateType))
}

func newRecurrence(w *walker, n *node, in []*val) *recurrence {
	b, t := w.b, in[0].t.DType
	hq, hkv := n.int("q_num_heads", 0), n.int("kv_num_heads", 0)
	if hq < 1 || hkv < 1 || hq%hkv != 0 {
		n.fail("%d query heads and %d key heads", hq, hkv)
	}
	compute := dtype.F32
	if t == dtype.F64 {
		compute = t
	}
	heads := func(i, h int) *ir.Value {
		return ops.Cast(b, w.splitHeads(n, w.value(in[i]), h), compute)
	}
	r := &recurrence{w: w, n: n, q: heads(0, hq), k: heads(1, hkv), v: heads(2, hkv), scale: n.float("scale", 0)}
	d := r.q.Type.Dims
	r.batch, r.time = d[0], d[2]
	kd, vd := r.k.Type.Dims, r.v.Type.Dims
	if !slices.Equal(kd, []int{d[0], hkv, d[2], d[3]}) || !slices.Equal(vd[:3], kd[:3]) {
		n.fail("queries are %s, keys %s and values %s", in[0].t, in[1].t, in[2].t)
	}
	if r.scale == 0 {
		r.scale = 1 / math.Sqrt(float64(max(d[3], 1)))
	}
	rule := n.str("update_rule", "gated_delta")
	if !slices.Contains([]string{"linear", "gated", "delta", "gated_delta"}, rule) {
		n.fail("update_rule %q is none of linear, gated, delta and gated_delta", rule)
	}
	if gated := rule == "gated" || rule == "gated_delta"; gated != (in[4] != nil) {
		n.fail("update_rule %q and a decay: one needs the other", rule)
	}
	if delta := rule == "delta" || rule == "gated_delta"; delta != (in[5] != nil) {
		n.fail("update_rule %q and a beta: one needs the other", rule)
	}
	part := func(i int, sizes ...int) *ir.Value { // [B,T,h] or [B,T,h*K] as [B,h,T,1|K]
		x := in[i].t.Dims
		if len(x) != 3 || x[0] != d[0] || x[1] != d[2] || !slices.Contains(sizes, x[2]) {
			n.fail("operand %d is %s, want [%d,%d,%v]", i, in[i].t, d[0], d[2], sizes)
		}
		return heads(i, min(x[2], hkv))
	}
	if in[4] != nil {
		r.decay = part(4, hkv, hkv*d[3])
	}
	if in[5] != nil {
		r.beta = part(5, 1, hkv)
	}
	if in[3] != nil {
		if want := []int{d[0], hkv, d[3], vd[3]}; !slices.Equal(in[3].t.Dims, want) {
			n.fail("the past state is %s, want %v", in[3].t, want)
		}
		r.state = ops.Cast(b, w.value(in[3]), compute)
	}
	return r
}

// repeat is x[B,Hkv,…] with each head for all query heads that read it.
func (r *recurrence) repeat(x *ir.Value) *ir.Value {
	a := attention{w: r.w, q: r.q}
	return a.repeat(x)
}

// together computes all positions at once: with D the running sum of decays, position t reads
// Σ_{s≤t} exp(D_t-D_s) (q_t·k_s) v_s and exp(D_t) q_t·S_0, the quadratic form of a linear attention (Sun et al.,
// "Retentive Network", 2023, equation 5).
func (r *recurrence) together() (out, state *ir.Value) {
	b, T := r.w.b, r.time
	k, v := r.repeat(r.k), r.repeat(r.v)
	s := ops.MatMulT(b, ops.MulScalar(b, r.q, r.scale), k, false, true) // [B,H,T,T]
	i, j := ops.Broadcast2(b, ops.Iota(b, dtype.I64, []int{1, 1, T, 1}, 2), ops.Iota(b, dtype.I64, []int{1, 1, 1, T}, 3))
	past := ops.BroadcastTo(b, ops.Le(b, j, i), s.Type.Dims)
	if r.decay == nil {
		s = ops.Where(b, past, s, ops.Zeros(b, s.Type))
		out = ops.MatMul(b, s, v)
		state = ops.MatMulT(b, r.k, r.v, true, false)
		if r.state != nil {
			out = ops.Add(b, out, ops.MatMul(b, ops.MulScalar(b, r.q, r.scale), r.repeat(r.state)))
			state = ops.Add(b, state, r.state)
		}
		return out, state
	}
	sum := ops.Cumsum(b, r.decay, ops.CumsumAttrs{Dim: 2}) // [B,Hkv,T,1]
	all := r.repeat(sum)
	x, y := ops.Broadcast2(b, all, ops.Transpose(b, all, []int{0, 1, 3, 2}))
	low := ops.ScalarLike(b, x, math.Inf(-1))
	s = ops.Mul(b, s, ops.Exp(b, ops.Where(b, past, ops.Sub(b, x, y), low)))
	out = ops.MatMul(b, s, v)
	last := ops.SliceDim(b, sum, 2, T-1, 1) // [B,Hkv,1,1]
	l, m := ops.Broadcast2(b, last, sum)
	left := ops.Exp(b, ops.Sub(b, l, m)) // of each position's write at the end
	state = ops.MatMulT(b, ops.Mul(b, r.k, ops.BroadcastTo(b, left, r.k.Type.Dims)), r.v, true, false)
	if r.state != nil {
		q := ops.Mul(b, ops.MulScalar(b, r.q, r.scale), ops.BroadcastTo(b, ops.Exp(b, all), r.q.Type.Dims))
		out = ops.Add(b, out, ops.MatMul(b, q, r.repeat(r.state)))
		state = ops.Add(b, state, ops.Mul(b, r.state, ops.BroadcastTo(b, ops.Exp(b, last), r.state.Type.Dims)))
	}
	return out, state
}

// unroll runs the recurrence position by position.
func (r *recurrence) unroll() (out, state *ir.Value) {
	b := r.w.b
	if r.time < 1 || r.time > maxUnroll {
		r.n.fail("%d positions; 1 to %d can be unrolled", r.time, maxUnroll)
	}
	kd, vd := r.k.Type.Dims, r.v.Type.Dims
	dims := []int{r.batch, kd[1], kd[3], vd[3]}
	state = r.state
	if state == nil {
		state = ops.Zeros(b, ir.Type{DType: r.k.Type.DType, Dims: dims})
	}
	at := func(x *ir.Value, t int) *ir.Value { return ops.SliceDim(b, x, 2, t, 1) } // [B,H,1,·]
	var reads []*ir.Value
	for t := range r.time {
		k, v := at(r.k, t), at(r.v, t)
		if r.decay != nil {
			g := ops.Transpose(b, ops.Exp(b, at(r.decay, t)), []int{0, 1, 3, 2})
			state = ops.Mul(b, state, ops.BroadcastTo(b, g, dims))
		}
		if r.beta != nil {
			v = ops.Sub(b, v, ops.MatMul(b, k, state))
			v = ops.Mul(b, v, ops.BroadcastTo(b, at(r.beta, t), v.Type.Dims))
		}
		state = ops.Add(b, state, ops.MatMulT(b, k, v, true, false))
		reads = append(reads, ops.MatMul(b, ops.MulScalar(b, at(r.q, t), r.scale), r.repeat(state)))
	}
	return ops.Concat(b, 2, reads...), state
}
