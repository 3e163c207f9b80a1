package shard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054) is three sets of shardings over the axis dp; the collectives follow
// from them as any others do:
//
//	stage 1  optimizer state is in parts, and so is the update: a gradient is reduce_scattered when it is whole, the
//	         parameter all_gathered when it is updated
//	stage 2  a gradient is also accumulated over micro-batches in parts: it is reduce_scattered in each of them
//	stage 3  the parameter itself is in parts: it is all_gathered before its first reader in the forward pass, and once
//	         more for the backward pass, so that it need not be kept from one to the other; frozen parameters too
//
// A tensor is split in its first dim that divides, after what tensor parallelism left of it; one without is whole on
// every rank, as in data parallelism.
const zeroAxis = mesh.DataAxis

// partOf is layout s of a tensor of the given dims split over dp as well; ok is false where no dim divides.
func partOf(m mesh.Mesh, s mesh.Sharding, dims []int) (part mesh.Sharding, ok bool) {
	local, err := s.Local(m, dims)
	if err != nil {
		return s, false
	}
	part.Dims = make([][]string, len(dims))
	for d := range dims {
		part.Dims[d] = slices.Clone(s.Axes(d))
		if slices.Contains(part.Dims[d], zeroAxis) {
			return s, true
		}
	}
	for d, n := range local {
		if n > 0 && n%m.Size(zeroAxis) == 0 {
			part.Dims[d] = append(part.Dims[d], zeroAxis)
			return part, true
		}
	}
	return s, false
}

// zero refines the annotation of a function by the stage asked for, and says of gradients why they are combined. changed
// names the buffers that are no frozen parameters.
func (a *annotator) zero(changed map[string]bool) {
	if a.m.Size(zeroAxis) == 1 {
		return
	}
	u := a.updates()
	stage := a.c.Opt.Zero
	explain(a.f, u, stage)
	if stage == 0 {
		return
	}
	a.changed = changed
	if a.constrained == nil {
		a.constrained = map[*ir.Value]mesh.Sharding{}
	}
	for _, p := range a.f.Params {
		if p.Role != ir.Param {
			continue
		}
		part, ok := partOf(a.m, p.Sharding, p.Type.Dims)
		if !ok {
			a.c.Remark(p, "stays whole under ZeRO-%d: no dimension of %s is divisible by dp=%d", stage, p.Type, a.m.Size(zeroAxis))
			continue
		}
		for _, g := range u.gradients[p] {
			if !a.onlyReduced(g) {
				continue
			}
			s := part
			// Under --reproducible sums over time come first: they are the inner ones of the tree.
			if stage > 1 && !a.c.Opt.Reproducible && slices.Contains(g.Sharding.Partial, mesh.TimeAxis) {
				s.Partial = []string{mesh.TimeAxis}
			}
			a.constrained[g] = s
		}
	}
	if stage > 2 {
		a.gatherForUse(u)
	}
	for _, p := range a.f.Params {
		if a.zeroSplits(p) {
			p.Sharding, _ = partOf(a.m, p.Sharding, p.Type.Dims)
		}
	}
	a.propagate()
	if a.regroup() > 0 {
		a.propagate()
	}
}

// explain notes why gradients are combined over ranks.
func explain(f *ir.Func, u *updates, stage int) {
	names := map[*ir.Op][]string{} // an op may make several
	for _, p := range f.Params {
		for _, g := range u.gradients[p] {
			names[g.Op] = append(names[g.Op], p.Name)
		}
	}
	for op, list := range names {
		if len(list) < len(op.Out) { // it makes more, such as the gradient of a norm's input, which tensor parallelism sums up
			continue
		}
		op.Why = "data parallelism: sums up the gradient of " + strings.Join(list, ", ")
		if stage > 0 {
			op.Why = fmt.Sprintf("ZeRO-%d: sums up the gradient of %s, of which each rank needs a part", stage, strings.Join(list, ", "))
		}
	}
}

