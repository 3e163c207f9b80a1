package passes_test

import (
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// gates is a recurrent network that slices its gates' weights and biases out of common ones, as exporters write a GRU.
// The last quarter of each is not used.
func gates(steps int) *ir.Module {
	const batch, width = 4, 5
	f := &ir.Func{Name: "forward"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "gru"}
	x := b.Param("x", ir.T(1, batch, width), ir.Input)
	w := b.Param("w", ir.T(1, 4*width, width), ir.Param)
	bias := b.Param("b", ir.T(1, 4*width), ir.Param)
	var part, add [3]*ir.Value
	for i := range part {
		part[i] = ops.SliceDim(b, w, 0, i*width, width)
		add[i] = ops.BroadcastTo(b, ops.SliceDim(b, bias, 0, i*width, width), x.Type.Dims)
	}
	h := x
	for range steps {
		z := ops.Sigmoid(b, ops.Add(b, ops.MatMul(b, h, part[0]), add[0]))
		r := ops.Sigmoid(b, ops.Add(b, ops.MatMul(b, h, part[1]), add[1]))
		n := ops.Tanh(b, ops.Add(b, ops.Mul(b, r, ops.MatMul(b, h, part[2])), add[2]))
		h = ops.Add(b, n, ops.Mul(b, z, ops.Sub(b, h, n)))
	}
	b.Result("out0", h)
	return &ir.Module{Funcs: []*ir.Func{f}}
}

// A gradient that is put together from those of slices is reduced once, as a whole, and right.
func TestSlicedWeightsAreReducedOnce(t *testing.T) {
	for _, m := range meshes {
		var whole []*ir.Func
		table := keeping(&whole)
		c := &pass.Context{Module: gates(4), Opt: &pass.Options{Loss: "mse", StopAfter: "overlap", DP: m.dp, Microbatches: m.mb,
			Optimizer: pass.Optimizer{Name: "adamw", LR: 0.1}}}
		if err := passes.Run(c, table); err != nil {
			t.Fatal(err)
		}
		if n := collectives(c.Module.Funcs...); m.dp > 1 {
			inStep := collectives(c.Module.Func("step"))
			if values := reductions(c.Module.Func("step")); inStep != 1 || values != 4 {
				t.Errorf("%d ranks, %d micro-batches: @step makes %d collectives of %d values (%d in all), want one of two gradients, loss and count",
					m.dp, m.mb, inStep, values, n)
			}
		}
		for _, f := range whole {
			if err := interp.EquivalentSteps(c.Module, f, 1); err != nil {
				t.Error(err)
			}
		}
	}
}

// collectives counts the collectives of functions; shard_slice is none.
func collectives(funcs ...*ir.Func) int {
	n := 0
	for _, f := range funcs {
		for _, op := range f.Ops {
			if kind := op.Def.Rules.Collective; kind != "" && kind != "shard_slice" {
				n++
			}
		}
	}
	return n
}
