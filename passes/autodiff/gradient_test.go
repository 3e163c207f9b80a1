package autodiff

import (
	"math"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
)

// programs are small @step functions of typical make, differentiated whole and compared with central differences.
var programs = map[string]string{
	"two-layer perceptron, norm, cross entropy": `
func @step(%x: f32[3,4], %t: i64[3], %w1: f32[4,5] param, %b1: f32[5] param, %g: f32[5] param, %b: f32[5] param, %w2: f32[6,5] param) {
  %h = matmul %x, %w1, %b1 : f32[3,5]
  %n, %mean, %rstd = layer_norm %h, %g, %b {eps=1e-05, dims=1} : f32[3,5], f32[3,1], f32[3,1]
  %a = gelu %n : f32[3,5]
  %r = add %a, %h : f32[3,5]
  %y = matmul %r, %w2 {transB=true} : f32[3,6]
  %l = xent %y, %t {ignoreIndex=-100} : f32[3]
  %s = reduce_sum %l {dims=[0]} : f32[1]
  %loss_sum = reshape %s {dims=[]} : f32[]
  return loss_sum=%loss_sum
}`,
	"embedding, attention, tied output": `
func @step(%ids: i64[2,3], %e: f32[7,8] param, %wq: f32[8,8] param, %wk: f32[8,4] param) {
  %x = gather %e, %ids {dim=0} : f32[2,3,8]
  %q = matmul %x, %wq : f32[2,3,8]
  %k = matmul %x, %wk : f32[2,3,4]
  %q4 = reshape %q {dims=[2,3,2,4]} : f32[2,3,2,4]
  %k4 = reshape %k {dims=[2,3,1,4]} : f32[2,3,1,4]
  %o, %lse = attention %q4, %k4, %k4, _ {causal=true, scale=0.5, layout="bshd"} : f32[2,3,2,4], f32[2,2,3]
  %o3 = reshape %o {dims=[2,3,8]} : f32[2,3,8]
  %y = matmul %o3, %e {transB=true} : f32[2,3,7]
  %p = log_softmax %y {dim=2} : f32[2,3,7]
  %s = reduce_sum %p {dims=[0,1,2]} : f32[1,1,1]
  %loss_sum = reshape %s {dims=[]} : f32[]
  return loss_sum=%loss_sum
}`,
	"fractional part": `
func @step(%w: f32[3] param) {
  %f = floor %w : f32[3]
  %d = sub %w, %f : f32[3]
  %s = sign %d : f32[3]
  %r = mul %d, %s : f32[3]
  %l = reduce_sum %r {dims=[0]} : f32[1]
  %loss_sum = reshape %l {dims=[]} : f32[]
  return loss_sum=%loss_sum
}`,
	"convolution, batch norm, pooling": `
func @step(%x: f32[2,2,4,4], %w: f32[3,2,3,3] param, %g: f32[3] param, %b: f32[3] param) {
  %c = conv %x, %w {strides=[1,1], pads=[1,1,1,1], dilations=[1,1], groups=1} : f32[2,3,4,4]
  %n, %mean, %var = batch_norm %c, %g, %b {eps=1e-05} : f32[2,3,4,4], f32[3], f32[3]
  %a = silu %n : f32[2,3,4,4]
  %p, %i = max_pool %a {kernel=[2,2], strides=[2,2], pads=[0,0,0,0], dilations=[1,1]} : f32[2,3,2,2], i32[2,3,2,2]
  %q = mul %p, %p : f32[2,3,2,2]
  %s = reduce_sum %q {dims=[0,1,2,3]} : f32[1,1,1,1]
  %loss_sum = reshape %s {dims=[]} : f32[]
  return loss_sum=%loss_sum
}`,
	"shape ops with several readers": `
func @step(%x: f32[2,3], %w: f32[2,3] param) {
  %t = transpose %w {perm=[1,0]} : f32[3,2]
  %c = concat %t, %t {dim=0} : f32[6,2]
  %s = slice %c {starts=[1,0], sizes=[3,2], steps=[2,1]} : f32[3,2]
  %p = pad %s {low=[1,0], high=[0,1], interior=[1,0], value=0.5} : f32[6,3]
  %v = reshape %p {dims=[9,2]} : f32[9,2]
  %e = exp %v : f32[9,2]
  %m = reduce_max %e {dims=[1]} : f32[9,1]
  %me = expand %m {dims=[9,2]} : f32[9,2]
  %d = div %e, %me : f32[9,2]
  %f = mul %d, %v : f32[9,2]
  %l = reduce_sum %f {dims=[0,1]} : f32[1,1]
  %loss_sum = reshape %l {dims=[]} : f32[]
  return loss_sum=%loss_sum
}`,
}

