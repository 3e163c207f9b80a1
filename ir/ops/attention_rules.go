package ops

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

func init() {
	AttentionDef.Define(ir.Rules{
		Attrs: AttentionAttrs{}, Operands: 3, Optional: 3, Infer: inferAttention, Factors: attentionRule, Precision: "low",
		Eval: evalAttention, Decompose: orInF32(attentionParts), VJP: attentionVJP, Impl: attentionImpl, Samples: attentionSamples,
		Facts: ir.Facts{Inference: attentionMean, Draws: attentionDraws},
		Doc:   "softmax(scale*q.k' + mask).v and the log-sum-exp of the scores",
	})
	AttentionGradDef.Define(ir.Rules{
		Attrs: AttentionAttrs{}, Operands: 3, Optional: 6, Infer: inferAttentionGrad, Factors: attentionRule, Precision: "low",
		Facts: ir.Facts{Wide: []int{5}, Draws: attentionDraws}, // the log-sum-exps
		Eval:  evalAttentionGrad, Decompose: orInF32(attentionGradParts), Impl: attentionImpl, Samples: attentionGradSamples,
		Doc: "gradients of attention in q, k and v",
	})
}

func attentionDraws(op *ir.Op) bool { return op.Attrs.(AttentionAttrs).P > 0 }

// attentionMean is attention without dropout.
func attentionMean(b *ir.Builder, op *ir.Op) []*ir.Value {
	a := op.Attrs.(AttentionAttrs)
	if a.P == 0 {
		return nil
	}
	a.P, a.Seed = 0, 0
	return b.EmitN(op.Def, a, op.In[:4]...)
}

// attnEval reads one attention's operands for the evaluators.
type attnEval struct {
	attnDims
	a       AttentionAttrs
	in      []*ir.Array
	dropout []*ir.Array // the counter and the numbers of heads; nil without
}

// kept is what dropout multiplies the probability of (b,h,i,j) by.
func (e attnEval) kept(b, h, i, j int) float64 {
	switch {
	case e.dropout == nil:
		return 1
	case uniform(e.a.Seed, e.dropout[0].I[0], (e.dropout[1].I[b*e.H+h]*int64(e.Sq)+int64(i))*int64(e.Sk)+int64(j)) < e.a.P:
		return 0
	}
	return 1 / (1 - e.a.P)
}

// row gives the position of the first feature of (b, h, s) in q, k, v or out, whose sizes are heads, seq and depth.
func (e attnEval) row(b, h, s, heads, seq, depth int) int {
	if e.a.Layout == "bshd" {
		return ((b*seq+s)*heads + h) * depth
	}
	return ((b*heads+h)*seq + s) * depth
}

func (e attnEval) q(b, h, i int) int   { return e.row(b, h, i, e.H, e.Sq, e.D) }
func (e attnEval) k(b, h, j int) int   { return e.row(b, h/(e.H/e.Hkv), j, e.Hkv, e.Sk, e.D) }
func (e attnEval) v(b, h, j int) int   { return e.row(b, h/(e.H/e.Hkv), j, e.Hkv, e.Sk, e.Dv) }
func (e attnEval) out(b, h, i int) int { return e.row(b, h, i, e.H, e.Sq, e.Dv) }

// score is element (b,h,i,j) before the softmax.
func (e attnEval) score(b, h, i, j int) float64 {
	if last := i + e.Sk - e.Sq; e.a.Causal && (j > last || e.a.Window > 0 && j <= last-e.a.Window) {
		return math.Inf(-1)
	}
	sum, q, k := 0.0, e.q(b, h, i), e.k(b, h, j)
	for x := range e.D {
		sum += e.in[0].F[q+x] * e.in[1].F[k+x]
	}
	sum *= e.a.Scale
	if len(e.in) > 3 && e.in[3] != nil {
		m := ir.Strides(e.in[3].Type.Dims)
		for d, n := range e.in[3].Type.Dims {
			if n == 1 {
				m[d] = 0
			}
		}
		sum += e.in[3].F[dot([]int{b, h, i, j}, m)]
	}
	return sum
}

func newAttnEval(op *ir.Op, in []*ir.Array) attnEval {
	d, err := attnOf(op)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	e := attnEval{attnDims: d, a: op.Attrs.(AttentionAttrs), in: in}
	if at := dropoutOperands(op); e.a.P > 0 {
		e.dropout = in[at : at+2]
	}
	return e
}

