package optimizer

import (
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
)

// scaled is smallest with gradients that are larger by the loss scale.
const scaled = `
func @step(%p: f32[3] param, %dp: f32[3], %count: f32[], %loss_sum: f32[], %loss_scale: f32[] state) {
  %one = const {value=f32[](1.0)} : f32[]
  %s = mul %loss_scale, %one : f32[]
  %r = reshape %s {dims=[1]} : f32[1]
  %by = expand %r {dims=[3]} : f32[3]
  %g = mul %dp, %by : f32[3]
  return loss_sum=%loss_sum, count=%count, "grad/p"=%g, grad_scale=%s
}`

// scaler runs the update over sums of gradients, with fp16 with loss scaling.
type scaler struct {
	t    *testing.T
	f    *ir.Func
	args map[string]*ir.Array
	last *interp.Outcome
}

func newScaler(t *testing.T, o *pass.Options) *scaler {
	t.Helper()
	text := smallest
	if o.Precision == "fp16" {
		text = scaled
	}
	c, err := passtest.Context("optimizer", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Opt = o
	if err := Run(c); err != nil {
		t.Fatal(err)
	}
	if err := c.Module.Verify(); err != nil {
		t.Fatal(err)
	}
	scalar := func(v float64) *ir.Array { return &ir.Array{Type: ir.T(1), F: []float64{v}} }
	return &scaler{t: t, f: c.Module.Func("step"), args: map[string]*ir.Array{"count": scalar(2), "loss_sum": scalar(0), "loss_scale": scalar(65536),
		"p": {Type: ir.T(1, 3), F: append([]float64{}, start...)}}}
}

func (s *scaler) step(sum ...float64) {
	s.t.Helper()
	s.args["dp"] = &ir.Array{Type: ir.T(1, 3), F: sum}
	out, err := interp.Run(s.f, s.args)
	if err != nil {
		s.t.Fatal(err)
	}
	for name, a := range out.Updates {
		s.args[name] = a
	}
	s.last = out
}

// TestSkip: steps with a gradient that is not finite leave no trace but in the scale and the counters: the others give what
// they give without them, to every rule.
func TestSkip(t *testing.T) {
	for _, name := range Names() {
		for _, clip := range []float64{0, 0.5} {
			o := &pass.Options{ClipNorm: clip, Precision: "fp16", Optimizer: pass.Optimizer{Name: name, LR: 0.1, WeightDecay: 0.01}}
			if name == "sgd" || name == "lars" {
				o.Optimizer.Momentum = 0.9
			}
			if name == sparseAdamName || name == rowwiseName {
				o.Optimizer.WeightDecay = 0 // they have none
			}
			plain := *o
			plain.Precision = ""
			want, _, _ := train(t, &plain)
			s := newScaler(t, o)
			for i, g := range grads {
				s.step(2*g[0], 2*g[1], 2*g[2])
				if i == 1 {
					s.step(0.1, math.Inf(1), 0)
					s.step(math.NaN(), 0, 1)
				}
			}
			near(t, name, s.args["p"].F, want)
			if got := s.args["loss_scale"].F[0]; got != 16384 {
				t.Errorf("%s: the scale is %g after two overflows, want 16384", name, got)
			}
			if n := s.args["loss_scale_skipped"].I[0]; n != 2 || s.last.Named["skipped"].F[0] != 2 {
				t.Errorf("%s: %d steps are counted as skipped, want 2", name, n)
			}
			if n := s.args["step"].I[0]; n != int64(len(grads)+2) {
				t.Errorf("%s: the counter of steps is %d", name, n)
			}
		}
	}
}

// TestGrowth: the scale doubles after 2000 good steps in a row, and the count begins anew.
func TestGrowth(t *testing.T) {
	s := newScaler(t, &pass.Options{Precision: "fp16", Optimizer: pass.Optimizer{LR: 0.1}})
	s.step(1, 1, 1)
	s.args["loss_scale_good"].I[0] = pass.GrowthEvery - 2
	s.step(1, 1, 1)
	if got := s.args["loss_scale"].F[0]; got != 65536 {
		t.Errorf("the scale is %g one step too early", got)
	}
	s.step(1, 1, 1)
	if got, n := s.args["loss_scale"].F[0], s.args["loss_scale_good"].I[0]; got != 131072 || n != 0 {
		t.Errorf("the scale is %g after %d good steps, want 131072 after 0", got, n)
	}
	s.step(1, 1, 1)
	s.step(1, math.NaN(), 1)
	if got, n := s.args["loss_scale"].F[0], s.args["loss_scale_good"].I[0]; got != 65536 || n != 0 {
		t.Errorf("the scale is %g after an overflow and %d good steps, want 65536 and 0", got, n)
	}
}

// TestFixedScale: a fixed scale stays, and steps are skipped all the same.
func TestFixedScale(t *testing.T) {
	s := newScaler(t, &pass.Options{Precision: "fp16", LossScale: 65536, Optimizer: pass.Optimizer{LR: 0.1}})
	s.step(1, math.Inf(-1), 1)
	near(t, "p", s.args["p"].F, start)
	if s.args["loss_scale"].F[0] != 65536 || s.args["loss_scale_skipped"].I[0] != 1 {
		t.Errorf("scale %g, skipped %d", s.args["loss_scale"].F[0], s.args["loss_scale_skipped"].I[0])
	}
}