func TestCentralDifferences(t *testing.T) {
	for name, text := range programs {
		t.Run(name, func(t *testing.T) {
			c, err := passtest.Context("autodiff", text, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := Run(c); err != nil {
				t.Fatal(err)
			}
			if err := c.Module.Verify(); err != nil {
				t.Fatal(err)
			}
			f := c.Module.Func("step")
			args := interp.Random(f, 7)
			out := run(t, f, args)
			for _, p := range f.Params {
				if p.Role == ir.Param {
					difference(t, f, args, p, out.Named["grad/"+p.Name])
				}
			}
		})
	}
}

func run(t *testing.T, f *ir.Func, args map[string]*ir.Array) *interp.Outcome {
	t.Helper()
	out, err := interp.Run(f, args)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// difference compares the gradient of p with (loss(p+h)-loss(p-h))/2h, element by element.
func difference(t *testing.T, f *ir.Func, args map[string]*ir.Array, p *ir.Value, grad *ir.Array) {
	t.Helper()
	if grad == nil {
		t.Fatalf("there is no gradient of %s", p.Name)
	}
	const h = 1e-5
	a := args[p.Name]
	for i := range a.F {
		old := a.F[i]
		a.F[i] = old + h
		up := run(t, f, args).Named["loss_sum"].F[0]
		a.F[i] = old - h
		down := run(t, f, args).Named["loss_sum"].F[0]
		a.F[i] = old
		if want := (up - down) / (2 * h); math.Abs(grad.F[i]-want) > 1e-5*math.Max(1, math.Abs(want)) {
			t.Errorf("d loss / d %s[%d] is %.8g, differences say %.8g", p.Name, i, grad.F[i], want)
		}
	}
}

// TestOnlyWayIsCut needs an op without a gradient between a parameter and the loss.
func TestOnlyWayIsCut(t *testing.T) {
	const text = `
func @step(%w: f32[2] param, %u: f32[2] param) {
  %i = argmax %w {dim=0} : i64[1]
  %f = cast %i {to=f32} : f32[1]
  %fe = expand %f {dims=[2]} : f32[2]
  %c = mul %fe, %u : f32[2]
  %l = reduce_sum %c {dims=[0]} : f32[1]
  %loss_sum = reshape %l {dims=[]} : f32[]
  return loss_sum=%loss_sum
}`
	c, err := passtest.Context("autodiff", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(c); err != nil {
		t.Fatal(err)
	}
	if len(c.Remarks) != 1 || !strings.Contains(c.Remarks[0].String(), "%w has no gradient because only argmax reads it") {
		t.Errorf("remarks: %v", c.Remarks)
	}
}

// TestMaskThatTrains: attention's mask has a gradient of its own.
func TestMaskThatTrains(t *testing.T) {
	const text = `
func @step(%q: f32[1,1,2,2] param, %m: f32[1,1,2,2] param) {
  %o, %lse = attention %q, %q, %q, %m {scale=1.0} : f32[1,1,2,2], f32[1,1,2]
  %oo = mul %o, %o : f32[1,1,2,2]
  %l = reduce_sum %oo {dims=[0,1,2,3]} : f32[1,1,1,1]
  %loss_sum = reshape %l {dims=[]} : f32[]
  return loss_sum=%loss_sum
}`
	c, err := passtest.Context("autodiff", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Run(c); err != nil {
		t.Fatal(err)
	}
	f := c.Module.Func("step")
	args := interp.Random(f, 7)
	out := run(t, f, args)
	for _, p := range f.Params {
		difference(t, f, args, p, out.Named["grad/"+p.Name])
	}
}

// BenchmarkChain differentiates 10,000 ops.
func BenchmarkChain(b *testing.B) {
	for b.Loop() {
		f := chain(10000)
		if err := Run(&pass.Context{Module: &ir.Module{Funcs: []*ir.Func{f}}, Opt: &pass.Options{}, Pass: "autodiff"}); err != nil {
			b.Fatal(err)
		}
	}
}

func chain(n int) *ir.Func {
	f := &ir.Func{Name: "step"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "chain"}
	w := b.Param("w", ir.T(1, 4), ir.Param)
	v := w
	for range n / 2 {
		v = ops.Tanh(b, ops.Mul(b, v, w))
	}
	b.Result("loss_sum", ops.Reshape(b, ops.ReduceSum(b, v, 0), nil))
	return f
}
