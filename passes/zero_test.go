package passes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/optimizer"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// zeroCase is a model under ZeRO in one layout.
type zeroCase struct {
	file             string
	zero, dp, tp, mb int
	optimizer        string
}

// TestZeroParallel runs the rank programs of ZeRO 1, 2 and 3 on simulated ranks against the whole program, under every
// optimizer, with clipping. GTC_TEST_MODEL chooses models by prefix, or "all".
func TestZeroParallel(t *testing.T) {
	var cases []zeroCase
	for i, o := range optimizer.Names() {
		for zero := 1; zero <= 3; zero++ {
			cases = append(cases, zeroCase{"mlp.onnx", zero, 2, 1, 1 + (i+zero)%2, o})
		}
	}
	cases = append(cases, zeroCase{"gpt_loss_inside.onnx", 3, 2, 1, 2, "adamw"}, zeroCase{"mlp.onnx", 3, 2, 2, 2, "adamw"})
	if only := os.Getenv("GTC_TEST_MODEL"); only != "" {
		cases = nil
		files, _ := filepath.Glob(filepath.Join(fixtures.Path(t, "models"), "*.onnx"))
		for _, file := range files {
			base := filepath.Base(file)
			if only != "all" && !strings.HasPrefix(base, only) {
				continue
			}
			for _, c := range []zeroCase{{"", 1, 2, 1, 2, "adamw"}, {"", 2, 4, 1, 1, "lamb"}, {"", 3, 2, 1, 2, "adamw"}, {"", 3, 4, 1, 1, "sgd"}, {"", 3, 2, 2, 1, "adamw"}} {
				c.file = base
				cases = append(cases, c)
			}
		}
	}
	for _, k := range cases {
		t.Run(fmt.Sprintf("%s/zero%d dp%d tp%d mb%d %s", k.file, k.zero, k.dp, k.tp, k.mb, k.optimizer), func(t *testing.T) {
			opt := &pass.Options{Zero: k.zero, DP: k.dp, TP: k.tp, Microbatches: k.mb, SyncBN: true, ClipNorm: 1, Optimizer: pass.Optimizer{Name: k.optimizer, LR: 0.1, Momentum: momentum(k.optimizer), WeightDecay: decay(k.optimizer)}}
			batch := 4
			if n := batches[name(k.file)]; n != 0 && strings.HasSuffix(k.file, ".opt.onnx") {
				batch = n // fixed in the file
			}
			c, whole := compileRanks(t, filepath.Join(fixtures.Path(t, "models"), k.file), batch, opt)
			if testing.Verbose() {
				for _, r := range c.Remarks {
					if strings.Contains("shard spmd", r.Pass) {
						t.Log(r)
					}
				}
				for _, f := range c.Module.Funcs {
					counts := map[mesh.Collective]int{}
					for _, op := range f.Ops {
						if kind := op.Def.Rules.Collective; kind != "" {
							counts[kind]++
						}
					}
					t.Log(f.Name, counts)
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

// decay is 0 for the rules that have none.
func decay(optimizer string) float64 {
	if optimizer == "sparse_adam" || optimizer == "rowwise_adagrad" {
		return 0
	}
	return 0.1
}

func momentum(optimizer string) float64 {
	if optimizer == "sgd" || optimizer == "lars" || optimizer == "rmsprop" {
		return 0.9
	}
	return 0
}
