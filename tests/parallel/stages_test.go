package parallel

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// chain is y = x·w0·w1·… with depth weights, each 2 on the diagonal but the last, which is zero: y = 0, and the gradient
// of the last weight alone is not zero.
func chain(depth, n int) func(b *ir.Builder) {
	return func(b *ir.Builder) {
		b.Loc = ir.Loc{Node: "chain"}
		x := b.Param("x", ir.T(dtype.F32, n, 2), ir.Input)
		for i := range depth {
			w := b.Param(fmt.Sprintf("w%d", i), ir.T(dtype.F32, 2, 2), ir.Param)
			if i < depth-1 {
				w.Init = ir.Floats(w.Type, 2, 0, 0, 2)
			}
			x = ops.MatMul(b, x, w)
		}
		b.Result("out0", x)
	}
}

// ways are pipelines that have little to do: more stages than micro-batches, down to a single one.
func ways(stages, micro int) []layout {
	var list []layout
	for _, schedule := range []string{"gpipe", "1f1b", "zb-h1", "varuna"} {
		list = append(list, layout{name: fmt.Sprintf("pp%d mb%d %s", stages, micro, schedule), set: func(o *pass.Options) {
			o.PP, o.Microbatches, o.Pipeline = stages, micro, schedule
		}})
	}
	return list
}

// TestManyStages: four stages work with two micro-batches, or one. Each sample of x is [1 1], so that the product before
// the last weight is [8 8], and the loss is ln 2 a sample. The gradient of the last weight is 8·(1/2 - [c is 0]) = ∓4 in
// either row.
func TestManyStages(t *testing.T) {
	data := samples(ones2(4, 2), 0, 0, 0, 0)
	for _, l := range slices.Concat(ways(4, 2), ways(4, 1), ways(2, 1)) {
		t.Run(l.name, func(t *testing.T) {
			opt := pass.Options{Loss: "cross_entropy", Optimizer: sgd, Check: true}
			r := &trained{t: t, c: compileIn(t, l, chain(4, 4), opt), data: data}
			if len(r.c.Stages) != r.c.Opt.PP {
				t.Fatalf("there are %d stages", len(r.c.Stages))
			}
			r.start(nil)
			r.step()
			r.result("loss_sum", 4*math.Ln2)
			r.result("grad/w3", -4, 4, -4, 4)
			r.kept("w3", 0.4, -0.4, 0.4, -0.4)
			r.kept("w0", 2, 0, 0, 2)
		})
	}
}

// TestBareStage: a stage that has no parameter passes samples on and gradients back. A single weight, the identity, is
// read first, and much work without weights follows; the update is that of one rank.
func TestBareStage(t *testing.T) {
	build := func(b *ir.Builder) {
		b.Loc = ir.Loc{Node: "bare"}
		x := b.Param("x", ir.T(dtype.F32, 4, 2), ir.Input)
		w := b.Param("w", ir.T(dtype.F32, 2, 2), ir.Param)
		w.Init = ir.Floats(w.Type, 1, 0, 0, 1)
		y := ops.MatMul(b, x, w)
		for range 12 {
			y = ops.Tanh(b, y)
		}
		b.Result("out0", y)
	}
	data := map[string]*ir.Array{"x": ones2(4, 2), "target": f32([]int{4, 2}, make([]float64, 8)...), "sample_weight": ones(4)}
	opt := pass.Options{Loss: "mse", Optimizer: sgd, Check: true}
	one := &trained{t: t, c: compileIn(t, everywhere[0], build, opt), data: data}
	one.start(nil)
	one.step()
	for _, l := range ways(3, 2) {
		t.Run(l.name, func(t *testing.T) {
			r := &trained{t: t, c: compileIn(t, l, build, opt), data: data}
			bare := 0
			for _, s := range r.c.Stages {
				if !hasParam(s.Module) {
					bare++
				}
			}
			if bare == 0 {
				t.Errorf("each of %d stages has parameters", len(r.c.Stages))
			}
			r.start(nil)
			r.step()
			for name, want := range one.state() {
				got, err := r.sim.Whole(name)
				if err == nil {
					err = interp.Differ(want, got, 1e-9)
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

func hasParam(m *ir.Module) bool {
	for _, f := range m.Funcs {
		for _, p := range f.Params {
			if p.Role == ir.Param {
				return true
			}
		}
	}
	return false
}
