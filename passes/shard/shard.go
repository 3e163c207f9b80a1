// Package shard decides how every value lies on the mesh. It only annotates: the graph stays global.
//
// # Design
//
// The mesh is [dp=N, mb=M]: data-parallel ranks, and micro-batches as an axis in time (mesh.TimeAxis); axes of
// size 1 are left out. What comes from the data is split over both in its leading dimension; parameters and
// state are replicated. Then shardings go forward through the factor rules (passes/layout): outputs are split
// where operands are, and a reduction over a split dimension leaves a partial sum, which stays one as long as
// ops are linear in it. A second walk goes backward through what does not depend on the data: when every reader
// of a value wants only a part of it (a mask of the batch's size, positions of each sample), it is made in parts.
//
// ZeRO refines that over dp: see zero.go.
//
// Micro-batches work only when nothing that was summed over the batch meets the data of one micro-batch again.
// Statistics of BatchNorm over the global batch do just that: then the micro-batches are merged into one, and a
// remark says so. What depends on the data alone, such as the number of targets that count, is computed from the data of
// all micro-batches beforehand (whole.go). For other ops it is an error that names the node.
package shard

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/layout"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Run sets the mesh of the module and the sharding of every value. The mesh is without the
// axis of time, though Options.Microbatches asks for it, when the micro-batches must be merged.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	if err := checkBatch(c); err != nil {
		return err
	}
	m := meshOf(c.Opt, c.Opt.Microbatches)
	if len(m.Axes) == 0 {
		if len(c.Opt.Shard) > 0 {
			return ir.Errorf(ir.Loc{}, "--shard needs --tp or --dp of at least 2: it splits parameters over their ranks")
		}
		return nil
	}
	for _, f := range c.Module.Funcs {
		expand(c, f)
	}
	var tensor map[string]mesh.Sharding
	if c.Opt.TP > 1 {
		tensor, err = tensorLayout(c, m)
	} else {
		tensor, err = userConstraints(c, m, stepOf(c.Module))
	}
	if err != nil {
		return err
	}
	c.Module.Mesh = m
	why := annotateAll(c, tensor)
	for why != nil && why.fromData(c) {
		why = annotateAll(c, tensor)
	}
	if why == nil {
		return nil
	}
	if !why.batchNorm || !c.Opt.SyncBN {
		return why.explain(c.Opt.Microbatches, c.BatchHint)
	}
	c.Remark(nil, "warning: the statistics of BatchNorm %q span the whole batch, so the %d micro-batches were merged into one "+
		"(more memory); statistics of each rank's own micro-batch would keep them apart", why.op.Loc.Node, c.Opt.Microbatches)
	c.Module.Mesh = meshOf(c.Opt, 1)
	annotateAll(c, tensor)
	return nil
}

// stepOf is @step, or the one function of a program that only infers.
func stepOf(m *ir.Module) *ir.Func {
	if f := m.Func(abi.FuncStep); f != nil {
		return f
	}
	return m.Funcs[0]
}

// meshOf is the mesh of the options with that many micro-batches.
func meshOf(o *pass.Options, micros int) mesh.Mesh {
	var m mesh.Mesh
	for _, a := range []mesh.Axis{{Name: mesh.PipelineAxis, Size: o.PP}, {Name: mesh.DataAxis, Size: o.DP}, {Name: mesh.TensorAxis, Size: o.TP}, {Name: mesh.TimeAxis, Size: micros}} {
		if a.Size > 1 || a.Name == mesh.TimeAxis && o.PP > 1 { // a pipeline has the axis even for one micro-batch: it is where actions end
			m.Axes = append(m.Axes, a)
		}
	}
	return m
}

