package optimizer

import (
	"fmt"
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// TestEmpty: steps in which nothing counts leave no trace but in the counters: the others give to the bit what they give
// without them, to every rule, clipped or not, scaled or not, even when the gradients of such a step are no numbers.
func TestEmpty(t *testing.T) {
	for _, name := range Names() {
		for _, o := range []pass.Options{{}, {ClipNorm: 0.5}, {Precision: "fp16"}} {
			o.Optimizer = pass.Optimizer{Name: name, LR: 0.1, WeightDecay: 0.01}
			if name == sparseAdamName || name == rowwiseName { // which refuse it
				o.Optimizer.WeightDecay = 0
			}
			if name == "sgd" || name == "lars" {
				o.Optimizer.Momentum, o.Optimizer.Dampening = 0.9, 0.25
			}
			run := func(empty bool) *scaler {
				s := newScaler(t, &o)
				for i, g := range grads {
					if empty && i%2 == 0 { // the first step too
						s.args["count"].F[0] = 0
						s.step(0, 0, 0)
						near(t, name+": the rate", s.last.Named["lr"].F, []float64{0.1})
						s.step(0, math.NaN(), 0)
						s.args["count"].F[0] = 2
					}
					s.step(2*g[0], 2*g[1], 2*g[2])
				}
				return s
			}
			want, got := run(false), run(true)
			for key, w := range want.args {
				if key == "step" || key == "empty_steps" || key == "dp" {
					continue
				}
				if g := got.args[key]; fmt.Sprint(g.F, g.I) != fmt.Sprint(w.F, w.I) {
					t.Errorf("%s, clip %g, %s: %q is %v with empty steps, %v without", name, o.ClipNorm, o.Precision, key, g, w)
				}
			}
			if n := got.args["empty_steps"].I[0]; n != 4 || got.last.Named["empty"].F[0] != 4 || got.args["step"].I[0] != 8 {
				t.Errorf("%s: %d of %d steps are counted as empty, want 4 of 8", name, n, got.args["step"].I[0])
			}
		}
	}
}

// TestAlwaysCounts: where the count depends on nothing but the weights of samples, there is nothing to look for.
func TestAlwaysCounts(t *testing.T) {
	c, err := passtest.Context("optimizer", `
func @step(%p: f32[3] param, %sample_weight: f32[4] weight) {
  %s = reduce_sum %sample_weight {dims=[0]} : f32[1]
  %count = reshape %s : f32[]
  %g = mul %p, %p : f32[3]
  return loss_sum=%count, count=%count, "grad/p"=%g
}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(c); err != nil {
		t.Fatal(err)
	}
	if f := c.Module.Func("step"); f.Param(abi.EmptySteps) != nil || f.Result("empty") != nil {
		t.Errorf("a count of sample weights is looked at:\n%s", f)
	}
}

// TestEmptyGradients: what gtc check compares is zero in a step in which nothing counts, not NaN.
func TestEmptyGradients(t *testing.T) {
	s := newScaler(t, &pass.Options{Check: true, ClipNorm: 1, Optimizer: pass.Optimizer{LR: 0.1}})
	s.args["count"].F[0] = 0
	s.step(0, 0, 0)
	near(t, "gradient", s.last.Named["grad/p"].F, []float64{0, 0, 0})
	near(t, "norm", s.last.Named["grad_norm"].F, []float64{0})
}
