package fuse

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// sink moves a cheap pointwise op from the group that makes its operands into the one group that reads it,
// when its operands are stored anyway: 1-y² of a tanh is then computed in the backward kernel that needs it
// and never travels through memory. Last ops first, so that chains follow.
func (fu *fuser) sink() {
	readers := map[*ir.Value][]*node{} // groups that read a value, through views
	note := func(v *ir.Value, n *node) {
		src, _, _ := group.Resolve(v)
		if !slices.Contains(readers[src], n) {
			readers[src] = append(readers[src], n)
		}
	}
	for _, op := range fu.f.Ops {
		if n := fu.of[op]; n != nil {
			for _, v := range op.In {
				if v != nil {
					note(v, n.find())
				}
			}
		}
	}
	for _, r := range fu.f.Results {
		note(r.Value, nil)
	}
	for i := len(fu.f.Ops) - 1; i >= 0; i-- {
		op := fu.f.Ops[i]
		if fu.of[op] == nil || fu.kind(op) != kir.Pointwise || len(op.Out) != 1 {
			continue
		}
		from := fu.of[op].find()
		if r := readers[op.Out[0]]; len(r) == 1 && r[0] != nil && r[0] != from && r[0].space != nil && !r[0].alone && len(from.ops) > 1 {
			fu.sinkOne(op, from, r[0], readers)
		}
	}
}

func (fu *fuser) sinkOne(op *ir.Op, from, to *node, readers map[*ir.Value][]*node) {
	if !fu.cheap(op) || len(to.ops) >= maxOps {
		return
	}
	for _, v := range op.In {
		src, _, _ := group.Resolve(v)
		if src.Op != nil && fu.of[src.Op] != nil && fu.of[src.Op].find() == from && !slices.ContainsFunc(readers[src], func(n *node) bool { return n != from }) {
			return // its operand would have to be stored for it
		}
	}
	ops := append([]*ir.Op{op}, to.ops...)
	slices.SortFunc(ops, func(a, b *ir.Op) int { return fu.pos[a] - fu.pos[b] })
	space, ok := group.Build(ops)
	rest := slices.DeleteFunc(slices.Clone(from.ops), func(o *ir.Op) bool { return o == op })
	restSpace, restOK := group.Build(rest)
	if !ok || !restOK || len(externals(ops)) > maxArgs || !fu.c.May(op.Out[0], "%s is computed where it is read", op.Def.Name) {
		return
	}
	to.ops, to.space = ops, space
	from.ops, from.space = rest, restSpace
	fu.of[op] = to
	for _, v := range op.In {
		if src, _, _ := group.Resolve(v); src.Op != nil && fu.of[src.Op] != nil && fu.of[src.Op].find() != to {
			to.need(fu.of[src.Op].find())
		}
		src, _, _ := group.Resolve(v)
		if !slices.Contains(readers[src], to) {
			readers[src] = append(readers[src], to)
		}
	}
	fu.c.Remark(op.Out[0], "is computed where it is read: its operands are stored anyway")
}

// cheap reports whether computing op again costs less than storing and loading a tensor.
func (fu *fuser) cheap(op *ir.Op) bool {
	for _, e := range fu.impl[op].Expr {
		if f := kir.Lookup(e.Op); f == nil || f.Cost > kir.Cheap {
			return false
		}
	}
	return true
}
