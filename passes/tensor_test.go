package passes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// tensorCase is a model in one layout.
type tensorCase struct {
	file       string
	dp, tp, mb int
	sp         bool
}

// TestTensorParallel runs the rank programs of models split over tp on simulated ranks against the whole program.
// GTC_TEST_MODEL chooses models by prefix, or "all".
func TestTensorParallel(t *testing.T) {
	cases := []tensorCase{{"mlp.onnx", 1, 2, 1, false}, {"mlp.onnx", 2, 2, 2, false}, {"gpt_loss_inside.onnx", 1, 2, 1, false}}
	if only := os.Getenv("GTC_TEST_MODEL"); only != "" {
		cases = nil
		files, _ := filepath.Glob(filepath.Join(shared(t), "*.onnx"))
		for _, file := range files {
			base := filepath.Base(file)
			if only != "all" && !strings.HasPrefix(base, only) {
				continue
			}
			for _, c := range []tensorCase{{"", 1, 2, 1, false}, {"", 1, 4, 1, false}, {"", 2, 2, 2, false}, {"", 1, 2, 1, true}, {"", 1, 3, 1, false}} {
				c.file = base
				cases = append(cases, c)
			}
		}
	}
	for _, k := range cases {
		t.Run(fmt.Sprintf("%s/dp%d tp%d mb%d sp=%v", k.file, k.dp, k.tp, k.mb, k.sp), func(t *testing.T) {
			opt := &pass.Options{DP: k.dp, TP: k.tp, Microbatches: k.mb, SP: k.sp, SyncBN: true, ClipNorm: 1, Optimizer: pass.Optimizer{Name: "adamw", LR: 0.1}}
			batch := 4
			if n := batches[name(k.file)]; n != 0 && strings.HasSuffix(k.file, ".opt.onnx") {
				batch = n // fixed in the file
			}
			c, whole := compileRanks(t, filepath.Join(shared(t), k.file), batch, opt)
			if testing.Verbose() {
				for _, r := range c.Remarks {
					if strings.Contains("shard spmd", r.Pass) {
						t.Log(r)
					}
				}
				counts := map[string]int{}
				for _, op := range c.Module.Func("step").Ops {
					if kind := op.Def.Rules.Collective; kind != "" {
						counts[kind]++
					}
				}
				t.Log(counts)
			}
			if os.Getenv("GTC_NO_RUN") != "" {
				return
			}
			for _, f := range whole.Funcs {
				if err := interp.EquivalentSteps(c.Module, f, 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
