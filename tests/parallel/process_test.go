package parallel

import (
	"testing"

	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/gtc-compiler/gtc/internal/fixtures"
)

// TestProcesses runs a few models and layouts as they are used: kernels are built, and each rank is a process. The
// first is run by default, all with -args -grid.
func TestProcesses(t *testing.T) {
	fixtures.Path(t, "models")
	if testing.Short() {
		t.Skip("-short: building kernels takes seconds")
	}
	for i, row := range []struct{ file, layout string }{
		{"gpt_loss_inside.onnx", "dp2 tp2 pp2"},
		{"mlp.onnx", "tp2"},
		{"gpt2_tiny.dynamo.onnx", "dp2 tp2"},
		{"gpt2_tiny.dynamo.onnx", "pp2 1f1b"},
		{"llama_tiny.dynamo.onnx", "zero3 dp2 tp2"},
		{"bert_tiny.onnx", "sp tp2"},
		{"lstm_lm.onnx", "zero2 dp2"},
		{"convnet_bn.onnx", "zero1 dp2"},
		{"unet_tiny.onnx", "pp2 interleaved"},
		{"mlp.onnx", "pp2 zb-h1"},
		{"gpt_loss_inside.onnx", "zero3 dp2 pp2"},
	} {
		if i > 0 && !*grid {
			break
		}
		for _, l := range layouts {
			if l.name != row.layout {
				continue
			}
			t.Run(row.file+"/"+l.name, func(t *testing.T) {
				m := model{file: row.file, steps: 5}
				o := checkOptions(m, l)
				o.Tol = check.DefaultTol
				checkLayout(t, m, l, o)
			})
		}
	}
}
