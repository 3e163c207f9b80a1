package cuda

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/passes/pass"
	target "github.com/gtc-compiler/gtc/target/cuda"
)

// TestNoSpills compiles all kernels of shared models: of a few for one chip each, with GTC_LONG=1 of all for sm_80 and sm_90, in
// single and half precision. Those of the pointwise and reduction families, which gtc generates, must keep their values in
// registers.
func TestNoSpills(t *testing.T) {
	fixtures.NVRTC(t)
	families := map[string]int{}
	for _, file := range models(t) {
		precisions, archs := compilations(file)
		for _, precision := range precisions {
			t.Run(filepath.Base(file)+"/"+precision, func(t *testing.T) {
				o := options(t, file)
				o.Compile.Pass.Arch = archs
				o.Compile.Pass.Precision = precision
				o.Compile.Pass.Optimizer = pass.Optimizer{Name: "adamw", LR: 1e-3, WeightDecay: 0.01}
				o.Compile.Pass.ClipNorm = 1
				o.Compile.Out = t.TempDir()
				res, err := compiler.Run(context.Background(), &o.Compile)
				if err != nil {
					t.Fatal(err)
				}
				gpu := res.Manifest.GPU
				if !slices.Equal(gpu.Arch, archs) || len(gpu.Kernels) != len(archs)*res.Manifest.Programs[0].Kernels {
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
	t.Logf("kernels by family: %v", families)
	if families["pointwise"] == 0 || families["reduction"] == 0 {
		t.Error("no kernels of the families that are looked at")
	}
}

// compilations are the precisions that a file's kernels are compiled in, and the chips that they are for: none for most files by
// default, as it takes a while.
func compilations(file string) (precisions, archs []string) {
	switch base := filepath.Base(file); {
	case os.Getenv("GTC_LONG") != "":
		return []string{"fp32", "bf16"}, target.Target.Traits().Chips
	case base == "gpt2_tiny.opt.onnx":
		return []string{"bf16"}, []string{"sm_90"}
	case base == "convnet_bn.onnx" || base == "lstm_lm.onnx":
		return []string{"fp32"}, []string{"sm_80"}
	}
	return nil, nil
}
