package rows

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
)

func TestGolden(t *testing.T) {
	passtest.Golden(t, "rows", Run, irtest.Options{})
}

// TestSame: a function gives the same before and behind, whatever its samples are taken for.
func TestSame(t *testing.T) {
	text := `func @step(%x: f32[2,3,4], %i: i64[2,3], %w: f32[4,4] param, %p: f32[3,1,4] param, %g: f32[5,4] param, %n: i64[] state) {
  %t = transpose %x {perm=[1,0,2]} : f32[3,2,4]
  %r = reshape %t {dims=[6,4]} : f32[6,4]
  %h = matmul %r, %w : f32[6,4]
  %e = expand %p {dims=[3,2,4]} : f32[3,2,4]
  %f = reshape %e {dims=[6,4]} : f32[6,4]
  %a = add %h, %f : f32[6,4]
  %c = cumsum %a {dim=0, exclusive=false, reverse=false} : f32[6,4]
  %m = sub %a, %c : f32[6,4]
  %k = transpose %i {perm=[1,0]} : i64[3,2]
  %l = reshape %k {dims=[6]} : i64[6]
  %o = gather %g, %l {dim=0} : f32[6,4]
  %q = mul %o, %m : f32[6,4]
  %dg = scatter_add %l, %q {dim=0, size=5} : f32[5,4]
  %dw = matmul %r, %q {transA=true} : f32[4,4]
  %b = reduce_max %q {dims=[0]} : f32[1,4]
  %y = reshape %q {dims=[3,2,4]} : f32[3,2,4]
  %z = reshape %q {dims=[3,8]} : f32[3,8]
  return out0=%y, out1=%z, out2=%q, dg=%dg, dw=%dw, b=%b
}`
	run := func(micro int) map[string]*ir.Array {
		m, err := ir.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c := &pass.Context{Module: m, Opt: &pass.Options{Microbatches: micro}, Pass: "rows"}
		if err := Run(c); err != nil {
			t.Fatal(err)
		}
		if micro > 1 && len(c.Remarks) == 0 {
			t.Error("nothing was done")
		}
		r := rand.New(rand.NewPCG(1, 2))
		args := map[string]*ir.Array{}
		for _, p := range m.Funcs[0].Params {
			x := ir.NewArray(p.Type)
			for i := range x.F {
				x.F[i] = r.NormFloat64()
			}
			for i := range x.I {
				x.I[i] = int64(r.IntN(5))
			}
			args[p.Name] = x
		}
		out, err := interp.Run(m.Funcs[0], args)
		if err != nil {
			t.Fatal(err)
		}
		return out.Named
	}
	want, got := run(1), run(2)
	for name, w := range want {
		for i, v := range w.F {
			if g := got[name].F[i]; math.Abs(g-v) > 1e-12 { // sums in another order, in f64
				t.Fatalf("%s: element %d is %g, was %g", name, i, g, v)
			}
		}
	}
}
