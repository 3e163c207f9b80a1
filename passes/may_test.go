package passes_test

import (
	"math"
	"math/rand/v2"
	"strings"

	"maps"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/pass"

	"github.com/gtc-compiler/gtc/passes"
)

// learnt is what a step of all ranks gives and leaves, put together, on data that do not depend on how a rank holds them.
func learnt(c *pass.Context) (map[string][]float64, error) {
	programs, _ := simulated(c)
	args := map[string]*ir.Array{}
	for _, p := range programs {
		for _, f := range p.Module.Funcs {
			for _, v := range f.Params {
				x := ir.NewArray(ir.T(v.Type.DType, interp.WholeDims(p.Module.Mesh, v)...))
				r := rand.New(rand.NewPCG(1, uint64(len(v.Name))))
				interp.Fill(r, x, 2)
				if v.Role == ir.Buffer || v.Role == ir.State {
					for i := range x.F {
						x.F[i] = math.Abs(x.F[i]) + 0.1
					}
				}
				if v.Role != ir.State || v.Type.DType.IsFloat() && !strings.HasPrefix(v.Name, "accum/") {
					args[v.Name] = x
				}
			}
		}
	}
	s, err := interp.RunPrograms(programs, args, 1)
	if err != nil {
		return nil, err
	}
	all := map[string][]float64{}
	for _, name := range append(s.Names(), "loss_sum", "count") {
		x, err := s.Whole(name)
		if x == nil && err == nil {
			x, err = s.Result(name, true)
		}
		if c.Opt.GradComm.Period > 0 && err != nil { // each rank has its own
			x, err = s.Kept(0, name), nil
		}
		if err != nil {
			return nil, err
		}
		all[name] = numbers(x)
	}
	return all, nil
}

// TestFewerRewrites: with some of the rewrites that passes ask May for, or with none, the samples' programs compute the same.
// Fewer are folded or joined, so that sums round elsewhere: in norm, to 1e-5 of f32 constants, and to 2e-2 with half
// precision, as interp.Tolerance and interp.HalfTolerance have it. The first so many are the same, in the same order.
func TestFewerRewrites(t *testing.T) {
	samples := orderSamples(t)
	t.Chdir(t.TempDir())
	asked := map[string]bool{}
	for _, s := range samples {
		whole, err := s.through(t, passes.Table)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		want, err := learnt(whole)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		n := whole.Asked.Total
		for _, limit := range []int{0, n / 3, n / 2, n} {
			part := s
			part.opt.Rewrites = &limit
			c, err := part.through(t, passes.Table)
			if err != nil {
				t.Errorf("%s, %d of %d rewrites: %v", s.name, limit, n, err)
				continue
			}
			if last := c.Asked.Last; last.Number != limit || limit > 0 && last.Pass == "" {
				t.Errorf("%s, %d of %d rewrites: the last that is told is %s", s.name, limit, n, last)
			}
			asked[c.Asked.Last.Pass] = true
			got, err := learnt(c)
			if err != nil {
				t.Errorf("%s, %d of %d rewrites: %v", s.name, limit, n, err)
				continue
			}
			tol := 1e-5
			if p := s.opt.Precision; p != "" || s.opt.GradComm.DType != "" {
				tol = 2e-2
			}
			for _, name := range slices.Sorted(maps.Keys(want)) {
				if e := relative(got[name], want[name]); e > tol {
					t.Errorf("%s, %d of %d rewrites: %s differs by %.3g", s.name, limit, n, name, e)
					break
				}
			}
			if limit == n && programText(t, c) != programText(t, whole) {
				t.Errorf("%s: all rewrites are not the program", s.name)
			}
		}
	}
	t.Log("the last rewrite was one of ", asked)
}
