package schedule

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// within finds the results of templates that can be written straight into the assembly (a concat) that is their
// only reader: the template takes strides for the result, the strides of the box fit, and the boxes leave no gap to
// fill. Such a value has no memory of its own, and is not copied.
func (s *scheduler) within() {
	readers := map[*ir.Value]int{}
	for _, op := range s.f.Ops {
		if op.Group == 0 {
			continue
		}
		for _, v := range op.In {
			if v != nil {
				src, _, _ := group.Resolve(v)
				readers[src]++
			}
		}
	}
	keep := map[*ir.Value]bool{}
	for _, r := range s.f.Results {
		src, _, _ := group.Resolve(r.Value)
		readers[src]++
		keep[src] = keep[src] || r.Updates != nil // it may be made in place of what is still read
	}
	for _, op := range s.f.Ops {
		if op.Group == 0 || group.Impl(op).Kind != kir.Assemble || keep[op.Out[0]] || !covered(op) {
			continue
		}
		for _, v := range op.In {
			src := group.Alias(v)
			if src.Op == nil || src.Op.Group == 0 || readers[src] != 1 || group.Impl(src.Op).Kind != kir.Template {
				continue
			}
			if _, ok := group.PlaceIn(src, op); ok && s.c.May(src, "made within %%%s", op.Out[0].Name) {
				src.Within = op.Out[0]
				s.c.Remark(src, "is made within %%%s: no copy", op.Out[0].Name)
			}
		}
	}
}

// covered reports whether the boxes of an assembly leave no gap.
func covered(op *ir.Op) bool {
	n := 0
	for _, v := range op.In {
		n += v.Type.Elems()
	}
	return n == op.Out[0].Type.Elems()
}
