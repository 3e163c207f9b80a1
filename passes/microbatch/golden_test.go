package microbatch_test

import (
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/microbatch"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
	"github.com/gtc-compiler/gtc/passes/shard"
	"github.com/gtc-compiler/gtc/passes/spmd"
)

// TestGolden runs all micro-batches on all ranks against the whole program.
func TestGolden(t *testing.T) {
	run := func(c *pass.Context) error {
		for _, p := range []func(*pass.Context) error{shard.Run, spmd.Run, microbatch.Run} {
			if err := p(c); err != nil {
				return err
			}
		}
		return nil
	}
	check := func(t *testing.T, c *irtest.Case, before, after *ir.Module) {
		if c.Opt["changes"] == "yes" {
			return
		}
		for _, f := range before.Funcs {
			for seed := range uint64(3) {
				if err := interp.EquivalentSteps(after, f, seed+1); err != nil {
					t.Errorf("the micro-batches disagree with the whole program on random input %d: %v", seed+1, err)
				}
			}
		}
	}
	passtest.Golden(t, "microbatch", run, irtest.Options{Check: check})
}
