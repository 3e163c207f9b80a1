package recognize

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/algebra"
)

// meanOf is x and the reduced dims when v is the mean of x over trailing dims, kept as size 1.
func meanOf(v *ir.Value) (x *ir.Value, dims int) {
	f, scale := product(v)
	if len(f) != 1 {
		return nil, 0
	}
	r := algebra.Made(f[0], ops.ReduceSumDef)
	if r == nil {
		return nil, 0
	}
	over, total := r.Attrs.(ops.ReduceAttrs).Dims, len(r.In[0].Type.Dims)
	n := 1
	for i, d := range over {
		if d != total-len(over)+i {
			return nil, 0
		}
		n *= r.In[0].Type.Dims[d]
	}
	if len(over) == 0 || !near(scale*float64(n), 1) {
		return nil, 0
	}
	return r.In[0], len(over)
}

// squareOf is d when v is d*d.
func squareOf(v *ir.Value) *ir.Value {
	if p := algebra.Made(v, ops.MulDef); p != nil && p.In[0] == p.In[1] {
		return p.In[0]
	}
	if p := algebra.Made(v, ops.PowDef); p != nil && isNear(p.In[1], 2) {
		return p.In[0]
	}
	return nil
}

// spread is d, the number of dims and eps when v is mean(d²)+eps.
func spread(v *ir.Value) (d *ir.Value, dims int, eps float64) {
	sum := algebra.Made(v, ops.AddDef)
	if sum == nil {
		return nil, 0, 0
	}
	either(sum, func(p, q *ir.Value) bool {
		e, ok := algebra.Uniform(q)
		if !ok || e < 0 {
			return false
		}
		sq, n := meanOf(p)
		if sq == nil {
			return false
		}
		d, dims, eps = squareOf(sq), n, e
		return d != nil
	})
	return d, dims, eps
}

// normalized splits x/sqrt(s) or x*rsqrt(s), s repeated over the row, into x and s.
func normalized(op *ir.Op) (x, s *ir.Value) {
	if op.Def == ops.DivDef {
		if r := algebra.Made(unexpand(op.In[1]), ops.SqrtDef); r != nil {
			return op.In[0], r.In[0]
		}
		return nil, nil
	}
	either(op, func(p, q *ir.Value) bool {
		if r := algebra.Made(unexpand(q), ops.RsqrtDef); r != nil {
			x, s = p, r.In[0]
		} else if r := algebra.Made(unexpand(q), ops.RecipDef); r != nil {
			if root := algebra.Made(r.In[0], ops.SqrtDef); root != nil {
				x, s = p, root.In[0]
			}
		}
		return x != nil
	})
	return x, s
}

// norm matches a normalised row without gain: layer norm when the mean was subtracted, else RMS norm.
func (m *matcher) norm(b *ir.Builder, op *ir.Op) *ir.Value {
	x, s := normalized(op)
	if x == nil {
		return nil
	}
	d, dims, eps := spread(s)
	if d != x || dims == 0 {
		return nil
	}
	a := ops.NormAttrs{Eps: eps, Dims: dims}
	if c := algebra.Made(x, ops.SubDef); c != nil {
		if mean, n := meanOf(unexpand(c.In[1])); mean == c.In[0] && mean != nil && n == dims {
			m.c.Remark(op.Out[0], "is layer_norm because it is (x-mean)/sqrt(var+%g) over %d dims", eps, dims)
			y, _, _ := ops.LayerNorm(b, c.In[0], nil, nil, a)
			return y
		}
	}
	m.c.Remark(op.Out[0], "is rms_norm because it is x/sqrt(mean(x²)+%g) over %d dims", eps, dims)
	y, _ := ops.RMSNorm(b, x, nil, a)
	return y
}

// row is v before it was repeated over leading dims, with the given trailing dims; nil when it is no such row.
func row(b *ir.Builder, v *ir.Value, dims []int) *ir.Value {
	r := unexpand(v)
	k := len(r.Type.Dims) - len(dims)
	if k < 0 || r.Type.Elems() != ir.Product(dims) || !slices.Equal(r.Type.Dims[k:], dims) {
		return nil
	}
	return ops.Reshape(b, r, dims)
}

// normGain takes a gain into the norm it multiplies.
func (m *matcher) normGain(b *ir.Builder, op *ir.Op) *ir.Value {
	var out *ir.Value
	either(op, func(y, gain *ir.Value) bool {
		n := y.Op
		if n == nil || n.Def != ops.LayerNormDef && n.Def != ops.RMSNormDef || y.Index != 0 || hasOperand(n, 1) || hasOperand(n, 2) {
			return false
		}
		a := n.Attrs.(ops.NormAttrs)
		g := row(b, gain, y.Type.Dims[len(y.Type.Dims)-a.Dims:])
		if g == nil {
			return false
		}
		if n.Def == ops.LayerNormDef {
			out, _, _ = ops.LayerNorm(b, n.In[0], g, nil, a)
		} else {
			out, _ = ops.RMSNorm(b, n.In[0], g, a)
		}
		m.c.Remark(op.Out[0], "is the gain of %s %%%s", n.Def.Name, y.Name)
		return true
	})
	return out
}

// normBias takes a bias into the layer norm, with gain, that it is added to.
func (m *matcher) normBias(b *ir.Builder, op *ir.Op) *ir.Value {
	var out *ir.Value
	either(op, func(y, bias *ir.Value) bool {
		n := algebra.Made(y, ops.LayerNormDef)
		if n == nil || y.Index != 0 || !hasOperand(n, 1) || hasOperand(n, 2) {
			return false
		}
		a := n.Attrs.(ops.NormAttrs)
		r := row(b, bias, y.Type.Dims[len(y.Type.Dims)-a.Dims:])
		if r == nil {
			return false
		}
		out, _, _ = ops.LayerNorm(b, n.In[0], n.In[1], r, a)
		m.c.Remark(op.Out[0], "is the bias of layer_norm %%%s", y.Name)
		return true
	})
	return out
}

func hasOperand(op *ir.Op, i int) bool { return i < len(op.In) && op.In[i] != nil }
