package passes_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// TestWhereSamplesMeet holds the analysis of whole models to what is known of them: one found in vain costs the last samples of an epoch, one
// that is missed trains wrongly.
func TestWhereSamplesMeet(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(fixtures.Path(t, "models"), "*.onnx"))
	if err != nil || len(files) == 0 {
		t.Fatal("no models", err)
	}
	meets := map[string]string{"gpt_loss_inside": "adds up samples"}
	for _, file := range files {
		name := filepath.Base(file)
		model := strings.Split(name, ".")[0]
		t.Run(name, func(t *testing.T) {
			m, err := onnx.Load(file, onnx.Options{Batch: max(4, batches[model])})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			mod, err := m.Import()
			if err != nil {
				t.Fatal(err)
			}
			c := &pass.Context{Module: mod, Opt: &pass.Options{Loss: lossOf(model), IgnoreIndex: -100, StopAfter: "trainstep"}}
			if err := passes.Run(c, passes.Table); err != nil {
				t.Fatal(err)
			}
			if got := c.CrossSample["step"]; (meets[model] == "") != (got == "") || !strings.HasSuffix(got, meets[model]) {
				t.Errorf("samples meet in @step: %q, want %q", got, meets[model])
			}
			if got := c.CrossSample["eval"]; (got != "") != (model == "gpt_loss_inside") {
				t.Errorf("samples meet in @eval: %q", got)
			}
		})
	}
}
