package unstack_test

import (
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/passtest"
	"github.com/gtc-compiler/gtc/passes/unstack"
)

// TestGolden compares what comes out with what went in on the same bytes of each parameter.
func TestGolden(t *testing.T) {
	check := func(t *testing.T, _ *irtest.Case, before, after *ir.Module) {
		for i, f := range before.Funcs {
			g := after.Funcs[i]
			args := interp.Random(f, 1)
			want, err := interp.Run(f, args)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range g.Params {
				a := args[p.Name]
				args[p.Name] = &ir.Array{Type: p.Type, F: a.F, I: a.I}
			}
			got, err := interp.Run(g, args)
			if err != nil {
				t.Fatal(err)
			}
			if err := interp.Compare(f, g, want, got, 1e-9); err != nil {
				t.Error(err)
			}
		}
	}
	passtest.Golden(t, "unstack", unstack.Run, irtest.Options{Check: check})
}

// TestFileDims keeps the dims of files for parameters that are stored otherwise, and their contents.
func TestFileDims(t *testing.T) {
	c, err := passtest.Context("unstack", `func @step(%x: f32[2,4], %w: f32[8,4] param) {
  %y = matmul %x, %w {transB=true} : f32[2,8]
  %a = slice %y {starts=[0,0], sizes=[2,4]} : f32[2,4]
  %b = slice %y {starts=[0,4], sizes=[2,4]} : f32[2,4]
  %c = mul %a, %b : f32[2,4]
  return out0=%c
}`, map[string]string{"tp": "2"})
	if err != nil {
		t.Fatal(err)
	}
	w := c.Module.Funcs[0].Param("w")
	w.Init = ir.Floats(w.Type, make([]float64, 32)...)
	if err := unstack.Run(c); err != nil {
		t.Fatal(err)
	}
	if d := c.FileDims["w"]; len(d) != 2 || d[0] != 8 || d[1] != 4 {
		t.Errorf("files have dims %v", d)
	}
	if s := w.Type.String(); s != "f32[2,4,4]" || !w.Init.Type.Equal(w.Type) {
		t.Errorf("it is stored as %s, its contents are %s", s, w.Init.Type)
	}
}
