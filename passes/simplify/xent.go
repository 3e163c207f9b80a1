package simplify

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/algebra"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// pair is a cross entropy and its gradient that can be one op.
type pair struct {
	loss, grad *ir.Op
	product    *ir.Op // loss*weight, the only reader of the loss, when the weight is not constant
}

// joinXent replaces pairs of xent and xent_grad by xent_both where the gradient's dloss does not wait for the
// loss: dloss is the w of loss*w (sample weights under a plain sum), or one constant.
func joinXent(c *pass.Context, f *ir.Func) int {
	uses := f.Uses()
	for _, r := range f.Results {
		uses[r.Value] = append(uses[r.Value], nil)
	}
	pairs := map[*ir.Op]*pair{} // by the op in whose place xent_both comes
	for _, g := range f.Ops {
		if g.Def != ops.XentGradDef {
			continue
		}
		if p := findPair(g, uses); p != nil {
			at := p.loss
			if p.product != nil {
				at = p.product
			}
			pairs[at] = p
		} else {
			c.Remark(g.Out[0], "is not joined with its loss because its incoming gradient depends on other values")
		}
	}
	if len(pairs) == 0 {
		return 0
	}
	dlogits := map[*ir.Op]*ir.Value{}
	return c.Rewrite(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if d := dlogits[op]; d != nil {
			b.Rename(op.Out[0], op.Out[0].Name+".old")
			return []*ir.Value{d}
		}
		p := pairs[op]
		if p == nil {
			return nil
		}
		dloss, scale := p.grad.In[2], 1.0
		if p.product == nil {
			u, _ := algebra.Uniform(dloss)
			scale = 1 / u
			dloss = ops.ScalarLike(b, p.loss.Out[0], u)
		} else {
			dloss = op.In[1-slices.Index(op.In, p.loss.Out[0])]
		}
		loss, d := ops.XentBoth(b, p.loss.In[0], p.loss.In[1], dloss, p.loss.Attrs.(ops.XentAttrs).IgnoreIndex)
		name := p.grad.Out[0].Name
		b.Rename(p.grad.Out[0], name+".old")
		b.Rename(d, name)
		dlogits[p.grad] = d
		c.Remark(d, "is computed together with the loss because the gradient that reaches the loss is known before it")
		if scale != 1 {
			loss = ops.MulScalar(b, loss, scale)
		}
		return []*ir.Value{loss}
	})
}

// findPair finds the cross entropy of the same logits and targets as the gradient g.
func findPair(g *ir.Op, uses map[*ir.Value][]*ir.Op) *pair {
	for _, l := range uses[g.In[0]] {
		if l == nil || l.Def != ops.XentDef || l.In[1] != g.In[1] || l.Attrs != g.Attrs {
			continue
		}
		if u, ok := algebra.Uniform(g.In[2]); ok && u != 0 {
			return &pair{loss: l, grad: g}
		}
		readers := uses[l.Out[0]]
		if len(readers) != 1 || readers[0] == nil || readers[0].Def != ops.MulDef {
			return nil
		}
		m := readers[0]
		if m.In[0] != m.In[1] && slices.Contains(m.In, g.In[2]) && g.In[2] != l.Out[0] {
			return &pair{loss: l, grad: g, product: m}
		}
	}
	return nil
}
