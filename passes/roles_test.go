package passes_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// partly are parameters that a file holds in part only, or of another shape: they have no gradient by their name, and the
// curves show that what is left of them is trained as PyTorch does.
var partly = map[string][]string{
	"bias.onnx":      {"t"},
	"positions.onnx": {"e.weight", "p.weight"}, // e.weight is tied: the file calls it o.weight
}

// TestRoles trains what PyTorch's exporter made of parameters by folding, and compares gradients and curves with PyTorch's, which
// tests/torch/roles_reference.py wrote together with the models.
func TestRoles(t *testing.T) {
	files, _ := filepath.Glob("testdata/roles/*.onnx")
	if len(files) < 10 {
		t.Fatalf("%d models", len(files))
	}
	for _, file := range files {
		base := filepath.Base(file)
		t.Run(base, func(t *testing.T) {
			ref, err := npz.Open(strings.TrimSuffix(file, ".onnx") + ".npz")
			if err != nil {
				t.Fatal(err)
			}
			defer ref.Close()
			for _, o := range []pass.Optimizer{{Name: "sgd", LR: 0.05, Momentum: 0.9}, {Name: "adamw", LR: 1e-3, WeightDecay: 0.01}} {
				first := follow(t, file, ref, o)
				var missing []string
				for _, name := range ref.Names() {
					want, ok := strings.CutPrefix(name, "grad/")
					if !ok {
						continue
					}
					g, r := first.Named[name], irtest.Array(t, ref, name)
					if g == nil {
						missing = append(missing, want)
					} else if e := relative(g.F, r.F); e > 1e-4 && !small(g.F, r.F, 1) {
						t.Errorf("the gradient of %s differs by %.3g", want, e)
					}
				}
				if slices.Sort(missing); !slices.Equal(missing, partly[base]) {
					t.Errorf("no gradients of %v, want none of %v", missing, partly[base])
				}
			}
		})
	}
}

// follow compares a training curve and returns the first step's results.
func follow(t *testing.T, file string, ref *npz.File, o pass.Optimizer) *interp.Outcome {
	m, err := onnx.Load(file, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	mod, err := m.Import()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Warnings) > 0 {
		t.Errorf("warnings %q", m.Warnings)
	}
	c := &pass.Context{Module: mod, Opt: &pass.Options{Loss: "mse", Check: true, StopAfter: "simplify", Optimizer: o}}
	if err := passes.Run(c, passes.Table); err != nil {
		t.Fatal(err)
	}
	step := mod.Func("step")
	args := inputs(t, ref, step)
	var first *interp.Outcome
	var got []float64
	want := irtest.Array(t, ref, "curve/"+o.Name).F
	for range want {
		out, err := interp.Run(step, args)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = out
		}
		got = append(got, out.Named["loss_sum"].F[0]/out.Named["count"].F[0])
		for p, a := range out.Updates {
			args[p] = a
		}
	}
	if e := relative(got, want); e > 1e-5 {
		t.Errorf("%s: the losses %v differ by %.3g from %v", o.Name, got, e, want)
	}
	return first
}