func evalAttention(op *ir.Op, in []*ir.Array) []*ir.Array {
	e, out := newAttnEval(op, in), arrays(op)
	s := make([]float64, e.Sk)
	each([]int{e.B, e.H, e.Sq}, func(at []int, row int) {
		for j := range s {
			s[j] = e.score(at[0], at[1], at[2], j)
		}
		lse := logSumExp(s)
		out[1].F[row] = lse
		for j := range s {
			p := prob(s[j], lse) * e.kept(at[0], at[1], at[2], j)
			for x := range e.Dv {
				out[0].F[e.out(at[0], at[1], at[2])+x] += p * in[2].F[e.v(at[0], at[1], j)+x]
			}
		}
	})
	return out
}

// prob is exp(s-lse), 0 where a row sees nothing.
func prob(s, lse float64) float64 {
	if math.IsInf(lse, -1) {
		return 0
	}
	return math.Exp(s - lse)
}

// evalAttentionGrad: with p the probabilities, dp = dout.v and ds = p*(dp - out.dout): dq = scale*ds.k,
// dk = scale*ds'.q, dv = p'.dout (Dao et al., FlashAttention, 2022, appendix B). Dropout multiplies dp, and p in dv.
func evalAttentionGrad(op *ir.Op, in []*ir.Array) []*ir.Array {
	e, grads := newAttnEval(op, in), arrays(op)
	dq, dk, dv, dout := grads[0].F, grads[1].F, grads[2].F, in[6].F
	each([]int{e.B, e.H, e.Sq}, func(at []int, row int) {
		b, h, i := at[0], at[1], at[2]
		o, q, delta := e.out(b, h, i), e.q(b, h, i), 0.0
		for x := range e.Dv {
			delta += in[4].F[o+x] * dout[o+x]
		}
		for j := range e.Sk {
			p, k, v, dp := prob(e.score(b, h, i, j), in[5].F[row]), e.k(b, h, j), e.v(b, h, j), 0.0
			kept := e.kept(b, h, i, j)
			for x := range e.Dv {
				dp += kept * dout[o+x] * in[2].F[v+x]
				dv[v+x] += p * kept * dout[o+x]
			}
			ds := p * (dp - delta) * e.a.Scale
			for x := range e.D {
				dq[q+x] += ds * in[1].F[k+x]
				dk[k+x] += ds * in[0].F[q+x]
			}
		}
	})
	return grads
}

// attnParts builds attention out of primitive ops, on [B,H,S,D] with a key head for every query head.
type attnParts struct {
	attnDims
	a       AttentionAttrs
	b       *ir.Builder
	q, k, v *ir.Value
	scores  *ir.Value // [B,H,Sq,Sk]
	kept    *ir.Value // which of them dropout keeps; nil without
}

// thinned is x, one for each score, after dropout.
func (p attnParts) thinned(x *ir.Value) *ir.Value {
	if p.kept == nil {
		return x
	}
	return Where(p.b, p.kept, MulScalar(p.b, x, 1/(1-p.a.P)), ScalarLike(p.b, x, 0))
}

// swap exchanges the head and sequence dims where the layout has them so.
func (p attnParts) swap(x *ir.Value) *ir.Value {
	if p.a.Layout == "bshd" {
		return Transpose(p.b, x, []int{0, 2, 1, 3})
	}
	return x
}

// shareHeads repeats each key head for its query heads.
func (p attnParts) shareHeads(x *ir.Value) *ir.Value {
	if p.H == p.Hkv {
		return x
	}
	d := x.Type.Dims
	x = Expand(p.b, Reshape(p.b, x, []int{d[0], d[1], 1, d[2], d[3]}), []int{d[0], d[1], p.H / p.Hkv, d[2], d[3]})
	return Reshape(p.b, x, []int{d[0], p.H, d[2], d[3]})
}

// sumHeads is the adjoint of shareHeads.
func (p attnParts) sumHeads(x *ir.Value) *ir.Value {
	if p.H == p.Hkv {
		return x
	}
	d := x.Type.Dims
	x = ReduceSum(p.b, Reshape(p.b, x, []int{d[0], p.Hkv, p.H / p.Hkv, d[2], d[3]}), 2)
	return Reshape(p.b, x, []int{d[0], p.Hkv, d[2], d[3]})
}

