package codegentest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/codegen/c"
	"github.com/gtc-compiler/gtc/codegen/cuda"
	"github.com/gtc-compiler/gtc/codegen/kernel"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

var update = flag.Bool("update", false, "rewrite ir/kir/testdata/models.kir, the seeds of the fuzzed round trip")

// TestKernelsOfModels: every fused kernel of the examples' training programs is printed as text that reads back as the same
// kernel: the text is the same, and so is what C and CUDA make of it.
func TestKernelsOfModels(t *testing.T) {
	var all []string
	for _, m := range []struct {
		file   string
		target string
		set    func(o *pass.Options)
	}{
		{"mnist/cnn.onnx", "cpu", func(o *pass.Options) {}},
		{"shakespeare/gpt.onnx", "cuda", func(o *pass.Options) { o.Precision = "bf16" }},
		{"shakespeare/gpt.onnx", "cpu", func(o *pass.Options) { o.Precision, o.LossScale = "fp16", 1024 }},
	} {
		o := &pass.Options{Loss: "cross_entropy", IgnoreIndex: -100, ClipNorm: 1, Optimizer: pass.Optimizer{Name: "adamw", LR: 2e-3}, Target: m.target}
		m.set(o)
		list := kernelsOf(t, filepath.Join("..", "..", "examples", filepath.FromSlash(m.file)), o)
		if len(list) < 10 {
			t.Errorf("%s for %s: only %d kernels", m.file, m.target, len(list))
		}
		for _, k := range list {
			all = append(all, readBack(t, k))
		}
	}
	t.Logf("%d kernels", len(all))
	if *update {
		text := "# Fused kernels of the examples' training programs: seeds of the fuzzed round trip.\n" + strings.Join(all, "\n")
		if err := os.WriteFile(filepath.FromSlash("../../ir/kir/testdata/models.kir"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// kernelsOf are the distinct fused kernels of a model's training program.
func kernelsOf(t *testing.T, file string, o *pass.Options) []*kir.Kernel {
	t.Helper()
	m, err := onnx.Load(file, onnx.Options{Batch: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	mod, err := m.Import()
	if err != nil {
		t.Fatal(err)
	}
	if err := passes.Run(&pass.Context{Module: mod, Opt: o}, passes.Table); err != nil {
		t.Fatal(err)
	}
	var list []*kir.Kernel
	seen := map[string]bool{}
	for _, f := range mod.Funcs {
		outs := group.Outputs(f)
		for _, g := range group.List(f) {
			if k := group.Impl(g.Ops[0]).Kind; g.Ops[0].Def.Rules.Collective != "" || k != kir.Pointwise && k != kir.Reduce && k != kir.View {
				continue
			}
			b, err := kernel.Build(g, outs[g.ID])
			if err != nil {
				t.Fatal(err)
			}
			if text := b.Kernel.String(); !seen[text] {
				seen[text] = true
				list = append(list, b.Kernel)
			}
		}
	}
	return list
}

// readBack gives the kernel's text, which must hold all that printers ask.
func readBack(t *testing.T, k *kir.Kernel) string {
	t.Helper()
	text := k.String()
	again, err := kir.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if err := again.Verify(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if again.String() != text {
		t.Errorf("read back as another kernel:\n%s%s", text, again)
	}
	want, err := c.Function("NAME", "", k)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Function("NAME", "", again); err != nil || got != want {
		t.Errorf("%v: printed in C as\n%sand before as\n%s", err, got, want)
	}
	on, _, err := cuda.Kernels("NAME", k)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := cuda.Kernels("NAME", again)
	if err != nil || len(got) != len(on) {
		t.Fatalf("%d launches, before %d: %v", len(got), len(on), err)
	}
	for i := range on {
		if got[i].Text != on[i].Text || got[i].Grid != on[i].Grid || got[i].Block != on[i].Block {
			t.Errorf("printed in CUDA as\n%sand before as\n%s", got[i].Text, on[i].Text)
		}
	}
	return text
}
