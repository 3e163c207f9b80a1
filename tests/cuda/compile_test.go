package cuda

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/nvrtc"
)

// TestNoSpills compiles all kernels of shared models for sm_80 and sm_90: of a few, with GTC_LONG=1 of all, in single and half
// precision. Those of the pointwise and reduction families, which gtc generates, must keep their values in
// registers.
func TestNoSpills(t *testing.T) {
	if _, err := nvrtc.Open(nvrtc.Candidates("", os.Getenv)); err != nil {
		t.Skipf("NVRTC is absent: no kernel is compiled for a GPU (%v)", err)
	}
	families := map[string]int{}
	for _, file := range models(t) {
		for _, precision := range precisions(file) {
			t.Run(filepath.Base(file)+"/"+precision, func(t *testing.T) {
				o := options(t, file)
				o.Compile.Pass.Precision = precision
				o.Compile.Pass.Optimizer = pass.Optimizer{Name: "adamw", LR: 1e-3, WeightDecay: 0.01}
				o.Compile.Pass.ClipNorm = 1
				o.Compile.Out = t.TempDir()
				res, err := compiler.Run(context.Background(), &o.Compile)
				if err != nil {
					t.Fatal(err)
				}
				gpu := res.Manifest.GPU
				if !slices.Equal(gpu.Arch, pass.DefaultArchs()) || len(gpu.Kernels) != 2*res.Manifest.Programs[0].Kernels {
					t.Fatalf("%d figures of %d kernels for %v", len(gpu.Kernels), res.Manifest.Programs[0].Kernels, gpu.Arch)
				}
				for _, k := range gpu.Kernels {
					families[k.Family]++
					if k.Registers < 2 {
						t.Errorf("%s on %s: %d registers?", k.Name, k.Arch, k.Registers)
					}
					if k.Spills > 0 && (k.Family == "pointwise" || k.Family == "reduction") {
						t.Errorf("%s on %s spills %d bytes", k.Name, k.Arch, k.Spills)
					}
				}
			})
		}
	}
	t.Logf("kernels by family, each for two chips: %v", families)
	if families["pointwise"] == 0 || families["reduction"] == 0 {
		t.Error("no kernels of the families that are looked at")
	}
}

// precisions are those that a file's kernels are compiled in: none for most files by default, as it takes a while.
func precisions(file string) []string {
	switch base := filepath.Base(file); {
	case os.Getenv("GTC_LONG") != "":
		return []string{"fp32", "bf16"}
	case base == "gpt2_tiny.opt.onnx":
		return []string{"bf16"}
	case base == "convnet_bn.onnx" || base == "lstm_lm.onnx":
		return []string{"fp32"}
	}
	return nil
}
