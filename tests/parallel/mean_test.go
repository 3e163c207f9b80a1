package parallel

import (
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// classifier is y = (x·a)·w with x[n,1], a[1,2] = 1 and w[2,2] = 0: all logits are zero, so that the loss of a target
// that counts is ln 2, and its part of the gradient of w[j,c] is x·(1/2 - [c is the target]), for both j. The gradient
// of a is zero, because w is.
func classifier(n int) func(b *ir.Builder) {
	return func(b *ir.Builder) {
		b.Loc = ir.Loc{Node: "linear"}
		x := b.Param("x", ir.T(dtype.F32, n, 1), ir.Input)
		a := b.Param("a", ir.T(dtype.F32, 1, 2), ir.Param)
		a.Init = ir.Floats(a.Type, 1, 1)
		w := b.Param("w", ir.T(dtype.F32, 2, 2), ir.Param)
		b.Result("out0", ops.MatMul(b, ops.MatMul(b, x, a), w))
	}
}

func samples(x *ir.Array, targets ...int64) map[string]*ir.Array {
	return map[string]*ir.Array{"x": x, "target": i64([]int{len(targets)}, targets...), "sample_weight": ones(len(targets))}
}

var sgd = pass.Optimizer{Name: "sgd", LR: 0.1}

// TestIgnoredTargets: the mean is over all targets that count, however unevenly they lie: of eight samples x = 1 … 8
// three count, two of them in the first quarter, none in the second and third. A rank or a micro-batch has nothing that
// counts, and the mean is not a mean of means.
//
//	d_w[·,0] = (1·(-1/2) + 2·(1/2) + 8·(-1/2)) / 3 = -7/6
func TestIgnoredTargets(t *testing.T) {
	x := f32([]int{8, 1}, 1, 2, 3, 4, 5, 6, 7, 8)
	data := samples(x, 0, 1, -100, -100, -100, -100, -100, 0)
	everyLayout(t, classifier(8), pass.Options{Loss: "cross_entropy", Optimizer: sgd, Check: true}, data, func(r *trained) {
		r.step()
		r.result("loss_sum", 3*math.Ln2)
		r.result("count", 3)
		r.result("grad/w", -7./6, 7./6, -7./6, 7./6)
		r.kept("w", 0.7/6, -0.7/6, 0.7/6, -0.7/6)
		r.kept("a", 1, 1)
	})
}

// TestShorterLastBatch: a last batch is filled up with samples of weight zero. With six of eight samples, all of class
// 0, d_w[·,0] = -(1+2+3+4+5+6)/2/6 = -7/4; what the padding holds does not matter.
func TestShorterLastBatch(t *testing.T) {
	data := samples(f32([]int{8, 1}, 1, 2, 3, 4, 5, 6, 1e6, -1e6), 0, 0, 0, 0, 0, 0, 1, 1)
	data["sample_weight"].F[6], data["sample_weight"].F[7] = 0, 0
	everyLayout(t, classifier(8), pass.Options{Loss: "cross_entropy", Optimizer: sgd, Check: true}, data, func(r *trained) {
		r.step()
		r.result("loss_sum", 6*math.Ln2)
		r.result("count", 6)
		r.result("grad/w", -7./4, 7./4, -7./4, 7./4)
		r.kept("w", 0.175, -0.175, 0.175, -0.175)
	})
}

// TestGlobalNorm: the norm is over all elements of all gradients, each once, whoever holds them. Here it is that of
// the four elements ±7/4: sqrt(4·49/16) = 7/2. A bound of 7/20 leaves a tenth of each (1e-6 is added to the norm, as
// PyTorch does).
func TestGlobalNorm(t *testing.T) {
	data := samples(f32([]int{4, 1}, 2, 3, 4, 5), 0, 0, 0, 0)
	everyLayout(t, classifier(4), pass.Options{Loss: "cross_entropy", Optimizer: sgd, ClipNorm: 0.35, Check: true}, data, func(r *trained) {
		r.step()
		r.result("grad_norm", 3.5)
		r.kept("w", 0.0175, -0.0175, 0.0175, -0.0175)
	})
	everyLayout(t, classifier(4), pass.Options{Loss: "cross_entropy", Optimizer: sgd, GradNorm: true}, data, func(r *trained) {
		r.step()
		r.result("grad_norm", 3.5)
		r.kept("w", 0.175, -0.175, 0.175, -0.175)
	})
}

// TestTiedNorm: a weight that is used twice is one weight with one gradient, the sum of both uses, and counts once in
// the norm. y = (x·w)·w with w[2,2] the identity: d_w = xᵀ·(d·wᵀ) + (x·w)ᵀ·d = 2·xᵀ·d for d = d_loss/d_y, 2·(y - 0)/8
// of mse with targets 0 and y = x. Every row of x is [1, 2], so d = x/4, d_w = 2·4·[1 2; 2 4]/4 = [2 4; 4 8], of norm
// sqrt(4+16+16+64) = 10; counted twice it would be 14.1. A bound of 1 leaves a tenth.
func TestTiedNorm(t *testing.T) {
	build := func(b *ir.Builder) {
		b.Loc = ir.Loc{Node: "tied"}
		x := b.Param("x", ir.T(dtype.F32, 4, 2), ir.Input)
		w := b.Param("w", ir.T(dtype.F32, 2, 2), ir.Param)
		w.Init = ir.Floats(w.Type, 1, 0, 0, 1)
		b.Result("out0", ops.MatMul(b, ops.MatMul(b, x, w), w))
	}
	data := map[string]*ir.Array{"x": f32([]int{4, 2}, 1, 2, 1, 2, 1, 2, 1, 2), "target": f32([]int{4, 2}, make([]float64, 8)...), "sample_weight": ones(4)}
	everyLayout(t, build, pass.Options{Loss: "mse", Optimizer: sgd, ClipNorm: 1, Check: true}, data, func(r *trained) {
		r.step()
		r.result("loss_sum", 20)
		r.result("count", 8)
		r.kept("w", 1-0.02, -0.04, -0.04, 1-0.08)
	})
	everyLayout(t, build, pass.Options{Loss: "mse", Optimizer: sgd, GradNorm: true}, data, func(r *trained) {
		r.step()
		r.result("grad_norm", 10)
		r.kept("w", 1-0.2, -0.4, -0.4, 1-0.8)
	})
}

// TestSchedule: the learning rate goes on once an update, not once a micro-batch or rank. Three steps of a linear
// warm-up over 4 have the rates 0.1·(1, 2, 3)/4. The loss is the mean over samples of x·w·v, x = [1 1], so that the
// gradient of w is [v; v] = [3 4; 3 4] always. v is frozen: it stays, and no rank waits for its gradient.
func TestSchedule(t *testing.T) {
	build := func(b *ir.Builder) {
		b.Loc = ir.Loc{Node: "linear"}
		x := b.Param("x", ir.T(dtype.F32, 4, 2), ir.Input)
		w := b.Param("w", ir.T(dtype.F32, 2, 2), ir.Param)
		v := b.Param("v", ir.T(dtype.F32, 2, 1), ir.Buffer)
		w.Init, v.Init = ir.Floats(w.Type, 1, 0, 0, 1), ir.Floats(v.Type, 3, 4)
		y := ops.MatMul(b, ops.MatMul(b, x, w), v)
		b.Result("out0", ops.Reshape(b, ops.MulScalar(b, ops.ReduceSum(b, y, 0, 1), 0.25), nil))
	}
	data := map[string]*ir.Array{"x": f32([]int{4, 2}, 1, 1, 1, 1, 1, 1, 1, 1)}
	opt := pass.Options{Loss: "graph", Optimizer: sgd, Schedule: pass.Schedule{Name: "linear", Warmup: 4, Steps: 1000}, Check: true}
	everyLayout(t, build, opt, data, func(r *trained) {
		fall := 0.0
		for k := range 3 {
			r.step()
			fall += 0.1 * float64(k+1) / 4
			r.kept("w", 1-3*fall, -4*fall, -3*fall, 1-4*fall)
			r.kept("v", 3, 4)
		}
	})
}
