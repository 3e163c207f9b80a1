package normalize

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// orderRows puts the rows of linear layers in the order that needs fewest transposes. PyTorch's
// nn.MultiheadAttention computes with tokens before samples, also where its input and its output are the other
// way around:
//
//	transpose(reshape(matmul(reshape(transpose(x)), w, bias)))    the projection of its output
//	matmul(transpose(x), w) + expand(bias)                        the projections of its input
//
// The rows of a matmul do not depend on each other. In the first the outer transpose may as well come before the
// matmul, where it meets the inner one; in the second it may come after it, where others follow. Both are
// done where samples come first afterwards: joined, the rows can then be split over ranks and micro-batches.
func orderRows(c *pass.Context, f *ir.Func) int {
	uses := f.Uses()
	for _, r := range f.Results {
		uses[r.Value] = append(uses[r.Value], nil)
	}
	alone := func(v *ir.Value) *ir.Op {
		if len(uses[v]) != 1 {
			return nil
		}
		return v.Op
	}
	samples := samplesOf(f)
	return c.Improve(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if perm := ops.Perm(op); perm != nil {
			if split := alone(op.In[0]); split != nil && split.Move() == ir.Keeps {
				if m := alone(split.In[0]); isMatMul(m) && perm[0] == samples[m] {
					return rowsBefore(b, op, m)
				}
			}
		}
		if !op.Def.Rules.Adds {
			return nil
		}
		for i, v := range op.In {
			if m, e := alone(v), op.In[1-i]; isMatMul(m) && e.Moved() == ir.Repeats && samples[m] == 0 {
				return rowsAfter(b, m, e.Op)
			}
		}
		return nil
	})
}

// isMatMul reports whether op is the product that linear layers are.
func isMatMul(op *ir.Op) bool {
	_, ok := ops.AsMatMul(op)
	return ok
}

// samplesOf is the dim of the samples of what the matmuls of f read transposed or reshaped, -1 when there is none. It
// is the first of all inputs.
func samplesOf(f *ir.Func) map[*ir.Op]int {
	samples, at := map[*ir.Op]int{}, map[*ir.Value]int{}
	for _, p := range f.Params {
		if p.Role == ir.Input {
			at[p] = 0
		}
	}
	for _, op := range f.Ops {
		if isMatMul(op) {
			samples[op] = -1
			if x := op.In[0]; x.Moved().Whole() {
				if d, ok := at[x.Op.In[0]]; ok {
					samples[op] = d
				}
			}
		}
		if op.Def.Rules.Factors != nil {
			carry(op, at)
		}
	}
	return samples
}

// carry finds the dims of samples of op's results from those of its operands.
func carry(op *ir.Op, at map[*ir.Value]int) {
	r := op.Def.Rules.Factors(op)
	for i, v := range op.In {
		d, ok := at[v]
		if !ok || i >= len(r.In) || d >= len(r.In[i]) || len(r.In[i][d]) == 0 {
			continue
		}
		for o, dims := range r.Out {
			for e, dim := range dims {
				if len(dim) > 0 && dim[0] == r.In[i][d][0] {
					at[op.Out[o]] = e
				}
			}
		}
	}
}

// rowsAfter is product m plus e, a row expanded, computed of what the transpose that m reads reads, and then
// transposed; nil when m reads none that moves only rows, the samples among them.
func rowsAfter(b *ir.Builder, m, e *ir.Op) []*ir.Value {
	a, perm := m.Attrs.(ops.MatMulAttrs), ops.Perm(m.In[0].Op)
	row := e.In[0].Type
	if perm == nil || a.TransA || len(m.In) > 2 || len(m.In[1].Type.Dims) != 2 || row.Elems() != row.Dims[len(row.Dims)-1] {
		return nil
	}
	if last := len(perm) - 1; last < 2 || perm[0] == 0 || perm[last] != last {
		return nil
	}
	y := ops.MatMulT(b, m.In[0].Op.In[0], m.In[1], false, a.TransB)
	y = ops.Add(b, y, ops.Expand(b, e.In[0], y.Type.Dims))
	return []*ir.Value{ops.Transpose(b, y, perm)}
}

// rowsBefore is the result of the transpose t, which reads product m with its rows taken apart, computed of a
// transpose of what m reads, another one with its dims joined to rows and columns; nil when m reads something
// else, or its rows are other dims.
func rowsBefore(b *ir.Builder, t, m *ir.Op) []*ir.Value {
	if m.In[0].Moved() != ir.Keeps || m.In[0].Op.In[0].Moved() != ir.Permutes {
		return nil
	}
	x := m.In[0].Op.In[0]
	a, perm := m.Attrs.(ops.MatMulAttrs), ops.Perm(t)
	lead := len(perm) - 1 // dims of t's operand that are rows
	dims, from := t.In[0].Type.Dims, x.Type.Dims
	if a.TransA || len(m.In[0].Type.Dims) != 2 || len(m.In[1].Type.Dims) != 2 || lead < 2 || perm[lead] != lead ||
		dims[lead] != m.Out[0].Type.Dims[1] || len(from) <= lead || !slices.Equal(dims[:lead], from[:lead]) {
		return nil
	}
	all := slices.Clone(perm[:lead])
	for d := lead; d < len(from); d++ {
		all = append(all, d)
	}
	in := make([]int, lead+1)
	for i, p := range perm[:lead] {
		in[i] = from[p]
	}
	in[lead] = m.In[0].Type.Dims[1]
	rows := ops.Reshape(b, ops.Transpose(b, x, all), in)
	var bias *ir.Value
	if len(m.In) > 2 {
		bias = m.In[2]
	}
	return []*ir.Value{ops.MatMulBias(b, rows, m.In[1], bias, false, a.TransB)}
}
