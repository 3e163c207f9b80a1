package spmd_test

import (
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
	"github.com/gtc-compiler/gtc/passes/shard"
	"github.com/gtc-compiler/gtc/passes/spmd"
)

// TestGolden shards and splits; the programs of all ranks together must compute what the whole one does.
func TestGolden(t *testing.T) {
	run := func(c *pass.Context) error {
		if err := shard.Run(c); err != nil {
			return err
		}
		return spmd.Run(c)
	}
	check := func(t *testing.T, c *irtest.Case, before, after *ir.Module) {
		if c.Opt["changes"] == "yes" {
			return
		}
		for _, f := range before.Funcs {
			for seed := range uint64(3) {
				if err := interp.EquivalentSteps(after, f, seed+1); err != nil {
					t.Errorf("the ranks disagree with the whole program on random input %d: %v", seed+1, err)
				}
			}
		}
	}
	passtest.Golden(t, "spmd", run, irtest.Options{Check: check})
}

// TestLocalBatchNorm gives both ranks the same samples: then statistics of a rank's own batch are those of the
// whole batch, and all results agree.
func TestLocalBatchNorm(t *testing.T) {
	c, err := passtest.Context("spmd", `func @step(%x: f32[4,2,3], %g: f32[2] param, %b: f32[2] param, %m: f32[2] buffer) {
  %y, %mean, %var = batch_norm %x, %g, %b {eps=1e-05} : f32[4,2,3], f32[2], f32[2]
  %r = mul %y, %x : f32[4,2,3]
  %d_x, %d_g, %d_b = batch_norm_grad %r, %x, %g, %mean, %var {eps=1e-05} : f32[4,2,3], f32[2], f32[2]
  %n = add %m, %mean : f32[2]
  return out0=%y, d_x=%d_x, d_g=%d_g, d_b=%d_b, var=%var, %m <- %n
}`, map[string]string{"dp": "2"})
	if err != nil {
		t.Fatal(err)
	}
	whole, _ := c.Module.Funcs[0].Clone()
	if err := shard.Run(c); err != nil {
		t.Fatal(err)
	}
	if err := spmd.Run(c); err != nil {
		t.Fatal(err)
	}
	args := interp.Random(whole, 1)
	x := args["x"].F
	copy(x[len(x)/2:], x[:len(x)/2])
	if err := interp.EquivalentStepsOn(c.Module, whole, args); err != nil {
		t.Error(err)
	}
	reduced := 0
	for _, op := range c.Module.Funcs[0].Ops {
		if op.Def.Rules.Collective != "" {
			reduced++
		}
	}
	if reduced != 2 {
		t.Errorf("%d collectives, want one for each of the gradients of gain and bias\n%s", reduced, c.Module)
	}
}
