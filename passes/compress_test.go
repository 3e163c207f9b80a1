package passes_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// constant is the loss mean(x·w) over a batch of x[batch, rows, cols]: the mean gradient of w[rows, cols] is the mean of x,
// whatever w is, and a rank's part of it the sum of its samples over the size of the batch.
func constant(batch, rows, cols int) *ir.Module {
	f := &ir.Func{Name: "forward"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "loss"}
	x := b.Param("x", ir.T(dtype.F32, batch, rows, cols), ir.Input)
	w := b.Param("w", ir.T(dtype.F32, rows, cols), ir.Param)
	y := ops.Mul(b, x, ops.BroadcastTo(b, w, x.Type.Dims))
	b.Result("out0", ops.MulScalar(b, ops.Reshape(b, ops.ReduceSum(b, y, 0, 1, 2), nil), 1/float64(batch)))
	return &ir.Module{Funcs: []*ir.Func{f}}
}

// regression is x[batch, 8] times w[8, 6] plus b[6].
func regression(batch int) *ir.Module {
	f := &ir.Func{Name: "forward"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "linear"}
	x := b.Param("x", ir.T(dtype.F32, batch, 8), ir.Input)
	w := b.Param("w", ir.T(dtype.F32, 8, 6), ir.Param)
	bias := b.Param("b", ir.T(dtype.F32, 6), ir.Param)
	b.Result("out0", ops.Add(b, ops.MatMul(b, x, w), ops.BroadcastTo(b, bias, []int{batch, 6})))
	return &ir.Module{Funcs: []*ir.Func{f}}
}

