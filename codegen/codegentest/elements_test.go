package codegentest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/kir/kirtest"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// elementTypes are all that kernels compute in.
var elementTypes = []dtype.DType{dtype.F32, dtype.F64, dtype.F16, dtype.BF16, dtype.I8, dtype.I16, dtype.I32, dtype.I64,
	dtype.U8, dtype.U16, dtype.U32, dtype.U64, dtype.Bool}

// stored are types that are only cast from and to.
var stored = []dtype.DType{dtype.F8E4M3, dtype.F8E4M3Z, dtype.F8E5M2, dtype.F8E5M2Z, dtype.F8E8M0, dtype.F4E2M1, dtype.I4, dtype.U4, dtype.I2, dtype.U2}

// fillType gives x numbers that include the ends of its type and what is special about it.
func fillType(r *rand.Rand, x *ir.Array) {
	b := kirtest.Edges(r, x.Type.DType, max(len(x.F), len(x.I)))
	copy(x.F, b.F)
	copy(x.I, b.I)
}

// typed collects functions, their arguments and what the evaluator makes of them.
type typed struct {
	m     *ir.Module
	args  map[string]map[string]*ir.Array
	want  map[string]*interp.Outcome
	names []string // of the functions, which compiling changes
}

// function begins a function with two parameters of type d.
func (ty *typed) function(name string, d dtype.DType, r *rand.Rand) (*ir.Builder, []*ir.Value) {
	f := &ir.Func{Name: name}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: name}
	ty.m.Funcs, ty.args[name] = append(ty.m.Funcs, f), map[string]*ir.Array{}
	var in []*ir.Value
	for i := range 2 {
		v := b.Param(fmt.Sprintf("%s.x%d", name, i), ir.T(d, 8, 12), ir.Input)
		a := ir.NewArray(v.Type)
		fillType(r, a)
		ty.args[name][v.Name] = a
		in = append(in, v)
	}
	return b, in
}

// TestElementTypes applies every elementwise op, with the attributes of its samples, every reduction and every cast to
// operands of every type that it takes.
func TestElementTypes(t *testing.T) {
	elementFunctions().compare(t, func(jobs []*Job) {
		// Large kernels of everything there is take GCC long to optimise: TestKernelsMatchEval does that.
		if err := RunMany(t.TempDir(), jobs, 2, "-O0"); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCUDAElementTypes does so on the CUDA target.
func TestCUDAElementTypes(t *testing.T) {
	elementFunctions().compare(t, func(jobs []*Job) { RunCUDA(t, jobs, pass.Options{}) })
}

func elementFunctions() *typed {
	ty := &typed{m: &ir.Module{}, args: map[string]map[string]*ir.Array{}, want: map[string]*interp.Outcome{}}
	r := rand.New(rand.NewPCG(5, 5))
	for _, d := range append(elementTypes, stored...) {
		b, in := ty.function("casts_of_"+d.String(), d, r)
		for _, to := range append(elementTypes, stored...) {
			v := in[0]
			if to.IsSmallFloat() && !d.IsFloat() {
				v = ops.Cast(b, v, dtype.F32)
			}
			b.Result("to_"+to.String(), ops.Cast(b, v, to))
		}
	}
	for _, d := range elementTypes {
		b, in := ty.function("ops_on_"+d.String(), d, r)
		for _, def := range ir.Defs() {
			elementwise(b, def, d, in, r)
		}
	}
	return ty
}

// elementwise appends the results of one op on operands of type d, if it is elementwise or a reduction and takes them.
func elementwise(b *ir.Builder, def *ir.Def, d dtype.DType, in []*ir.Value, r *rand.Rand) {
	n := def.Rules.Operands
	if def.Rules.Samples == nil || def.Rules.Impl == nil || n < 1 || n > 2 || def == ops.CastDef || def == ops.BitcastDef {
		return
	}
	seen := map[string]bool{}
	for i, s := range def.Rules.Samples(r) {
		if len(s.In) != n || seen[fmt.Sprint(s.Attrs)] {
			continue
		}
		seen[fmt.Sprint(s.Attrs)] = true
		op := &ir.Op{Def: def, Attrs: s.Attrs, In: in[:n]}
		if _, err := def.Rules.Infer(op); err != nil {
			continue
		}
		op.Out = []*ir.Value{{Type: in[0].Type}}
		if k := def.Rules.Impl(op).Kind; k != kir.Pointwise && k != kir.Reduce {
			continue
		}
		for k, v := range b.EmitN(def, s.Attrs, in[:n]...) {
			b.Result(fmt.Sprintf("%s_%d_%d", def.Name, i, k), v)
		}
	}
}

// compare runs all functions. Integers and bools must agree exactly; floats to a few roundings of their type or of f32,
// and where one is NaN or infinite the other must be.
func (ty *typed) compare(t *testing.T, run func(jobs []*Job)) {
	for _, f := range ty.m.Funcs {
		out, err := interp.Run(f, ty.args[f.Name])
		if err != nil {
			t.Fatal(err)
		}
		ty.want[f.Name] = out
	}
	var jobs []*Job
	for _, f := range ty.m.Funcs {
		j := &Job{Module: &ir.Module{Funcs: []*ir.Func{f}}, Args: map[string]*ir.Tensor{}}
		for name, a := range ty.args[f.Name] {
			j.Args[name] = a.Tensor()
		}
		jobs, ty.names = append(jobs, j), append(ty.names, f.Name)
	}
	run(jobs)
	n := 0
	for i, f := range ty.m.Funcs {
		name := ty.names[i]
		if jobs[i].Err != nil {
			t.Errorf("%s: %v", name, jobs[i].Err)
			continue
		}
		for k, res := range f.Results {
			n++
			want, have := ty.want[name].All[k], jobs[i].Out[k].Array()
			for e := range want.Type.Elems() {
				if !agree(want, have, e) {
					t.Errorf("%s, %s: element %d is %s, want %s (of %s)", name, res.Name, e, show(have, e), show(want, e), ty.operands(f, name, e))
					break
				}
			}
		}
	}
	t.Logf("%d results", n)
}

func agree(want, have *ir.Array, k int) bool {
	if want.F == nil {
		return want.I[k] == have.I[k]
	}
	d := want.Type.DType
	w, h := d.Round(want.F[k]), have.F[k]
	if w == h || w != w && h != h {
		return true
	}
	tol := map[dtype.DType]float64{dtype.F64: 1e-12, dtype.F16: 1.0 / 512, dtype.BF16: 1.0 / 64}[d]
	return math.Abs(w-h) <= max(tol, 2e-6)*math.Abs(w)+4e-6
}

func show(a *ir.Array, k int) string {
	if a.F == nil {
		return fmt.Sprint(a.I[k])
	}
	return fmt.Sprintf("%g", a.F[k])
}

func (ty *typed) operands(f *ir.Func, name string, k int) string {
	x, y := ty.args[name][f.Params[0].Name], ty.args[name][f.Params[1].Name]
	return show(x, k) + " and " + show(y, k)
}
