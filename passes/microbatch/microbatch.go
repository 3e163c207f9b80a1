// Package microbatch cuts @step in time: @micro computes one micro-batch and adds what it sums over the batch to
// accumulators; @step computes the last one, adds the accumulators, and goes on to the collectives and the update.
//
// # Design
//
// shard made sure that a batch is split in time only when no sum over it meets the data of one micro-batch again.
// So every all_reduce over mesh.TimeAxis that spmd left is a border: before it lies the work of one micro-batch,
// behind it that of the whole step. Its operand v becomes, with state accum/<name> that is zero between steps,
//
//	@micro  accum <- accum + v
//	@step   total = accum + v, accum <- 0
//
// Reductions over ranks stand behind the border, so gradients are reduced once per step, not once per
// micro-batch. Buffers that each micro-batch updates (running statistics) are updated in both functions, in order,
// as PyTorch does. Results that are split over micro-batches (outputs of the model) are results of both.
//
// In a pipeline @step stays as it is: the stage pass cuts it at the same borders.
//
// @eval and @forward take a micro-batch as a smaller batch: their sums are added up by the run-time over calls, so
// the border falls away. What @eval computes from a sum is affine in it (pass shard saw to that), so that each
// micro-batch can give its part: terms that do not depend on the data, such as a weight decay within the loss, are
// divided by the number of micro-batches, so that they, too, add up, as a count that is a constant.
package microbatch

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/layout"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Run makes @micro when the mesh has micro-batches.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	n, pipeline := c.Module.Mesh.Size(mesh.TimeAxis), c.Module.Mesh.Size(mesh.PipelineAxis) > 1
	if n == 1 && !pipeline {
		return nil
	}
	var funcs []*ir.Func
	for _, f := range c.Module.Funcs {
		if f.Name == abi.FuncStep && pipeline { // cut by the stage pass, which needs the borders
			funcs = append(funcs, f)
			continue
		}
		if f.Name == abi.FuncStep {
			funcs = append(funcs, micro(c, f), f)
			last(c, f)
			continue
		}
		once(c, f, n)
		funcs = append(funcs, f)
	}
	c.Module.Funcs = funcs
	return nil
}

// border reports whether op sums over micro-batches.
func border(op *ir.Op) bool {
	return op.Def.Rules.Each && ops.Axis(op) == mesh.TimeAxis
}

// depends lists the values that depend on the data of the current micro-batch: not on the far side of a border.
func depends(f *ir.Func) map[*ir.Value]bool {
	on := map[*ir.Value]bool{}
	for _, p := range f.Params {
		on[p] = split(p.Sharding)
	}
	for _, op := range f.Ops {
		if border(op) {
			continue
		}
		part := ops.Axis(op) == mesh.TimeAxis && op.Move() == ir.Selects
		yes := part || slices.ContainsFunc(op.In, func(v *ir.Value) bool { return on[v] })
		for _, v := range op.Out {
			on[v] = yes
		}
	}
	return on
}

func split(s mesh.Sharding) bool {
	return slices.ContainsFunc(s.Dims, func(d []string) bool { return slices.Contains(d, mesh.TimeAxis) })
}

// micro is the function of all micro-batches but the last.
func micro(c *pass.Context, step *ir.Func) *ir.Func {
	f, _ := step.Clone()
	f.Name = abi.FuncMicro
	on := depends(f)
	f.Results = slices.DeleteFunc(f.Results, func(r ir.Result) bool { return !on[r.Value] })
	b := ir.NewBuilder(f)
	sums := 0
	for _, op := range f.Ops {
		if !border(op) {
			continue
		}
		sums++
		v := op.In[0]
		acc := b.Param(abi.Accum.Of(v.Name), v.Type, ir.State)
		b.Loc = c.Loc(op.Loc)
		acc.Sharding = op.Out[0].Sharding
		b.Update(acc, b.Rename(ops.Add(b, acc, v), acc.Name+".next"))
	}
	f.DCE()
	// Each addition right after its value, so that the value need not be kept.
	f.Ops = early(f.Ops, func(op *ir.Op) bool {
		return op.Def.Rules.Adds && op.In[0].Op == nil && op.In[0].Role == ir.State
	})
	c.Remark(nil, "@micro adds up %d values over %d micro-batches", sums, c.Module.Mesh.Size(mesh.TimeAxis))
	return f
}

