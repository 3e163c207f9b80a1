package shard_test

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/passtest"
	"github.com/gtc-compiler/gtc/passes/shard"
)

func TestGolden(t *testing.T) {
	passtest.Golden(t, "shard", shard.Run, irtest.Options{})
}

const normalised = `func @step(%x: f32[8,3], %w: f32[3] param) {
  %r = reshape %w {dims=[1,3]} : f32[1,3]
  %we = expand %r {dims=[8,3]} : f32[8,3]
  %y = mul %x, %we : f32[8,3]
  %s = reduce_sum %y {dims=[0]} : f32[1,3]
  %e = expand %s {dims=[8,3]} : f32[8,3]
  %d = sub %x, %e : f32[8,3]
  %l = reduce_sum %d {dims=[0,1]} : f32[1,1]
  return loss_sum=%l
}`

// TestBatchNormMergesMicrobatches checks that statistics of the global batch merge the micro-batches when
// BatchNorm asks for them, and only then.
func TestBatchNormMergesMicrobatches(t *testing.T) {
	for _, operator := range []string{"BatchNormalization", "Sub"} {
		c, err := passtest.Context("shard", normalised, map[string]string{"dp": "2", "microbatches": "2", "syncbn": "true"})
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range c.Module.Funcs[0].Ops {
			op.Loc.Node, op.Loc.OpType = "/norm", operator
		}
		err = shard.Run(c)
		if operator == "Sub" {
			if err == nil || !strings.Contains(err.Error(), `node "/norm" (Sub)`) {
				t.Errorf("another op gives %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if c.Opt.Microbatches != 2 || c.Module.Mesh.Size(mesh.TimeAxis) != 1 || c.Module.Mesh.Size("dp") != 2 {
			t.Errorf("mesh %s; options with %d micro-batches", c.Module.Mesh, c.Opt.Microbatches)
		}
		if len(c.Remarks) != 1 || !strings.Contains(c.Remarks[0].Text, "warning") || !strings.Contains(c.Remarks[0].Text, "/norm") {
			t.Errorf("remarks: %v", c.Remarks)
		}
	}
}
