package passes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/overlap"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// compileRanks imports a model and runs the pipeline up to overlap; whole is the module as it was before shard.
func compileRanks(t testing.TB, file string, batch int, opt *pass.Options) (c *pass.Context, whole *ir.Module) {
	t.Helper()
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	m, err := onnx.Load(file, onnx.Options{Batch: batch})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	mod, err := m.Import()
	if err != nil {
		t.Fatal(err)
	}
	opt.Loss, opt.IgnoreIndex = lossOf(name), -100
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
	files, _ := filepath.Glob(filepath.Join(shared(t), "*.onnx"))
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
			t.Run(fmt.Sprintf("%s/dp%d mb%d", base, m.dp, m.mb), func(t *testing.T) {
				opt := &pass.Options{DP: m.dp, Microbatches: m.mb, SyncBN: true, ClipNorm: 1, Optimizer: pass.Optimizer{Name: "adamw", LR: 0.1}}
				batch := 4
				if base == "mlp.opt.onnx" {
					batch = batches["mlp"] // fixed in the file
				}
				c, whole := compileRanks(t, file, batch, opt)
				if err := overlap.Match([]*ir.Module{c.Module, c.Module}); err != nil {
					t.Error(err)
				}
				if testing.Verbose() {
					for _, r := range c.Remarks {
						if strings.Contains("shard spmd microbatch overlap", r.Pass) {
							t.Log(r)
						}
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
