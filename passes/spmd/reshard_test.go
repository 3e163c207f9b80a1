package spmd_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/spmd"
)

// relaid is a program that does nothing but lay x, of the given dims, which comes as from, out as to.
func relaid(t *testing.T, m mesh.Mesh, from, to mesh.Sharding, dims ...int) (whole *ir.Func, local *ir.Module) {
	t.Helper()
	f := &ir.Func{Name: "step"}
	b := ir.NewBuilder(f)
	x := b.Param("x", ir.T(dtype.F32, dims...), ir.Param)
	y := b.Emit(ops.ReshapeDef, ops.ReshapeAttrs{Dims: dims}, x)
	b.Result("y", y)
	whole, _ = f.Clone()
	x.Sharding, y.Sharding = from, to
	local = &ir.Module{Mesh: m, Funcs: []*ir.Func{f}}
	if err := spmd.Run(&pass.Context{Module: local, Opt: &pass.Options{}, Pass: "spmd"}); err != nil {
		t.Fatal(err)
	}
	if err := local.Verify(); err != nil {
		t.Fatalf("%v\n%s", err, local)
	}
	return whole, local
}

func collectives(m *ir.Module) string {
	var kinds []string
	for _, op := range m.Funcs[0].Ops {
		if k := op.Def.Rules.Collective; k != "" {
			kinds = append(kinds, string(k))
			if op.Why == "" && k != "shard_slice" {
				kinds = append(kinds, "(no reason)")
			}
		}
	}
	return strings.Join(kinds, " ")
}

// TestCheapestWay checks which collectives change one layout into another.
func TestCheapestWay(t *testing.T) {
	m := mesh.Mesh{Axes: []mesh.Axis{{Name: "dp", Size: 2}, {Name: "ep", Size: 2}}}
	dp, ep := []string{"dp"}, []string{"ep"}
	for _, c := range []struct {
		name     string
		from, to mesh.Sharding
		want     string
	}{
		{"whole to part", mesh.Sharding{}, mesh.Sharding{Dims: [][]string{dp, nil}}, "shard_slice"},
		{"part to whole", mesh.Sharding{Dims: [][]string{dp, nil}}, mesh.Sharding{}, "all_gather"},
		{"sum to whole", mesh.Sharding{Dims: [][]string{nil, nil}, Partial: dp}, mesh.Sharding{}, "all_reduce"},
		{"sum to part", mesh.Sharding{Dims: [][]string{nil, nil}, Partial: dp}, mesh.Sharding{Dims: [][]string{nil, dp}}, "reduce_scatter"},
		{"sum to a part over both axes", mesh.Sharding{Dims: [][]string{ep, nil}, Partial: dp}, mesh.Sharding{Dims: [][]string{{"ep", "dp"}, nil}}, "reduce_scatter"},
		{"sum to a part over another axis", mesh.Sharding{Dims: [][]string{nil, nil}, Partial: dp}, mesh.Sharding{Dims: [][]string{nil, ep}}, "shard_slice all_reduce"},
		{"part to part of another dim", mesh.Sharding{Dims: [][]string{dp, nil}}, mesh.Sharding{Dims: [][]string{nil, dp}}, "all_to_all"},
		{"part to part over another axis", mesh.Sharding{Dims: [][]string{dp, nil}}, mesh.Sharding{Dims: [][]string{nil, ep}}, "shard_slice all_gather"},
		{"dims change axes", mesh.Sharding{Dims: [][]string{dp, ep}}, mesh.Sharding{Dims: [][]string{ep, dp}}, "all_gather all_to_all shard_slice"},
	} {
		whole, local := relaid(t, m, c.from, c.to, 8, 8)
		if got := collectives(local); got != c.want {
			t.Errorf("%s: %s, want %s\n%s", c.name, got, c.want, local)
		}
		if err := interp.EquivalentSteps(local, whole, 1); err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, local)
		}
	}
}

// TestAnyLayoutToAny changes random layouts on a mesh of three axes of different sizes into others.
func TestAnyLayoutToAny(t *testing.T) {
	m := mesh.Mesh{Axes: []mesh.Axis{{Name: "cp", Size: 3}, {Name: "dp", Size: 2}, {Name: "ep", Size: 2}}}
	rnd := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	for range 300 {
		dims := []int{12, 1 + rnd.IntN(2)*11, 12}
		from, to := randomLayout(rnd, m, ir.T(dtype.F32, dims...)), randomLayout(rnd, m, ir.T(dtype.F32, dims...))
		to.Partial = nil
		if to.IsReplicated() {
			to = mesh.Sharding{}
		}
		whole, local := relaid(t, m, from, to, dims...)
		if err := interp.EquivalentSteps(local, whole, 1); err != nil {
			t.Fatalf("%s to %s: %v\n%s", from, to, err, local)
		}
		for _, k := range strings.Fields(collectives(local)) {
			seen[k] = true
		}
	}
	for _, k := range []string{"all_reduce", "reduce_scatter", "all_to_all", "all_gather", "shard_slice"} {
		if !seen[k] {
			t.Errorf("no layout needed %s", k)
		}
	}
}