// early moves the ops that light picks to right behind the last op that makes one of their operands.
func early(list []*ir.Op, light func(op *ir.Op) bool) []*ir.Op {
	pos := map[*ir.Op]int{}
	for i, op := range list {
		pos[op] = i
	}
	for _, op := range list {
		if !light(op) {
			continue
		}
		at := -1
		for _, v := range op.In {
			if v != nil && v.Op != nil {
				at = max(at, pos[v.Op])
			}
		}
		pos[op] = max(at, 0)
	}
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(x, y *ir.Op) int {
		if d := pos[x] - pos[y]; d != 0 {
			return d
		}
		return order(light(x)) - order(light(y))
	})
	return out
}

func order(light bool) int {
	if light {
		return 1
	}
	return 0
}

// last turns @step into the function of the last micro-batch.
func last(c *pass.Context, f *ir.Func) {
	b := ir.NewBuilder(f)
	type zero struct {
		acc *ir.Value
		loc ir.Loc
	}
	var zeros []zero
	list := f.Ops
	f.Ops = nil
	subst := map[*ir.Value]*ir.Value{}
	for _, op := range list {
		for i, v := range op.In {
			if w := subst[v]; w != nil {
				op.In[i] = w
			}
		}
		if !border(op) {
			f.Ops = append(f.Ops, op)
			continue
		}
		v := op.In[0]
		acc := b.Param(abi.Accum.Of(v.Name), v.Type, ir.State)
		b.Loc = c.Loc(op.Loc)
		total := ops.Add(b, acc, v)
		total.Sharding = op.Out[0].Sharding
		acc.Sharding = total.Sharding
		pass.TakeName(b, total, op.Out[0])
		subst[op.Out[0]] = total
		zeros = append(zeros, zero{acc, b.Loc})
	}
	f.ReplaceAll(subst)
	for _, z := range zeros {
		b.Loc = z.loc
		b.Update(z.acc, b.Rename(ops.Zeros(b, z.acc.Type), z.acc.Name+".next"))
	}
}

// once makes a function that is called with each micro-batch by itself.
func once(c *pass.Context, f *ir.Func, n int) {
	if n > 1 {
		shareOut(c, f, n)
	}
	c.Rewrite(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if border(op) {
			return []*ir.Value{op.In[0]}
		}
		return nil
	})
}

// shareOut divides by the n micro-batches what is added to sums over them, or takes the place of one.
func shareOut(c *pass.Context, f *ir.Func, n int) {
	on, sum := depends(f), map[*ir.Value]bool{}
	b := ir.NewBuilder(f)
	share := func(v *ir.Value, name string) *ir.Value {
		b.Loc = c.Loc(loc(v))
		c.Remark(v, "is divided in @%s by the %d micro-batches, over which it is added", f.Name, n)
		s := b.Rename(ops.MulScalar(b, v, 1/float64(n)), name+".share")
		s.Sharding = v.Sharding
		return s
	}
	list := f.Ops
	f.Ops = nil
	for _, op := range list {
		summed := border(op) || slices.ContainsFunc(op.In, func(v *ir.Value) bool { return sum[v] })
		if summed && !border(op) {
			for i, v := range op.In {
				if layout.Added(op, i) && !sum[v] {
					op.In[i] = share(v, v.Name)
				}
			}
		}
		f.Ops = append(f.Ops, op)
		for _, v := range op.Out {
			sum[v] = summed
		}
	}
	for i, r := range f.Results {
		if (r.Name == abi.LossSum || r.Name == abi.Count || r.Name == abi.Correct) && !on[r.Value] && !sum[r.Value] && r.Value.Type.DType == dtype.F32 {
			f.Results[i].Value = share(r.Value, r.Name)
		}
	}
}

func loc(v *ir.Value) ir.Loc {
	if v.Op != nil {
		return v.Op.Loc
	}
	return ir.Loc{Node: v.Name}
}
