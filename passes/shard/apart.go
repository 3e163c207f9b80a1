package shard

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// whole lists the ops that need a dimension whole only because they are one op: their parts reduce it, and reductions
// of parts are combined over ranks. So cross entropy runs on logits of which each rank has some classes (Megatron-LM's
// vocabulary-parallel loss, arXiv:1909.08053), written as softmax too.
var whole = []*ir.Def{ops.XentDef, ops.XentGradDef, ops.XentBothDef, ops.SoftmaxDef, ops.SoftmaxGradDef, ops.LogSoftmaxDef, ops.LogSoftmaxGradDef, ops.ArgmaxDef}

// takeApart rewrites the ops of f that chosen tells (nil: all) of those that could run in more parts if they were
// several ops. It reports how many it rewrote.
func takeApart(c *pass.Context, f *ir.Func, chosen func(op *ir.Op) bool) int {
	biased := map[*ir.Value][2]*ir.Value{} // sum -> product, bias
	return c.Rewrite(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if op.Def == ops.ReshapeDef {
			return biasBehind(b, op, biased)
		}
		if chosen != nil && !chosen(op) {
			return nil
		}
		switch {
		case slices.Contains(whole, op.Def):
			return parts(b, op)
		case (op.Def == ops.MatMulDef || op.Def == ops.ConvDef) && len(op.In) > 2 && op.In[2] != nil:
			x := b.Emit(op.Def, op.Attrs, op.In[:2]...)
			dim := len(x.Type.Dims) - 1
			if op.Def == ops.ConvDef {
				dim = 1
			}
			y := ops.Add(b, x, along(b, op.In[2], dim, x.Type.Dims))
			if dim == 1 && len(x.Type.Dims) == 2 {
				biased[y] = [2]*ir.Value{x, op.In[2]}
			}
			return []*ir.Value{y}
		}
		return nil
	})
}

// parts decomposes op, and what of it decomposes into an op of those that need a dimension whole.
func parts(b *ir.Builder, op *ir.Op) []*ir.Value {
	mark := len(b.F.Ops)
	out := op.Def.Rules.Decompose(b, op)
	for i, v := range out {
		if v != nil && v.Op != nil && v.Op != op && slices.Contains(whole, v.Op.Def) && slices.Contains(b.F.Ops[mark:], v.Op) {
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
	biased := (op.Def == ops.MatMulDef || op.Def == ops.ConvDef) && len(op.In) > 2 && op.In[2] != nil
	if !biased && !slices.Contains(whole, op.Def) {
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