// zeroSplits reports whether the stage asked for splits parameter p of the function.
func (a *annotator) zeroSplits(p *ir.Value) bool {
	switch p.Role {
	case ir.State:
		return abi.OptimState.Has(p.Name)
	case ir.Param:
		return a.c.Opt.Zero > 2
	case ir.Buffer:
		return a.c.Opt.Zero > 2 && p.Type.DType.IsFloat() && len(p.Type.Dims) > 1 && !a.changed[p.Name]
	}
	return false
}

// updatedBuffers names the buffers that a function of m changes: those that are no frozen parameters.
func updatedBuffers(m *ir.Module) map[string]bool {
	names := map[string]bool{}
	for _, f := range m.Funcs {
		for _, r := range f.Results {
			if r.Updates != nil && r.Updates.Role == ir.Buffer {
				names[r.Updates.Name] = true
			}
		}
	}
	return names
}

// updates is what a step does behind the gradients.
type updates struct {
	forward   map[*ir.Op]bool           // what the loss, the outputs and the statistics come from
	ops       map[*ir.Op]bool           // the update: it depends on no partial sum but the gradients
	gradients map[*ir.Value][]*ir.Value // of a parameter: partial sums over dp that its update begins with
}

// updates finds the ops of the update in an annotated function; there are none but in @step.
func (a *annotator) updates() *updates {
	u := &updates{forward: map[*ir.Op]bool{}, ops: map[*ir.Op]bool{}, gradients: map[*ir.Value][]*ir.Value{}}
	for _, r := range a.f.Results {
		if forwardResult(r) {
			mark(r.Value, u.forward, func(*ir.Value) bool { return false })
		}
	}
	for _, r := range a.f.Results {
		if forwardResult(r) {
			continue
		}
		mark(r.Value, u.ops, func(v *ir.Value) bool { return u.forward[v.Op] || slices.Contains(v.Sharding.Partial, zeroAxis) })
		if r.Updates != nil && r.Updates.Role == ir.Param {
			u.find(r.Updates, r.Value, map[*ir.Value]bool{})
		}
	}
	return u
}

// forwardResult reports whether a result of @step is made by the forward pass.
func forwardResult(r ir.Result) bool {
	if r.Updates != nil {
		return r.Updates.Role == ir.Buffer
	}
	return !slices.Contains([]string{abi.Rate, abi.GradNorm, abi.LossScale, abi.Skipped, abi.Empty}, r.Name) && !abi.Gradient.Has(r.Name)
}

// mark adds the ops that v comes from to set, but not those of values at which stop says so.
func mark(v *ir.Value, set map[*ir.Op]bool, stop func(*ir.Value) bool) {
	for todo := []*ir.Value{v}; len(todo) > 0; {
		v, todo = todo[len(todo)-1], todo[:len(todo)-1]
		if v == nil || v.Op == nil || set[v.Op] || stop(v) {
			continue
		}
		set[v.Op] = true
		todo = append(todo, v.Op.In...)
	}
}

// find adds the gradients of p among what v, in its update, is made of element by element.
func (u *updates) find(p, v *ir.Value, seen map[*ir.Value]bool) {
	if v == nil || v.Op == nil || seen[v] || !slices.Equal(v.Type.Dims, p.Type.Dims) {
		return
	}
	seen[v] = true
	if !u.ops[v.Op] {
		if slices.Contains(v.Sharding.Partial, zeroAxis) {
			u.gradients[p] = append(u.gradients[p], v)
		}
		return
	}
	for _, in := range v.Op.In {
		u.find(p, in, seen)
	}
}

// onlyReduced reports whether every reader of g needs the sum, none of them goes on with partial sums.
func (a *annotator) onlyReduced(g *ir.Value) bool {
	for _, op := range a.f.Ops {
		for i, v := range op.In {
			if v == g && slices.Contains(a.plan(op).In[i].Partial, zeroAxis) {
				return false
			}
		}
	}
	return true
}
