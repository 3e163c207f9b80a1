package trainstep

import (
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// TestCalledTwice: a batch normalisation that a model calls twice moves its running statistics twice, the second time what the first left.
func TestCalledTwice(t *testing.T) {
	m, err := ir.Parse(`func @forward(%x: f32[4,1], %g: f32[1] param, %b: f32[1] param, %rm: f32[1] buffer, %rv: f32[1] buffer) {
  %y = batch_norm_stat %x, %g, %b, %rm, %rv {eps=0, momentum=0.25} : f32[4,1]
  %z = mul %y, %y : f32[4,1]
  %o = batch_norm_stat %z, %g, %b, %rm, %rv {eps=0, momentum=0.25} : f32[4,1]
  return out0=%o
}`)
	if err != nil {
		t.Fatal(err)
	}
	c := &pass.Context{Module: m, Opt: &pass.Options{Loss: "mse"}, Pass: "trainstep"}
	if err := Run(c); err != nil {
		t.Fatal(err)
	}
	step, args := c.Module.Func("step"), map[string]*ir.Array{}
	for _, p := range step.Params {
		a := ir.NewArray(p.Type)
		for i := range a.F {
			a.F[i] = 1
		}
		args[p.Name] = a
	}
	copy(args["x"].F, []float64{1, 2, 4, 9}) // mean 4, squares 9+4+0+25 = 38
	out, err := interp.Run(step, args)
	if err != nil {
		t.Fatal(err)
	}
	var second []float64 // of the squares of g y + b
	for _, x := range args["x"].F {
		y := (x-4)/math.Sqrt(9.5) + 1
		second = append(second, y*y)
	}
	mean, squares := 0.0, 0.0
	for _, v := range second {
		mean += v / 4
	}
	for _, v := range second {
		squares += (v - mean) * (v - mean)
	}
	for name, want := range map[string]float64{"rm": 0.75*(0.75*1+0.25*4) + 0.25*mean, "rv": 0.75*(0.75*1+0.25*38/3) + 0.25*squares/3} {
		if got := out.Updates[name]; got == nil || !(math.Abs(got.F[0]-want) <= 1e-6*want) {
			t.Errorf("%s becomes %v, want %v", name, got, want)
		}
	}
}
