package passes_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// idioms is how many ops of each kind recognize must leave in @forward, for every way of exporting a model.
var idioms = map[string]map[string]int{
	"gpt2_tiny":       {"attention": 2, "layer_norm": 5, "gelu": 2},
	"gpt_loss_inside": {"attention": 1, "layer_norm": 2, "gelu": 1},
	"llama_tiny":      {"attention": 2, "rms_norm": 5, "silu": 2},
	"bert_tiny":       {"attention": 2, "layer_norm": 5, "gelu": 2},
	"timm_test_vit":   {"attention": 6, "layer_norm": 13, "gelu": 6},
	"unet_tiny":       {"silu": 2},
}

// TestIdiomsOfModels counts what recognize raised in the shared models.
func TestIdiomsOfModels(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(fixtures.Path(t, "models"), "*.onnx"))
	for _, file := range files {
		base := filepath.Base(file)
		name, _, _ := strings.Cut(base, ".")
		t.Run(base, func(t *testing.T) {
			c := compile(t, file, &pass.Options{Forward: true})
			got := map[string]int{}
			for _, op := range c.Module.Func("forward").Ops {
				got[op.Def.Name]++
			}
			for kind, want := range idioms[name] {
				if got[kind] != want {
					t.Errorf("%d %s ops, want %d", got[kind], kind, want)
				}
			}
			if t.Failed() || testing.Verbose() {
				for _, r := range c.Remarks {
					t.Log(r)
				}
				for _, tm := range c.Times {
					t.Log(tm.Pass, tm.Took, len(c.Module.Func("step").Ops))
				}
			}
		})
	}
}
