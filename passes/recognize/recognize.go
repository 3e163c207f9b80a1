// Package recognize raises idioms that exporters spell out to the ops that mean them, before
// differentiation, so that their gradients are the fast and numerically good ones.
//
// # Design
//
// One walk over @forward in canonical form (pass normalize). At the last op of an idiom the makers of its
// operands are matched, loosely in the places where exporters and model authors differ (order of operands of
// a product, scale on q, on k or on the scores, division or multiplication, mask added or selected, K
// transposed in one step or several, keys repeated for grouped queries) and exactly in what decides the
// meaning (constants to 1e-5, reduced dims, the causal pattern element by element). Values that others still
// read stay; what becomes dead is dropped.
//
//	softmax(scale*q·kᵀ + mask)·v              attention, causal when the constant mask is the causal pattern
//	(x-mean)/sqrt(var+eps) [*g] [+b]          layer_norm
//	x/sqrt(mean(x²)+eps) [*g]                 rms_norm
//	x/2*(1+erf(x/√2)), its tanh form          gelu
//	x*sigmoid(x)                              silu
//	log(softmax(x)); its picked element       log_softmax; xent
//	x·w + row                                 matmul with bias
//	max_pool(relu(x + a number per channel))  the same with max_pool(x) innermost
//	h[arange(B), i], rows b*T + i of [B*T,…]  gather_nd, scatter_nd in each sample
//	a loop over samples, unrolled             the same on all samples at once
//
// Each match leaves a remark, and each softmax that is nearly an attention leaves one that says what kept it
// from being one. Rotary embedding is pointwise and stays as it is.
package recognize

import (
	"fmt"
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/algebra"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Run raises the idioms of @forward.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	f := c.Module.Func(abi.FuncForward)
	if f == nil {
		return fmt.Errorf("there is no @forward to look at")
	}
	m := &matcher{c: c, uses: f.Uses(), trained: trained(f), fixed: map[*ir.Value]bool{}, hiding: map[*ir.Value]bool{},
		places: map[*ir.Value]*places{}, made: map[*ir.Value]int{}}
	for _, p := range slices.Backward(f.Params) {
		if p.Role == ir.Input && len(p.Type.Dims) > 0 {
			m.batch = p.Type.Dims[0]
		}
	}
	for _, r := range f.Results {
		m.uses[r.Value] = append(m.uses[r.Value], nil)
	}
	if c.Improve(f, m.step) > 0 {
		algebra.Peephole(c, f) // transposes round a raised op meet their inverses
	}
	return nil
}

// matcher holds what the matches of one function share.
type matcher struct {
	c       *pass.Context
	uses    map[*ir.Value][]*ir.Op // readers; nil stands for a function result
	trained map[*ir.Value]bool     // values that depend on a trained parameter

	// What masks come to, which layers have in common: what is joined, and of their values whether they are known and
	// whether they are made of zeros and hidden scores only.
	masks         []*known
	fixed, hiding map[*ir.Value]bool

	places map[*ir.Value]*places // see placesOf
	made   map[*ir.Value]int     // see sources
	batch  int                   // the leading dim of the first input, the samples; 0 where there is none
}

// trained marks the values that depend on a trained parameter.
func trained(f *ir.Func) map[*ir.Value]bool {
	on := map[*ir.Value]bool{}
	for _, p := range f.Params {
		on[p] = p.Role == ir.Param
	}
	for _, op := range f.Ops {
		for _, v := range op.In {
			if v != nil && on[v] {
				for _, o := range op.Out {
					on[o] = true
				}
				break
			}
		}
	}
	return on
}

// step tries the idioms that end in op.
func (m *matcher) step(b *ir.Builder, op *ir.Op) []*ir.Value {
	var v *ir.Value
	switch op.Def {
	case ops.MaxPoolDef:
		return m.pool(b, op)
	case ops.GatherDef, ops.GatherNDDef, ops.ScatterNDDef:
		return m.perSample(b, op)
	case ops.ConcatDef:
		v = m.reroll(b, op)
	case ops.MatMulDef:
		v = m.attention(b, op)
	case ops.AddDef:
		if v = m.normBias(b, op); v == nil {
			v = m.matmulBias(b, op)
		}
	case ops.MulDef:
		for _, try := range []func(*ir.Builder, *ir.Op) *ir.Value{m.gelu, m.silu, m.norm, m.normGain} {
			if v = try(b, op); v != nil {
				break
			}
		}
	case ops.DivDef:
		v = m.norm(b, op)
	case ops.LogDef:
		if v = m.logSoftmax(b, op); v == nil {
			v = m.logSigmoid(b, op)
		}
	case ops.NegDef:
		v = m.xent(b, op)
	}
	if v == nil {
		return nil
	}
	return []*ir.Value{v}
}

// single reports whether only one op reads v, and no function result.
func (m *matcher) single(v *ir.Value) bool {
	return len(m.uses[v]) == 1 && m.uses[v][0] != nil
}

// near reports whether u is the number want, to the precision in which exporters write constants.
func near(u, want float64) bool { return math.Abs(u-want) <= 1e-5*math.Max(1, math.Abs(want)) }

// isNear reports whether v is uniformly the number want.
func isNear(v *ir.Value, want float64) bool {
	u, ok := algebra.Uniform(v)
	return ok && near(u, want)
}

// either gives the operands of a two-operand op in both orders until f accepts one.
func either(op *ir.Op, f func(x, y *ir.Value) bool) bool {
	return f(op.In[0], op.In[1]) || f(op.In[1], op.In[0])
}

// unexpand is v before it was repeated: its dims of size 1 still 1.
func unexpand(v *ir.Value) *ir.Value {
	for {
		e := algebra.Made(v, ops.ExpandDef)
		if e == nil {
			return v
		}
		v = e.In[0]
	}
}
