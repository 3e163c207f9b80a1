package overlap

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
)

// sink moves the additions to accumulators of what ranks combined and have parts of down to their first readers, or to the end: right
// behind the reduce_scatter they would wait for it, and nothing would be computed meanwhile.
func sink(f *ir.Func) {
	first := map[*ir.Op]int{}
	for i, op := range f.Ops {
		if op.Def.Rules.Adds && slices.ContainsFunc(op.In, scattered) &&
			slices.ContainsFunc(op.In, func(v *ir.Value) bool { return v.Op == nil && v.Role == ir.State }) {
			first[op] = len(f.Ops)
		}
		for _, v := range op.In {
			if v != nil && v.Op != nil {
				if at, ok := first[v.Op]; ok {
					first[v.Op] = min(at, i)
				}
			}
		}
	}
	if len(first) == 0 {
		return
	}
	before := map[int][]*ir.Op{}
	for _, op := range f.Ops {
		if at, ok := first[op]; ok {
			before[at] = append(before[at], op)
		}
	}
	out := make([]*ir.Op, 0, len(f.Ops))
	for i, op := range f.Ops {
		out = append(out, before[i]...)
		if _, moved := first[op]; !moved {
			out = append(out, op)
		}
	}
	f.Ops = append(out, before[len(f.Ops)]...)
}

// scattered reports whether v is this rank's part of what ranks combined.
func scattered(v *ir.Value) bool {
	return v.Op != nil && v.Op.Def.Rules.Combines && !v.Op.Def.Rules.Each
}
