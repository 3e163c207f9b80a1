package trainstep

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// right finds the cross entropy in a model's own loss, sum over count, and counts the rows whose greatest logit is the target's. It does so
// where count says which rows count, each of them once, by the same targets: then accuracy is what it is beside a loss of gtc's. Any
// other loss, with weights of classes or further terms, has none.
func (l *lossBuilder) right(sum, count *ir.Value) {
	rows, counted := summed(sum), summed(count)
	if rows == nil || counted == nil {
		return
	}
	xent := entropy(rows)
	if xent == nil || xent.Out[0].Type.Elems() != counted.Type.Elems() || !l.once(counted, bare(xent.In[1])) {
		return
	}
	b, n := l.b, counted.Type.Elems()
	best := ops.Reshape(b, ops.Argmax(b, xent.In[0], 1), []int{n})
	hit := ops.Cast(b, ops.Eq(b, best, ops.Reshape(b, xent.In[1], []int{n})), dtype.F32)
	l.correct = l.all(ops.Mul(b, hit, ops.Reshape(b, ops.Cast(b, counted, dtype.F32), []int{n})))
}

// bare is v before reshapes, repetitions and changes of type.
func bare(v *ir.Value) *ir.Value {
	for m := v.Moved(); m == ir.Keeps || m == ir.Repeats || m == ir.Casts && v.Op.In[0].Type.DType != dtype.Bool; m = v.Moved() {
		v = v.Op.In[0]
	}
	return v
}

// summed is what v, one number, is the sum of all elements of; nil when it is none.
func summed(v *ir.Value) *ir.Value {
	if v = bare(v); ops.Reduction(v.Op) != "sum" || v.Type.Elems() != 1 {
		return nil
	}
	return v.Op.In[0]
}

// entropy is the cross entropy of rows that v is, with weights or without; nil when v is anything else.
func entropy(v *ir.Value) *ir.Op {
	switch v = bare(v); {
	case v.Op == nil:
	case v.Op.Def == ops.XentDef: // the one loss that counts classes
		return v.Op
	case v.Op.Def.Rules.Multiplies:
		x, y := entropy(v.Op.In[0]), entropy(v.Op.In[1])
		if x != nil && y == nil {
			return x
		}
		if x == nil {
			return y
		}
	}
	return nil
}

// once reports whether v is 1 where target is not a number that is left out and else 0, but for the weights of samples.
func (l *lossBuilder) once(v, target *ir.Value) bool {
	weights, targets := 0, 0
	var all func(v *ir.Value) bool
	all = func(v *ir.Value) bool {
		v = bare(v)
		switch {
		case v.Op == nil:
			weights++
			return v.Role == ir.Weight
		case v.Op.Def.Rules.Multiplies:
			return all(v.Op.In[0]) && all(v.Op.In[1])
		case v.Moved() == ir.Casts && v.Op.In[0].Op != nil && v.Op.In[0].Op.Def == ops.NeDef: // a loss spells so which targets count
			ne := v.Op.In[0].Op
			c := bare(ne.In[1])
			targets++
			return bare(ne.In[0]) == target && c.Op != nil && ops.Literal(c.Op) != nil && c.Type.Elems() == 1
		}
		return false
	}
	return all(v) && targets == 1 && weights <= 1
}
