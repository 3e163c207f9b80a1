package passes_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// pipelines are the layouts in which models are tried as pipelines.
var pipelines = []struct {
	schedule   string
	pp, dp, tp int
	mb, zero   int
}{
	{schedule: "gpipe", pp: 2, mb: 2}, {schedule: "1f1b", pp: 2, mb: 4}, {schedule: "interleaved", pp: 2, mb: 2},
	{schedule: "zb-h1", pp: 2, mb: 4}, {schedule: "varuna", pp: 2, mb: 2}, {schedule: "1f1b", pp: 4, mb: 1},
	{schedule: "zb-h1", pp: 3, mb: 2}, {schedule: "1f1b", pp: 2, dp: 2, mb: 2}, {schedule: "interleaved", pp: 2, dp: 2, mb: 2},
	{schedule: "1f1b", pp: 2, dp: 2, mb: 2, zero: 1}, {schedule: "zb-h1", pp: 2, dp: 2, mb: 2, zero: 2}, {schedule: "1f1b", pp: 2, dp: 2, mb: 2, zero: 3},
	{schedule: "1f1b", pp: 2, tp: 2, mb: 2}, {schedule: "1f1b", pp: 2, dp: 2, tp: 2, mb: 2}, {schedule: "zb-h1", pp: 2, dp: 2, tp: 2, mb: 2, zero: 3},
}

// TestModelsOnStages runs the programs of all stages of the shared models on simulated ranks against the whole program.
// GTC_TEST_MODEL chooses models by prefix; without it, and with -short, only the quickest run.
func TestModelsOnStages(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(fixtures.Path(t, "models"), "*.onnx"))
	only, quick := os.Getenv("GTC_TEST_MODEL"), map[string]bool{"mlp.onnx": true, "gpt_loss_inside.onnx": !testing.Short()}
	for _, file := range files {
		base := filepath.Base(file)
		if only == "" && !quick[base] || only != "" && only != "all" && !strings.HasPrefix(base, only) {
			continue
		}
		for i, l := range pipelines {
			if only == "" && name(base) != "mlp" && i%4 != 2 {
				continue // interleaved, zb-h1 with three stages, zb-h1 with ZeRO-2, and with tp and ZeRO-3
			}
			t.Run(fmt.Sprintf("%s/%s pp%d dp%d tp%d mb%d zero%d", base, l.schedule, l.pp, max(l.dp, 1), max(l.tp, 1), l.mb, l.zero), func(t *testing.T) {
				opt := &pass.Options{PP: l.pp, DP: l.dp, TP: l.tp, Zero: l.zero, Microbatches: l.mb, Pipeline: l.schedule, SyncBN: true,
					ClipNorm: 1, Optimizer: pass.Optimizer{Name: "adamw", LR: 0.1}}
				batch := 8
				if strings.Contains(base, "_tiny.") && !strings.HasSuffix(base, "_tiny.onnx") || strings.HasSuffix(base, ".opt.onnx") {
					if batch = batches[name(base)]; batch == 0 {
						batch = 4 // fixed in the file
					}
				}
				c, whole := compileRanks(t, file, batch, opt)
				var programs []interp.Program
				for _, s := range c.Stages {
					programs = append(programs, interp.Program{Module: s.Module, Actions: s.Actions, Slots: s.Slots})
				}
				for _, r := range c.Remarks {
					if r.Pass == "stage" {
						t.Log(r)
					}
				}
				for _, f := range whole.Funcs {
					if err := interp.EquivalentPrograms(programs, f, interp.Random(f, 1), steps(f)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// steps is how often a function is compared, each time on what the one before left.
func steps(f *ir.Func) int {
	if f.Name == "step" {
		return 2
	}
	return 1
}
