package recognize

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/algebra"
)

// maxFactors bounds the product that is flattened.
const maxFactors = 6

// product flattens a tree of multiplications and constant divisions into its factors and a constant. It does not
// look into the values of whole.
func product(v *ir.Value, whole ...*ir.Value) (factors []*ir.Value, scale float64) {
	scale = 1
	work := []*ir.Value{v}
	for len(work) > 0 && len(factors)+len(work) <= maxFactors {
		v := work[len(work)-1]
		work = work[:len(work)-1]
		if slices.Contains(whole, v) {
			factors = append(factors, v)
			continue
		}
		if u, ok := algebra.Uniform(v); ok {
			scale *= u
			continue
		}
		if op := algebra.Made(v, ops.MulDef); op != nil {
			work = append(work, op.In[1], op.In[0])
			continue
		}
		if op := algebra.Made(v, ops.DivDef); op != nil {
			if u, ok := algebra.Uniform(op.In[1]); ok {
				scale /= u
				work = append(work, op.In[0])
				continue
			}
		}
		factors = append(factors, v)
	}
	return append(factors, work...), scale
}

// onePlus is u of 1+u, nil when v is no such sum.
func onePlus(v *ir.Value) *ir.Value {
	op := algebra.Made(v, ops.AddDef)
	if op == nil {
		return nil
	}
	var u *ir.Value
	either(op, func(x, y *ir.Value) bool {
		if isNear(x, 1) {
			u = y
		}
		return u != nil
	})
	return u
}

// gelu matches x/2*(1+erf(x/sqrt 2)) and x/2*(1+tanh(sqrt(2/pi)*(x+0.044715x³))), in any grouping.
func (m *matcher) gelu(b *ir.Builder, op *ir.Op) *ir.Value {
	factors, _ := product(op.Out[0])
	for _, f := range factors {
		u := onePlus(f)
		if u == nil || u.Op == nil || u.Op.Def != ops.ErfDef && u.Op.Def != ops.TanhDef {
			continue
		}
		for _, x := range arguments(u.Op.In[0]) {
			rest, scale := product(op.Out[0], x, f)
			if len(rest) != 2 || !slices.Contains(rest, x) || !slices.Contains(rest, f) || !near(scale, 0.5) {
				continue
			}
			switch {
			case u.Op.Def == ops.ErfDef && isScaled(u.Op.In[0], x, math.Sqrt(0.5)):
				m.c.Remark(op.Out[0], "is gelu because it is x/2*(1+erf(x/√2))")
				return ops.Gelu(b, x, false)
			case u.Op.Def == ops.TanhDef && isTanhArgument(u.Op.In[0], x):
				m.c.Remark(op.Out[0], "is gelu in its tanh form because it is x/2*(1+tanh(√(2/π)*(x+0.044715x³)))")
				return ops.Gelu(b, x, true)
			}
		}
	}
	return nil
}

// arguments lists what x may be in a function's argument: scaled, or a term of a scaled sum, or a factor.
func arguments(v *ir.Value) []*ir.Value {
	scale := 1.0
	x := stripScale(v, &scale)
	out := []*ir.Value{x}
	if sum := algebra.Made(x, ops.AddDef); sum != nil {
		out = append(out, sum.In...)
	}
	if p := algebra.Made(x, ops.MulDef); p != nil {
		out = append(out, p.In...)
	}
	return out
}

// isScaled reports whether v is x times the constant c.
func isScaled(v, x *ir.Value, c float64) bool {
	f, scale := product(v, x)
	return len(f) == 1 && f[0] == x && near(scale, c)
}

// isTanhArgument reports whether v is sqrt(2/pi)*(x + 0.044715x³), the sum factored or not.
func isTanhArgument(v, x *ir.Value) bool {
	f, scale := product(v, x)
	if !near(scale, math.Sqrt(2/math.Pi)) {
		return false
	}
	if len(f) == 1 {
		sum := algebra.Made(f[0], ops.AddDef)
		return sum != nil && either(sum, func(p, q *ir.Value) bool { return p == x && isPower(q, x, 3) })
	}
	for i := range f { // x * (1 + 0.044715x²)
		if len(f) == 2 && f[1-i] == x {
			if u := onePlus(f[i]); u != nil && isPower(u, x, 2) {
				return true
			}
		}
	}
	return false
}