// checkBatch makes sure that all data divides, before anything else is done.
func checkBatch(c *pass.Context) error {
	dp, mb := max(c.Opt.DP, 1), max(c.Opt.Microbatches, 1)
	if dp*mb == 1 {
		return nil
	}
	for _, f := range c.Module.Funcs {
		batch := 0
		for _, p := range f.Params {
			if !data(p) {
				continue
			}
			n := p.Type.Dims[0]
			if batch == 0 {
				batch = n
			}
			if n == batch && batch%(dp*mb) != 0 || batch == 0 {
				return ir.Errorf(ir.Loc{}, "the batch of %d samples (%s %q is %s) cannot be divided evenly over %d ranks x %d micro-batches = %d",
					batch, p.Role, p.Name, p.Type, dp, mb, dp*mb).Note("choose a batch that is a multiple of %d", dp*mb)
			}
			if n%batch != 0 {
				return ir.Errorf(ir.Loc{}, "%s %q is %s: its leading dimension is not a multiple of the batch of %d samples, so it cannot be split over ranks",
					p.Role, p.Name, p.Type, batch)
			}
		}
	}
	return nil
}

// data reports whether p is read from the data set and has a dimension for the batch.
func data(p *ir.Value) bool {
	return p.Role.FromData() && len(p.Type.Dims) > 0
}

// expand decomposes ops that no rule tells how to split, such as random numbers: their parts are split like
// any op, and number the elements of the whole tensor.
func expand(c *pass.Context, f *ir.Func) {
	c.Rewrite(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		r := &op.Def.Rules
		if r.Factors != nil || r.Decompose == nil {
			return nil
		}
		return r.Decompose(b, op)
	})
}

// annotateAll annotates every function and reports what keeps the batch from being cut.
func annotateAll(c *pass.Context, tensor map[string]mesh.Sharding) *obstacle {
	var all []*annotator
	for _, f := range c.Module.Funcs {
		a := &annotator{c: c, m: c.Module.Mesh, f: f, named: tensor}
		all = append(all, a)
		splitData(f, a.m)
		for _, p := range f.Params {
			if s, ok := tensor[p.Name]; ok {
				p.Sharding = s
			}
		}
		a.annotate()
		if why := a.obstacle(); why != nil {
			return why
		}
	}
	changed := updatedBuffers(c.Module)
	for _, a := range all {
		a.zero(changed)
		if why := a.obstacle(); why != nil {
			return why
		}
		a.remarks()
	}
	return nil
}

// splitData splits what is read from the data in its leading dimension, and nothing else.
func splitData(f *ir.Func, m mesh.Mesh) {
	for _, p := range f.Params {
		p.Sharding = mesh.Sharding{}
		if data(p) {
			p.Sharding = mesh.Sharding{Dims: make([][]string, len(p.Type.Dims))}
			for _, x := range m.Axes {
				if x.Name == mesh.DataAxis || x.Name == mesh.TimeAxis && p.Role != ir.Whole {
					p.Sharding.Dims[0] = append(p.Sharding.Dims[0], x.Name)
				}
			}
		}
	}
}

// annotate lays out all values, then takes apart the ops that are in the way of their operands' parts, and begins
// anew, until none is.
func (a *annotator) annotate() {
	a.propagate()
	if a.reorder() > 0 {
		a.propagate()
	}
	for a.m.Size(mesh.TensorAxis) > 1 {
		n := takeApart(a.c, a.f, func(op *ir.Op) bool { return a.blocks(op, mesh.TensorAxis) })
		if n == 0 {
			break
		}
		a.propagate()
	}
	if a.m.Size(mesh.TensorAxis) > 1 && a.regroup() > 0 {
		a.propagate()
	}
	if a.m.Size(mesh.TensorAxis) > 1 && a.rematerialise() {
		a.propagate()
	}
}

func (a *annotator) propagate() {
	s := newPropagation(newPlans(a.m, a.c.Traits().Cost), map[string]int{}, a.f)
	s.tokens = a.c.Opt.SP && a.m.Size(mesh.TensorAxis) > 1
	s.load()
	for i, v := range s.values {
		if to, ok := a.named[v.Name]; ok && v.Op != nil {
			s.asked[i] = to
		}
	}
	for v, to := range a.constrained {
		s.constrained[s.index[v]] = s.number(to)
	}
	s.run()
	s.store()
}

