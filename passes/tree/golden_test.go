package tree_test

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
	"github.com/gtc-compiler/gtc/passes/tree"
)

// TestGolden runs the schedule on all ranks against the whole program.
func TestGolden(t *testing.T) {
	var last *pass.Context
	run := func(c *pass.Context) error {
		c.Opt.Reproducible = true
		last = c
		for _, p := range []func(*pass.Context) error{shard.Run, spmd.Run, microbatch.Run, tree.Run} {
			if err := p(c); err != nil {
				return err
			}
		}
		return nil
	}
	check := func(t *testing.T, c *irtest.Case, before, after *ir.Module) {
		f := before.Func("step")
		// Several steps: the levels keep what the step before left in them, which must not count.
		if err := interp.EquivalentPrograms([]interp.Program{{Module: after, Actions: last.Actions}}, f, interp.Random(f, 1), 3); err != nil {
			t.Error(err)
		}
	}
	passtest.Golden(t, "tree", run, irtest.Options{Check: check})
}
