package lora_test

import (
	"maps"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/lora"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
)

// TestGolden holds what comes out, on random adapters, to what went in with W + Scale*B*A, summed up here element by element, in the
// place of each adapted weight W. What is trained is the adapters and what was asked for.
func TestGolden(t *testing.T) {
	var last *pass.Context
	run := func(c *pass.Context) error {
		last = c
		return lora.Run(c)
	}
	check := func(t *testing.T, _ *irtest.Case, before, after *ir.Module) {
		f, g := before.Func("forward"), after.Func("forward")
		trained := map[string]bool{}
		for _, name := range last.Opt.LoRA.Trained {
			trained[name] = true
		}
		for seed := range uint64(3) {
			args := interp.Random(g, seed+1)
			whole := maps.Clone(args)
			for _, a := range last.Adapters {
				whole[a.Weight] = adapted(args, &a)
				trained[a.A.Name], trained[a.B.Name] = true, true
			}
			want, err := interp.Run(f, whole)
			if err != nil {
				t.Fatal(err)
			}
			got, err := interp.Run(g, args)
			if err != nil {
				t.Fatal(err)
			}
			for name, x := range want.Named { // sums of a dozen terms in another order, in float64
				if err := interp.Differ(x, got.Named[name], 1e-12); err != nil {
					t.Errorf("result %s with the adapted weights: %v", name, err)
				}
			}
		}
		for _, p := range g.Params {
			if (p.Role == ir.Param) != trained[p.Name] {
				t.Errorf("%s is a %s", p.Name, p.Role)
			}
		}
	}
	passtest.Golden(t, "lora", run, irtest.Options{Check: check})
}

// adapted is W + Scale*B*A.
func adapted(args map[string]*ir.Array, a *pass.Adapter) *ir.Array {
	w, left, right := args[a.Weight], args[a.B.Name].F, args[a.A.Name].F
	sum := &ir.Array{Type: w.Type, F: append([]float64(nil), w.F...)}
	rank := a.A.Type.Dims[0]
	outs, ins := len(left)/rank, len(right)/rank
	for at := range sum.F {
		o, i := at/ins, at%ins
		if a.InOut || a.Lookup {
			i, o = at/outs, at%outs
		}
		for r := range rank {
			sum.F[at] += a.Scale * left[o*rank+r] * right[r*ins+i]
		}
	}
	return sum
}
