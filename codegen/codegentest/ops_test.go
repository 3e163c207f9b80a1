package codegentest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	_ "github.com/gtc-compiler/gtc/ir/ops"
)

// Every op's kernel, template or decomposition, compiled and run, must agree with its Eval. Inputs are float32,
// Eval is float64: the tolerance is a few hundred roundings relative to the largest element.
func TestKernelsMatchEval(t *testing.T) {
	m, args, want := &ir.Module{}, map[string]map[string]*ir.Array{}, map[string]*interp.Outcome{}
	for _, d := range ir.Defs() {
		if d.Rules.Collective != "" || d.Rules.Samples == nil {
			continue
		}
		r := rand.New(rand.NewPCG(7, uint64(len(d.Name))))
		for i, s := range d.Rules.Samples(r) {
			addSample(t, m, d, fmt.Sprintf("%s_%d", d.Name, i), s, r, args, want)
		}
	}
	got, err := Run(m, t.TempDir(), args)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Funcs {
		for i := range f.Results {
			if err := interp.Differ(want[f.Name].All[i], got[f.Name][i], 1e-4); err != nil {
				t.Errorf("@%s result %d: %v\n%s", f.Name, i, err, f)
			}
		}
	}
	t.Logf("%d samples", len(m.Funcs))
}

// addSample makes a function of one op on rounded random operands. Samples of element types that the CPU target
// does not compute in are left out.
func addSample(t *testing.T, m *ir.Module, d *ir.Def, name string, s ir.Sample, r *rand.Rand, args map[string]map[string]*ir.Array,
	want map[string]*interp.Outcome) {
	f := &ir.Func{Name: name}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: name}
	var in []*ir.Value
	var arrays []*ir.Array
	for i, ty := range s.In {
		if ty.DType == dtype.F16 || ty.DType == dtype.BF16 {
			return
		}
		in = append(in, b.Param(fmt.Sprintf("%s.x%d", name, i), ty, ir.Input))
		a := ir.NewArray(ty)
		interp.Fill(r, a, max(s.Limit, 4*btoi(s.Limit == 0)))
		arrays = append(arrays, a)
	}
	if s.Fill != nil {
		s.Fill(r, arrays)
	}
	args[name] = map[string]*ir.Array{}
	for i, a := range arrays {
		args[name][in[i].Name] = a.Tensor().Array()
	}
	for i, v := range b.EmitN(d, s.Attrs, in...) {
		if v.Type.DType == dtype.F16 || v.Type.DType == dtype.BF16 {
			return
		}
		b.Result(fmt.Sprintf("r%d", i), v)
	}
	out, err := interp.Run(f, args[name])
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	want[name] = out
	m.Funcs = append(m.Funcs, f)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
