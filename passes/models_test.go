package passes_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// batches is the batch of each model's reference where it is not 4.
var batches = map[string]int{"convnet_bn": 8, "mlp": 16}

// lossOf is the loss of each model's reference.
func lossOf(name string) string {
	switch name {
	case "unet_tiny":
		return "mse"
	case "gpt_loss_inside":
		return "graph"
	}
	return "cross_entropy"
}

// compile imports a file of the shared models and runs the front part of the pipeline on it.
func compile(t testing.TB, file string, opt *pass.Options) *pass.Context {
	t.Helper()
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	batch := batches[name]
	if batch == 0 {
		batch = 4
	}
	m, err := onnx.Load(file, onnx.Options{Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	mod, err := m.Import()
	if err != nil {
		t.Fatal(err)
	}
	opt.Loss, opt.IgnoreIndex, opt.Check, opt.SyncBN = lossOf(name), -100, true, true
	opt.StopAfter = "simplify"
	opt.DumpDir = os.Getenv("GTC_DUMP")
	c := &pass.Context{Module: mod, Opt: opt}
	if err := passes.Run(c, passes.Table); err != nil {
		t.Fatal(err)
	}
	return c
}

// inputs binds a reference's arrays to the parameters of @step.
func inputs(t testing.TB, f *npz.File, step *ir.Func) map[string]*ir.Array {
	args := map[string]*ir.Array{}
	n := 0
	for _, p := range step.Params {
		a := (*ir.Array)(nil)
		switch p.Role {
		case ir.Input:
			a = irtest.Array(t, f, fmt.Sprintf("in%d", n))
			n++
		case ir.Target:
			a = irtest.Array(t, f, "target")
		case ir.Weight:
			a = ir.NewArray(p.Type)
			for i := range a.F {
				a.F[i] = 1
			}
		default:
			continue
		}
		if a.Type.Elems() != p.Type.Elems() {
			t.Fatalf("%s is %s, the reference has %s", p.Name, p.Type, a.Type)
		}
		a.Type = p.Type
		args[p.Name] = a
	}
	return args
}

// relative is ‖got-want‖/‖want‖.
func relative(got, want []float64) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	d, n := 0.0, 0.0
	for i, x := range want {
		d += (got[i] - x) * (got[i] - x)
		n += x * x
	}
	return math.Sqrt(d / n)
}

// TestModelsAgainstTorch compiles the shared models and compares loss, outputs, gradients and training curves
// of the evaluated @step with PyTorch's float64 references. The evaluator is slow, so the timm models run
// only when GTC_TEST_MODEL says all or starts their names; gtc check runs all of them compiled.
func TestModelsAgainstTorch(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(fixtures.Path(t, "models"), "*.onnx"))
	only := os.Getenv("GTC_TEST_MODEL")
	skip := func(base string) bool {
		switch {
		case only != "":
			return only != "all" && !strings.HasPrefix(base, only)
		case testing.Short():
			return !strings.HasPrefix(base, "mlp")
		}
		return strings.HasPrefix(base, "timm") // minutes in the evaluator
	}
	for _, file := range files {
		base := filepath.Base(file)
		if skip(base) {
			continue
		}
		name, _, _ := strings.Cut(base, ".")
		if strings.HasSuffix(base, ".opt.onnx") && (name == "convnet_bn" || name == "timm_test_resnet") {
			continue // batch norms are folded away: another model
		}
		t.Run(base, func(t *testing.T) {
			ref, err := npz.Open(filepath.Join(filepath.Dir(file), name+".npz"))
			if err != nil {
				t.Fatal(err)
			}
			defer ref.Close()
			compareGradients(t, file, ref)
			for _, curve := range []string{"sgd", "adamw"} {
				compareCurve(t, file, ref, curve)
			}
		})
	}
}

func compareGradients(t *testing.T, file string, ref *npz.File) {
	c := compile(t, file, &pass.Options{})
	step := c.Module.Func("step")
	out, err := interp.Run(step, inputs(t, ref, step))
	if err != nil {
		t.Fatal(err)
	}
	loss := out.Named["loss_sum"].F[0] / out.Named["count"].F[0]
	if want := irtest.Array(t, ref, "loss").F[0]; !(math.Abs(loss-want) < 1e-5*math.Abs(want)) {
		t.Errorf("loss is %.9g, want %.9g", loss, want)
	}
	if e := relative(out.Named["out0"].F, irtest.Array(t, ref, "out0").F); !(e < 1e-5) {
		t.Errorf("out0 differs by %.3g", e)
	}
	scale, checked := 0.0, 0
	for _, n := range ref.Names() {
		if strings.HasPrefix(n, "grad/") {
			for _, x := range irtest.Array(t, ref, n).F {
				scale = max(scale, math.Abs(x))
			}
		}
	}
	for _, n := range ref.Names() {
		got := out.Named[n]
		if !strings.HasPrefix(n, "grad/") || got == nil {
			if strings.HasPrefix(n, "grad/") {
				t.Logf("%s is unmatched", n)
			}
			continue
		}
		checked++
		want := irtest.Array(t, ref, n).F
		if e := relative(got.F, want); !(e < 2e-5) && !small(got.F, want, scale) {
			t.Errorf("%s differs by %.3g", n, e)
		}
	}
	if checked == 0 {
		t.Errorf("no gradient was compared")
	}
}

// small reports whether two gradients agree absolutely, beside the largest element of any gradient.
func small(got, want []float64, scale float64) bool {
	for i := range want {
		if !(math.Abs(got[i]-want[i]) < 1e-6*scale) {
			return false
		}
	}
	return len(got) == len(want)
}

func compareCurve(t *testing.T, file string, ref *npz.File, name string) {
	o := pass.Optimizer{Name: "sgd", LR: 0.05, Momentum: 0.9}
	if name == "adamw" {
		o = pass.Optimizer{Name: "adamw", LR: 1e-3, WeightDecay: 0.01}
	}
	c := compile(t, file, &pass.Options{Optimizer: o})
	step := c.Module.Func("step")
	args := inputs(t, ref, step)
	want := irtest.Array(t, ref, "curve/"+name).F
	steps := len(want)
	if !strings.HasPrefix(filepath.Base(file), "mlp") {
		steps = 2
	}
	for i := range steps {
		out, err := interp.Run(step, args)
		if err != nil {
			t.Fatal(err)
		}
		loss := out.Named["loss_sum"].F[0] / out.Named["count"].F[0]
		if !(math.Abs(loss-want[i]) < 2e-5*math.Abs(want[i])) {
			t.Errorf("%s: loss before update %d is %.9g, want %.9g", name, i, loss, want[i])
			return
		}
		for p, a := range out.Updates {
			args[p] = a
		}
	}
}
