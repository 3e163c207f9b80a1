package optimizer

import (
	"math"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// scaling is dynamic loss scaling (Micikevicius et al. 2018, arXiv:1710.03740) with the policy of torch.amp.GradScaler. All
// that it decides is in the program: whether a step is good comes from the sum of the squares of all gradients, which all
// ranks and stages have, so that they agree; a step that is not leaves parameters and state as they were, by a select.
type scaling struct {
	scale, good, skipped *ir.Value // state
	by                   *ir.Value // f32[] how much larger the gradients are
	fine                 *ir.Value // bool[] every gradient is finite; nil until it is known
}

// takeScale removes the result in which autodiff tells the scale of the gradients; nil when they are not scaled.
func (u *updater) takeScale() *scaling {
	for i, r := range u.f.Results {
		if r.Name != pass.GradScale {
			continue
		}
		u.f.Results = append(u.f.Results[:i:i], u.f.Results[i+1:]...)
		s := &scaling{scale: u.f.Param(abi.LossScale), by: r.Value}
		s.good = u.b.Param(abi.GoodSteps, ir.T(dtype.I64), ir.State)
		s.skipped = u.b.Param(abi.SkippedSteps, ir.T(dtype.I64), ir.State)
		return s
	}
	return nil
}

// judge finds whether the step is good, from total, f64[], the sum of the squares of the scaled gradients.
func (s *scaling) judge(b *ir.Builder, total *ir.Value) {
	s.fine = b.Rename(ops.Lt(b, total, ops.ScalarLike(b, total, math.Inf(1))), "grads_finite")
}

// advance appends the new state, and tells what it is.
func (u *updater) advance() {
	s, b := u.scaling, u.b
	b.Loc = ir.Loc{Node: abi.LossScale, Derived: u.c.Pass}
	zero, one := ops.ScalarLike(b, s.good, 0), ops.ScalarLike(b, s.good, 1)
	skipped := ops.Add(b, s.skipped, u.ifSome(ops.Where(b, s.fine, zero, one), zero))
	b.Update(s.skipped, b.Rename(skipped, s.skipped.Name+".next"))
	scale := s.scale
	if u.c.Opt.LossScale == 0 {
		good := ops.Where(b, s.fine, ops.Add(b, s.good, one), zero)
		grow := ops.Ge(b, good, ops.ScalarLike(b, good, pass.GrowthEvery))
		grown := ops.Where(b, grow, ops.MulScalar(b, scale, pass.LossGrowth), scale)
		scale = ops.Where(b, s.fine, grown, ops.MulScalar(b, scale, pass.LossBackoff))
		scale = u.ifSome(scale, s.scale)
		b.Update(s.scale, b.Rename(scale, s.scale.Name+".next"))
		b.Update(s.good, b.Rename(u.ifSome(ops.Where(b, grow, zero, good), s.good), s.good.Name+".next"))
		b.Result(abi.LossScale, scale)
	}
	b.Result(abi.Skipped, b.Rename(ops.Cast(b, skipped, dtype.F32), abi.Skipped))
}

// unless is next, or old when the step is not good or empty.
func (u *updater) unless(old, next *ir.Value) *ir.Value {
	if u.scaling != nil {
		fine := ops.BroadcastTo(u.b, u.scaling.fine, next.Type.Dims)
		next = ops.Where(u.b, fine, next, old)
	}
	return u.ifSome(next, old)
}
