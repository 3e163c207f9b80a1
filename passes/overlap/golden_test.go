package overlap_test

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/overlap"
	"github.com/gtc-compiler/gtc/passes/passtest"
)

// TestGolden compares rank programs before and after: all ranks together compute the same.
func TestGolden(t *testing.T) {
	check := func(t *testing.T, c *irtest.Case, before, after *ir.Module) {
		for _, f := range before.Funcs {
			g := after.Func(f.Name)
			n := after.Mesh.Ranks()
			var args []map[string]*ir.Array
			for r := range n {
				args = append(args, interp.Random(f, uint64(r)))
			}
			want, err := interp.RunRanks(before, f, n, args)
			if err != nil {
				t.Fatal(err)
			}
			got, err := interp.RunRanks(after, g, n, args)
			if err != nil {
				t.Fatal(err)
			}
			for r := range n {
				if err := interp.Compare(f, g, want[r], got[r], 0); err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
		}
	}
	passtest.Golden(t, "overlap", overlap.Run, irtest.Options{Check: check})
}

const ranks = `mesh @m = [dp=2]
func @step(%x: f32[4], %y: f32[2]) {
  %a = all_reduce %x {axis="dp", op="sum"} : f32[4]
  %b = all_reduce %y {axis="dp", op="sum"} : f32[2]
  return a=%a, b=%b
}`

// TestMatch checks that ranks that would wait for each other forever are found, with both ops named.
func TestMatch(t *testing.T) {
	m := ir.MustParse(ranks)
	for i, op := range m.Funcs[0].Ops {
		op.Loc.Node = []string{"first", "second"}[i]
	}
	other := func(old, new string) *ir.Module { return ir.MustParse(strings.Replace(ranks, old, new, 1)) }
	for name, c := range map[string]struct {
		m    *ir.Module
		want string
	}{
		"same":     {ir.MustParse(ranks), ""},
		"operator": {other(`op="sum"`, `op="max"`), `rank 0 issues all_reduce sum over dp of f32, 16 bytes, in @step at "first" (text); rank 2 issues all_reduce max`},
		"missing":  {other("%b = all_reduce %y {axis=\"dp\", op=\"sum\"}", "%b = neg %y"), `rank 0 waits for all_reduce sum over dp of f32, 8 bytes, in @step at "second" (text), which rank 2 never issues`},
		"kind":     {other("%a = all_reduce %x {axis=\"dp\", op=\"sum\"} : f32[4]", "%a = all_gather %x {axis=\"dp\", dim=0, size=2} : f32[8]"), "all_gather over dp of f32"},
	} {
		err := overlap.Match([]*ir.Module{m, m, c.m})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
