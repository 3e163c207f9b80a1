package optimizer

import (
	"math"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// checkSchedule refuses schedules that lack what their formula needs.
func checkSchedule(s pass.Schedule) error {
	switch s.Name {
	case "", "constant":
	case "linear", "cosine":
		if s.Steps <= 0 {
			return ir.Errorf(ir.Loc{}, "--schedule %s needs --total-steps, the number of steps after which it reaches its end", s.Name)
		}
		if s.Steps <= s.Warmup {
			return ir.Errorf(ir.Loc{}, "--schedule %s needs --total-steps of more than its --warmup of %d, not %d", s.Name, s.Warmup, s.Steps)
		}
	case "step":
		if s.Every <= 0 || s.Gamma <= 0 {
			return ir.Errorf(ir.Loc{}, "--schedule step needs --step-every and --gamma above 0, not %d and %v", s.Every, s.Gamma)
		}
	default:
		return ir.Errorf(ir.Loc{}, "unknown schedule %q", s.Name).Note("known are constant, linear, cosine, step")
	}
	if s.Warmup < 0 || s.MinLR < 0 {
		return ir.Errorf(ir.Loc{}, "--warmup %d and --min-lr %v must not be negative", s.Warmup, s.MinLR)
	}
	return nil
}

// schedule is the learning rate, f64[], of the update after done (f64[]) others.
//
//	linear  min + (lr-min)*(1-x), x = (done-warmup)/(steps-warmup) clamped to [0,1]
//	cosine  min + (lr-min)*(1+cos(pi*x))/2
//	step    lr*gamma^floor(done/every)
//
// During the warm-up it is lr*(done+1)/warmup.
func schedule(b *ir.Builder, done *ir.Value, lr float64, s pass.Schedule) *ir.Value {
	num := func(v float64) *ir.Value { return ops.ScalarLike(b, done, v) }
	rate := num(lr)
	switch s.Name {
	case "linear", "cosine":
		x := ops.Div(b, ops.Sub(b, done, num(float64(s.Warmup))), num(float64(s.Steps-s.Warmup)))
		x = ops.Minimum(b, ops.Maximum(b, x, num(0)), num(1))
		if s.Name == "linear" {
			x = ops.Sub(b, num(1), x)
		} else {
			x = ops.MulScalar(b, ops.AddScalar(b, ops.Cos(b, ops.MulScalar(b, x, math.Pi)), 1), 0.5)
		}
		rate = ops.AddScalar(b, ops.MulScalar(b, x, lr-s.MinLR), s.MinLR)
	case "step":
		drops := ops.Floor(b, ops.Div(b, done, num(float64(s.Every))))
		rate = ops.Mul(b, rate, ops.Pow(b, num(s.Gamma), drops))
	}
	if s.Warmup > 0 {
		warm := ops.MulScalar(b, ops.AddScalar(b, done, 1), lr/float64(s.Warmup))
		rate = ops.Where(b, ops.Lt(b, done, num(float64(s.Warmup))), warm, rate)
	}
	return rate
}
