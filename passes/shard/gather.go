package shard

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/layout"
)

// gatherer gives the forward and the backward pass of a function copies of the parameters that ZeRO-3 keeps in parts.
// A copy is a reshape to the same dims, with the layout of the parameter but for dp; spmd makes an all_gather of it.
type gatherer struct {
	*annotator
	b    *ir.Builder
	of   map[*ir.Value]bool     // those parameters, and what is made of parameters alone
	half map[*ir.Value]bool     // their casts to half precision: these are made of the parts, and gathered at half the bytes
	in   map[*ir.Op][]*ir.Value // what the ops that make the latter read before they read copies
}

// reading is one of the two passes.
type reading struct {
	name string
	made map[*ir.Value]*ir.Value // what it reads in place of parameters, and of what the other pass made of them
}

// gatherForUse makes the copies, each right before the first reader in its pass; the update works on the parts. What is
// made of parameters alone (a transposed weight) is made in both passes, so that nothing whole is kept in between.
func (a *annotator) gatherForUse(u *updates) {
	layout.MarkData(a.f)
	g := &gatherer{annotator: a, b: ir.NewBuilder(a.f), of: map[*ir.Value]bool{}, half: map[*ir.Value]bool{}, in: map[*ir.Op][]*ir.Value{}}
	for _, p := range a.f.Params {
		if _, ok := partOf(a.m, p.Sharding, p.Type.Dims); ok && p.Role != ir.State && a.zeroSplits(p) {
			g.of[p] = true
		}
	}
	if len(g.of) == 0 {
		return
	}
	for _, op := range a.f.Ops {
		if !op.Out[0].Data && !u.ops[op] && slices.ContainsFunc(op.In, func(v *ir.Value) bool { return g.of[v] }) {
			if g.narrows(op) {
				continue
			}
			g.in[op] = slices.Clone(op.In)
			for _, v := range op.Out {
				g.of[v] = true
			}
		}
	}
	forward := &reading{"forward", map[*ir.Value]*ir.Value{}}
	backward := &reading{"backward", map[*ir.Value]*ir.Value{}}
	list := a.f.Ops
	a.f.Ops = nil
	for _, op := range list {
		r := forward
		if len(u.ops) > 0 && !u.forward[op] {
			r = backward
			for _, v := range op.Out {
				r.made[v] = v
			}
		}
		if !u.ops[op] && !g.half[op.Out[0]] {
			for i, v := range op.In {
				if g.of[v] && (v.Op == nil || g.half[v] || r == backward) {
					op.In[i] = g.read(v, r, op.Loc)
				}
			}
		}
		a.f.Ops = append(a.f.Ops, op)
	}
}

// narrows reports whether op casts a parameter that is in parts to half precision, and has it work on the parts.
func (g *gatherer) narrows(op *ir.Op) bool {
	v := op.In[0]
	if op.Move() != ir.Casts || v.Op != nil || !g.of[v] || op.Out[0].Type.DType.Size() >= v.Type.DType.Size() {
		return false
	}
	out := op.Out[0]
	g.of[out], g.half[out] = true, true
	g.constrained[out], _ = partOf(g.m, v.Sharding, v.Type.Dims)
	return true
}

// read is v, a parameter or made of parameters alone, for a pass, in which the op at loc reads it first.
func (g *gatherer) read(v *ir.Value, r *reading, loc ir.Loc) *ir.Value {
	if w := r.made[v]; w != nil || !g.of[v] {
		return orElse(w, v)
	}
	if v.Op == nil || g.half[v] {
		name := v.Name
		if v.Op != nil {
			name = v.Op.In[0].Name
		}
		g.b.Loc = g.c.Loc(loc)
		w := g.b.Rename(ops.Copy(g.b, v), v.Name+"."+r.name)
		w.Op.Why = "ZeRO-3: gathers parameter " + name + " for the " + r.name + " pass"
		r.made[v], g.constrained[w] = w, v.Sharding
		return w
	}
	var in []*ir.Value
	for _, x := range g.in[v.Op] {
		in = append(in, g.read(x, r, loc))
	}
	g.b.Loc = g.c.Loc(v.Op.Loc)
	for i, w := range g.b.EmitN(v.Op.Def, v.Op.Attrs, in...) {
		x := v.Op.Out[i]
		r.made[x] = g.b.Rename(w, x.Name+"."+r.name)
	}
	return r.made[v]
}

func orElse(v, otherwise *ir.Value) *ir.Value {
	if v != nil {
		return v
	}
	return otherwise
}

// regroup adds up scalars that are partial sums over the same axes before those that are not, so that each kind is
// combined once: the squares of gradients that are in parts, of those that are in parts over other axes, and of those
// that every rank has whole. It reports how many sums it changed.
func (a *annotator) regroup() int {
	readers := map[*ir.Value]int{}
	inner := map[*ir.Op]bool{}
	for _, op := range a.f.Ops {
		for _, v := range op.In {
			readers[v]++
		}
	}
	for _, r := range a.f.Results {
		readers[r.Value] += 2
	}
	for _, op := range a.f.Ops {
		for _, v := range op.In {
			if scalarSum(op) && v.Op != nil && scalarSum(v.Op) && readers[v] == 1 {
				inner[v.Op] = true
			}
		}
	}
	var leaves func(v *ir.Value) []*ir.Value
	leaves = func(v *ir.Value) []*ir.Value {
		if v.Op != nil && inner[v.Op] {
			return append(leaves(v.Op.In[0]), leaves(v.Op.In[1])...)
		}
		return []*ir.Value{v}
	}
	return a.c.Rewrite(a.f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if !scalarSum(op) || inner[op] {
			return nil
		}
		var kinds []string
		sums := map[string]*ir.Value{}
		all := append(leaves(op.In[0]), leaves(op.In[1])...)
		for _, v := range all {
			k := v.Sharding.String()
			if sums[k] == nil {
				kinds, sums[k] = append(kinds, k), v
			} else {
				sums[k] = ops.Add(b, sums[k], v)
			}
		}
		if len(kinds) == 1 || len(kinds) == len(all) {
			return nil
		}
		total := sums[kinds[0]]
		for _, k := range kinds[1:] {
			total = ops.Add(b, total, sums[k])
		}
		return []*ir.Value{total}
	})
}

func scalarSum(op *ir.Op) bool {
	return op.Def.Rules.Adds && len(op.Out[0].Type.Dims) == 0 && op.Out[0].Type.DType.IsFloat()
}
