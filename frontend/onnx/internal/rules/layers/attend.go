package layers

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Attention is scaled dot-product attention as the operators of several domains describe it, before it becomes ops.
// Queries i and keys j count from 0; query i stands at place p = i + offset among the keys.
type Attention struct {
	W       *walk.Walker
	N       *model.Node
	Q, K, V *ir.Value // [B,H,S,D]; k and v may have fewer heads
	Scale   float64
	Softcap float64 // the scores become softcap*tanh(scores/softcap); 0: they stay

	Offset      int       // keys before the first query
	valid       *ir.Value // i64 [B]: keys of each sample, the rest is padding; nil when all count
	perSample   bool      // offset is valid - Sq instead
	Causal      bool      // query i sees keys up to p
	Left, Right int       // query i sees keys from p-left to p+right; -1 is unbounded
	Bias        *ir.Value // added to the scores: of q's type and four dims, each the scores' or 1; nil for none
	Sink        *ir.Value // [H]: a score that takes part in each softmax of a head and gives nothing; nil for none
	Precision   dtype.DType
	Output      int // which intermediate is wanted too: as qk_matmul_output_mode says, or -1
}

// Sizes are how many samples, heads, queries and keys there are.
func (a *Attention) Sizes() (batch, heads, sq, sk int) {
	d := a.Q.Type.Dims
	return d[0], d[1], d[2], a.K.Type.Dims[2]
}

// Check refuses queries, keys and values that do not fit one another.
func (a *Attention) Check() {
	dq, dk, dv := a.Q.Type.Dims, a.K.Type.Dims, a.V.Type.Dims
	if dq[0] != dk[0] || dk[0] != dv[0] || dk[1] != dv[1] || dk[2] != dv[2] || dq[3] != dk[3] || dk[1] < 1 || dq[1]%dk[1] != 0 {
		a.N.Fail("queries of dims %v, keys of dims %v and values of dims %v do not fit together", dq, dk, dv)
	}
	if t := a.Q.Type.DType; !t.IsFloat() || a.K.Type.DType != t || a.V.Type.DType != t {
		a.N.Fail("queries are %s, keys %s and values %s, but must all be of one float type", t, a.K.Type.DType, a.V.Type.DType)
	}
}

// Emit gives the result [B,H,Sq,Dv] and, when one is wanted, an intermediate [B,H,Sq,Sk]. Half precision is computed in
// f32 and rounded once at the end, which is at least what softmax_precision may ask for.
func (a *Attention) Emit() (out, scores *ir.Value) {
	a.Check()
	b, t := a.W.B, a.Q.Type.DType
	if t == dtype.F16 || t == dtype.BF16 {
		for _, v := range []**ir.Value{&a.Q, &a.K, &a.V, &a.Bias, &a.Sink} {
			if *v != nil {
				*v = ops.Cast(b, *v, dtype.F32)
			}
		}
	}
	if a.Right == 0 {
		a.Causal, a.Right = true, -1
	}
	_, _, sq, sk := a.Sizes()
	triangle := a.Causal && !a.perSample && a.Offset == sk-sq && sk >= sq // what the op's own flag means
	high := a.Precision == dtype.F64 && t != dtype.F64
	if a.Softcap == 0 && a.Sink == nil && a.Output < 0 && !high {
		a.Causal = a.Causal && !triangle
		out, _ = ops.Attention(b, ops.AttentionAttrs{Causal: triangle, Scale: a.Scale}, a.Q, a.K, a.V, a.mask())
	} else {
		out, scores = a.parts()
	}
	if out.Type.DType != t {
		out = ops.Cast(b, out, t)
	}
	if scores != nil && scores.Type.DType != t {
		scores = ops.Cast(b, scores, t)
	}
	return out, scores
}

// mask joins the bias with what the places of queries and keys allow; nil when every query sees every key as it is.
// Dims that do not matter are 1, but never that of the keys.
func (a *Attention) mask() *ir.Value {
	b := a.W.B
	allowed := a.allowed()
	if allowed == nil {
		return a.Bias
	}
	if a.Bias == nil {
		t := allowed.Type.With(a.Q.Type.DType)
		return ops.Where(b, allowed, ops.Zeros(b, t), ops.Full(b, t, math.Inf(-1)))
	}
	seen, bias := ops.Broadcast2(b, allowed, a.Bias)
	return ops.Where(b, seen, bias, ops.ScalarLike(b, bias, math.Inf(-1)))
}

