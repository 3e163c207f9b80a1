package trainstep

import (
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/passtest"
)

const identity2 = `func @forward(%x: f32[2,3], %p: f32[1] param) {
  %one = const {value=f32[1,1](1.0)} : f32[1,1]
  %e = expand %one {dims=[2,3]} : f32[2,3]
  %y = mul %x, %e : f32[2,3]
  return out0=%y
}`

const identity4 = `func @forward(%x: f32[2,3,2,2], %p: f32[1] param) {
  %y = abs %x : f32[2,3,2,2]
  return out0=%y
}`

const identityRows = `func @forward(%x: f32[1,2,3], %p: f32[1] param) {
  %y = reshape %x {dims=[2,3]} : f32[2,3]
  return out0=%y
}`

// lossOf compiles and evaluates a loss; weights nil means all 1. It returns @step's mean and @eval's correct.
func lossOf(t *testing.T, text, loss string, opt map[string]string, x, target, weights []float64) (mean, correct float64) {
	t.Helper()
	all := map[string]string{"loss": loss}
	for k, v := range opt {
		all[k] = v
	}
	c, err := passtest.Context("trainstep", text, all)
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(c); err != nil {
		t.Fatal(err)
	}
	if err := c.Module.Verify(); err != nil {
		t.Fatal(err)
	}
	args := map[string]*ir.Array{}
	step := c.Module.Func("step")
	for _, p := range step.Params {
		a := ir.NewArray(p.Type)
		for i := range a.F {
			switch {
			case p.Name == "x":
				a.F[i] = x[i]
			case p.Name == "target":
				a.F[i] = target[i]
			case p.Role == ir.Weight && weights == nil:
				a.F[i] = 1
			case p.Role == ir.Weight:
				a.F[i] = weights[i]
			}
		}
		for i := range a.I {
			a.I[i] = int64(target[i])
		}
		args[p.Name] = a
	}
	run := func(f *ir.Func) *interp.Outcome {
		out, err := interp.Run(f, args)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	s, e := run(step), run(c.Module.Func("eval"))
	if s.Named["loss_sum"].F[0] != e.Named["loss_sum"].F[0] {
		t.Errorf("%s: @step and @eval disagree", loss)
	}
	if n := e.Named["correct"]; n != nil {
		correct = n.F[0]
	}
	return s.Named["loss_sum"].F[0] / s.Named["count"].F[0], correct
}

// TestLossesAgainstTorch: values are torch.nn.functional's in float64.
func TestLossesAgainstTorch(t *testing.T) {
	x := []float64{0.2, 0.9, 0.4, 0.7, 0.05, 0.6}
	tgt := []float64{0, 1, 0.3, 0.5, 0, 2.5}
	prob := []float64{0, 1, 0.3, 0.5, 0, 0.5}
	logs := make([]float64, len(x))
	for i, v := range x {
		logs[i] = math.Log(v)
	}
	nchw := make([]float64, 24)
	for i := range nchw {
		nchw[i] = float64(i) / 7
	}
	for _, tc := range []struct {
		name, text, loss string
		opt              map[string]string
		x, target        []float64
		want, correct    float64
	}{
		{"mse", identity2, "mse", nil, x, tgt, 0.61875, 0},
		{"l1", identity2, "l1", nil, x, tgt, 0.425, 0},
		{"huber", identity2, "huber", map[string]string{"huberdelta": "0.5"}, x, tgt, 0.14604166666666665, 0},
		{"bce", identity2, "bce", nil, x, prob, 0.41769076158507223, 0},
		{"bce at the edges", identity2, "bce", nil, []float64{0, 1, 0, 0, 1, 0}, []float64{1, 1, 0, 1, 1, 0}, 33.333333333333336, 0},
		{"bce_logits", identity2, "bce_logits", nil, x, prob, 0.6902402739830437, 0},
		{"kl_div", identity2, "kl_div", nil, logs, prob, -0.040056833797548624, 0},
		{"cross entropy", identity2, "cross_entropy", nil, x, []float64{2, 0}, 1.0650139176636424, 1},
		{"cross entropy, ignored row", identity2, "cross_entropy", nil, x, []float64{2, -100}, 1.2434200371423096, 0},
		{"cross entropy, rows of one sample", identityRows, "cross_entropy", nil, x, []float64{2, 0}, 1.0650139176636424, 1},
		{"cross entropy, NCHW", identity4, "cross_entropy", nil, nchw, []float64{0, 1, 2, -100, 1, 1, 0, 2}, 1.2046265129447649, 2},
		{"nll", identity2, "nll", nil, logs, []float64{2, 0}, 0.6364828379064438, 1},
		{"nll, ignored row", identity2, "nll", nil, logs, []float64{-100, 0}, -math.Log(0.7), 1},
	} {
		mean, correct := lossOf(t, tc.text, tc.loss, tc.opt, tc.x, tc.target, nil)
		if !(math.Abs(mean-tc.want) < 1e-6) || correct != tc.correct {
			t.Errorf("%s: loss %.9g, want %.9g; correct %v, want %v", tc.name, mean, tc.want, correct, tc.correct)
		}
	}
}

// TestPaddingDoesNotCount: a sample of weight 0 leaves the loss of the others as it is.
func TestPaddingDoesNotCount(t *testing.T) {
	x := []float64{0.2, 0.9, 0.4, 0.7, 0.05, 0.6}
	mean, correct := lossOf(t, identity2, "cross_entropy", nil, x, []float64{2, 0}, []float64{1, 0})
	if math.Abs(mean-1.2434200371423096) > 1e-6 || correct != 0 {
		t.Errorf("loss %.9g, correct %v", mean, correct)
	}
	mean, _ = lossOf(t, identity2, "l1", nil, x, []float64{0, 1, 0.3, 9, 9, 9}, []float64{1, 0})
	if math.Abs(mean-0.4/3) > 1e-6 {
		t.Errorf("l1 is %v", mean)
	}
}
