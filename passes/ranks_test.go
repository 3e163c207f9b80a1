package passes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// compileRanks imports a model and runs the pipeline up to overlap; whole is the module as it was before shard.
func compileRanks(t testing.TB, file string, batch int, opt *pass.Options) (c *pass.Context, whole *ir.Module) {
	t.Helper()
	m, err := onnx.Load(file, onnx.Options{Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	mod, err := m.Import()
	if err != nil {
		t.Fatal(err)
	}
	opt.Loss, opt.IgnoreIndex = lossOf(name(filepath.Base(file))), -100
	opt.Forward = opt.Loss != "graph" || opt.Microbatches <= 1 // a mean over the batch is no output of a micro-batch
	opt.StopAfter = "overlap"
	opt.DumpDir = os.Getenv("GTC_DUMP")
	var table []pass.Pass
	for _, p := range passes.Table {
		if p.Name == "shard" {
			table = append(table, pass.Pass{Name: "keep", Why: "the oracle", Run: func(c *pass.Context) error {
				whole = &ir.Module{}
				for _, f := range c.Module.Funcs {
					g, _ := f.Clone()
					whole.Funcs = append(whole.Funcs, g)
				}
				return nil
			}})
		}
		table = append(table, p)
	}
	c = &pass.Context{Module: mod, Opt: opt}
	if err := passes.Run(c, table); err != nil {
		t.Fatal(err)
	}
	return c, whole
}

// meshes are the layouts that every model is tried in.
var meshes = []struct{ dp, mb int }{{2, 1}, {2, 2}, {1, 4}}

// TestModelsOnRanks runs the rank programs of the shared models on simulated ranks and micro-batches against the
// whole program. Those whose evaluation takes long run only without -short; GTC_TEST_MODEL chooses by prefix.
func TestModelsOnRanks(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(fixtures.Path(t, "models"), "*.onnx"))
	only, quick := os.Getenv("GTC_TEST_MODEL"), map[string]bool{"mlp.onnx": true, "gpt_loss_inside.onnx": true}
	if !testing.Short() {
		quick["mlp.opt.onnx"], quick["convnet_bn.onnx"], quick["lstm_lm.onnx"] = true, true, true
	}
	for _, file := range files {
		base := filepath.Base(file)
		if only == "" && !quick[base] || only != "" && only != "all" && !strings.HasPrefix(base, only) {
			continue
		}
		for _, m := range meshes {
			if only == "" && name(base) == "convnet_bn" && (m.dp != 2 || m.mb != 2) {
				continue // its micro-batches are merged, so this one shows both
			}
			t.Run(fmt.Sprintf("%s/dp%d mb%d", base, m.dp, m.mb), func(t *testing.T) {
				opt := &pass.Options{DP: m.dp, Microbatches: m.mb, SyncBN: true, ClipNorm: 1, Optimizer: pass.Optimizer{Name: "adamw", LR: 0.1}}
				batch := 4
				if n := batches[name(base)]; n != 0 && strings.HasSuffix(base, ".opt.onnx") {
					batch = n // fixed in the file
				}
				c, whole := compileRanks(t, file, batch, opt)
				if testing.Verbose() {
					for _, r := range c.Remarks {
						if strings.Contains("shard spmd microbatch overlap", r.Pass) {
							t.Log(r)
						}
					}
				}
				if want, ok := reduced[base]; ok && m.dp > 1 {
					if n := reductions(c.Module.Func("step")); n != want {
						t.Errorf("@step reduces %d values over ranks, want %d: each gradient once, loss and count", n, want)
					}
				}
				for _, f := range whole.Funcs {
					if err := interp.EquivalentSteps(c.Module, f, 1); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// reduced is the number of gradients of a model, and two: the sum of the loss and its count.
var reduced = map[string]int{"mlp.onnx": 6 + 2, "gpt_loss_inside.onnx": 14 + 2}

// name is the model of a file.
func name(base string) string {
	n, _, _ := strings.Cut(base, ".")
	return n
}

func reductions(f *ir.Func) int {
	n := 0
	for _, op := range f.Ops {
		if op.Def.Rules.Collective == "all_reduce" {
			n += len(op.In)
		}
	}
	return n
}

// TestLocalBatchNormOnRanks gives two ranks the same samples, so that statistics of each rank's own batch are those
// of the whole one and the rank program can be compared with the whole program. Running variances are of n-1 of other n values; tests/batches
// holds them to PyTorch.
func TestLocalBatchNormOnRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: comparing on simulated ranks takes seconds")
	}
	opt := &pass.Options{DP: 2, Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1}}
	c, whole := compileRanks(t, filepath.Join(fixtures.Path(t, "models"), "convnet_bn.onnx"), 4, opt)
	step := whole.Func("step")
	args := interp.Random(step, 1)
	for _, p := range step.Params {
		if p.Role == ir.Input || p.Role == ir.Target || p.Role == ir.Weight {
			a := args[p.Name]
			copy(a.F[len(a.F)/2:], a.F[:len(a.F)/2])
			copy(a.I[len(a.I)/2:], a.I[:len(a.I)/2])
		}
	}
	step.Results = slices.DeleteFunc(step.Results, func(r ir.Result) bool { return r.Updates != nil && strings.HasSuffix(r.Updates.Name, "running_var") })
	if err := interp.EquivalentStepsOn(c.Module, step, args); err != nil {
		t.Error(err)
	}
}
