package cuda

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/bench/compile/deepen"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/nvrtc"
)

// places are the lines that say where in the model a kernel is used first.
var places = regexp.MustCompile(`(?m)^// .*\n`)

// TestDepthAddsNoKernels: 48 layers have the kernels of 12, to the letter, so that they compile in the same time. What grows
// is the lists of calls and their tables.
func TestDepthAddsNoKernels(t *testing.T) {
	if _, err := nvrtc.Open(nvrtc.Candidates("", os.Getenv)); err != nil {
		t.Log("NVRTC is absent: the kernels are counted, not compiled")
	}
	data, err := os.ReadFile(fixtures.Path(t, "models/gpt2_tiny.opt.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
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
		texts, kernels = append(texts, places.ReplaceAllString(string(text), "")), append(kernels, res.Manifest.Programs[0].Kernels)
		t.Logf("%d layers: %d kernels, %d bytes of CUDA C++; import and passes %v, code and kernels %v", layers,
			res.Manifest.Programs[0].Kernels, len(text), res.LowerTime, res.BuildTime)
	}
	if texts[0] != texts[1] {
		t.Errorf("12 layers have %d bytes of kernels, 48 layers %d: the texts differ, in the kernels first\n%s\n%s", len(texts[0]), len(texts[1]), first(texts[0], texts[1]), first(texts[1], texts[0]))
	}
	if kernels[0] != kernels[1] {
		t.Errorf("12 layers have %d kernels, 48 layers %d", kernels[0], kernels[1])
	}
}

// first is the first kernel of a that b has not got, empty where b has them all.
func first(a, b string) string {
	for _, k := range strings.SplitAfter(a, "\n}\n") {
		if !strings.Contains(b, k) {
			return k
		}
	}
	return ""
}
