package parallel

import (
	"maps"
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// dropping is y = dropout(x·a)·w with p = 1/2: the masks of a step tell the samples' outputs apart.
func dropping(b *ir.Builder) {
	b.Loc = ir.Loc{Node: "dropping"}
	x := b.Param("x", ir.T(dtype.F32, 8, 4), ir.Input)
	a := b.Param("a", ir.T(dtype.F32, 4, 8), ir.Param)
	w := b.Param("w", ir.T(dtype.F32, 8, 4), ir.Param)
	n := b.Param("step", ir.T(dtype.I64), ir.State)
	a.Init, w.Init = spread(a.Type, 1), spread(w.Type, 2)
	b.Result("out0", ops.MatMul(b, ops.Dropout(b, ops.MatMul(b, x, a), n, 0.5, 7), w))
}

// spread is contents without any symmetry.
func spread(t ir.Type, seed float64) *ir.Tensor {
	x := make([]float64, t.Elems())
	for i := range x {
		x[i] = math.Sin(seed + 1.7*float64(i))
	}
	return ir.Floats(t, x...)
}

// TestMasks: random numbers are counted by step and by element of the whole tensor, so that four steps give the same
// outputs, weights and moments in every layout; and so do two steps in one layout and two in the next, from what the
// first ones left. The masks are those of one rank, where about half of the elements, and not the same in each step, are
// kept.
func TestMasks(t *testing.T) {
	data := map[string]*ir.Array{"x": ones2(8, 4), "target": spread(ir.T(dtype.F32, 8, 4), 3).Array(), "sample_weight": ones(8)}
	opt := pass.Options{Loss: "mse", Optimizer: pass.Optimizer{Name: "adamw", LR: 0.01}, Check: true}
	var outputs []*ir.Array // of one rank, by step
	var states []map[string]*ir.Array
	everyLayout(t, dropping, opt, data, func(r *trained) {
		for k := range 4 {
			if k == 2 && len(states) > 2 {
				r.start(states[1]) // of another layout
			}
			r.step()
			out, err := r.sim.Result("out0", false)
			if err != nil {
				t.Fatal(err)
			}
			state := r.state()
			if len(outputs) <= k {
				outputs, states = append(outputs, out), append(states, state)
				continue
			}
			same(r.t, "out0", outputs[k], out)
			for name := range maps.Keys(states[k]) {
				same(r.t, name, states[k][name], state[name])
			}
		}
		if len(states) == 4 {
			states = append(states, nil) // from now on layouts go on from the second step of one rank
		}
	})
	if interp.Differ(outputs[0], outputs[1], 0.1) == nil {
		t.Error("two steps have the same masks")
	}
	rows := map[float64]bool{}
	for i := 0; i < len(outputs[0].F); i += 4 {
		rows[outputs[0].F[i]] = true
	}
	if len(rows) < 6 {
		t.Errorf("samples that are equal have only %d different outputs under their masks", len(rows))
	}
}

func ones2(m, n int) *ir.Array {
	a := ones(m * n)
	a.Type.Dims = []int{m, n}
	return a
}

// same holds a layout to one rank, but for the order of sums.
func same(t *testing.T, what string, want, got *ir.Array) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is missing", what)
	} else if err := interp.Differ(want, got, 1e-9); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// TestLabelSmoothing: the smoothed target is spread over the whole vocabulary, whoever holds parts of it. All logits
// are zero, so that every log-probability is -ln 8 and the loss ln 8 whatever the smoothing. With smoothing s = 0.2 and
// all targets 0 the gradient of w[j,c] is x̄·(1/8 - (1-s)·[c is 0] - s/8), for the mean x̄ = 2.5 of x = 1 … 4 and both j:
// -1.75 for class 0, 0.25 for the others.
func TestLabelSmoothing(t *testing.T) {
	const classes, s = 8, 0.2
	build := func(b *ir.Builder) {
		b.Loc = ir.Loc{Node: "smooth"}
		x := b.Param("x", ir.T(dtype.F32, 4, 1), ir.Input)
		labels := b.Param("labels", ir.T(dtype.I64, 4), ir.Input)
		a := b.Param("a", ir.T(dtype.F32, 1, 2), ir.Param)
		a.Init = ir.Floats(a.Type, 1, 1)
		w := b.Param("w", ir.T(dtype.F32, 2, classes), ir.Param)
		logp := ops.LogSoftmax(b, ops.MatMul(b, ops.MatMul(b, x, a), w), 1)
		picked := ops.GatherElements(b, logp, ops.Reshape(b, labels, []int{4, 1}), 1)
		each := ops.Add(b, ops.MulScalar(b, picked, 1-s), ops.MulScalar(b, ops.ReduceSum(b, logp, 1), s/classes))
		b.Result("out0", ops.Reshape(b, ops.MulScalar(b, ops.ReduceSum(b, each, 0, 1), -1./4), nil))
	}
	data := map[string]*ir.Array{"x": f32([]int{4, 1}, 1, 2, 3, 4), "labels": i64([]int{4}, 0, 0, 0, 0)}
	everyLayout(t, build, pass.Options{Loss: "graph", Optimizer: sgd, Check: true}, data, func(r *trained) {
		r.step()
		g := []float64{-1.75, .25, .25, .25, .25, .25, .25, .25}
		r.result("grad/w", append(g, g...)...)
	})
}
