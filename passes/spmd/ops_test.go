package spmd_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/layout"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/spmd"
)

// perRank lists the ops whose results, split, are statistics of each part by design.
var perRank = []string{"batch_norm"}

// TestOpsOnAnyMesh lays the operands of every op's samples out at random on a mesh of two axes (split in any
// dimension, by both axes, partial sums) and runs the rank programs against the op itself.
func TestOpsOnAnyMesh(t *testing.T) {
	tries := 12
	if testing.Short() {
		tries = 3
	}
	ran := 0
	for _, d := range ir.Defs() {
		r := &d.Rules
		if r.Collective != "" || slices.Contains(perRank, d.Name) {
			continue
		}
		rnd := rand.New(rand.NewPCG(7, uint64(len(d.Name))))
		for i, s := range r.Samples(rnd) {
			for try := range tries {
				text, err := onMesh(rnd, d, s)
				if err != nil {
					t.Errorf("%s, sample %d, layout %d: %v\n%s", d.Name, i, try, err, text)
					break
				}
				ran++
			}
		}
	}
	t.Logf("%d layouts", ran)
}

// onMesh tries one random layout; the text is the rank program.
func onMesh(rnd *rand.Rand, d *ir.Def, s ir.Sample) (text string, err error) {
	defer ir.Recover(&err)
	m := &ir.Module{Mesh: mesh.Mesh{Axes: []mesh.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}}}
	f := &ir.Func{Name: "f"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: d.Name}
	var in []*ir.Value
	var arrays []*ir.Array
	for i, typ := range s.In {
		if typ.DType == 0 && typ.Dims == nil {
			in, arrays = append(in, nil), append(arrays, nil)
			continue
		}
		in = append(in, b.Param(fmt.Sprintf("a%d", i), typ, ir.Param))
		a := ir.NewArray(typ)
		limit := s.Limit
		if limit == 0 {
			limit = 4
		}
		interp.Fill(rnd, a, limit)
		arrays = append(arrays, a)
	}
	if s.Fill != nil {
		s.Fill(rnd, arrays)
	}
	args := map[string]*ir.Array{}
	for i, v := range in {
		if v != nil {
			args[v.Name] = arrays[i]
		}
	}
	outs := b.EmitN(d, s.Attrs, in...)
	for i, v := range outs {
		b.Result(fmt.Sprintf("r%d", i), v)
	}
	whole, _ := f.Clone()
	var laid []mesh.Sharding
	for _, v := range in {
		sh := mesh.Sharding{}
		if v != nil {
			sh = randomLayout(rnd, m.Mesh, v.Type)
			v.Sharding = sh
		}
		laid = append(laid, sh)
	}
	for i, sh := range layout.Of(m.Mesh, outs[0].Op, laid, nil).Out {
		outs[i].Sharding = sh
	}
	m.Funcs = []*ir.Func{f}
	before := m.String()
	if err := spmd.Run(&pass.Context{Module: m, Opt: &pass.Options{}, Pass: "spmd"}); err != nil {
		return before, err
	}
	if err := m.Verify(); err != nil {
		return m.String(), err
	}
	return m.String(), interp.EquivalentStepsOn(m, whole, args)
}

// randomLayout deals the axes to dims that they divide, to a partial sum, or to nothing.
func randomLayout(rnd *rand.Rand, m mesh.Mesh, t ir.Type) mesh.Sharding {
	s := mesh.Sharding{Dims: make([][]string, len(t.Dims))}
	left := slices.Clone(t.Dims)
	for _, a := range m.Axes {
		d := rnd.IntN(len(t.Dims) + 2)
		switch {
		case d < len(t.Dims) && left[d] > 0 && left[d]%a.Size == 0:
			s.Dims[d] = append(s.Dims[d], a.Name)
			left[d] /= a.Size
		case d == len(t.Dims) && t.DType.IsFloat():
			s.Partial = append(s.Partial, a.Name)
		}
	}
	if s.IsReplicated() {
		return mesh.Sharding{}
	}
	return s
}