// ranked compiles m and puts its ranks at the start.
func ranked(t *testing.T, m *ir.Module, opt *pass.Options, args map[string]*ir.Array) *interp.Simulation {
	t.Helper()
	opt.StopAfter = "overlap"
	c := &pass.Context{Module: m, Opt: opt}
	if err := passes.Run(c, passes.Table); err != nil {
		t.Fatal(err)
	}
	var programs []interp.Program
	var funcs []*ir.Func
	for _, p := range c.Programs() {
		programs = append(programs, interp.Program{Module: p.Module, Actions: p.Actions, Slots: p.Slots})
		funcs = append(funcs, p.Module.Funcs...)
	}
	for _, f := range funcs {
		for _, op := range f.Ops {
			kind := op.Def.Rules.Collective
			if opt.GradComm.DType != "" && f.Name == "step" && (kind == "all_reduce" || kind == "reduce_scatter") && strings.Contains(fmt.Sprint(op.Attrs), "dp") &&
				op.In[0].Type.DType != dtype.BF16 && op.In[0].Type.DType != dtype.F16 && op.In[0].Type.Elems() > 4 {
				t.Errorf("%+v: %s sends %s", opt.GradComm, op.Out[0].Name, op.In[0].Type)
			}
		}
		for _, p := range f.Params {
			if p.Role == ir.Weight && args[p.Name] == nil {
				args[p.Name] = ir.NewArray(ir.T(dtype.F32, args["x"].Type.Dims[0]))
				for i := range args[p.Name].F {
					args[p.Name].F[i] = 1
				}
			}
		}
	}
	s, err := interp.Simulate(programs, args)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func floats(dims []int, values ...float64) *ir.Array {
	a := ir.NewArray(ir.T(dtype.F32, dims...))
	copy(a.F, values)
	return a
}

func advance(t *testing.T, s *interp.Simulation, data map[string]*ir.Array) {
	t.Helper()
	if err := s.Step(data); err != nil {
		t.Fatal(err)
	}
}

// normal draws arrays of f32 in the order of their names, so that a seed gives the same ones each time.
func normal(r *rand.Rand, dims map[string][]int) map[string]*ir.Array {
	args := map[string]*ir.Array{}
	for _, name := range slices.Sorted(maps.Keys(dims)) {
		args[name] = ir.NewArray(ir.T(dtype.F32, dims[name]...))
		for i := range args[name].F {
			args[name].F[i] = r.NormFloat64()
		}
	}
	return args
}

// near fails unless got is want to within tol.
func near(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	for i := range want {
		if len(got) != len(want) || !(math.Abs(got[i]-want[i]) <= tol) {
			t.Errorf("%s is %v, want %v within %g", what, got, want, tol)
			return
		}
	}
}

// Error feedback by hand: gradients that stay the same, on two ranks, and what a learning rate of 1 makes of w.
func TestErrorFeedbackByHand(t *testing.T) {
	for _, c := range []struct {
		name string
		comm pass.GradComm
		x    []float64   // two samples, one for each rank; a rank's part of the mean gradient is half of it
		w    [][]float64 // after each step
		left [2][]float64
	}{
		// Parts (1, .6) and (.2, 1), one element of two sent. The first rank sends .6 twice collected, the second always its 1.
		{name: "topk", comm: pass.GradComm{Compress: "topk", Fraction: 0.5}, x: []float64{2, 1.2, 0.4, 2},
			w:    [][]float64{{-1, -1}, {-1, -3.2}, {-3, -4.2}},
			left: [2][]float64{{0, 0.6}, {0.6, 0}}},
		// A part of (127, 50.4) is sent as (127, 50), then 50.8 as 51, then 50.2 as 50; the other rank sends zeros.
		{name: "int8", comm: pass.GradComm{Compress: "int8"}, x: []float64{254, 100.8, 0, 0},
			w:    [][]float64{{-127, -50}, {-254, -101}, {-381, -151}},
			left: [2][]float64{{0, 0.2}, {0, 0}}},
		// Numbers that half precision has exactly; the interpreter rounds nothing.
		{name: "bf16", comm: pass.GradComm{DType: "bf16"}, x: []float64{2, 1, 4, 8}, w: [][]float64{{-3, -4.5}, {-6, -9}, {-9, -13.5}}},
		{name: "f16", comm: pass.GradComm{DType: "f16"}, x: []float64{2, 1, 4, 8}, w: [][]float64{{-3, -4.5}, {-6, -9}, {-9, -13.5}}},
	} {
		args := map[string]*ir.Array{"x": floats([]int{2, 1, 2}, c.x...), "w": floats([]int{1, 2})}
		s := ranked(t, constant(2, 1, 2), &pass.Options{Loss: "graph", DP: 2, GradComm: c.comm, Optimizer: pass.Optimizer{Name: "sgd", LR: 1}}, args)
		for _, want := range c.w {
			advance(t, s, args)
			for rank := range 2 {
				near(t, c.name, s.Kept(rank, "w").F, want, 1e-4)

			}
		}
		for rank, want := range c.left {
			if want != nil {
				near(t, c.name+": the error of a rank", s.Kept(rank, "optim/error/w").F, want, 1e-4)
			}
		}
	}
}

// What was sent and what is left are together all gradients, and what loses nothing trains like plain data parallelism.
func TestCompressionLosesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(dims ...int) *ir.Array {
		a := ir.NewArray(ir.T(dtype.F32, dims...))
		for i := range a.F {
			a.F[i] = math.Round(64*r.NormFloat64()) / 64
		}
		return a
	}
	args := map[string]*ir.Array{"x": random(2, 8, 6), "w": random(8, 6)}
	optimizer := pass.Optimizer{Name: "sgd", LR: 1}
	for _, comm := range []pass.GradComm{{Compress: "powersgd", Rank: 2}, {Compress: "topk", Fraction: 0.1}, {Compress: "int8"}} {
		s := ranked(t, constant(2, 8, 6), &pass.Options{Loss: "graph", DP: 2, GradComm: comm, Optimizer: optimizer}, args)
		const steps = 5
		for range steps {
			advance(t, s, args)
		}
		want := make([]float64, 48)
		for i := range want {
			want[i] = args["w"].F[i] - steps*(args["x"].F[i]+args["x"].F[48+i])/2 + s.Kept(0, "optim/error/w").F[i] + s.Kept(1, "optim/error/w").F[i]
		}
		near(t, comm.Compress+": w", s.Kept(0, "w").F, want, 1e-4)
		near(t, comm.Compress+": w of the other rank", s.Kept(1, "w").F, s.Kept(0, "w").F, 0)
	}
	// A gradient of rank 2 in factors of rank 3, and all elements.
	low := map[string]*ir.Array{"x": random(2, 8), "target": random(2, 6), "w": random(8, 6), "b": random(6)}
	plain := ranked(t, regression(2), &pass.Options{Loss: "mse", DP: 2, ClipNorm: 0.5, Optimizer: pass.Optimizer{Name: "adam", LR: 0.1}}, low)
	var others []*interp.Simulation
	for _, comm := range []pass.GradComm{{Compress: "powersgd", Rank: 3}, {Compress: "topk", Fraction: 1}} {
		others = append(others, ranked(t, regression(2), &pass.Options{Loss: "mse", DP: 2, ClipNorm: 0.5, GradComm: comm, Optimizer: pass.Optimizer{Name: "adam", LR: 0.1}}, low))
	}
	for range 4 {
		advance(t, plain, low)
		for _, s := range others {
			advance(t, s, low)
			for _, name := range []string{"w", "b"} {
				near(t, name, s.Kept(1, name).F, plain.Kept(0, name).F, 2e-4)
			}
		}
	}
}

