package fuse

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Values in half precision are stored, and what is widened of them is made where it is read: a cast, and cheap elementwise
// ops on it with operands that are repeated, such as (x - mean) * rstd, which a norm and its gradient both want. If such an op
// joined the kernel that makes its operands, as others do, its result would be kept in f32 from the forward to the backward pass,
// at twice the bytes of x. So these ops float: they join one another, and then what reads them, which brings them to its kernel.

// floating finds the ops that float.
func (fu *fuser) floating() {
	uses := fu.f.Uses()
	for _, op := range fu.f.Ops {
		if fu.kind(op) != kir.Pointwise || len(op.Out) != 1 || op.Out[0].Type.DType != dtype.F32 || len(uses[op.Out[0]]) == 0 {
			continue
		}
		fused := func(r *ir.Op) bool { k := fu.kind(r); return k == kir.Pointwise || k == kir.Reduce }
		fu.apart[op] = (widens(op) || fu.cheap(op) && fu.onWide(op)) && !slices.ContainsFunc(uses[op.Out[0]], func(r *ir.Op) bool { return !fused(r) })
	}
	for _, r := range fu.f.Results {
		if r.Value.Op != nil {
			delete(fu.apart, r.Value.Op)
		}
	}
}

// onWide reports whether op's operands of full size float, and there is one.
func (fu *fuser) onWide(op *ir.Op) bool {
	some, n := false, op.Out[0].Type.Elems()
	for _, v := range op.In {
		src, _, _ := group.Resolve(v)
		switch {
		case src.Op != nil && fu.apart[src.Op]:
			some = true
		case src.Type.Elems() >= n:
			return false
		}
	}
	return some
}

// floats reports whether all ops of a node float.
func (fu *fuser) floats(n *node) bool {
	return !slices.ContainsFunc(n.ops, func(op *ir.Op) bool { return !fu.apart[op] })
}

// beyond are the nodes that make what op reads, and those that make what floating ones of them read, latest first.
func (fu *fuser) beyond(op *ir.Op) []*node {
	list := fu.sources(op)
	direct := len(list)
	for i := 0; i < len(list); i++ {
		if !fu.floats(list[i]) {
			continue
		}
		for p := range list[i].preds {
			if p = p.find(); !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
	slices.SortFunc(list[direct:], func(a, b *node) int { return b.number - a.number })
	return list
}
