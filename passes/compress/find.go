package compress

import (
	"cmp"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// gradient is a trained parameter and the reduction of its gradient, or of a piece of it.
type gradient struct {
	param *ir.Value
	op    *ir.Op
}

// find lists the reductions of gradients over dp, in program order.
func find(f *ir.Func) []gradient {
	pos := map[*ir.Op]int{}
	for i, op := range f.Ops {
		pos[op] = i
	}
	count := f.Result(abi.Count)
	known := map[*ir.Op]bool{}
	var out []gradient
	for _, r := range f.Results {
		if r.Updates == nil || r.Updates.Role != ir.Param {
			continue
		}
		for _, op := range reductions(r.Value) {
			if !known[op] && op.Out[0] != count {
				known[op] = true
				out = append(out, gradient{r.Updates, op})
			}
		}
	}
	slices.SortFunc(out, func(x, y gradient) int { return cmp.Compare(pos[x.op], pos[y.op]) })
	return out
}

// sums reports whether op adds over dp.
func sums(op *ir.Op) bool {
	return ops.Axis(op) == axis && ops.Combining(op) == "sum" && len(op.In) == 1
}

// reductions finds the sums over dp from which v is made by moving elements and by element-wise ops.
func reductions(v *ir.Value) []*ir.Op {
	var out []*ir.Op
	seen := map[*ir.Value]bool{}
	var walk func(v *ir.Value)
	walk = func(v *ir.Value) {
		if v == nil || seen[v] || v.Op == nil {
			return
		}
		seen[v] = true
		op := v.Op
		switch {
		case sums(op):
			out = append(out, op)
		case op.Def.Rules.Each:
			walk(op.In[v.Index])
		case moves(op):
			for _, x := range op.In {
				walk(x)
			}
		}
	}
	walk(v)
	return out
}

// moves reports whether the elements of op's result are those of its operands, moved or computed one by one. Expand is left out: what it
// repeats is a scale, no gradient.
func moves(op *ir.Op) bool {
	switch op.Move() {
	case ir.Keeps, ir.Permutes, ir.Selects, ir.Joins:
		return true
	case ir.Repeats:
		return false
	}
	return op.Def.Rules.Impl != nil && op.Def.Rules.Impl(op).Kind == kir.Pointwise
}

// understood checks that no update depends on a sum over dp that is neither among grads nor below one, nor the count: a step without
// the sums of gradients would still not be that of one rank.
func understood(f *ir.Func, grads []gradient) error {
	count, known := f.Result(abi.Count), map[*ir.Op]bool{}
	for _, g := range grads {
		known[g.op] = true
	}
	seen := map[*ir.Op]bool{}
	var walk func(v *ir.Value) *ir.Op
	walk = func(v *ir.Value) *ir.Op {
		if v == nil || v.Op == nil || v == count || known[v.Op] || seen[v.Op] {
			return nil
		}
		seen[v.Op] = true
		if sums(v.Op) {
			return v.Op
		}
		for _, x := range v.Op.In {
			if op := walk(x); op != nil {
				return op
			}
		}
		return nil
	}
	for _, r := range f.Results {
		if r.Updates == nil || r.Updates.Role != ir.Param {
			continue
		}
		if op := walk(r.Value); op != nil {
			return ir.Errorf(op.Loc, "the update of %q depends on %%%s, a sum over the data-parallel ranks that is not a gradient: --local-sgd, which leaves it out, would train something else",
				r.Updates.Name, op.Out[0].Name)
		}
	}
	return nil
}

// sorted brings the ops of f into an order in which operands come first and which otherwise is that of place.
func sorted(f *ir.Func, place map[*ir.Op]int) {
	list := slices.Clone(f.Ops)
	index := map[*ir.Op]int{}
	for i, op := range list {
		index[op] = i
	}
	slices.SortStableFunc(list, func(x, y *ir.Op) int { return cmp.Or(cmp.Compare(place[x], place[y]), cmp.Compare(index[x], index[y])) })
	f.Ops = f.Ops[:0]
	done := map[*ir.Op]bool{}
	var emit func(op *ir.Op)
	emit = func(op *ir.Op) {
		if done[op] {
			return
		}
		done[op] = true
		for _, v := range op.In {
			if v != nil && v.Op != nil {
				emit(v.Op)
			}
		}
		f.Ops = append(f.Ops, op)
	}
	for _, op := range list {
		emit(op)
	}
}