// All ways of sending gradients find the same line. The loss after 60 steps is at most 1.5 times that of plain data
// parallelism plus a thousandth of the first.
func TestCompressedTrainingConverges(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const batch = 16
	x, target := ir.NewArray(ir.T(dtype.F32, batch, 8)), ir.NewArray(ir.T(dtype.F32, batch, 6))
	for i := range x.F {
		x.F[i] = r.NormFloat64()
	}
	for i := range batch {
		for j := range 6 {
			for k := range 8 {
				target.F[i*6+j] += x.F[i*8+k] * math.Sin(float64(3*j+k)) // a line through the data, and noise
			}
			target.F[i*6+j] += 0.3 * r.NormFloat64()
		}
	}
	args := map[string]*ir.Array{"x": x, "target": target}
	train := func(comm pass.GradComm, micro int) (first, last float64) {
		s := ranked(t, regression(batch), &pass.Options{Loss: "mse", DP: 2, Microbatches: micro, GradComm: comm, Optimizer: pass.Optimizer{Name: "sgd", LR: 0.2, Momentum: 0.5}}, args)
		for k := range 60 {
			advance(t, s, args)
			if comm.Period > 0 && (k+1)%comm.Period == 0 {
				if err := s.Call("average", args); err != nil {
					t.Fatal(err)
				}
				advance(t, s, args) // the loss of the averaged model is that of the next step
			}
			loss, err := s.Result("loss_sum", false)
			if err != nil {
				t.Fatal(err)
			}
			if last = loss.F[0]; k == 0 {
				first = last
			}
		}
		return first, last
	}
	first, want := train(pass.GradComm{}, 1)
	for _, comm := range []pass.GradComm{{DType: "bf16"}, {DType: "f16"}, {Compress: "powersgd", Rank: 1}, {Compress: "powersgd", Rank: 2},
		{Compress: "topk", Fraction: 0.2}, {Compress: "int8"}} {
		for _, micro := range []int{1, 2} {
			if _, got := train(comm, micro); !(got <= 1.5*want+first/1000) {
				t.Errorf("%+v, %d micro-batches: from %g to %g, plain to %g", comm, micro, first, got, want)
			}
		}
	}
}

