// Package parallel holds every layout to one rank: the models of ../shared/models over the grid of meshes, what a
// step means whatever splits it, how features combine, and the formulas of memory and communication.
package parallel

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/gtc-compiler/gtc/internal/fixtures"
)

var grid = flag.Bool("grid", os.Getenv("GTC_LONG") != "", "check every model in every layout instead of each layout with some models")

const models = "../../../shared/models"

// model is a file of ../shared/models and what it costs to simulate.
type model struct {
	file  string
	steps int    // of each curve
	curve string // the only one; "" is both
	quick bool   // in every layout by default
}

var gridModels = []model{
	{file: "mlp.onnx", steps: 10, quick: true},
	{file: "mlp.dynamo.onnx", steps: 3},
	{file: "mlp.opt.onnx", steps: 3},
	{file: "convnet_bn.onnx", steps: 3},
	{file: "convnet_bn.dynamo.onnx", steps: 2},
	{file: "lstm_lm.onnx", steps: 3},
	{file: "lstm_lm.dynamo.onnx", steps: 2},
	{file: "lstm_lm.opt.onnx", steps: 2},
	{file: "unet_tiny.onnx", steps: 3},
	{file: "unet_tiny.dynamo.onnx", steps: 2},
	{file: "unet_tiny.opt.onnx", steps: 2},
	{file: "gpt_loss_inside.onnx", steps: 5, quick: true},
	{file: "gpt_loss_inside.dynamo.onnx", steps: 2},
	{file: "gpt_loss_inside.opt.onnx", steps: 2},
	{file: "gpt2_tiny.dynamo.onnx", steps: 3},
	{file: "gpt2_tiny.opt.onnx", steps: 3},
	{file: "llama_tiny.dynamo.onnx", steps: 3},
	{file: "llama_tiny.opt.onnx", steps: 3},
	{file: "bert_tiny.onnx", steps: 3},
	{file: "bert_tiny.dynamo.onnx", steps: 3},
	{file: "bert_tiny.opt.onnx", steps: 3},
	{file: "timm_test_vit.onnx", steps: 2, curve: "adamw"},
	{file: "timm_test_vit.dynamo.onnx", steps: 1, curve: "sgd"},
	{file: "timm_test_vit.opt.onnx", steps: 1, curve: "sgd"},
	{file: "timm_test_resnet.onnx", steps: 2, curve: "adamw"},
	{file: "timm_test_resnet.dynamo.onnx", steps: 1, curve: "sgd"},
}

// refused are layouts that a model does not divide over, by file and layout, with what the error says.
var refused = map[string]string{
	// Batch statistics are those of the whole batch, so that its micro-batches are merged into one.
	"convnet_bn.onnx pp2 interleaved":              "needs a multiple of 2 micro-batches, the number of stages, not 1",
	"convnet_bn.dynamo.onnx pp2 interleaved":       "needs a multiple of 2 micro-batches, the number of stages, not 1",
	"timm_test_resnet.onnx pp2 interleaved":        "needs a multiple of 2 micro-batches, the number of stages, not 1",
	"timm_test_resnet.dynamo.onnx pp2 interleaved": "needs a multiple of 2 micro-batches, the number of stages, not 1",
}

// tolerance of simulated programs, which are exact but for the references' own rounding to single precision and for
// constants that were folded in it; processes are held to check.DefaultTol.
const tolerance = 1e-6

// runs says whether a file is checked in layout number i by default: quick models in all, of the others each in one or two.
func runs(m model, k, i int) bool {
	return *grid || m.quick || (i+k)%16 == 0 && !strings.HasPrefix(m.file, "timm_test")
}

// TestGrid simulates the ranks of every model in every layout against PyTorch's float64 references. By default each
// layout is checked with some models; -args -grid, or GTC_LONG=1, checks all. GTC_TEST_MODEL selects files by their
// beginning.
func TestGrid(t *testing.T) {
	fixtures.Path(t, "models")
	for k, m := range gridModels {
		if !strings.HasPrefix(m.file, os.Getenv("GTC_TEST_MODEL")) {
			continue
		}
		for i, l := range layouts {
			if !runs(m, k, i) || testing.Short() && m.file != "mlp.onnx" {
				continue
			}
			t.Run(m.file+"/"+l.name, func(t *testing.T) {
				t.Parallel()
				o := checkOptions(m, l)
				o.Simulate, o.Tol = true, tolerance
				checkLayout(t, m, l, o)
			})
		}
	}
}

func checkOptions(m model, l layout) *check.Options {
	name, _, _ := strings.Cut(m.file, ".")
	o := &check.Options{Reference: filepath.Join(models, name+".npz"), Steps: m.steps, Curve: m.curve}
	o.Compile = compiler.Options{Model: filepath.Join(models, m.file)}
	o.Compile.Pass.IgnoreIndex = -100
	l.set(&o.Compile.Pass)
	return o
}

// checkLayout runs one check, or meets the refusal that is expected of it.
func checkLayout(t *testing.T, m model, l layout, o *check.Options) {
	t.Helper()
	rep, err := check.Run(context.Background(), o)
	if why := refused[m.file+" "+l.name]; why != "" {
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want a refusal that says %q", err, why)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Log(rep.Figures())
	if !rep.OK || len(rep.Grads) == 0 {
		var b strings.Builder
		rep.Print(&b, false)
		t.Error("\n" + b.String())
	}
	if l.seen != nil {
		if err := l.seen(rep.Compiled); err != nil {
			t.Error(err)
		}
	}
}
