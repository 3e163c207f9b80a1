package optimizer

import (
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
)

// smallest is a step with one parameter whose summed gradient over two elements is given.
const smallest = `
func @step(%p: f32[3] param, %dp: f32[3], %count: f32[], %loss_sum: f32[]) {
  return loss_sum=%loss_sum, count=%count, "grad/p"=%dp
}`

var (
	start = []float64{0.5, -1.25, 2.0}
	grads = [][]float64{{0.1, -0.2, 0.3}, {0.4, 0.0, -0.6}, {-0.05, 0.7, 0.25}, {1.5, -0.3, 0.02}}
)

// train runs the compiled update over grads (given as sums over 2 elements) and returns p and the results lr and
// grad_norm of each step.
func train(t *testing.T, o *pass.Options) (p []float64, lr, norm []float64) {
	t.Helper()
	c, err := passtest.Context("optimizer", smallest, nil)
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
	f := c.Module.Func("step")
	array := func(v ...float64) *ir.Array { return &ir.Array{Type: ir.T(1, len(v)), F: append([]float64{}, v...)} }
	scalar := func(v float64) *ir.Array { return &ir.Array{Type: ir.T(1), F: []float64{v}} }
	args := map[string]*ir.Array{"p": array(start...), "count": scalar(2), "loss_sum": scalar(0)}
	for _, g := range grads {
		args["dp"] = array(2*g[0], 2*g[1], 2*g[2])
		out, err := interp.Run(f, args)
		if err != nil {
			t.Fatal(err)
		}
		for name, a := range out.Updates {
			args[name] = a
		}
		lr = append(lr, out.Named["lr"].F[0])
		if n := out.Named["grad_norm"]; n != nil {
			norm = append(norm, n.F[0])
		}
	}
	return args["p"].F, lr, norm
}

func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
		return
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) < 3e-6) {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

// TestAgainstTorch compares four updates with those of PyTorch 2 in float64, started from the same values.
func TestAgainstTorch(t *testing.T) {
	for _, tc := range []struct {
		name string
		opt  pass.Options
		want []float64
	}{
		{"sgd", pass.Options{Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1}}, []float64{0.305, -1.27, 2.003}},
		{"sgd momentum", pass.Options{Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1, Momentum: 0.9, WeightDecay: 0.01}},
			[]float64{0.21242961466, -1.27303651515, 1.99192743563}},
		{"sgd dampening", pass.Options{Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1, Momentum: 0.9, Dampening: 0.25}},
			[]float64{0.278935, -1.25847, 1.981655}},
		{"sgd nesterov", pass.Options{Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1, Momentum: 0.9, Nesterov: true, WeightDecay: 0.01}},
			[]float64{0.0445815173297, -1.28581568941, 1.98780163866}},
		{"adam", pass.Options{Optimizer: pass.Optimizer{Name: "adam", LR: 0.1, WeightDecay: 0.01}},
			[]float64{0.180556421906, -1.13466844748, 1.92877069716}},
		{"adamw", pass.Options{Optimizer: pass.Optimizer{Name: "adamw", LR: 0.1, WeightDecay: 0.01}},
			[]float64{0.180782061414, -1.13920125971, 1.93485221215}},
		{"adagrad", pass.Options{Optimizer: pass.Optimizer{Name: "adagrad", LR: 0.1, WeightDecay: 0.01}},
			[]float64{0.218086643729, -1.20036530723, 1.94439831762}},
		{"rmsprop", pass.Options{Optimizer: pass.Optimizer{Name: "rmsprop", LR: 0.1, WeightDecay: 0.01}},
			[]float64{-2.27375232266, -0.800337760514, 1.45733875671}},
		{"rmsprop momentum", pass.Options{Optimizer: pass.Optimizer{Name: "rmsprop", LR: 0.1, Alpha: 0.9, Momentum: 0.9}},
			[]float64{-1.65182987071, -0.617640110182, 1.45533291909}},
		{"adam without momentum", pass.Options{Optimizer: pass.Optimizer{Name: "adam", LR: 0.1, Zero: []string{"beta1"}}},
			[]float64{0.0910660576997, -1.24028970996, 1.96039785548}},
		{"adam without eps", pass.Options{Optimizer: pass.Optimizer{Name: "adam", LR: 0.1, Zero: []string{"eps"}}},
			[]float64{0.182242389639, -1.1438073236, 1.94261789792}},
		{"rmsprop without memory", pass.Options{Optimizer: pass.Optimizer{Name: "rmsprop", LR: 0.1, Zero: []string{"alpha"}}},
			[]float64{0.299999993167, -1.1500000069, 1.80000005567}},
		{"clipped", pass.Options{ClipNorm: 0.5, Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1}},
			[]float64{0.416595992662, -1.26717589845, 1.99416991401}},
	} {
		p, _, _ := train(t, &tc.opt)
		near(t, tc.name, p, tc.want)
	}
}