// allowed is the bool [B|1,1,Sq|1,Sk] of keys that each query may see; nil when there is no limit. It is computed in
// the program from positions, so that a long sequence costs no memory at import.
func (a *Attention) allowed() *ir.Value {
	b := a.W.B
	_, _, sq, sk := a.Sizes()
	key := ops.Iota(b, dtype.I64, []int{1, 1, 1, sk}, 3)
	var all *ir.Value
	also := func(f func(*ir.Builder, *ir.Value, *ir.Value) *ir.Value, limit *ir.Value) {
		x, y := ops.Broadcast2(b, key, limit)
		if c := f(b, x, y); all == nil {
			all = c
		} else {
			x, y := ops.Broadcast2(b, all, c)
			all = ops.And(b, x, y)
		}
	}
	place := ops.AddScalar(b, ops.Iota(b, dtype.I64, []int{1, 1, sq, 1}, 2), float64(a.Offset))
	var count *ir.Value
	if a.valid != nil {
		count = ops.Reshape(b, a.valid, []int{a.valid.Type.Dims[0], 1, 1, 1})
		also(ops.Lt, count)
	}
	if a.perSample {
		x, y := ops.Broadcast2(b, ops.Iota(b, dtype.I64, []int{1, 1, sq, 1}, 2), ops.AddScalar(b, count, float64(-sq)))
		place = ops.Add(b, x, y)
	}
	if a.Causal {
		also(ops.Le, place)
	}
	if a.Left >= 0 && a.Left < sk+sq {
		also(ops.Ge, ops.AddScalar(b, place, float64(-a.Left)))
	}
	if a.Right >= 0 && a.Right < sk+sq {
		also(ops.Le, ops.AddScalar(b, place, float64(a.Right)))
	}
	return all
}

// parts spells attention out, for what the op does not do: a soft cap, an intermediate, double precision.
func (a *Attention) parts() (out, kept *ir.Value) {
	b := a.W.B
	v := a.V
	if a.Precision == dtype.F64 {
		for _, x := range []**ir.Value{&a.Q, &a.K, &v, &a.Bias, &a.Sink} {
			if *x != nil {
				*x = ops.Cast(b, *x, dtype.F64)
			}
		}
	}
	s := ops.MatMulT(b, ops.MulScalar(b, a.Q, a.Scale), a.Repeat(a.K), false, true)
	keep := func(mode int, x *ir.Value) {
		if a.Output == mode {
			kept = x
		}
	}
	keep(0, s)
	if a.Softcap != 0 {
		s = ops.MulScalar(b, ops.Tanh(b, ops.MulScalar(b, s, 1/a.Softcap)), a.Softcap)
	}
	keep(1, s)
	mask := a.mask()
	if mask == nil {
		keep(2, s)
		p := a.softmax(s)
		keep(3, p)
		return ops.MatMul(b, p, a.Repeat(v)), kept
	}
	full := s.Type.Dims
	s = ops.Add(b, s, ops.BroadcastTo(b, mask, full))
	keep(2, s)
	// A query that sees no key gives zeros; its scores are replaced too, so that no NaN enters its gradient.
	top := ops.ReduceMax(b, mask, 3)
	empty := ops.BroadcastTo(b, ops.Eq(b, top, ops.ScalarLike(b, top, math.Inf(-1))), full)
	zero := ops.Zeros(b, s.Type)
	p := ops.Where(b, empty, zero, a.softmax(ops.Where(b, empty, zero, s)))
	keep(3, p)
	return ops.MatMul(b, p, a.Repeat(v)), kept
}

