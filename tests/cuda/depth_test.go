package cuda

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/gtc-compiler/gtc/bench/compile/deepen"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/nvrtc"
)

// numbers is a kernel that adds up what each parameter's gradient contributes to the norm of all: one line for each.
var numbers = regexp.MustCompile(`(?s)extern "C" [^\n]* numbers_.*?\n}\n`)

// TestDepthAddsNoKernels: 48 layers have the kernels of 12, so that they compile in about the time. What grows is the lists
// of calls.
func TestDepthAddsNoKernels(t *testing.T) {
	if _, err := nvrtc.Open(nvrtc.Candidates("", os.Getenv)); err != nil {
		t.Log("NVRTC is absent: the kernels are counted, not compiled")
	}
	data, err := os.ReadFile(filepath.Join(dir, "gpt2_tiny.opt.onnx"))
	if err != nil {
		t.Skip("shared/ is absent: its models are not there to deepen")
	}
	var sizes []int
	var kernels []int
	for _, layers := range []int{12, 48} {
		deep, err := deepen.Repeat(data, deepen.GPT2, layers)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "deep.onnx")
		if err := os.WriteFile(file, deep, 0o666); err != nil {
			t.Fatal(err)
		}
		o := &compiler.Options{Model: file, Out: t.TempDir()}
		o.Pass = pass.Options{Target: pass.CUDA, Arch: []string{"sm_90"}, Loss: "cross_entropy", IgnoreIndex: -100,
			Optimizer: pass.Optimizer{Name: "adamw", LR: 1e-3}, ClipNorm: 1}
		res, err := compiler.Run(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(o.Out, "prog0", "kernels.cu"))
		if err != nil {
			t.Fatal(err)
		}
		sizes, kernels = append(sizes, len(numbers.ReplaceAll(text, nil))), append(kernels, res.Manifest.Programs[0].Kernels)
		t.Logf("%d layers: %d kernels, %d bytes of CUDA C++; import and passes %v, code and kernels %v", layers,
			res.Manifest.Programs[0].Kernels, len(text), res.LowerTime, res.BuildTime)
	}
	// The norm of all gradients is a sum over as many numbers as there are parameters: its sizes are in the text.
	if a, b := sizes[0], sizes[1]; b < a-a/50 || b > a+a/50 {
		t.Errorf("12 layers have %d bytes of kernels, 48 layers %d", a, b)
	}
	if kernels[0] != kernels[1] {
		t.Errorf("12 layers have %d kernels, 48 layers %d", kernels[0], kernels[1])
	}
}
