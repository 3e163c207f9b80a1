package flow

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/layers"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var linearAttentionRows = []walk.Row{
	{Op: "LinearAttention", Since: 27, Min: 3, Max: 6, Rule: importLinearAttention},
	{Op: "CausalConvWithState", Since: 27, Min: 2, Max: 4, Rule: importCausalConv},
	{Op: "ai.onnx.preview.FlexAttention", Since: 1, Min: 3, Max: 3, Rule: importFlexAttention},
}

// importFlexAttention is attention whose scores and probabilities pass through subgraphs of the node. They are computed
// in softmax_precision, f32 for half precision when it is not given.
func importFlexAttention(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	b := w.B
	a := &layers.Attention{W: w, N: n, Left: -1, Right: -1, Output: -1}
	a.Q, a.K, a.V = w.Value(in[0]), w.Value(in[1]), w.Value(in[2])
	if len(in[0].Type.Dims) != 4 || len(in[1].Type.Dims) != 4 || len(in[2].Type.Dims) != 4 {
		n.Fail("operands are %s, %s and %s, but must have four dimensions", in[0].Type, in[1].Type, in[2].Type)
	}
	a.Check()
	a.Scale = n.Float("scale", 1/math.Sqrt(float64(max(a.Q.Type.Dims[3], 1))))
	t := in[0].Type.DType
	compute := t
	if t == dtype.F16 || t == dtype.BF16 {
		compute = dtype.F32
	}
	a.Precision = layers.SoftmaxPrecision(n, compute)
	if n.Attrs["score_mod"] == nil && n.Attrs["prob_mod"] == nil {
		out, _ := a.Emit()
		return walk.Results(out)
	}
	if compute = a.Precision; compute == dtype.F16 || compute == dtype.BF16 {
		compute = dtype.F32 // the product itself is never computed in half precision
	}
	wide := func(v *ir.Value) *ir.Value { return ops.Cast(b, v, compute) }
	s := ops.MatMulT(b, ops.MulScalar(b, wide(a.Q), a.Scale), a.Repeat(wide(a.K)), false, true)
	s = modify(w, n, "score_mod", ops.Cast(b, s, a.Precision))
	p := modify(w, n, "prob_mod", ops.Softmax(b, s, 3))
	return walk.Results(ops.Cast(b, ops.MatMul(b, wide(p), a.Repeat(wide(a.V))), t))
}

// modify runs x through the subgraph in an attribute, of one input and one result of x's type; x itself without one.
func modify(w *walk.Walker, n *model.Node, attr string, x *ir.Value) *ir.Value {
	if n.Attrs[attr] == nil {
		return x
	}
	g := w.Body(n, attr)
	if len(g.In) != 1 || len(g.Out) != 1 {
		n.Fail("graph %s has %d inputs and %d results, but must have one of each", attr, len(g.In), len(g.Out))
	}
	y := w.Call(g, nil, walk.Results(x)...)
	if y[0].IsSeq || !y[0].Type.Equal(x.Type) {
		n.Fail("graph %s gives %s, but must give %s", attr, y[0].Type, x.Type)
	}
	return w.Value(y[0])
}

// importCausalConv is a depthwise 1-D convolution of the past and present positions, with the last of them as the next
// state. Half precision is computed in f32.
func importCausalConv(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	b, t := w.B, in[0].Type.DType
	d, k := in[0].Type.Dims, in[1].Type.Dims
	if len(d) != 3 || len(k) != 3 || k[0] != d[1] || k[1] != 1 || k[2] < 1 || !t.IsFloat() || in[1].Type.DType != t {
		n.Fail("operands are %s and %s, but must be [N,C,L] and [C,1,K]", in[0].Type, in[1].Type)
	}
	in = slices.Concat(in, make([]*walk.Val, 4-len(in)))
	x := w.Value(in[0])
	switch state := ir.T(t, d[0], d[1], k[2]-1); {
	case in[3] == nil:
		x = ops.Pad(b, x, []int{0, 0, k[2] - 1}, make([]int, 3), nil, 0)
	case !in[3].Type.Equal(state):
		n.Fail("the past state is %s, but must be %s", in[3].Type, state)
	case k[2] > 1:
		x = ops.Concat(b, 2, w.Value(in[3]), x)
	}
	compute := t
	if t != dtype.F64 {
		compute = dtype.F32
	}
	var bias *ir.Value
	if in[2] != nil {
		if !in[2].Type.Equal(ir.T(t, d[1])) {
			n.Fail("the bias is %s, but must be %s", in[2].Type, ir.T(t, d[1]))
		}
		bias = ops.Cast(b, w.Value(in[2]), compute)
	}
	y := ops.ConvBias(b, ops.Cast(b, x, compute), ops.Cast(b, w.Value(in[1]), compute), bias,
		ops.ConvAttrs{Strides: []int{1}, Pads: []int{0, 0}, Dilations: []int{1}, Groups: d[1]})
	switch act := n.Str("activation", "none"); act {
	case "none":
	case "silu", "swish":
		y = ops.Silu(b, y)
	default:
		n.Fail("activation is %q, but must be none, silu or swish", act)
	}
	return walk.Results(ops.Cast(b, y, t), ops.SliceDim(b, x, 2, d[2], k[2]-1))
}

