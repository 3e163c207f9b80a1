package shard

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// takeApart rewrites the ops of f that chosen tells (nil: all) of those that could run in more parts if they were
// several ops, because they need a dimension whole only as one: reductions of parts are combined over ranks. So cross
// entropy runs on logits of which each rank has some classes (Megatron-LM's vocabulary-parallel loss, arXiv:1909.08053),
// written as softmax too. It reports how many it rewrote.
func takeApart(c *pass.Context, f *ir.Func, chosen func(op *ir.Op) bool) int {
	biased := map[*ir.Value][2]*ir.Value{} // sum -> product, bias
	return c.Rewrite(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if op.Move() == ir.Keeps {
			return biasBehind(b, op, biased)
		}
		if chosen != nil && !chosen(op) {
			return nil
		}
		if op.Apart() {
			return parts(b, op)
		}
		bias, dim := op.Bias()
		if bias == nil {
			return nil
		}
		x := b.Emit(op.Def, op.Attrs, op.In[:2]...)
		if t := x.Type.DType; bias.Type.DType != t { // a product that is stored wide, such as one of which the loss is taken
			bias = ops.Cast(b, bias, t)
		}
		y := ops.Add(b, x, along(b, bias, dim, x.Type.Dims))
		if dim == 1 && len(x.Type.Dims) == 2 {
			biased[y] = [2]*ir.Value{x, bias}
		}
		return []*ir.Value{y}
	})
}

// parts decomposes op, and what of it decomposes into an op of those that need a dimension whole.
func parts(b *ir.Builder, op *ir.Op) []*ir.Value {
	mark := len(b.F.Ops)
	out := op.Def.Rules.Decompose(b, op)
	for i, v := range out {
		if v != nil && v.Op != nil && v.Op != op && v.Op.Apart() && slices.Contains(b.F.Ops[mark:], v.Op) {
			out[i] = parts(b, v.Op)[v.Index]
		}
	}
	return out
}

// along expands v, a vector, to dims along dim.
func along(b *ir.Builder, v *ir.Value, dim int, dims []int) *ir.Value {
	shape := slices.Repeat([]int{1}, len(dims))
	shape[dim] = dims[dim]
	return ops.Expand(b, ops.Reshape(b, v, shape), dims)
}

// biasBehind adds a bias behind the reshape that gives rows their dims (samples, positions) back, so that the sum that
// ranks must finish before it is one over whole samples, of which either dim can be split (sequence parallelism).
func biasBehind(b *ir.Builder, op *ir.Op, biased map[*ir.Value][2]*ir.Value) []*ir.Value {
	pair, ok := biased[op.In[0]]
	dims := op.Out[0].Type.Dims
	if n := len(dims); !ok || n < 3 || dims[n-1] != op.In[0].Type.Dims[1] {
		return nil
	}
	return []*ir.Value{ops.Add(b, ops.Reshape(b, pair[0], dims), along(b, pair[1], len(dims)-1, dims))}
}

// blocks reports whether op, as it is laid out, puts an operand together over axis that its parts could take as it is.
func (a *annotator) blocks(op *ir.Op, axis string) bool {
	if bias, _ := op.Bias(); bias == nil && !op.Apart() {
		return false
	}
	plan := a.plan(op)
	for i, v := range op.In {
		if v == nil || i > 1 {
			continue
		}
		for d := range v.Type.Dims {
			if slices.Contains(v.Sharding.Axes(d), axis) && !slices.Contains(plan.In[i].Axes(d), axis) {
				return true
			}
		}
	}
	return false
}

func splitOver(s mesh.Sharding, axis string) bool {
	return slices.ContainsFunc(s.Dims, func(list []string) bool { return slices.Contains(list, axis) })
}
