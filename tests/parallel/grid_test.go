// Package parallel holds every layout to one rank: the models of ../shared/models over the grid of meshes, what a
// step means whatever splits it, how features combine, and the formulas of memory and communication.
package parallel

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
)

var grid = flag.Bool("grid", os.Getenv("GTC_LONG") != "", "check every model in every layout instead of each layout with some models")

const models = "../../../shared/models"

// layout is one way to split a model, and what must be seen in the programs so that the check is not of one rank's.
type layout struct {
	name string
	set  func(o *pass.Options)
	seen func(c *pass.Context) error
}

func options(dp, tp, pp, micro, zero int) func(o *pass.Options) {
	return func(o *pass.Options) { o.DP, o.TP, o.PP, o.Microbatches, o.Zero = dp, tp, pp, micro, zero }
}

// layouts are those of the grid.
var layouts = []layout{
	{"dp2", options(2, 1, 1, 1, 0), reduces("dp")},
	{"dp2 mb2", options(2, 1, 1, 2, 0), reduces("dp")},
	{"dp4", options(4, 1, 1, 1, 0), reduces("dp")},
}

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
	{file: "gpt2_tiny.dynamo.onnx", steps: 3, quick: true},
	{file: "gpt2_tiny.opt.onnx", steps: 3},
	{file: "llama_tiny.dynamo.onnx", steps: 3, quick: true},
	{file: "llama_tiny.opt.onnx", steps: 3},
	{file: "bert_tiny.onnx", steps: 3, quick: true},
	{file: "bert_tiny.dynamo.onnx", steps: 3},
	{file: "bert_tiny.opt.onnx", steps: 3},
	{file: "timm_test_vit.onnx", steps: 2, curve: "adamw"},
	{file: "timm_test_vit.dynamo.onnx", steps: 2, curve: "sgd"},
	{file: "timm_test_vit.opt.onnx", steps: 1, curve: "sgd"},
	{file: "timm_test_resnet.onnx", steps: 2, curve: "adamw"},
	{file: "timm_test_resnet.dynamo.onnx", steps: 1, curve: "sgd"},
}

// refused are layouts that a model does not divide over, by file and layout, with what the error says.
var refused = map[string]string{}

// tolerance of simulated programs, which are exact but for the references' own rounding to single precision and for
// constants that were folded in it; processes are held to check.DefaultTol.
const tolerance = 1e-6

// runs says whether a file is checked in layout number i by default: quick models in all, of the others each in a few.
func runs(m model, k, i int) bool {
	return *grid || m.quick || (i+k)%len(layouts) == 0 && !strings.HasPrefix(m.file, "timm_test_resnet")
}

// TestGrid simulates the ranks of every model in every layout against PyTorch's float64 references. By default each
// layout is checked with some models; -args -grid, or GTC_LONG=1, checks all. GTC_TEST_MODEL selects files by their
// beginning.
func TestGrid(t *testing.T) {
	if _, err := os.Stat(models); err != nil {
		t.Skip("shared/ is absent: its models are not there to check")
	}
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

// eachOp calls f for every op of the programs.
func eachOp(c *pass.Context, f func(fn *ir.Func, op *ir.Op)) {
	for _, p := range c.Programs() {
		for _, fn := range p.Module.Funcs {
			for _, op := range fn.Ops {
				f(fn, op)
			}
		}
	}
}

// axis is the mesh axis of a collective, "" for any other op.
func axis(op *ir.Op) string {
	if op.Def.Rules.Collective == "" {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.Fields(fmt.Sprintf("%+v", op.Attrs))[0], "{Axis:"), "}")
}

// uses reports whether the programs have a collective of that kind over an axis.
func uses(c *pass.Context, kind, over string) bool {
	found := false
	eachOp(c, func(_ *ir.Func, op *ir.Op) { found = found || op.Def.Name == kind && axis(op) == over })
	return found
}

// reduces: gradients are summed over the axis.
func reduces(over string) func(c *pass.Context) error {
	return func(c *pass.Context) error {
		if !uses(c, "all_reduce", over) && !uses(c, "reduce_scatter", over) {
			return fmt.Errorf("nothing is reduced over %s", over)
		}
		return nil
	}
}
