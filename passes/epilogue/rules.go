package epilogue

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// activation: relu or gelu of a product. The value before it is kept where the backward reads it.
func activation(fi *finder, op *ir.Op) *match {
	act := op.Activation()
	if act == "" || len(op.In) > 1 {
		return nil
	}
	p, alone := fi.from(op.In[0])
	if p == nil || attrs(p).Act != "" || len(p.Out) > 1 || !alone && act == "relu" || act == "gelu" && !fi.ours(p) {
		return nil
	}
	return &match{product: p, op: op, why: "the activation is its last step",
		attrs: func(a *ops.MatMulEpilogueAttrs) { a.Act, a.Keep = act, !alone }}
}

// derivative: the gradient of an activation, whose incoming gradient is a product.
func derivative(fi *finder, op *ir.Op) *match {
	var act string
	var at, dy *ir.Value
	switch {
	case op.Activation() != "" && len(op.In) == 2:
		act, at, dy = op.Activation(), op.In[0], op.In[1]
	case op.Def.Rules.Chooses && positive(op.In[0]) != nil && zero(op.In[2]): // relu has no op for its gradient
		act, at, dy = "drelu", positive(op.In[0]), op.In[1]
	default:
		return nil
	}
	p, alone := fi.from(dy)
	if p == nil || !alone || attrs(p).Act != "" || len(p.Out) > 1 || at.Type.DType != dy.Type.DType || !fi.before(at, p) || act != "dgelu_tanh" && !fi.ours(p) {
		return nil
	}
	return &match{product: p, op: op, aux: at, why: "the activation's derivative is its last step",
		attrs: func(a *ops.MatMulEpilogueAttrs) { a.Act = act }}
}

// positive is x where v is x > 0, else nil: so the gradient of relu begins.
func positive(v *ir.Value) *ir.Value {
	if v.Op == nil || v.Op.Def != ops.GtDef || !zero(v.Op.In[1]) {
		return nil
	}
	return v.Op.In[0]
}

// zero reports whether v is 0 everywhere.
func zero(v *ir.Value) bool {
	e, ok := group.Scalar(v)
	return ok && e.Op == "const" && e.Value == 0
}

// addend: a product is added to what is in memory anyway: an accumulator, or a value that others read too.
func addend(fi *finder, op *ir.Op) *match {
	if !op.Def.Rules.Adds {
		return nil
	}
	for i := range 2 {
		p, alone := fi.from(op.In[i])
		other := op.In[1-i]
		if p == nil || !alone || attrs(p).Act != "" || len(p.Out) > 1 || operand(p, 3) != nil || other == op.In[i] || !fi.before(other, p) || !fi.stored(other) {
			continue
		}
		return &match{product: p, op: op, add: other, why: "it adds what is there", attrs: func(*ops.MatMulEpilogueAttrs) {}}
	}
	return nil
}

// stored reports whether v is in memory whatever this pass does.
func (fi *finder) stored(v *ir.Value) bool {
	for v.Moved() == ir.Keeps {
		if fi.uses[v] > 1 {
			return true
		}
		v = v.Op.In[0]
	}
	return v.Op == nil || fi.uses[v] > 1 || isMatMul(v.Op)
}

// sums: the gradient of a bias is the sum over rows of a gradient that the product for the weight's gradient reads.
func sums(fi *finder, op *ir.Op) *match {
	if ops.Reduction(op) != "sum" || !slices.Equal(op.Attrs.(ops.ReduceAttrs).Dims, []int{0}) || len(op.In[0].Type.Dims) != 2 {
		return nil
	}
	x := op.In[0]
	if x.Moved() == ir.Casts {
		x = x.Op.In[0]
	}
	for _, p := range fi.readers[x] {
		a := attrs(p)
		if a.Sums != "" || len(p.Out[0].Type.Dims) != 2 || p.Out[0].Type.DType != op.Out[0].Type.DType {
			continue
		}
		if at, read := fi.first[op.Out[0]]; read && at < fi.pos[p] {
			continue
		}
		which := ""
		switch {
		case p.In[0] == x && a.TransA && p.In[1] != x:
			which = "a"
		case p.In[1] == x && !a.TransB && p.In[0] != x:
			which = "b"
		default:
			continue
		}
		part := 1
		if a.Keep {
			part = 2
		}
		return &match{product: p, op: op, part: part, why: "the sums are over what it reads",
			attrs: func(a *ops.MatMulEpilogueAttrs) { a.Sums = which }}
	}
	return nil
}