// Local SGD: between averages each rank goes its own way, with state of its own; averaged every step, and without
// momentum, it is plain data parallelism.
func TestLocalSGD(t *testing.T) {
	args := map[string]*ir.Array{"x": floats([]int{2, 1, 2}, 2, 1.2, 0.4, 2), "w": floats([]int{1, 2})}
	s := ranked(t, constant(2, 1, 2), &pass.Options{Loss: "graph", DP: 2, GradComm: pass.GradComm{Period: 3}, Optimizer: pass.Optimizer{Name: "sgd", LR: 1, Momentum: 0.5}}, args)
	for range 2 { // momentum: 1, then 1.5 of the gradient
		advance(t, s, args)
	}
	near(t, "w of rank 0", s.Kept(0, "w").F, []float64{-5, -3}, 1e-5)
	near(t, "w of rank 1", s.Kept(1, "w").F, []float64{-1, -5}, 1e-5)
	if err := s.Call("average", args); err != nil {
		t.Fatal(err)
	}
	for rank, v := range [][]float64{{3, 1.8}, {0.6, 3}} {
		near(t, "w averaged", s.Kept(rank, "w").F, []float64{-3, -4}, 1e-5)
		near(t, "momentum", s.Kept(rank, "optim/momentum/w").F, v, 1e-5)
	}
	r := rand.New(rand.NewPCG(5, 6))
	args = normal(r, map[string][]int{"x": {4, 8}, "target": {4, 6}, "w": {8, 6}, "b": {6}})
	var all []*interp.Simulation
	for _, comm := range []pass.GradComm{{}, {Period: 1}, {Period: 1, After: 2}} {
		all = append(all, ranked(t, regression(4), &pass.Options{Loss: "mse", DP: 2, GradComm: comm, Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1}}, args))
	}
	for k := range 4 {
		for i, s := range all {
			name := "step"
			if i == 2 && k >= 2 {
				name = "local"
			}
			if err := s.Call(name, args); err != nil {
				t.Fatal(err)
			}
			if i == 1 || name == "local" {
				if err := s.Call("average", args); err != nil {
					t.Fatal(err)
				}
			}
			near(t, "w", s.Kept(i%2, "w").F, all[0].Kept(0, "w").F, 1e-5)
			near(t, "b", s.Kept(0, "b").F, all[0].Kept(0, "b").F, 1e-5)
		}
	}
}

// What does not go together is refused by name.
func TestGradCommRefusals(t *testing.T) {
	for _, c := range []struct {
		opt  pass.Options
		want string
	}{
		{pass.Options{DP: 1, GradComm: pass.GradComm{DType: "bf16"}}, "--grad-dtype bf16 needs --dp of at least 2"},
		{pass.Options{DP: 2, GradComm: pass.GradComm{DType: "i8"}}, `--grad-dtype must be fp32, bf16 or fp16, not "i8"`},
		{pass.Options{DP: 2, GradComm: pass.GradComm{Compress: "zip"}}, `--grad-compress must be powersgd, topk or int8, not "zip"`},
		{pass.Options{DP: 2, GradComm: pass.GradComm{Compress: "powersgd"}}, "--grad-rank must be at least 1, not 0"},
		{pass.Options{DP: 2, GradComm: pass.GradComm{Compress: "topk", Fraction: 2}}, "--grad-fraction must be above 0 and at most 1, not 2"},
		{pass.Options{DP: 2, GradComm: pass.GradComm{Compress: "int8", DType: "bf16"}}, "--grad-compress int8 and --grad-dtype bf16"},
		{pass.Options{DP: 2, GradComm: pass.GradComm{Compress: "int8", Period: 2}}, "it sends parameters instead of gradients"},
		{pass.Options{DP: 2, PP: 2, Microbatches: 2, ClipNorm: 1, GradComm: pass.GradComm{DType: "f16"}}, "--grad-dtype fp16 does not work with --pp and --clip-norm"},
		{pass.Options{DP: 2, PP: 2, Microbatches: 2, GradComm: pass.GradComm{Period: 2}}, "--local-sgd does not work with --pp"},
		{pass.Options{DP: 2, Zero: 1, GradComm: pass.GradComm{Period: 2}}, "--local-sgd does not work with --zero 1"},
		{pass.Options{DP: 2, Zero: 2, GradComm: pass.GradComm{Compress: "int8"}}, "--grad-compress int8 does not work with --zero 2"},
		{pass.Options{DP: 2, Reproducible: true, GradComm: pass.GradComm{DType: "bf16"}}, "--reproducible"},
		{pass.Options{DP: 2, GradComm: pass.GradComm{After: 2}}, "--post-local-sgd needs --local-sgd"},
		{pass.Options{DP: 2, Check: true, GradComm: pass.GradComm{Period: 2}}, "gtc check compares the gradients of the global batch"},
	} {
		o := c.opt
		o.Loss, o.Optimizer = "mse", pass.Optimizer{Name: "sgd", LR: 1}
		err := passes.Run(&pass.Context{Module: regression(4), Opt: &o}, passes.Table)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "BUG") {
			t.Errorf("%+v: %v, want %q", c.opt.GradComm, err, c.want)
		}
	}
}

