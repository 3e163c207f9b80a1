package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/gtc-compiler/gtc/bench/compile/deepen"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/internal/fixtures"
)

// deep writes gpt2_tiny with n layers in place of two.
func deep(t *testing.T, name string, n int) string {
	t.Helper()
	data, err := os.ReadFile(fixtures.Path(t, "models/"+name))
	if err != nil {
		t.Fatal(err)
	}
	if data, err = deepen.Repeat(data, deepen.GPT2, n); err != nil {
		t.Fatal(err)
	}
	return file(t, "deep.onnx", data)
}

// What the C compiler has to do does not depend on the depth of a model: 12 layers have the kernels of 2. Times are for
// bench/compile, which measures what remains: passes and lists of calls.
func TestDepthAddsNoKernels(t *testing.T) {
	for _, name := range []string{"gpt2_tiny.dynamo.onnx", "gpt2_tiny.opt.onnx"} {
		t.Run(name, func(t *testing.T) {
			var kernels, code []int
			for _, layers := range []int{2, 12} {
				s := spec{model: deep(t, name, layers), batch: 4, lr: 1e-3}
				res, err := compiler.Run(context.Background(), s.options(filepath.Join(t.TempDir(), "out")))
				if err != nil {
					t.Fatal(err)
				}
				text, err := os.ReadFile(filepath.Join(res.Dir, "prog0", "kernels.c"))
				if err != nil {
					t.Fatal(err)
				}
				launch, err := os.ReadFile(filepath.Join(res.Dir, "prog0", "launch.go"))
				if err != nil {
					t.Fatal(err)
				}
				kernels, code = append(kernels, res.Manifest.Programs[0].Kernels), append(code, len(text)+len(launch))
				t.Logf("%d layers: %d kernels, %d bytes of C and %d of launchers; import and passes %v, writing %v", layers,
					res.Manifest.Programs[0].Kernels, len(text), len(launch), res.LowerTime, res.BuildTime)
			}
			if kernels[1] != kernels[0] || code[1] != code[0] {
				t.Errorf("2 layers have %d kernels in %d bytes of code, 12 layers %d in %d", kernels[0], code[0], kernels[1], code[1])
			}
		})
	}
}
