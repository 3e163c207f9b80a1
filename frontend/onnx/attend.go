package onnx

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// attention is scaled dot-product attention as the operators of several domains describe it, before it becomes ops.
// Queries i and keys j count from 0; query i stands at place p = i + offset among the keys.
type attention struct {
	w       *walker
	n       *node
	q, k, v *ir.Value // [B,H,S,D]; k and v may have fewer heads
	scale   float64
	softcap float64 // the scores become softcap*tanh(scores/softcap); 0: they stay

	offset      int       // keys before the first query
	valid       *ir.Value // i64 [B]: keys of each sample, the rest is padding; nil when all count
	perSample   bool      // offset is valid - Sq instead
	causal      bool      // query i sees keys up to p
	left, right int       // query i sees keys from p-left to p+right; -1 is unbounded
	bias        *ir.Value // added to the scores: of q's type and four dims, each the scores' or 1; nil for none
	sink        *ir.Value // [H]: a score that takes part in each softmax of a head and gives nothing; nil for none
	precision   dtype.DType
	output      int // which intermediate is wanted too: as qk_matmul_output_mode says, or -1
}

func (a *attention) sizes() (batch, heads, sq, sk int) {
	d := a.q.Type.Dims
	return d[0], d[1], d[2], a.k.Type.Dims[2]
}

// check refuses queries, keys and values that do not fit one another.
func (a *attention) check() {
	dq, dk, dv := a.q.Type.Dims, a.k.Type.Dims, a.v.Type.Dims
	if dq[0] != dk[0] || dk[0] != dv[0] || dk[1] != dv[1] || dk[2] != dv[2] || dq[3] != dk[3] || dk[1] < 1 || dq[1]%dk[1] != 0 {
		a.n.fail("queries %v, keys %v and values %v do not fit", dq, dk, dv)
	}
	if t := a.q.Type.DType; !t.IsFloat() || a.k.Type.DType != t || a.v.Type.DType != t {
		a.n.fail("queries are %s, keys %s and values %s: want one float type", t, a.k.Type.DType, a.v.Type.DType)
	}
}