func newAttnParts(b *ir.Builder, op *ir.Op) attnParts {
	d, err := attnOf(op)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	p := attnParts{attnDims: d, a: op.Attrs.(AttentionAttrs), b: b}
	p.q, p.k, p.v = p.swap(op.In[0]), p.shareHeads(p.swap(op.In[1])), p.shareHeads(p.swap(op.In[2]))
	s := MulScalar(b, MatMulT(b, p.q, p.k, false, true), p.a.Scale)
	if mask := operand(op, 3); mask != nil {
		s = Add(b, s, like(b, mask, s))
	}
	if p.a.Causal {
		dims := s.Type.Dims
		i := Expand(b, Iota(b, dtype.I64, []int{1, 1, d.Sq, 1}, 2), dims)
		j := Expand(b, Iota(b, dtype.I64, []int{1, 1, 1, d.Sk}, 3), dims)
		last := AddScalar(b, i, float64(d.Sk-d.Sq))
		seen := Le(b, j, last)
		if p.a.Window > 0 {
			seen = And(b, seen, Gt(b, j, AddScalar(b, last, -float64(p.a.Window))))
		}
		s = Where(b, seen, s, ScalarLike(b, s, math.Inf(-1)))
	}
	p.scores = s
	if at := dropoutOperands(op); p.a.P > 0 {
		dims := s.Type.Dims
		first := MulScalar(b, op.In[at+1], float64(d.Sq*d.Sk)) // of each head's scores
		index := Add(b, Expand(b, Reshape(b, first, []int{d.B, d.H, 1, 1}), dims), Expand(b, positions(b, []int{1, 1, d.Sq, d.Sk}), dims))
		u := uniformParts(b, op.In[at], p.a.Seed, index)
		p.kept = Ge(b, u, ScalarLike(b, u, p.a.P))
	}
	return p
}

// finite is x with minus infinity (a row that sees no key) made 0.
func finite(b *ir.Builder, x *ir.Value) *ir.Value {
	zero := ScalarLike(b, x, 0)
	return Where(b, Eq(b, x, ScalarLike(b, x, math.Inf(-1))), zero, x)
}

func attentionParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	p := newAttnParts(b, op)
	top := finite(b, ReduceMax(b, p.scores, 3))
	e := Exp(b, Sub(b, p.scores, like(b, top, p.scores)))
	sum := ReduceSum(b, e, 3)
	empty := Eq(b, sum, ScalarLike(b, sum, 0))
	inv := Where(b, empty, ScalarLike(b, sum, 0), Recip(b, sum))
	out := MatMul(b, p.thinned(Mul(b, e, like(b, inv, e))), p.v)
	lse := Add(b, Log(b, sum), top)
	return []*ir.Value{p.swap(out), Reshape(b, lse, []int{p.B, p.H, p.Sq})}
}

// rows is x [B,H,Sq], a number for each row of scores, in their type and dims but for the last.
func (p attnParts) rows(x *ir.Value) *ir.Value {
	return Reshape(p.b, Cast(p.b, x, p.scores.Type.DType), []int{p.B, p.H, p.Sq, 1})
}

// probs is the softmax again from the saved lse [B,H,Sq].
func (p attnParts) probs(lse *ir.Value) *ir.Value {
	rows := p.rows(lse)
	return Exp(p.b, Sub(p.b, p.scores, like(p.b, finite(p.b, rows), p.scores)))
}

// scoreGrads gives dq and dk from the gradient of the scores.
func (p attnParts) scoreGrads(ds *ir.Value) (dq, dk *ir.Value) {
	ds = MulScalar(p.b, ds, p.a.Scale)
	return p.swap(MatMul(p.b, ds, p.k)), p.swap(p.sumHeads(MatMulT(p.b, ds, p.q, true, false)))
}

func attentionGradParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	p := newAttnParts(b, op)
	out, dout := p.swap(op.In[4]), p.swap(op.In[6])
	prob := p.probs(op.In[5])
	dv := p.swap(p.sumHeads(MatMulT(b, p.thinned(prob), dout, true, false)))
	delta := ReduceSum(b, Mul(b, out, dout), 3)
	dp := p.thinned(MatMulT(b, dout, p.v, false, true))
	dq, dk := p.scoreGrads(Mul(b, prob, Sub(b, dp, like(b, delta, dp))))
	return []*ir.Value{dq, dk, dv}
}

// attentionVJP also handles a gradient of lse, though training has none, and one of the mask: with ds the gradient of
// the scores, that of the mask is their sum over the dims that the mask repeats. The mask's part recomputes the
// probabilities whole; it is dropped again when no parameter is behind the mask.
func attentionVJP(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
	grads := make([]*ir.Value, len(op.In))
	a, mask := op.Attrs.(AttentionAttrs), operand(op, 3)
	if dy[0] != nil {
		operands := []*ir.Value{op.In[0], op.In[1], op.In[2], mask, op.Out[0], op.Out[1], dy[0]}
		dq, dk, dv := AttentionGrad(b, a, append(operands, op.In[min(len(op.In), dropoutOperands(op)):]...)...)
		copy(grads, []*ir.Value{dq, dk, dv})
	}
	if dy[1] == nil && mask == nil {
		return grads
	}
	p := newAttnParts(b, op)
	prob := p.probs(op.Out[1])
	if dy[1] != nil {
		dq, dk := p.scoreGrads(Mul(b, prob, like(b, p.rows(dy[1]), prob)))
		grads[0], grads[1] = plus(b, grads[0], dq), plus(b, grads[1], dk)
	}
	if mask != nil {
		grads[3] = p.maskGrad(prob, op.Out[0], dy, mask.Type.Dims)
	}
	return grads
}

