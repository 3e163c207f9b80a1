// Package losses holds gtc to PyTorch's float64 for losses that a model computes itself, in micro-batches, stages and
// ranks: each gives the same outputs, loss, gradients and training curve in every layout, or is refused with the node
// that couples the samples. The files of testdata are what tests/torch/graph_losses.py writes.
package losses

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// coupled are the losses whose samples meet in what is trained, with the node in which they do: they cannot be computed
// in micro-batches.
var coupled = map[string]string{
	"couples_contrast": `"/MatMul"`,       // the features of all samples against those of each
	"couples_gated":    `"/ReduceSum_1"`,  // the sum of the gates, by which every sample is divided
	"couples_root":     `"/ReduceSum"`,    // a root of the mean
	"couples_spread":   `"/ReduceMean_1"`, // the mean that each feature's spread is measured from
	"couples_switch":   `"/ReduceMean"`,   // the square of a mean
}

// frozen are the buffers that nothing in a file tells from parameters: `--freeze`.
var frozen = map[string][]string{
	"weighted_by_hand": {"classes"},
	"frozen_gate":      {"frozen"},
}

// layout is what a loss is tried in.
type layout struct {
	name string
	set  func(*pass.Options)
	long bool // only with GTC_LONG=1
}

func (l layout) options() pass.Options {
	o := pass.Options{IgnoreIndex: -100}
	l.set(&o)
	return o
}

var layouts = []layout{
	{name: "one rank", set: func(*pass.Options) {}},
	{name: "mb2", set: func(o *pass.Options) { o.Microbatches = 2 }},
	{name: "mb4", set: func(o *pass.Options) { o.Microbatches = 4 }},
	{name: "pp2", set: func(o *pass.Options) { o.PP, o.Microbatches = 2, 2 }},
	{name: "dp2", set: func(o *pass.Options) { o.DP = 2 }},
	{name: "tp2", set: func(o *pass.Options) { o.TP = 2 }},
	{name: "dp2 mb2", set: func(o *pass.Options) { o.DP, o.Microbatches = 2, 2 }},
	{name: "mb8", set: func(o *pass.Options) { o.Microbatches = 8 }, long: true},
	{name: "dp4 mb2", set: func(o *pass.Options) { o.DP, o.Microbatches = 4, 2 }, long: true},
	{name: "tp2 mb2", set: func(o *pass.Options) { o.TP, o.Microbatches = 2, 2 }, long: true},
	{name: "dp2 pp2", set: func(o *pass.Options) { o.DP, o.PP, o.Microbatches = 2, 2, 4 }, long: true},
	{name: "dp2 zero2 mb2", set: func(o *pass.Options) { o.DP, o.Zero, o.Microbatches = 2, 2, 2 }, long: true},
	{name: "cuda mb2", set: func(o *pass.Options) { o.Microbatches, o.Target, o.Arch = 2, "cuda", []string{"host"} }, long: true},
}

// tolerance of simulated programs, which compute in float64: 1e-6 is what references and constants of single precision leave.
// Processes are held to check.DefaultTol.
const tolerance = 1e-6

// count is how many losses there are: one that is lost on the way is told.
const count = 49

// TestLosses tries every loss in every layout.
func TestLosses(t *testing.T) {
	models, err := filepath.Glob("testdata/*.onnx")
	if err != nil || len(models) != count {
		t.Fatalf("%d models in testdata, want %d: %v", len(models), count, err)
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(coupled)), slices.Collect(maps.Keys(frozen))) {
		if !slices.Contains(models, filepath.Join("testdata", name+".onnx")) {
			t.Errorf("there is no loss %q, of which something is said here", name)
		}
	}
	for _, m := range models {
		for _, l := range layouts {
			if l.long && os.Getenv("GTC_LONG") == "" {
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(m), ".onnx")+"/"+l.name, func(t *testing.T) {
				t.Parallel()
				try(t, m, l)
			})
		}
	}
}

func try(t *testing.T, model string, l layout) {
	name := strings.TrimSuffix(filepath.Base(model), ".onnx")
	o := &check.Options{Reference: strings.TrimSuffix(model, ".onnx") + ".npz"}
	o.Compile.Model, o.Compile.Pass = model, l.options()
	o.Compile.Import.Freeze = slices.Clone(frozen[name])
	if o.Compile.Pass.Target == "" {
		o.Simulate, o.Tol = true, tolerance
	}
	rep, err := check.Run(context.Background(), o)
	if node := coupled[name]; node != "" && o.Compile.Pass.Microbatches > 1 {
		want := []string{"node " + node, "the batch cannot be computed in"}
		if err == nil || slices.ContainsFunc(want, func(s string) bool { return !strings.Contains(err.Error(), s) }) {
			t.Errorf("%v, want a refusal with %q", err, want)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if !rep.OK || len(rep.Grads) == 0 || len(rep.Curves) == 0 {
		var b strings.Builder
		rep.Print(&b, false)
		t.Error("\n" + b.String())
	}
}
