package codegentest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	_ "github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/fuse"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/target"
)

// Every op's kernel, template or decomposition, compiled and run, must agree with its Eval, on every target whose programs run on
// this processor. Inputs are float32, Eval is float64: the tolerance is a few hundred roundings relative to the largest element.
// A target may refuse ops that it has no kernel for; the first, cpu, refuses none.
func TestKernelsMatchEval(t *testing.T) {
	for i, on := range pass.Targets {
		if _, here := on.(target.Host); !here {
			continue
		}
		name := on.Traits().Name
		t.Run(name, func(t *testing.T) {
			if refused := kernelsMatchEval(t, &pass.Options{Target: name}); i == 0 && len(refused) > 0 {
				t.Errorf("target %s has no kernel for %v", name, refused)
			} else if len(refused) > 8 {
				t.Errorf("target %s has no kernel for %d ops: %v", name, len(refused), refused)
			}
		})
	}
}

// kernelsMatchEval gives the ops that the target refuses.
func kernelsMatchEval(t *testing.T, o *pass.Options) (refused []string) {
	m, args, want := &ir.Module{}, map[string]map[string]*ir.Array{}, map[string]*interp.Outcome{}
	for _, d := range ir.Defs() {
		if d.Rules.Beside() || d.Rules.Samples == nil {
			continue
		}
		r := rand.New(rand.NewPCG(7, uint64(len(d.Name))))
		for i, s := range d.Rules.Samples(r) {
			addSample(t, m, d, fmt.Sprintf("%s_%d", d.Name, i), s, r, args, want)
			last := len(m.Funcs) - 1
			f, _ := m.Funcs[last].Clone()
			var told *ir.Error
			if err := fuse.Run(&pass.Context{Module: &ir.Module{Funcs: []*ir.Func{f}}, Opt: o}); errors.As(err, &told) && strings.Contains(told.Msg, "has no kernel for") {
				m.Funcs, refused = m.Funcs[:last], append(refused, d.Name)
			}
		}
	}
	got, err := RunOn(o, m, t.TempDir(), args)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Funcs {
		for i := range f.Results {
			if err := interp.Differ(want[f.Name].All[i], got[f.Name][i], tolerance(f.Results[i].Value.Type.DType)); err != nil {
				t.Errorf("@%s result %d: %v\n%s", f.Name, i, err, f)
			}
		}
	}
	slices.Sort(refused)
	refused = slices.Compact(refused)
	t.Logf("%d samples; refused: %v", len(m.Funcs), refused)
	return refused
}

// tolerance is 1e-4, and for half precision, which the evaluator does not round to, a few roundings.
func tolerance(d dtype.DType) float64 {
	switch d {
	case dtype.F16:
		return 1.0 / 512
	case dtype.BF16:
		return 1.0 / 64
	}
	return 1e-4
}

// addSample makes a function of one op on rounded random operands.
func addSample(t *testing.T, m *ir.Module, d *ir.Def, name string, s ir.Sample, r *rand.Rand, args map[string]map[string]*ir.Array,
	want map[string]*interp.Outcome) {
	f := &ir.Func{Name: name}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: name}
	var in []*ir.Value
	var arrays []*ir.Array
	for i, ty := range s.In {
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