// isPower reports whether v is 0.044715 times x to the power n.
func isPower(v, x *ir.Value, n int) bool {
	f, scale := product(v, x)
	if !near(scale, 0.044715) {
		return false
	}
	if len(f) == 1 && f[0] != x {
		p := algebra.Made(f[0], ops.PowDef)
		return p != nil && p.In[0] == x && isNear(p.In[1], float64(n))
	}
	return len(f) == n && !slices.ContainsFunc(f, func(g *ir.Value) bool { return g != x })
}

// silu matches x*sigmoid(x).
func (m *matcher) silu(b *ir.Builder, op *ir.Op) *ir.Value {
	var x *ir.Value
	either(op, func(p, q *ir.Value) bool {
		if s := algebra.Made(q, ops.SigmoidDef); s != nil && s.In[0] == p {
			x = p
		}
		return x != nil
	})
	if x == nil {
		return nil
	}
	m.c.Remark(op.Out[0], "is silu because it is x*sigmoid(x)")
	return ops.Silu(b, x)
}

// logSoftmax matches log(softmax(x)).
func (m *matcher) logSoftmax(b *ir.Builder, op *ir.Op) *ir.Value {
	s := algebra.Made(op.In[0], ops.SoftmaxDef)
	if s == nil {
		return nil
	}
	m.c.Remark(op.Out[0], "is log_softmax because it is log(softmax(x)), which underflows")
	return ops.LogSoftmax(b, s.In[0], s.Attrs.(ops.SoftmaxAttrs).Dim)
}

// logSigmoid matches log(sigmoid(x)), as exporters write torch.nn.functional.logsigmoid.
func (m *matcher) logSigmoid(b *ir.Builder, op *ir.Op) *ir.Value {
	s := algebra.Made(op.In[0], ops.SigmoidDef)
	if s == nil {
		return nil
	}
	m.c.Remark(op.Out[0], "is -softplus(-x) because it is log(sigmoid(x)), which underflows")
	return ops.Neg(b, ops.Softplus(b, ops.Neg(b, s.In[0])))
}

// pickIgnore is the ignored target of a raised cross entropy: PyTorch's default, which a gather of classes
// could not have read.
const pickIgnore = -100

// xent matches -log_softmax(x)[r, t[r]] for x [R,C]; the picked column may have been reshaped to [R].
func (m *matcher) xent(b *ir.Builder, op *ir.Op) *ir.Value {
	v := op.In[0]
	if r := algebra.Made(v, ops.ReshapeDef); r != nil {
		v = r.In[0]
	}
	g := algebra.Made(v, ops.GatherElementsDef)
	if g == nil || g.Attrs.(ops.GatherElementsAttrs).Dim != 1 || len(v.Type.Dims) != 2 || v.Type.Dims[1] != 1 {
		return nil
	}
	l := algebra.Made(g.In[0], ops.LogSoftmaxDef)
	if l == nil || l.Attrs.(ops.SoftmaxAttrs).Dim != 1 || v.Type.Dims[0] != g.In[0].Type.Dims[0] || m.trained[g.In[1]] {
		return nil
	}
	m.c.Remark(op.Out[0], "is xent because it is -log_softmax(x) at the target")
	loss := ops.Xent(b, l.In[0], ops.Reshape(b, g.In[1], v.Type.Dims[:1]), pickIgnore)
	return ops.Reshape(b, loss, op.Out[0].Type.Dims)
}

// matmulBias takes a row added to every row of a product into the matmul.
func (m *matcher) matmulBias(b *ir.Builder, op *ir.Op) *ir.Value {
	var mm *ir.Op
	var row *ir.Value
	either(op, func(x, y *ir.Value) bool {
		p, r := algebra.Made(x, ops.MatMulDef), unexpand(y)
		if p == nil || len(p.In) > 2 && p.In[2] != nil || !m.single(x) {
			return false
		}
		n := x.Type.Dims[len(x.Type.Dims)-1]
		if r == y || r.Type.Elems() != n || r.Type.Dims[len(r.Type.Dims)-1] != n {
			return false
		}
		mm, row = p, r
		return true
	})
	if mm == nil {
		return nil
	}
	a := mm.Attrs.(ops.MatMulAttrs)
	m.c.Remark(op.Out[0], "is the bias of matmul %%%s because it adds one row to every row", mm.Out[0].Name)
	bias := ops.Reshape(b, row, []int{row.Type.Elems()})
	return ops.MatMulBias(b, mm.In[0], mm.In[1], bias, a.TransA, a.TransB)
}