// emit gives the result [B,H,Sq,Dv] and, when one is wanted, an intermediate [B,H,Sq,Sk]. Half precision is computed in
// f32 and rounded once at the end, which is at least what softmax_precision may ask for.
func (a *attention) emit() (out, scores *ir.Value) {
	a.check()
	b, t := a.w.b, a.q.Type.DType
	if t == dtype.F16 || t == dtype.BF16 {
		for _, v := range []**ir.Value{&a.q, &a.k, &a.v, &a.bias, &a.sink} {
			if *v != nil {
				*v = ops.Cast(b, *v, dtype.F32)
			}
		}
	}
	if a.right == 0 {
		a.causal, a.right = true, -1
	}
	_, _, sq, sk := a.sizes()
	triangle := a.causal && !a.perSample && a.offset == sk-sq && sk >= sq // what the op's own flag means
	high := a.precision == dtype.F64 && t != dtype.F64
	if a.softcap == 0 && a.sink == nil && a.output < 0 && !high {
		a.causal = a.causal && !triangle
		out, _ = ops.Attention(b, ops.AttentionAttrs{Causal: triangle, Scale: a.scale}, a.q, a.k, a.v, a.mask())
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
func (a *attention) mask() *ir.Value {
	b := a.w.b
	allowed := a.allowed()
	if allowed == nil {
		return a.bias
	}
	if a.bias == nil {
		t := allowed.Type.With(a.q.Type.DType)
		return ops.Where(b, allowed, ops.Zeros(b, t), ops.Full(b, t, math.Inf(-1)))
	}
	seen, bias := ops.Broadcast2(b, allowed, a.bias)
	return ops.Where(b, seen, bias, ops.ScalarLike(b, bias, math.Inf(-1)))
}

// allowed is the bool [B|1,1,Sq|1,Sk] of keys that each query may see; nil when there is no limit. It is computed in
// the program from positions, so that a long sequence costs no memory at import.
func (a *attention) allowed() *ir.Value {
	b := a.w.b
	_, _, sq, sk := a.sizes()
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
	place := ops.AddScalar(b, ops.Iota(b, dtype.I64, []int{1, 1, sq, 1}, 2), float64(a.offset))
	var count *ir.Value
	if a.valid != nil {
		count = ops.Reshape(b, a.valid, []int{a.valid.Type.Dims[0], 1, 1, 1})
		also(ops.Lt, count)
	}
	if a.perSample {
		x, y := ops.Broadcast2(b, ops.Iota(b, dtype.I64, []int{1, 1, sq, 1}, 2), ops.AddScalar(b, count, float64(-sq)))
		place = ops.Add(b, x, y)
	}
	if a.causal {
		also(ops.Le, place)
	}
	if a.left >= 0 && a.left < sk+sq {
		also(ops.Ge, ops.AddScalar(b, place, float64(-a.left)))
	}
	if a.right >= 0 && a.right < sk+sq {
		also(ops.Le, ops.AddScalar(b, place, float64(a.right)))
	}
	return all
}

// parts spells attention out, for what the op does not do: a soft cap, an intermediate, double precision.
func (a *attention) parts() (out, kept *ir.Value) {
	b := a.w.b
	v := a.v
	if a.precision == dtype.F64 {
		for _, x := range []**ir.Value{&a.q, &a.k, &v, &a.bias, &a.sink} {
			if *x != nil {
				*x = ops.Cast(b, *x, dtype.F64)
			}
		}
	}
	s := ops.MatMulT(b, ops.MulScalar(b, a.q, a.scale), a.repeat(a.k), false, true)
	keep := func(mode int, x *ir.Value) {
		if a.output == mode {
			kept = x
		}
	}
	keep(0, s)
	if a.softcap != 0 {
		s = ops.MulScalar(b, ops.Tanh(b, ops.MulScalar(b, s, 1/a.softcap)), a.softcap)
	}
	keep(1, s)
	mask := a.mask()
	if mask == nil {
		keep(2, s)
		p := a.softmax(s)
		keep(3, p)
		return ops.MatMul(b, p, a.repeat(v)), kept
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
	return ops.MatMul(b, p, a.repeat(v)), kept
}

// softmax is that of each row of scores [B,H,Sq,Sk], with the sink's score as one more key that is dropped again.
func (a *attention) softmax(s *ir.Value) *ir.Value {
	b, d := a.w.b, s.Type.Dims
	if a.sink == nil {
		return ops.Softmax(b, s, 3)
	}
	one := ops.Expand(b, ops.Reshape(b, a.sink, []int{1, d[1], 1, 1}), []int{d[0], d[1], d[2], 1})
	return ops.SliceDim(b, ops.Softmax(b, ops.Concat(b, 3, s, one), 3), 3, 0, d[3])
}

// repeat gives every query head its key head: head h reads head h/(H/Hkv).
func (a *attention) repeat(x *ir.Value) *ir.Value {
	b, d := a.w.b, x.Type.Dims
	groups := a.q.Type.Dims[1] / d[1]
	if groups == 1 {
		return x
	}
	x = ops.Expand(b, ops.Reshape(b, x, []int{d[0], d[1], 1, d[2], d[3]}), []int{d[0], d[1], groups, d[2], d[3]})
	return ops.Reshape(b, x, []int{d[0], d[1] * groups, d[2], d[3]})
}

// setBias takes a mask of up to four dims aligned at the last one: bool (true is seen) or of q's type and added. Where it
// is shorter than the keys, the rest is not seen.
func (a *attention) setBias(x *val) {
	b, t := a.w.b, a.q.Type.DType
	batch, heads, sq, sk := a.sizes()
	m := a.w.value(x)
	r := len(m.Type.Dims)
	if r > 4 || r > 0 && m.Type.Dims[r-1] > sk || m.Type.DType != dtype.Bool && m.Type.DType != t {
		a.n.fail("the mask is %s for queries %v and keys %v", x.t, a.q.Type, a.k.Type)
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
	if d, ok := broadcast(m.Type.Dims, []int{batch, heads, sq, sk}); !ok || !slices.Equal(d, []int{batch, heads, sq, sk}) {
		a.n.fail("the mask is %s for queries %v and keys %v", x.t, a.q.Type, a.k.Type)
	}
	a.bias = m
}

// setValid takes the number of keys of each sample, integers [B].
func (a *attention) setValid(x *val) {
	batch, _, _, _ := a.sizes()
	if !x.t.DType.IsInt() || !slices.Equal(x.t.Dims, []int{batch}) {
		a.n.fail("the lengths of keys are %s: want integers [%d]", x.t, batch)
	}
	a.valid = a.w.value(x)
	if x.t.DType != dtype.I64 {
		a.valid = ops.Cast(a.w.b, a.valid, dtype.I64)
	}
}

// splitHeads brings [B,S,H*D] to [B,H,S,D].
func (w *walker) splitHeads(n *node, v *ir.Value, heads int) *ir.Value {
	d := v.Type.Dims
	if len(d) != 3 || heads < 1 || heads > max(d[2], 1) || d[2]%heads != 0 {
		n.fail("%d heads of %s", heads, v.Type)
	}
	return ops.Transpose(w.b, ops.Reshape(w.b, v, []int{d[0], d[1], heads, d[2] / heads}), []int{0, 2, 1, 3})
}

// joinHeads brings [B,H,S,D] back to [B,S,H*D].
func (w *walker) joinHeads(v *ir.Value) *ir.Value {
	d := v.Type.Dims
	return ops.Reshape(w.b, ops.Transpose(w.b, v, []int{0, 2, 1, 3}), []int{d[0], d[2], d[1] * d[3]})
}
