package compress

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Local SGD: between two averages each data-parallel rank trains by itself on its own part of the batch. Its gradient is
// the mean over its own targets, its clipping by its own norm, and its optimizer state is its own, also across averages, as in
// PyTorch's PostLocalSGDOptimizer. @average, which the run-time calls every Options.GradComm.Period steps, makes each
// parameter the mean over the ranks. Loss and count of a step are still added over the ranks, for the report; so are the
// statistics of BatchNorm.
//
// With Options.GradComm.After, @step stays as it is, for the first steps, and @local is the step of one rank.
func local(c *pass.Context, f *ir.Func, grads []gradient) error {
	if err := understood(f, grads); err != nil {
		return err
	}
	ranks := c.Module.Mesh.Size(axis)
	if c.Opt.GradComm.After > 0 {
		g, to := f.Clone()
		g.Name = abi.FuncLocal
		c.Module.Funcs = append(c.Module.Funcs, g)
		for i := range grads {
			grads[i].param, grads[i].op = to[grads[i].param], to[grads[i].op.Out[0]].Op
		}
		f = g
	}
	b := ir.NewBuilder(f)
	place := map[*ir.Op]int{}
	for i, op := range f.Ops {
		place[op] = i
	}
	own := localCount(f)
	subst := map[*ir.Value]*ir.Value{}
	for _, g := range grads {
		mark := len(f.Ops)
		b.Loc = c.Loc(g.op.Loc)
		to := g.op.In[0]
		if own == nil { // the loss is a mean over the global batch already
			to = ops.MulScalar(b, to, float64(ranks))
			to.Sharding = g.op.Out[0].Sharding
			pass.TakeName(b, to, g.op.Out[0])
		}
		subst[g.op.Out[0]] = to
		for _, op := range f.Ops[mark:] {
			place[op] = place[g.op]
		}
	}
	if own != nil {
		meanOf(c, f, b, own, place)
	}
	f.ReplaceAll(subst)
	sorted(f, place)
	f.DCE()
	for _, g := range c.Module.Funcs {
		for _, p := range g.Params {
			if p.Role == ir.State && abi.OptimState.Has(p.Name) {
				p.Sharding.Partial = []string{axis}
			}
		}
	}
	average(c, f, grads)
	c.Remark(nil, "@%s reduces no gradients over %s: %d parameters are averaged every %d steps; optimizer state is each rank's own", f.Name, axis, len(grads), c.Opt.GradComm.Period)
	return nil
}

// localCount is the reduction over dp that makes the count, nil when the count does not depend on the data.
func localCount(f *ir.Func) *ir.Op {
	count := f.Result(abi.Count)
	if count == nil || count.Op == nil {
		return nil
	}
	if count.Op.Def.Rules.Each && ops.Axis(count.Op) == axis && len(count.Op.In) == 1 {
		return count.Op
	}
	return nil
}

// meanOf makes the update read the count of this rank. A rank without any target has a gradient of zeros, and divides it by 1.
func meanOf(c *pass.Context, f *ir.Func, b *ir.Builder, count *ir.Op, place map[*ir.Op]int) {
	global, own := count.Out[0], count.In[0]
	b.Loc = c.Loc(count.Loc)
	mark := len(f.Ops)
	none := ops.Eq(b, own, ops.Zeros(b, own.Type))
	safe := b.Rename(ops.Where(b, none, ops.ScalarLike(b, own, 1), own), "count.local")
	for _, op := range f.Ops[mark:] {
		place[op] = place[count]
	}
	test := counts(f)
	for _, op := range f.Ops[:mark] {
		if op == test { // a step is empty when no rank has a target
			continue
		}
		for i, v := range op.In {
			if v == global {
				op.In[i] = safe
			}
		}
	}
}

// counts is the op that finds whether anything counts on any rank; nil when something always does.
func counts(f *ir.Func) *ir.Op {
	for _, op := range f.Ops {
		if op.Out[0].Name == pass.Counts {
			return op
		}
	}
	if f.Param(abi.EmptySteps) != nil {
		panic("BUG: no op of @" + f.Name + " finds whether anything counts")
	}
	return nil
}

// average appends @average.
func average(c *pass.Context, f *ir.Func, grads []gradient) {
	g := &ir.Func{Name: abi.FuncAverage}
	b := ir.NewBuilder(g)
	done := map[string]bool{}
	var params, sums []*ir.Value
	for _, x := range grads {
		if done[x.param.Name] {
			continue
		}
		done[x.param.Name] = true
		b.Loc = ir.Loc{Node: x.param.Name, Derived: c.Pass}
		p := b.Param(x.param.Name, x.param.Type, x.param.Role)
		p.Init, p.Sharding = x.param.Init, x.param.Sharding
		sum := ops.AllReduce(b, axis, "sum", p)[0]
		sum.Op.Why = "local SGD: the mean of " + p.Name + " over the ranks"
		sum.Sharding = p.Sharding
		params, sums = append(params, p), append(sums, sum)
	}
	for i, p := range params { // after all messages, so that they go together
		b.Loc = sums[i].Op.Loc
		next := ops.MulScalar(b, sums[i], 1/float64(c.Module.Mesh.Size(axis)))
		next.Sharding = p.Sharding
		b.Update(p, b.Rename(next, p.Name+".next"))
	}
	c.Module.Funcs = append(c.Module.Funcs, g)
}
