package passes_test

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// TestLoRA trains adapters of an embedding, of weights of both orientations, of a convolution and of a weight that is
// read in parts, and compares gradients and curves with PyTorch's, whose numbers
// tests/torch/lora_reference.py wrote.
func TestLoRA(t *testing.T) {
	ref, err := npz.Open("testdata/lora.npz")
	if err != nil {
		t.Fatal(err)
	}
	defer ref.Close()
	for _, o := range []pass.Optimizer{{Name: "sgd", LR: 0.05, Momentum: 0.9}, {Name: "adamw", LR: 1e-2, WeightDecay: 0.01}} {
		adapters := pass.LoRA{Rank: 2, Alpha: 6, Targets: []string{"emb", "q_proj.weight", "c_attn", "*conv*.weight", "in_proj_weight"}}
		m, err := onnx.Load("testdata/lora.onnx", onnx.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		mod, err := m.Import()
		if err != nil {
			t.Fatal(err)
		}
		c := &pass.Context{Module: mod, Opt: &pass.Options{LoRA: adapters, Loss: "mse", Check: true, StopAfter: "simplify", Optimizer: o}}
		if err := passes.Run(c, passes.Table); err != nil {
			t.Fatal(err)
		}
		step := mod.Func("step")
		args := inputs(t, ref, step)
		for _, p := range step.Params {
			switch has := strings.Contains(p.Name, "lora_"); {
			case p.Role == ir.Param && has:
				args[p.Name] = irtest.Array(t, ref, "at/"+p.Name)
				args[p.Name].Type = p.Type
			case p.Role == ir.Param || has && p.Role == ir.Buffer:
				t.Errorf("%s is a %s", p.Name, p.Role)
			}
		}
		for i, want := range irtest.Array(t, ref, "curve/"+o.Name).F {
			out, err := interp.Run(step, args)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				compareNamed(t, ref, "grad/", out.Named)
			}
			if loss := out.Named["loss_sum"].F[0] / out.Named["count"].F[0]; relative([]float64{loss}, []float64{want}) > 1e-5 {
				t.Errorf("%s: loss before update %d is %.9g, want %.9g", o.Name, i, loss, want)
			}
			for p, a := range out.Updates {
				args[p] = a
			}
		}
	}
}

// compareNamed holds every array of the reference that begins with prefix to the result of that name.
func compareNamed(t *testing.T, ref *npz.File, prefix string, got map[string]*ir.Array) {
	n := 0
	for _, name := range ref.Names() {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		n++
		if got[name] == nil {
			t.Errorf("there is no %s", name)
		} else if e := relative(got[name].F, irtest.Array(t, ref, name).F); e > 1e-5 {
			t.Errorf("%s differs by %.3g", name, e)
		}
	}
	if n == 0 {
		t.Errorf("the reference has no %s", prefix)
	}
}
