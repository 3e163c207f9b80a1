package passes_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/optimizer"
	"github.com/gtc-compiler/gtc/passes/overlap"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
	"github.com/gtc-compiler/gtc/passes/shard"
	"github.com/gtc-compiler/gtc/passes/spmd"
)

// The gradients of w and b are the columns of x and y added up; w divides over two ranks, b does not.
const columns = `func @step(%x: f32[2,4], %y: f32[2,3], %w: f32[4] param, %b: f32[3] param) {
  %l = reduce_sum %x {dims=[0,1]} : f32[1,1]
  %loss = reshape %l {dims=[]} : f32[]
  %count = const {value=f32[](2.0)} : f32[]
  %sw = reduce_sum %x {dims=[0]} : f32[1,4]
  %dw = reshape %sw {dims=[4]} : f32[4]
  %sb = reduce_sum %y {dims=[0]} : f32[1,3]
  %db = reshape %sb {dims=[3]} : f32[3]
  return loss_sum=%loss, count=%count, grad/w=%dw, grad/b=%db
}`

// TestZeroByHand checks what norms over parts and whole parameters make of a step, on numbers worked out by hand. The
// mean gradients are (3,4,0,0) of w and (12,0,0) of b: together a norm of 13.
func TestZeroByHand(t *testing.T) {
	data := map[string][]float64{"x": {1, 8, -2, 5, 5, 0, 2, -5}, "y": {20, 1, 0, 4, -1, 0}}
	for _, c := range []struct {
		name   string
		opt    pass.Options
		change func(in map[string][]float64)
		w, b   []float64 // after the step; before it w is (3,4,0,0) and b (1,1,1)
	}{
		// Clipped to a norm of 1, the gradient is divided by 13; the rate takes it back.
		{"clip", pass.Options{ClipNorm: 1, Optimizer: pass.Optimizer{Name: "sgd", LR: 13}}, nil, []float64{0, 0, 0, 0}, []float64{-11, 1, 1}},
		// LARS moves w by 0.001 * |w|/|g| = 0.001 of its gradient at rate 1, b by 0.001 * sqrt(3)/12.
		{"lars", pass.Options{Optimizer: pass.Optimizer{Name: "lars", LR: 1000}}, nil, []float64{0, 0, 0, 0}, []float64{1 - math.Sqrt(3), 1, 1}},
		// In LAMB's first step each element's direction is its gradient's sign: four of w give a norm of 2, so that w, of
		// norm 5, moves by 2.5 times the rate; of b one moves, by sqrt(3) times it.
		{"lamb", pass.Options{Optimizer: pass.Optimizer{Name: "lamb", LR: 1, Eps: 1e-20}},
			func(in map[string][]float64) { in["x"] = []float64{1, 2, -3, 4, 5, 2, -3, 1} }, []float64{0.5, 1.5, 2.5, -2.5}, []float64{1 - math.Sqrt(3), 1, 1}},
	} {
		for zero := range 4 {
			t.Run(fmt.Sprintf("%s zero%d", c.name, zero), func(t *testing.T) {
				in := map[string][]float64{"x": data["x"], "y": data["y"], "w": {3, 4, 0, 0}, "b": {1, 1, 1}}
				if c.change != nil {
					c.change(in)
				}
				opt := c.opt
				opt.DP, opt.Zero = 2, zero
				got, norm := oneStep(t, &opt, in)
				for name, want := range map[string][]float64{"w": c.w, "b": c.b} {
					for i, v := range got[name].F {
						if math.Abs(v-want[i]) > 1e-5 {
							t.Errorf("%s is %v, want %v", name, got[name].F, want)
							break
						}
					}
				}
				if norm != nil && math.Abs(norm.F[0]-13) > 1e-5 {
					t.Errorf("the norm of all gradients is %v, want 13", norm.F)
				}
			})
		}
	}
}

// oneStep runs a step of columns on two ranks; the norm is nil without clipping.
func oneStep(t *testing.T, opt *pass.Options, in map[string][]float64) (updated map[string]*ir.Array, norm *ir.Array) {
	t.Helper()
	c, err := passtest.Context("test", columns, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Opt = opt
	for _, run := range []func(*pass.Context) error{optimizer.Run, shard.Run, spmd.Run, overlap.Run} {
		if err := run(c); err != nil {
			t.Fatal(err)
		}
	}
	m, f := c.Module, c.Module.Func("step")
	args := []map[string]*ir.Array{{}, {}}
	for _, p := range f.Params {
		if x := in[p.Name]; x != nil {
			dims := map[string][]int{"x": {2, 4}, "y": {2, 3}, "w": {4}, "b": {3}}[p.Name]
			for r := range args {
				args[r][p.Name] = interp.Shard(m.Mesh, p.Sharding, r, 0, &ir.Array{Type: ir.T(p.Type.DType, dims...), F: x})
			}
			continue
		}
		for r := range args {
			args[r][p.Name] = ir.NewArray(p.Type)
		}
	}
	out, err := interp.RunRanks(m, f, 2, args)
	if err != nil {
		t.Fatal(err)
	}
	updated = map[string]*ir.Array{}
	for _, r := range f.Results {
		if r.Updates != nil && r.Updates.Role == ir.Param {
			name := r.Updates.Name
			if updated[name], err = interp.Unshard(m.Mesh, r.Updates.Sharding, []*ir.Array{out[0].Updates[name], out[1].Updates[name]}, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	return updated, out[0].Named["grad_norm"]
}

// TestGradientsDoNotWait checks that whole gradients are given up soon after they were scattered: of eight equal layers, a
// rank under ZeRO-2 holds a few whole gradients at a time, where data parallelism needs all of them at the end.
func TestGradientsDoNotWait(t *testing.T) {
	const layers, width = 8, 256
	whole := 4 * width * width
	for zero, most := range map[int]int{0: 10 * whole, 2: 4*whole + layers*whole/2 + whole/2, 3: 3*whole + layers*whole/2} {
		f := &ir.Func{Name: "forward"}
		b := ir.NewBuilder(f)
		b.Loc = ir.Loc{Node: "deep"}
		h := b.Param("x", ir.T(dtype.F32, 8, width), ir.Input)
		for i := range layers {
			h = ops.Tanh(b, ops.MatMul(b, h, b.Param(fmt.Sprintf("w%d", i), ir.T(dtype.F32, width, width), ir.Param)))
		}
		b.Result("out0", h)
		c := &pass.Context{Module: &ir.Module{Funcs: []*ir.Func{f}}, Opt: &pass.Options{Loss: "mse", DP: 2, Zero: zero, ClipNorm: 1, Optimizer: pass.Optimizer{Name: "adam", LR: 0.1}}}
		if err := passes.Run(c, passes.Table); err != nil {
			t.Fatal(err)
		}
		got := c.Plan.Segments["activations"]
		t.Logf("ZeRO-%d: %.1f whole gradients of %d", zero, float64(got)/float64(whole), layers)
		if got > most || zero == 0 && got < layers*whole {
			t.Errorf("ZeRO-%d: %d bytes come and go, %d are enough", zero, got, most)
		}
	}
}
