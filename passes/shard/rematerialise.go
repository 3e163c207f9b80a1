package shard

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// rematerialise has the backward pass compute anew what is cheap, so that it is not kept between the passes: what the
// forward pass put together of its parts of tokens, and the parts of a fused weight. It reports whether there was any.
//
// What is put together is a copy (a reshape to the same dims, see gatherer), and the views of it that backward reads.
func (a *annotator) rematerialise() bool {
	forward := map[*ir.Op]bool{}
	for _, r := range a.f.Results {
		if forwardResult(r) {
			mark(r.Value, forward, func(*ir.Value) bool { return false })
		}
	}
	if len(forward) == len(a.f.Ops) {
		return false
	}
	if a.constrained == nil {
		a.constrained = map[*ir.Value]mesh.Sharding{}
	}
	b := ir.NewBuilder(a.f)
	list, made := a.f.Ops, map[*ir.Value]*ir.Value{}
	a.f.Ops = nil
	var remat func(v *ir.Value) *ir.Value
	remat = func(v *ir.Value) *ir.Value {
		if w := made[v]; w != nil || v.Op == nil {
			return orElse(w, v)
		}
		var w *ir.Value
		if v.Data && splitOver(v.Sharding, mesh.TensorAxis) {
			w = ops.Copy(b, v)
			w.Op.Why = "sequence parallelism: all tokens again, for the gradient of the weight that read them"
			a.constrained[w] = without(v.Sharding, mesh.TensorAxis)
		} else {
			w = b.Emit(v.Op.Def, v.Op.Attrs, remat(v.Op.In[0]))
		}
		made[v] = b.Rename(w, v.Name+".remat")
		return made[v]
	}
	for _, op := range list {
		if !forward[op] && op.Out[0].Data {
			plan := a.plan(op)
			for i, v := range op.In {
				if v == nil || !forward[v.Op] {
					continue
				}
				if partOfParam(v) || a.c.Opt.SP && inTokens(v, forward) && !splitOver(plan.In[i], mesh.TensorAxis) {
					b.Loc = a.c.Loc(op.Loc)
					op.In[i] = remat(v)
				}
			}
		}
		a.f.Ops = append(a.f.Ops, op)
	}
	return len(made) > 0
}

// partOfParam reports whether v is a view of some of a parameter: where its elements do not follow each other, making it
// is copying it.
func partOfParam(v *ir.Value) bool {
	sliced := false
	for ; v.Op != nil; v = v.Op.In[0] {
		switch m := v.Moved(); {
		case m == ir.Selects:
			sliced = true
		case !m.Whole():
			return false
		}
	}
	return sliced && v.Role == ir.Param
}

// inTokens reports whether v is in parts of its tokens, or a view, whole, of a value that is.
func inTokens(v *ir.Value, forward map[*ir.Op]bool) bool {
	for v.Op != nil && forward[v.Op] {
		for _, d := range tokenDims(v) {
			if slices.Contains(v.Sharding.Axes(d), mesh.TensorAxis) {
				return true
			}
		}
		if splitOver(v.Sharding, mesh.TensorAxis) || !v.Moved().Whole() {
			return false
		}
		v = v.Op.In[0]
	}
	return false
}

// without is s without axis.
func without(s mesh.Sharding, axis string) mesh.Sharding {
	t := mesh.Sharding{Partial: s.Partial}
	for _, list := range s.Dims {
		t.Dims = append(t.Dims, slices.DeleteFunc(slices.Clone(list), func(a string) bool { return a == axis }))
	}
	if t.IsReplicated() {
		return mesh.Sharding{}
	}
	return t
}
