package overlap_test

import (
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