// maskGrad is the gradient of the mask, of the given dims, from the probabilities, out and the gradients of out and lse.
func (p attnParts) maskGrad(prob, out *ir.Value, dy []*ir.Value, dims []int) *ir.Value {
	b := p.b
	var inner *ir.Value // of each score, before the factor prob
	if dy[0] != nil {
		dout := p.swap(dy[0])
		delta := ReduceSum(b, Mul(b, p.swap(out), dout), 3)
		dp := p.thinned(MatMulT(b, dout, p.v, false, true))
		inner = Sub(b, dp, like(b, delta, dp))
	}
	if dy[1] != nil {
		inner = plus(b, inner, like(b, p.rows(dy[1]), prob))
	}
	ds := Mul(b, prob, inner)
	var repeated []int
	for i, n := range dims {
		if n != ds.Type.Dims[i] {
			repeated = append(repeated, i)
		}
	}
	if len(repeated) == 0 {
		return ds
	}
	return ReduceSum(b, ds, repeated...)
}

func attentionSamples(*rand.Rand) []ir.Sample {
	q, k := []int{2, 4, 3, 4}, []int{2, 2, 3, 4}
	return []ir.Sample{
		{In: f32s(q, q, q), Attrs: AttentionAttrs{Scale: 0.5}},
		{In: f32s(q, k, []int{2, 2, 3, 2}), Attrs: AttentionAttrs{Scale: 0.5, Causal: true}},
		{In: f32s([]int{2, 2, 4, 4}, []int{2, 3, 2, 4}, []int{2, 3, 2, 4}, []int{1, 4, 2, 3}), Attrs: AttentionAttrs{Scale: 0.7, Layout: "bshd"}},
		{In: f32s([]int{2, 2, 2, 4}, []int{2, 2, 5, 4}, []int{2, 2, 5, 4}, []int{2, 1, 1, 5}), Attrs: AttentionAttrs{Scale: 0.5, Causal: true}},
		{In: f32s([]int{1, 2, 5, 4}, []int{1, 1, 6, 4}, []int{1, 1, 6, 4}), Attrs: AttentionAttrs{Scale: 0.5, Causal: true, Window: 2}},
		{In: append(f32s(q, k, k, []int{2, 1, 1, 3}), ir.T(dtype.I64), ir.T(dtype.I64, 2, 4)), Attrs: AttentionAttrs{Scale: 0.5, P: 0.25, Seed: 3}},
		of(dtype.F16, ir.Sample{In: f32s(q, k, k), Attrs: AttentionAttrs{Scale: 0.5}}),
		of(dtype.F64, ir.Sample{In: f32s(q, k, []int{2, 2, 3, 2}), Attrs: AttentionAttrs{Scale: 0.5, Causal: true}}),
	}
}

func attentionGradSamples(r *rand.Rand) []ir.Sample {
	var out []ir.Sample
	for _, s := range attentionSamples(r) {
		out = append(out, attentionGradSample(s))
	}
	return out
}

// attentionGradSample is a sample of the gradient from one of attention, which gives out and lse.
func attentionGradSample(s ir.Sample) ir.Sample {
	a := s.Attrs.(AttentionAttrs)
	b := ir.NewBuilder(&ir.Func{})
	args := make([]*ir.Value, max(len(s.In), 4))
	for i, t := range s.In {
		args[i] = b.Param("x", t, ir.Input)
	}
	res := b.EmitN(AttentionDef, a, args...)
	o, lse := res[0], res[1]
	types := append(append([]ir.Type{}, s.In[:3]...), ir.Type{}, o.Type, lse.Type, o.Type)
	if args[3] != nil {
		types[3] = args[3].Type
	} else {
		types[3] = ir.T(s.In[1].DType, 1, 1, 1, s.In[1].Dims[a.seq()])
	}
	types = append(types, s.In[min(len(s.In), 4):]...)
	return ir.Sample{In: types, Attrs: a, Fill: func(_ *rand.Rand, in []*ir.Array) {
		if args[3] == nil {
			clear(in[3].F)
		}
		res := evalAttention(o.Op, append(slices.Clone(in[:4]), in[7:]...))
		copy(in[4].F, res[0].F)
		copy(in[5].F, res[1].F)
	}}
}
