package recognize

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/algebra"
)

// candidate is a softmax(scores)·v while it is being matched.
type candidate struct {
	q, k, v *ir.Value // [B,H,S,D]; k and v may have fewer heads once repetition was absorbed
	scale   float64
	terms   []*maskTerm
	dropout *ir.Op // of the probabilities; nil without
}

// attention matches softmax(scale*q·kᵀ + mask)·v at its last product.
func (m *matcher) attention(b *ir.Builder, op *ir.Op) *ir.Value {
	a := op.Attrs.(ops.MatMulAttrs)
	probs := op.In[0]
	dropout := m.dropout(probs)
	if dropout != nil {
		probs = dropout.In[0]
	}
	soft, guarded := softmaxOf(probs)
	if soft == nil || hasOperand(op, 2) || a.TransA {
		return nil
	}
	c, why := m.match(b, op, probs, soft, guarded)
	if why != "" {
		m.c.Remark(op.Out[0], "is not raised to attention because %s", why)
		return nil
	}
	n := len(op.Out[0].Type.Dims)
	attrs := ops.AttentionAttrs{Scale: c.scale}
	mask, why := m.mask(b, c, n, &attrs)
	if why != "" {
		m.c.Remark(op.Out[0], "is not raised to attention because %s", why)
		return nil
	}
	c.dropout = dropout
	if n == 3 { // [N,S,D]: one head
		for _, v := range []**ir.Value{&c.q, &c.k, &c.v} {
			d := (*v).Type.Dims
			*v = ops.Reshape(b, *v, []int{d[0], 1, d[1], d[2]})
		}
	}
	how := m.describe(c, attrs, mask)
	if q, k, v := heads(c.q), heads(c.k), heads(c.v); q != nil && k != nil && v != nil {
		attrs.Layout = "bshd"
		out, lse := c.emit(b, attrs, q, k, v, mask)
		b.Rename(out, op.Out[0].Name+".bshd")
		b.Rename(lse, op.Out[0].Name+".lse")
		m.c.Remark(op.Out[0], "%s, in the layout [batch,sequence,head,feature]", how)
		return ops.Transpose(b, out, []int{0, 2, 1, 3})
	}
	out, lse := c.emit(b, attrs, c.q, c.k, c.v, mask)
	b.Rename(lse, op.Out[0].Name+".lse")
	m.c.Remark(op.Out[0], "%s", how)
	return ops.Reshape(b, out, op.Out[0].Type.Dims)
}

// dropout is the dropout that makes v, where the target's kernels have it: it draws the same numbers inside attention.
func (m *matcher) dropout(v *ir.Value) *ir.Op {
	d := algebra.Made(v, ops.DropoutDef)
	if d == nil || !m.c.Traits().AttentionDropout || d.Attrs.(ops.DropoutAttrs).P == 0 || !m.single(d.In[0]) {
		return nil
	}
	return d
}

func (c *candidate) emit(b *ir.Builder, a ops.AttentionAttrs, q, k, v, mask *ir.Value) (out, lse *ir.Value) {
	if c.dropout == nil {
		return ops.Attention(b, a, q, k, v, mask)
	}
	d := c.dropout.Attrs.(ops.DropoutAttrs)
	a.P, a.Seed = d.P, d.Seed
	return ops.AttentionDropout(b, a, c.dropout.In[1], q, k, v, mask)
}

func (m *matcher) describe(c *candidate, a ops.AttentionAttrs, mask *ir.Value) string {
	s := fmt.Sprintf("is attention with scale %.4g", a.Scale)
	switch {
	case a.Window > 0:
		s += fmt.Sprintf(", causal with a window of %d keys because the constant mask hides exactly the others", a.Window)
	case a.Causal:
		s += ", causal because the constant mask hides exactly the later keys"
	}
	if c.dropout != nil {
		s += fmt.Sprintf(", with dropout of %g", c.dropout.Attrs.(ops.DropoutAttrs).P)
	}
	if mask != nil {
		s += fmt.Sprintf(", with mask %%%s", mask.Name)
	}
	if h, kv := c.q.Type.Dims[1], c.k.Type.Dims[1]; h != kv {
		s += fmt.Sprintf(", %d query heads to each of %d key heads", h/kv, kv)
	}
	return s
}

// softmaxOf is the softmax that makes v; guarded when v replaces NaN rows (no visible key) by zeros, as
// PyTorch's scaled_dot_product_attention does.
func softmaxOf(v *ir.Value) (soft *ir.Op, guarded bool) {
	if w := algebra.Made(v, ops.WhereDef); w != nil && isNear(w.In[1], 0) {
		if n := algebra.Made(w.In[0], ops.IsNaNDef); n != nil && n.In[0] == w.In[2] {
			return algebra.Made(w.In[2], ops.SoftmaxDef), true
		}
	}
	return algebra.Made(v, ops.SoftmaxDef), false
}

