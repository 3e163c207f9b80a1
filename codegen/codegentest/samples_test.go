package codegentest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
)

// TestSamplesOfOtherTypes takes the samples of every op, elementwise ones apart (TestElementTypes has them), with other
// element types in place of f32, as far as the op takes them: what has a template for f32 must have some kernel for the
// others.
func TestSamplesOfOtherTypes(t *testing.T) {
	var jobs []*Job
	var want []*interp.Outcome
	var names []string
	for _, d := range ir.Defs() {
		if d.Rules.Beside() || d.Rules.Samples == nil {
			continue
		}
		for _, to := range []dtype.DType{dtype.F16, dtype.F64, dtype.I64, dtype.U8, dtype.Bool} {
			r := rand.New(rand.NewPCG(7, uint64(len(d.Name))))
			for i, s := range d.Rules.Samples(r) {
				if j, out := typedSample(t, d, s, to, r); j != nil {
					jobs, want, names = append(jobs, j), append(want, out), append(names, fmt.Sprintf("%s_%d of %s", d.Name, i, to))
				}
			}
		}
	}
	if err := RunMany(t.TempDir(), jobs, 2, "-O0"); err != nil {
		t.Fatal(err)
	}
	for i, j := range jobs {
		if j.Err != nil {
			t.Errorf("%s: %v", names[i], j.Err)
			continue
		}
		for k, got := range j.Out {
			if err := interp.Differ(want[i].All[k], got.Array(), 4*tolerance(got.Type.DType)); err != nil {
				t.Errorf("%s result %d: %v", names[i], k, err)
			}
		}
	}
	t.Logf("%d samples", len(jobs))
}

// typedSample makes a job of one op on operands of type to where the sample has f32; nil when it has none, when the op is
// elementwise, or does not take that type, with what the evaluator makes of it.
func typedSample(t *testing.T, d *ir.Def, s ir.Sample, to dtype.DType, r *rand.Rand) (*Job, *interp.Outcome) {
	f := &ir.Func{Name: d.Name}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: d.Name}
	var in []*ir.Value
	var arrays []*ir.Array
	some := false
	for i, ty := range s.In {
		if ty.DType == dtype.F32 {
			ty, some = ty.With(to), true
		}
		in = append(in, b.Param(fmt.Sprintf("x%d", i), ty, ir.Input))
		a := ir.NewArray(ty)
		interp.Fill(r, a, max(s.Limit, 4*btoi(s.Limit == 0)))
		arrays = append(arrays, a)
	}
	if !some || !to.IsFloat() && s.Fill != nil {
		return nil, nil
	}
	if s.Fill != nil {
		s.Fill(r, arrays)
	}
	if _, err := d.Rules.Infer(&ir.Op{Def: d, Attrs: s.Attrs, In: in}); err != nil {
		return nil, nil
	}
	j := &Job{Module: &ir.Module{Funcs: []*ir.Func{f}}, Args: map[string]*ir.Tensor{}}
	args := map[string]*ir.Array{}
	for i, a := range arrays {
		j.Args[in[i].Name] = a.Tensor()
		args[in[i].Name] = a.Tensor().Array()
	}
	for i, v := range b.EmitN(d, s.Attrs, in...) {
		b.Result(fmt.Sprintf("r%d", i), v)
	}
	out, err := interp.Run(f, args)
	if err != nil {
		t.Errorf("%s of %s: %v", d.Name, to, err)
		return nil, nil
	}
	return j, out
}
