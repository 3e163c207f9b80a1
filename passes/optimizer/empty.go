package optimizer

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// emptiness is what becomes of a step in which nothing counts: every target is the ignored one, every mask is zero. Its mean
// loss is 0/0, and there is nothing to learn from it. Whether anything counts is read off the global count, which every rank and
// stage has to scale its gradients; parameters and optimizer state stay as they were, by a select, as if the step of
// torch.optim had not been called, and the steps without are counted in state.
type emptiness struct {
	some  *ir.Value // bool[] something counts
	steps *ir.Value // i64[] state: steps in which nothing did
}

// takeCount finds the global count of the step, and what is done when it is zero; nil where it cannot be.
func (u *updater) takeCount() {
	if u.divisor = u.f.Result(abi.Count); u.divisor == nil {
		panic("BUG: @step has no result count")
	}
	if !fromData(u.divisor) {
		return
	}
	if p := u.f.Param(abi.EmptySteps); p != nil {
		panic(ir.Errorf(ir.Loc{}, "the model has a tensor %q %s, which is the name of a counter in checkpoints: rename it", p.Name, p.Type))
	}
	b := u.b
	u.empty = &emptiness{steps: b.Param(abi.EmptySteps, ir.T(dtype.I64), ir.State)}
	u.empty.some = b.Rename(ops.Ne(b, u.divisor, ops.ScalarLike(b, u.divisor, 0)), pass.Counts)
	u.divisor = b.Rename(ops.Where(b, u.empty.some, u.divisor, ops.ScalarLike(b, u.divisor, 1)), "divisor") // gradients of such a step are zeros, not NaN
}

// fromData reports whether v depends on more than the weights of samples, of which a batch always has one that is not zero.
func fromData(v *ir.Value) bool {
	seen := map[*ir.Value]bool{}
	var walk func(v *ir.Value) bool
	walk = func(v *ir.Value) bool {
		switch {
		case v == nil || seen[v]:
			return false
		case v.Op == nil:
			return v.Role != ir.Weight
		}
		seen[v] = true
		return slices.ContainsFunc(v.Op.In, walk)
	}
	return walk(v)
}

// countEmpty appends the new number of steps in which nothing counted, and tells it.
func (u *updater) countEmpty() {
	b, e := u.b, u.empty
	b.Loc = ir.Loc{Node: abi.Empty, Derived: u.c.Pass}
	one := ops.ScalarLike(b, e.steps, 1)
	next := ops.Add(b, e.steps, ops.Where(b, e.some, ops.ScalarLike(b, e.steps, 0), one))
	b.Update(e.steps, b.Rename(next, e.steps.Name+".next"))
	b.Result(abi.Empty, b.Rename(ops.Cast(b, next, dtype.F32), abi.Empty))
}

// ifSome is next when something counts, else old.
func (u *updater) ifSome(next, old *ir.Value) *ir.Value {
	if u.empty == nil {
		return next
	}
	return ops.Where(u.b, ops.BroadcastTo(u.b, u.empty.some, next.Type.Dims), next, old)
}