type annotator struct {
	c           *pass.Context
	m           mesh.Mesh
	f           *ir.Func
	named       map[string]mesh.Sharding    // what tensorLayout decided
	changed     map[string]bool             // buffers that some function updates
	constrained map[*ir.Value]mesh.Sharding // values that are laid out so whatever their ops make: spmd changes them at once
}

func shardings(vs []*ir.Value) []mesh.Sharding {
	out := make([]mesh.Sharding, len(vs))
	for i, v := range vs {
		if v != nil {
			out[i] = v.Sharding
		}
	}
	return out
}

func (a *annotator) plan(op *ir.Op) layout.Plan {
	return layout.Of(a.m, op, shardings(op.In), shardings(op.Out))
}

// remarks tells where parts must be put together in the middle of the program.
func (a *annotator) remarks() {
	for _, op := range a.f.Ops {
		plan := a.plan(op)
		for i, v := range op.In {
			if v == nil {
				continue
			}
			for d := range v.Type.Dims {
				if have, need := v.Sharding.Axes(d), plan.In[i].Axes(d); len(need) < len(have) {
					a.c.Remark(v, "is gathered in @%s: %s", a.f.Name, note(plan, op))
					break
				}
			}
		}
	}
}

func note(p layout.Plan, op *ir.Op) string {
	if len(p.Notes) > 0 {
		return p.Notes[0]
	}
	return op.Def.Name + " needs it whole"
}

// reorder lets a matrix product contract over rows [S,B] merged in the order [B,S] when B is what is split: the
// order of the rows of a contraction does not matter. Recurrent layers, which are time-major, need it.
func (a *annotator) reorder() int {
	return a.c.Rewrite(a.f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		at, ok := ops.AsMatMul(op)
		if !ok || len(op.In[0].Type.Dims) != 2 || len(op.In[1].Type.Dims) != 2 {
			return nil
		}
		x, y := rowsOf(op.In[0]), rowsOf(op.In[1])
		if !at.TransA || at.TransB || x == nil || y == nil {
			return nil
		}
		lead := x.Type.Dims[:len(x.Type.Dims)-1]
		if !slices.Equal(lead, y.Type.Dims[:len(y.Type.Dims)-1]) {
			return nil
		}
		for d := range lead {
			if !ofData(x.Sharding.Axes(d)) && !ofData(y.Sharding.Axes(d)) {
				continue
			}
			if ir.Product(lead[:d]) == 1 {
				return nil
			}
			xr, yr := toFront(b, x, d), toFront(b, y, d)
			var bias *ir.Value
			if len(op.In) > 2 {
				bias = op.In[2]
			}
			return []*ir.Value{ops.MatMulOf(b, at, xr, yr, bias)}
		}
		return nil
	})
}

// ofData reports whether samples are split over one of axes.
func ofData(axes []string) bool {
	return slices.Contains(axes, mesh.DataAxis) || slices.Contains(axes, mesh.TimeAxis)
}

// rowsOf is the value of which v joins all dims but the last, nil when v is no such thing.
func rowsOf(v *ir.Value) *ir.Value {
	if v.Moved() != ir.Keeps {
		return nil
	}
	x := v.Op.In[0]
	n := len(x.Type.Dims)
	if n < 3 || x.Type.Dims[n-1] != v.Type.Dims[1] {
		return nil
	}
	return x
}

// toFront joins all dims of x but the last, dim d being the slowest.
func toFront(b *ir.Builder, x *ir.Value, d int) *ir.Value {
	all := ops.AllDims(x)
	perm := slices.Concat([]int{d}, all[:d], all[d+1:])
	n := len(all)
	return ops.Reshape(b, ops.Transpose(b, x, perm), []int{ir.Product(x.Type.Dims[:n-1]), x.Type.Dims[n-1]})
}