// recurrence is one LinearAttention: a state S[B,H,K,V] that each position decays, writes its key and value to and
// reads with its query.
type recurrence struct {
	w           *walk.Walker
	n           *model.Node
	batch, time int
	q, k, v     *ir.Value // [B,H,T,K or V]; k and v have Hkv heads
	decay       *ir.Value // [B,Hkv,T,1|K], the logarithm; nil for none
	beta        *ir.Value // [B,1|Hkv,T,1]; nil for none
	state       *ir.Value // [B,Hkv,K,V]; nil for zeros
	scale       float64
}

// importLinearAttention follows the operator's four update rules in f32 (f64 for f64). Without a correction by beta and
// with at most one decay per head, all positions are computed at once; else time is unrolled.
func importLinearAttention(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	in = slices.Concat(in, make([]*walk.Val, 6-len(in)))
	r := newRecurrence(w, n, in)
	t, stateType := in[0].Type.DType, in[0].Type.DType
	if in[3] != nil {
		stateType = in[3].Type.DType
	}
	var out, state *ir.Value
	if r.beta == nil && (r.decay == nil || r.decay.Type.Dims[3] == 1) {
		out, state = r.together()
	} else {
		out, state = r.unroll()
	}
	return walk.Results(ops.Cast(w.B, layers.JoinHeads(w, out), t), ops.Cast(w.B, state, stateType))
}

func newRecurrence(w *walk.Walker, n *model.Node, in []*walk.Val) *recurrence {
	b, t := w.B, in[0].Type.DType
	hq, hkv := n.Int("q_num_heads", 0), n.Int("kv_num_heads", 0)
	if hq < 1 || hkv < 1 || hq%hkv != 0 {
		n.Fail("q_num_heads is %d, but must be a multiple of kv_num_heads, %d", hq, hkv)
	}
	compute := dtype.F32
	if t == dtype.F64 {
		compute = t
	}
	heads := func(i, h int) *ir.Value {
		return ops.Cast(b, layers.SplitHeads(w, n, w.Value(in[i]), h), compute)
	}
	r := &recurrence{w: w, n: n, q: heads(0, hq), k: heads(1, hkv), v: heads(2, hkv), scale: n.Float("scale", 0)}
	d := r.q.Type.Dims
	r.batch, r.time = d[0], d[2]
	kd, vd := r.k.Type.Dims, r.v.Type.Dims
	if !slices.Equal(kd, []int{d[0], hkv, d[2], d[3]}) || !slices.Equal(vd[:3], kd[:3]) {
		n.Fail("queries are %s, keys %s and values %s, which do not fit together", in[0].Type, in[1].Type, in[2].Type)
	}
	if r.scale == 0 {
		r.scale = 1 / math.Sqrt(float64(max(d[3], 1)))
	}
	rule := n.Str("update_rule", "gated_delta")
	if !slices.Contains([]string{"linear", "gated", "delta", "gated_delta"}, rule) {
		n.Fail("update_rule is %q, but must be linear, gated, delta or gated_delta", rule)
	}
	if gated := rule == "gated" || rule == "gated_delta"; gated != (in[4] != nil) {
		n.Fail("update_rule is %q: a decay must be given with gated and gated_delta, and with no other rule", rule)
	}
	if delta := rule == "delta" || rule == "gated_delta"; delta != (in[5] != nil) {
		n.Fail("update_rule is %q: a beta must be given with delta and gated_delta, and with no other rule", rule)
	}
	part := func(i int, sizes ...int) *ir.Value { // [B,T,h] or [B,T,h*K] as [B,h,T,1|K]
		x := in[i].Type.Dims
		if len(x) != 3 || x[0] != d[0] || x[1] != d[2] || !slices.Contains(sizes, x[2]) {
			n.Fail("operand %d is %s, but must be [%d,%d,%v]", i, in[i].Type, d[0], d[2], sizes)
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
		if want := []int{d[0], hkv, d[3], vd[3]}; !slices.Equal(in[3].Type.Dims, want) {
			n.Fail("the past state is %s, but must have dims %v", in[3].Type, want)
		}
		r.state = ops.Cast(b, w.Value(in[3]), compute)
	}
	return r
}

// repeat is x[B,Hkv,…] with each head for all query heads that read it.
func (r *recurrence) repeat(x *ir.Value) *ir.Value {
	a := layers.Attention{W: r.w, Q: r.q}
	return a.Repeat(x)
}

// together computes all positions at once: with D the running sum of decays, position t reads
// Σ_{s≤t} exp(D_t-D_s) (q_t·k_s) v_s and exp(D_t) q_t·S_0, the quadratic form of a linear attention (Sun et al.,
// "Retentive Network", 2023, equation 5).
func (r *recurrence) together() (out, state *ir.Value) {
	b, T := r.w.B, r.time
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
	b := r.w.B
	if r.time < 1 || r.time > maxUnroll {
		r.n.Fail("there are %d positions, but only 1 to %d can be unrolled", r.time, maxUnroll)
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