// layers is x[batch, 8] through two layers of weights [8, 16] and [16, 6], with relu between.
func layers(batch int) *ir.Module {
	f := &ir.Func{Name: "forward"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "layers"}
	x := b.Param("x", ir.T(dtype.F32, batch, 8), ir.Input)
	w := b.Param("w", ir.T(dtype.F32, 8, 16), ir.Param)
	v := b.Param("v", ir.T(dtype.F32, 16, 6), ir.Param)
	bias := b.Param("b", ir.T(dtype.F32, 6), ir.Param)
	h := ops.Relu(b, ops.MatMul(b, x, w))
	b.Result("out0", ops.Add(b, ops.MatMul(b, h, v), ops.BroadcastTo(b, bias, []int{batch, 6})))
	return &ir.Module{Funcs: []*ir.Func{f}}
}

// What loses nothing (the interpreter rounds nothing) trains in every layout as one rank does, and what is rounded on its way
// nearly so. AdamW's first update is the sign of a gradient, which rounding may turn where ranks cancel, and a second step may be on
// the other side of a relu: half precision is held to one step of SGD, which few roundings change (of two parts and their sum, 2^-9
// each of bf16 and 2^-11 of f16): four of them, in norm.
func TestCompressionInLayouts(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	args := normal(r, map[string][]int{"x": {8, 8}, "target": {8, 6}, "w": {8, 16}, "v": {16, 6}, "b": {6}})
	const lr = 0.05
	adamw, sgd := pass.Optimizer{Name: "adamw", LR: lr, WeightDecay: 0.1}, pass.Optimizer{Name: "sgd", LR: lr}
	train := func(o pass.Options) *interp.Simulation {
		o.Loss = "mse"
		s := ranked(t, layers(8), &o, args)
		for range map[string]int{"adamw": 3, "sgd": 1}[o.Optimizer.Name] {
			advance(t, s, args)
		}
		return s
	}
	for _, clip := range []float64{0, 0.5} {
		one := map[string]*interp.Simulation{}
		for _, o := range []pass.Optimizer{adamw, sgd} {
			one[o.Name] = train(pass.Options{ClipNorm: clip, Optimizer: o})
		}
		all := pass.GradComm{Compress: "topk", Fraction: 1}
		bf16 := pass.GradComm{DType: "bf16"}
		for _, o := range []pass.Options{{TP: 2, GradComm: all}, {PP: 2, GradComm: all}, {PP: 2, TP: 2, GradComm: bf16}, {Zero: 1, GradComm: bf16},
			{Zero: 2, GradComm: bf16}, {Zero: 3, GradComm: bf16}, {Zero: 3, GradComm: pass.GradComm{DType: "f16"}}, {PP: 2, Zero: 2, GradComm: bf16},
			{TP: 2, GradComm: pass.GradComm{Compress: "powersgd", Rank: 6}}} {
			what := fmt.Sprintf("clip %g, tp %d, pp %d, zero %d, %+v", clip, o.TP, o.PP, o.Zero, o.GradComm)
			o.ClipNorm, o.Optimizer, o.DP, o.Microbatches = clip, adamw, 2, 2
			tol, half := map[string]float64{"bf16": 4. / (1 << 9), "f16": 4. / (1 << 11)}[o.GradComm.DType]
			if o.Optimizer = sgd; !half {
				o.Optimizer, tol = adamw, 1e-4
			}
			s := train(o)
			for _, name := range []string{"w", "v", "b"} {
				want, err := one[o.Optimizer.Name].Whole(name)
				if err != nil {
					t.Fatal(err)
				}
				got, err := s.Whole(name)
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				way, off := 0., 0.
				for i, v := range want.F {
					way, off = math.Hypot(way, v-args[name].F[i]), math.Hypot(off, got.F[i]-v)
				}
				if o.GradComm.Compress != "powersgd" && !(off <= tol*way) {
					t.Errorf("%s: %s is off by %g of its way, want %g", what, name, off/way, tol)
				}
			}
		}
	}
}
