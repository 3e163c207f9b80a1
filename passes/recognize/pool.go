package recognize

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/algebra"
)

// pool moves what never turns the order of two numbers round (relu, the sum with a number per channel) from
// before a max_pool to after it, where there are fewer elements: max(relu(x)) = relu(max(x)) and
// max(x+b) = max(x)+b exactly, as rounding keeps the order too. Gradients stay those of the spelled form: a
// window whose maximum relu cuts has none in either. Where several inputs are equal only after the moved op,
// the gradient goes to the largest of them, so nothing may read the positions.
func (m *matcher) pool(b *ir.Builder, op *ir.Op) []*ir.Value {
	if len(m.uses[op.Out[1]]) > 0 {
		return nil
	}
	var after []*ir.Op // innermost last
	x := op.In[0]
	for x.Op != nil && m.single(x) && (x.Op.Def == ops.ReluDef || perChannel(x.Op) != nil) {
		after = append(after, x.Op)
		x = x.Op.In[0]
	}
	if len(after) == 0 {
		return nil
	}
	y, idx := ops.MaxPool(b, x, op.Attrs.(ops.MaxPoolAttrs))
	for i := len(after) - 1; i >= 0; i-- {
		if after[i].Def == ops.ReluDef {
			y = ops.Relu(b, y)
		} else {
			y = ops.Add(b, y, ops.Expand(b, perChannel(after[i]), y.Type.Dims))
		}
	}
	m.c.Remark(op.Out[0], "is pooled before %%%s: the order of numbers is the same there, and fewer are left after it", after[len(after)-1].Out[0].Name)
	return []*ir.Value{y, idx}
}

// perChannel is the second operand of a sum before it was repeated, when it does not vary within a plane.
func perChannel(op *ir.Op) *ir.Value {
	if op.Def != ops.AddDef {
		return nil
	}
	row := unexpand(op.In[1])
	if row == op.In[1] {
		return nil
	}
	for d, n := range row.Type.Dims {
		if d >= 2 && n != 1 {
			return nil
		}
	}
	if _, uniform := algebra.Uniform(row); uniform {
		return nil
	}
	return row
}