func norm2(v []float64) float64 {
	s := 0.0
	for _, x := range v {
		s += x * x
	}
	return math.Sqrt(s)
}

// TestAgainstPapers compares with the formulas of the papers, written out per element.
func TestAgainstPapers(t *testing.T) {
	const lr, wd = 0.1, 0.01
	formulas := map[string]func(step int, p, m, v, g []float64){
		"lion": func(_ int, p, m, _, g []float64) {
			for i := range p {
				u := 0.9*m[i] + 0.1*g[i]
				sign := 0.0
				if u != 0 {
					sign = math.Copysign(1, u)
				}
				p[i] -= lr * (sign + wd*p[i])
				m[i] = 0.99*m[i] + 0.01*g[i]
			}
		},
		"lamb": func(step int, p, m, v, g []float64) {
			dir := make([]float64, len(p))
			for i := range p {
				m[i], v[i] = 0.9*m[i]+0.1*g[i], 0.999*v[i]+0.001*g[i]*g[i]
				mh, vh := m[i]/(1-math.Pow(0.9, float64(step))), v[i]/(1-math.Pow(0.999, float64(step)))
				dir[i] = mh/(math.Sqrt(vh)+1e-6) + wd*p[i]
			}
			trust := norm2(p) / norm2(dir)
			for i := range p {
				p[i] -= lr * trust * dir[i]
			}
		},
		"lars": func(_ int, p, m, _, g []float64) {
			local := 0.001 * norm2(p) / (norm2(g) + wd*norm2(p))
			for i := range p {
				m[i] = 0.9*m[i] + lr*local*(g[i]+wd*p[i])
				p[i] -= m[i]
			}
		},
	}
	for name, f := range formulas {
		p, m, v := append([]float64{}, start...), make([]float64, 3), make([]float64, 3)
		for i, g := range grads {
			f(i+1, p, m, v, g)
		}
		o := pass.Optimizer{Name: name, LR: lr, WeightDecay: wd}
		if name == "lars" {
			o.Momentum = 0.9
		}
		got, _, _ := train(t, &pass.Options{Optimizer: o})
		near(t, name, got, p)
	}
}

func TestSchedules(t *testing.T) {
	sgd := pass.Optimizer{Name: "sgd", LR: 1}
	cos := func(x float64) float64 { return 0.1 + 0.9*0.5*(1+math.Cos(math.Pi*x)) }
	for _, tc := range []struct {
		s    pass.Schedule
		want []float64
	}{
		{pass.Schedule{}, []float64{1, 1, 1, 1}},
		{pass.Schedule{Warmup: 2}, []float64{0.5, 1, 1, 1}},
		{pass.Schedule{Name: "linear", Steps: 2, MinLR: 0.1}, []float64{1, 0.55, 0.1, 0.1}},
		{pass.Schedule{Name: "cosine", Warmup: 1, Steps: 4, MinLR: 0.1}, []float64{1, cos(0), cos(1. / 3), cos(2. / 3)}},
		{pass.Schedule{Name: "step", Every: 2, Gamma: 0.5}, []float64{1, 1, 0.5, 0.5}},
	} {
		_, lr, _ := train(t, &pass.Options{Optimizer: sgd, Schedule: tc.s})
		near(t, tc.s.Name, lr, tc.want)
	}
}

func TestGradNormIsOfTheMean(t *testing.T) {
	var want []float64
	for _, g := range grads {
		want = append(want, norm2(g))
	}
	for _, o := range []*pass.Options{{ClipNorm: 1}, {GradNorm: true}, {GradNorm: true, ClipNorm: 1}} {
		o.Optimizer.LR = 0.1
		_, _, norm := train(t, o)
		near(t, "grad_norm", norm, want)
	}
}

func TestGlobs(t *testing.T) {
	for _, tc := range []struct {
		glob, name string
		want       bool
	}{{"*.bias", "layers.0.fc.bias", true}, {"*norm*", "h.1.norm/weight", true}, {"w?", "w1", true}, {"w", "w1", false}, {"*", "", true}} {
		if match(tc.glob, tc.name) != tc.want {
			t.Errorf("match(%q, %q) is not %v", tc.glob, tc.name, tc.want)
		}
	}
}
