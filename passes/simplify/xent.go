package simplify

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/algebra"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// pair is a cross entropy and its gradient that can be one op. It takes the place of the op at.
type pair struct {
	loss, grad, at *ir.Op
	kind           pairKind
	scale          *ir.Value // of scaled: one element
}

// pairKind says what is known of dloss, the gradient that reaches the loss.
type pairKind int

const (
	constant pairKind = iota // one constant; at is the cross entropy itself
	weighted                 // the w of at = loss*w, the only reader of the loss
	scaled                   // w times the one element of scale, the loss scale of fp16, for at = loss*w
	mean                     // 1/n for at = sum(loss)/n, the only reader of the loss
)

// joinXent replaces pairs of xent and xent_grad by xent_both where dloss does not wait for the loss: it is one
// constant, the w of loss*w (sample weights under a plain sum), or the 1/n of a mean over n counted targets.
func joinXent(c *pass.Context, f *ir.Func) int {
	uses := f.Uses()
	for _, r := range f.Results {
		uses[r.Value] = append(uses[r.Value], nil)
	}
	pairs := map[*ir.Op]*pair{}
	for _, g := range f.Ops {
		if g.Def != ops.XentGradDef {
			continue
		}
		if p := findPair(g, uses); p != nil {
			if c.May(g.Out[0], "%s is computed together with the loss", g.Def.Name) {
				pairs[p.at] = p
			}
		} else {
			c.Remark(g.Out[0], "is not joined with its loss because the gradient that reaches the loss depends on other values")
		}
	}
	if len(pairs) == 0 {
		return 0
	}
	dlogits := map[*ir.Op]*ir.Value{}
	return c.Rewrite(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if d := dlogits[op]; d != nil {
			return []*ir.Value{d}
		}
		p := pairs[op]
		if p == nil {
			return nil
		}
		loss, d := p.join(b, op)
		name := p.grad.Out[0].Name
		b.Rename(p.grad.Out[0], name+".old")
		b.Rename(d, name)
		dlogits[p.grad] = d
		c.Remark(d, "is computed together with the loss because the gradient that reaches the loss is known before it")
		return []*ir.Value{loss}
	})
}

// join emits xent_both and what stands for the result of p.at, which is op.
func (p *pair) join(b *ir.Builder, op *ir.Op) (loss, dlogits *ir.Value) {
	row, ignore := p.loss.Out[0], p.loss.Attrs.(ops.XentAttrs).IgnoreIndex
	both := func(w *ir.Value) (loss, dlogits *ir.Value) {
		return ops.XentBoth(b, p.loss.In[0], p.loss.In[1], w, ignore)
	}
	switch p.kind {
	case weighted:
		return both(op.In[1-slices.Index(op.In, row)])
	case scaled:
		w := op.In[1-slices.Index(op.In, row)]
		by := ops.BroadcastTo(b, ops.Reshape(b, p.scale, nil), w.Type.Dims)
		loss, dlogits = both(ops.Mul(b, w, by))
		return ops.Div(b, loss, by), dlogits
	case mean:
		w := ops.Expand(b, ops.Recip(b, op.In[1]), row.Type.Dims)
		loss, dlogits = both(w)
		return ops.ReduceSum(b, loss, 0), dlogits
	}
	u, _ := algebra.Uniform(p.grad.In[2])
	loss, dlogits = both(ops.ScalarLike(b, row, u))
	if u != 1 {
		loss = ops.MulScalar(b, loss, 1/u)
	}
	return loss, dlogits
}

// findPair finds the cross entropy of the same logits and targets as the gradient g, and how they can be one op.
func findPair(g *ir.Op, uses map[*ir.Value][]*ir.Op) *pair {
	for _, l := range uses[g.In[0]] {
		if l == nil || l.Def != ops.XentDef || l.In[1] != g.In[1] || l.Attrs != g.Attrs {
			continue
		}
		p := &pair{loss: l, grad: g, at: l}
		if u, ok := algebra.Uniform(g.In[2]); ok && u != 0 {
			return p
		}
		p.at = only(uses, l.Out[0])
		switch {
		case p.at == nil:
		case p.at.Def == ops.MulDef && p.at.In[0] != p.at.In[1] && slices.Contains(p.at.In, g.In[2]):
			p.kind = weighted
			return p
		case p.at.Def == ops.MulDef && p.at.In[0] != p.at.In[1]:
			if p.kind, p.scale = scaled, scaleOf(g.In[2], p.at.In[1-slices.Index(p.at.In, l.Out[0])]); p.scale != nil {
				return p
			}
		case p.at.Def == ops.ReduceSumDef:
			e := algebra.Made(g.In[2], ops.ExpandDef)
			if p.at = only(uses, p.at.Out[0]); e == nil || p.at == nil || p.at.Def != ops.DivDef || p.at.In[0] == p.at.In[1] {
				return nil
			}
			if r := algebra.Made(e.In[0], ops.RecipDef); r != nil && r.In[0] == p.at.In[1] {
				p.kind = mean
				return p
			}
		}
		return nil
	}
	return nil
}

// scaleOf is the one element, made of state alone, that v is w times; nil when it is something else.
func scaleOf(v, w *ir.Value) *ir.Value {
	m := algebra.Made(v, ops.MulDef)
	if m == nil || !slices.Contains(m.In, w) {
		return nil
	}
	s := m.In[1-slices.Index(m.In, w)]
	for s.Op != nil && (s.Op.Def == ops.ExpandDef || s.Op.Def == ops.ReshapeDef) {
		s = s.Op.In[0]
	}
	if s.Op == nil && s.Role == ir.State && s.Type.Elems() == 1 {
		return s
	}
	if s.Type.Elems() != 1 || s.Op == nil || slices.ContainsFunc(s.Op.In, func(x *ir.Value) bool {
		return x.Role != ir.State && algebra.Made(x, ops.ConstDef) == nil && algebra.Made(x, ops.ReshapeDef) == nil
	}) || !slices.ContainsFunc(s.Op.In, func(x *ir.Value) bool { return x.Op == nil && x.Role == ir.State }) {
		return nil
	}
	return s
}

// only is the one op that reads v, nil when there are more or v is a result.
func only(uses map[*ir.Value][]*ir.Op, v *ir.Value) *ir.Op {
	if len(uses[v]) == 1 {
		return uses[v][0]
	}
	return nil
}