// softmax is that of each row of scores [B,H,Sq,Sk], with the sink's score as one more key that is dropped again.
func (a *Attention) softmax(s *ir.Value) *ir.Value {
	b, d := a.W.B, s.Type.Dims
	if a.Sink == nil {
		return ops.Softmax(b, s, 3)
	}
	one := ops.Expand(b, ops.Reshape(b, a.Sink, []int{1, d[1], 1, 1}), []int{d[0], d[1], d[2], 1})
	return ops.SliceDim(b, ops.Softmax(b, ops.Concat(b, 3, s, one), 3), 3, 0, d[3])
}

// Repeat gives every query head its key head: head h reads head h/(H/Hkv).
func (a *Attention) Repeat(x *ir.Value) *ir.Value {
	b, d := a.W.B, x.Type.Dims
	groups := a.Q.Type.Dims[1] / d[1]
	if groups == 1 {
		return x
	}
	x = ops.Expand(b, ops.Reshape(b, x, []int{d[0], d[1], 1, d[2], d[3]}), []int{d[0], d[1], groups, d[2], d[3]})
	return ops.Reshape(b, x, []int{d[0], d[1] * groups, d[2], d[3]})
}

// setBias takes a mask of up to four dims aligned at the last one: bool (true is seen) or of q's type and added. Where it
// is shorter than the keys, the rest is not seen.
func (a *Attention) setBias(x *walk.Val) {
	b, t := a.W.B, a.Q.Type.DType
	batch, heads, sq, sk := a.Sizes()
	m := a.W.Value(x)
	r := len(m.Type.Dims)
	if r > 4 || r > 0 && m.Type.Dims[r-1] > sk || m.Type.DType != dtype.Bool && m.Type.DType != t {
		a.N.Fail("the mask is %s, which does not fit queries %s and keys %s", x.Type, a.Q.Type, a.K.Type)
	}
	if r == 0 {
		m, r = ops.Expand(b, ops.Reshape(b, m, []int{1}), []int{sk}), 1
	}
	m = ops.Reshape(b, m, slices.Concat(slices.Repeat([]int{1}, 4-r), m.Type.Dims))
	if m.Type.DType == dtype.Bool {
		z := m.Type.With(t)
		m = ops.Where(b, m, ops.Zeros(b, z), ops.Full(b, z, math.Inf(-1)))
	}
	if short := sk - m.Type.Dims[3]; short > 0 {
		m = ops.Pad(b, m, make([]int, 4), []int{0, 0, 0, short}, nil, math.Inf(-1))
	}
	if d, ok := fold.Broadcast(m.Type.Dims, []int{batch, heads, sq, sk}); !ok || !slices.Equal(d, []int{batch, heads, sq, sk}) {
		a.N.Fail("the mask is %s, which does not fit queries %s and keys %s", x.Type, a.Q.Type, a.K.Type)
	}
	a.Bias = m
}

// setValid takes the number of keys of each sample, integers [B].
func (a *Attention) setValid(x *walk.Val) {
	batch, _, _, _ := a.Sizes()
	if !x.Type.DType.IsInt() || !slices.Equal(x.Type.Dims, []int{batch}) {
		a.N.Fail("the lengths of keys are %s, but must be integers [%d]", x.Type, batch)
	}
	a.valid = a.W.Value(x)
	if x.Type.DType != dtype.I64 {
		a.valid = ops.Cast(a.W.B, a.valid, dtype.I64)
	}
}

// SplitHeads brings [B,S,H*D] to [B,H,S,D].
func SplitHeads(w *walk.Walker, n *model.Node, v *ir.Value, heads int) *ir.Value {
	d := v.Type.Dims
	if len(d) != 3 || heads < 1 || heads > max(d[2], 1) || d[2]%heads != 0 {
		n.Fail("%s cannot be split into %d heads: it needs three dimensions, the last a multiple of the heads", v.Type, heads)
	}
	return ops.Transpose(w.B, ops.Reshape(w.B, v, []int{d[0], d[1], heads, d[2] / heads}), []int{0, 2, 1, 3})
}

// JoinHeads brings [B,H,S,D] back to [B,S,H*D].
func JoinHeads(w *walk.Walker, v *ir.Value) *ir.Value {
	d := v.Type.Dims
	return ops.Reshape(w.B, ops.Transpose(w.B, v, []int{0, 2, 1, 3}), []int{d[0], d[2], d[1] * d[3]})
}
