// Package quant trains quantised models through the whole of gtc and compares with PyTorch.
package quant

import (
	"context"
	"testing"

	"github.com/gtc-compiler/gtc/compiler/check"
)

// compare runs gtc check on testdata/NAME.onnx and NAME.npz.
func compare(t *testing.T, name string, tol float64) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: builds kernels")
	}
	o := &check.Options{Reference: "testdata/" + name + ".npz", Tol: tol}
	o.Compile.Model = "testdata/" + name + ".onnx"
	o.Compile.Pass.Loss = "mse"
	o.Compile.Pass.DP, o.Compile.Pass.Microbatches = 1, 1
	r, err := check.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("out %.2g, loss %.2g, gradients %.2g, curves %v", r.Out, r.Loss, r.GradMax, r.Curves)
	if !r.OK || len(r.Unmatched) > 0 {
		t.Errorf("differs from PyTorch: %+v", r)
	}
}

// TestFakeQuantize compares quantisation-aware training with torch.fake_quantize: testdata/qat.py makes model and
// reference. Weights and activations lie on both sides of their clip ranges.
func TestFakeQuantize(t *testing.T) { compare(t, "qat", 1e-5) }

// TestFrozenWeights trains layers between frozen weights of 4 bits, float8 and int4: testdata/frozen.py makes model and
// reference.
func TestFrozenWeights(t *testing.T) { compare(t, "frozen", 1e-5) }

// TestElementTypes trains one model in several element types: parameters and gradients have the model's type.
// testdata/elements.py makes models and references. Targets and the loss are f32 in each.
func TestElementTypes(t *testing.T) {
	for name, tol := range map[string]float64{"f64": 1e-7, "f16": 5e-3, "bf16": 2e-2} {
		t.Run(name, func(t *testing.T) { compare(t, name, tol) })
	}
}
