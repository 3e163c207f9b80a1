package passes_test

import (
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/passes/pass"
)

// TestStageIsLinear: cutting eight times the ops may take twenty times as long, see TestPassesAreLinear.
func TestStageIsLinear(t *testing.T) {
	took := func(n int) time.Duration {
		c := &pass.Context{Module: deep(n), Opt: &pass.Options{Loss: "mse", StopAfter: "stage", ClipNorm: 1, PP: 4, Microbatches: 4,
			Pipeline: "zb-h1", Optimizer: pass.Optimizer{Name: "adamw", LR: 1e-3, WeightDecay: 0.1}}}
		return passTimes(t, c)["stage"]
	}
	var small, large time.Duration
	for range 5 {
		small, large = took(20), took(160)
		if large <= 20*small || large < 300*time.Millisecond {
			t.Logf("%v for 20 blocks, %v for 160", small, large)
			return
		}
	}
	t.Errorf("stage takes %v for 20 blocks and %v for 160", small, large)
}