// match finds q, k, v, scale and mask terms, or says what does not fit ("" when all does).
func (m *matcher) match(b *ir.Builder, op *ir.Op, probs *ir.Value, soft *ir.Op, guarded bool) (*candidate, string) {
	n := len(op.Out[0].Type.Dims)
	switch {
	case n != 3 && n != 4:
		return nil, fmt.Sprintf("the product has %d dims", n)
	case len(op.In[1].Type.Dims) != n:
		return nil, "its right operand is shared by all heads"
	case soft.Attrs.(ops.SoftmaxAttrs).Dim != n-1:
		return nil, fmt.Sprintf("the softmax is over dim %d, not over keys", soft.Attrs.(ops.SoftmaxAttrs).Dim)
	case !m.single(probs) || !guarded && !m.single(soft.Out[0]):
		return nil, "the probabilities are read elsewhere too"
	}
	c := &candidate{scale: 1}
	scores, why := m.peel(c, soft.In[0])
	if scores == nil {
		return nil, why
	}
	a := scores.Attrs.(ops.MatMulAttrs)
	if a.TransA || hasOperand(scores, 2) || len(scores.In[1].Type.Dims) != n {
		return nil, "the scores are not a plain product of queries and keys"
	}
	c.q = stripScale(scores.In[0], &c.scale)
	k := stripScale(scores.In[1], &c.scale)
	if !a.TransB {
		k = swapLast(b, k)
	}
	c.k = stripScale(k, &c.scale)
	c.v = op.In[1]
	if op.Attrs.(ops.MatMulAttrs).TransB {
		c.v = swapLast(b, c.v)
	}
	if n == 4 {
		k, v := unrepeat(c.k), unrepeat(c.v)
		if k != nil && v != nil && k.Type.Dims[1] == v.Type.Dims[1] {
			c.k, c.v = k, v
		}
	}
	return c, ""
}

// peel goes from the softmax's operand to the product of queries and keys through scales and masks. The scale
// found so far multiplies the scores only, so a scale outside a mask scales the mask too: that is refused
// unless the mask is made of zeros and minus infinities.
func (m *matcher) peel(c *candidate, v *ir.Value) (*ir.Op, string) {
	for {
		if mm := algebra.Made(v, ops.MatMulDef); mm != nil {
			return mm, ""
		}
		if w := stripScale(v, &c.scale); w != v {
			v = w
			continue
		}
		next, term, why := m.maskStep(v)
		if why != "" {
			return nil, why
		}
		if term == nil {
			return nil, "the softmax is not of a product"
		}
		if c.scale != 1 && !term.infinite {
			return nil, "a scale is applied after a finite mask"
		}
		c.terms = append(c.terms, term)
		v = next
	}
}

// stripScale removes multiplication and division by constants, collecting them in scale.
func stripScale(v *ir.Value, scale *float64) *ir.Value {
	for v.Op != nil {
		op := v.Op
		switch op.Def {
		case ops.MulDef:
			x, y := op.In[0], op.In[1]
			u, ok := algebra.Uniform(y)
			if !ok {
				x, y = y, x
				u, ok = algebra.Uniform(y)
			}
			if !ok {
				return v
			}
			*scale *= u
			v = x
		case ops.DivDef:
			u, ok := algebra.Uniform(op.In[1])
			if !ok {
				return v
			}
			*scale /= u
			v = op.In[0]
		default:
			return v
		}
	}
	return v
}

// swapLast exchanges the last two dims of v, joined with the transpose that makes v.
func swapLast(b *ir.Builder, v *ir.Value) *ir.Value {
	n := len(v.Type.Dims)
	perm := ops.AllDims(v)
	perm[n-2], perm[n-1] = n-1, n-2
	if t := algebra.Made(v, ops.TransposeDef); t != nil {
		inner := t.Attrs.(ops.TransposeAttrs).Perm
		for i, p := range perm {
			perm[i] = inner[p]
		}
		v = t.In[0]
	}
	return ops.Transpose(b, v, perm)
}

// unrepeat is x[B,Hkv,S,D] when v[B,H,S,D] repeats each head of x for a group of query heads:
// reshape(expand(reshape(x, [B,Hkv,1,S,D]), [B,Hkv,G,S,D]), [B,H,S,D]). Nil when v is not made so.
func unrepeat(v *ir.Value) *ir.Value {
	r := algebra.Made(v, ops.ReshapeDef)
	if r == nil {
		return nil
	}
	e := algebra.Made(r.In[0], ops.ExpandDef)
	if e == nil {
		return nil
	}
	from, to, d := e.In[0].Type.Dims, e.Out[0].Type.Dims, v.Type.Dims
	if len(from) != 5 || from[2] != 1 || !slices.Equal(slices.Delete(slices.Clone(from), 2, 3), slices.Delete(slices.Clone(to), 2, 3)) ||
		!slices.Equal(d, []int{to[0], to[1] * to[2], to[3], to[4]}) {
		return nil
	}
	x := algebra.Made(e.In[0], ops.ReshapeDef)
	if x == nil || !slices.Equal(x.In[0].Type.Dims, []int{to[0], to[1], to[3], to[4]}) {
		return nil
	}
	return x.In[0]
}

// heads is x[B,S,H,D] when v is its transpose to [B,H,S,D].
func heads(v *ir.Value) *ir.Value {
	if t := algebra.Made(v, ops.TransposeDef); t != nil && slices.Equal(t.Attrs.(ops.TransposeAttrs).Perm, []int{0, 2, 1, 3}) {
		return t.In[0]
	}
	return nil
}
