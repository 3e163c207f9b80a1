package parallel

import (
	"math"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// everywhere are the layouts in which a step must mean the same, one rank first.
var everywhere = []layout{
	{name: "one", set: func(*pass.Options) {}},
	{name: "dp2", set: options(2, 1, 1, 1, 0)},
	{name: "dp4", set: options(4, 1, 1, 1, 0)},
	{name: "mb4", set: options(1, 1, 1, 4, 0)},
	{name: "dp2 mb2", set: options(2, 1, 1, 2, 0)},
	{name: "tp2", set: options(1, 2, 1, 1, 0)},
	{name: "dp2 tp2", set: options(2, 2, 1, 1, 0)},
	{name: "sp dp2 tp2", set: sequence(2)},
	{name: "zero1 dp2", set: options(2, 1, 1, 1, 1)},
	{name: "zero2 dp2 mb2", set: options(2, 1, 1, 2, 2)},
	{name: "zero3 dp4", set: options(4, 1, 1, 1, 3)},
	{name: "zero3 dp2 tp2", set: options(2, 2, 1, 1, 3)},
	{name: "zero2 dp2 pp2", set: zero(pipeline(2, 1, 2, "1f1b"), 2)},
	{name: "zero3 dp2 pp2", set: zero(pipeline(2, 1, 2, "1f1b"), 3)},
	{name: "pp2 gpipe", set: pipeline(1, 1, 2, "gpipe")},
	{name: "pp2 1f1b", set: pipeline(1, 1, 4, "1f1b")},
	{name: "pp2 zb-h1", set: pipeline(1, 1, 4, "zb-h1")},
	{name: "pp2 varuna", set: pipeline(1, 1, 2, "varuna")},
	{name: "dp2 pp2", set: pipeline(2, 1, 2, "1f1b")},
	{name: "dp2 tp2 pp2", set: pipeline(2, 2, 2, "1f1b")},
}

// trained is a model compiled in one layout and simulated.
type trained struct {
	t    *testing.T
	c    *pass.Context
	sim  *interp.Simulation
	data map[string]*ir.Array
}

// compileIn takes a forward program, made anew by build, through the passes in one layout.
func compileIn(t *testing.T, l layout, build func(b *ir.Builder), opt pass.Options) *pass.Context {
	t.Helper()
	f := &ir.Func{Name: "forward"}
	build(ir.NewBuilder(f))
	opt.IgnoreIndex, opt.StopAfter = -100, "overlap"
	l.set(&opt)
	c := &pass.Context{Module: &ir.Module{Funcs: []*ir.Func{f}}, Opt: &opt}
	if err := passes.Run(c, passes.Table); err != nil {
		t.Fatalf("%s: %v", l.name, err)
	}
	return c
}

// everyLayout runs test for the model in each layout; kept is what the ranks start from, nil for the model's own.
func everyLayout(t *testing.T, build func(b *ir.Builder), opt pass.Options, data map[string]*ir.Array, test func(r *trained)) {
	for _, l := range everywhere {
		t.Run(l.name, func(t *testing.T) {
			r := &trained{t: t, c: compileIn(t, l, build, opt), data: data}
			r.start(nil)
			test(r)
		})
	}
}

func (r *trained) start(kept map[string]*ir.Array) {
	r.t.Helper()
	sim, err := interp.Simulate(check.Programs(r.c), kept)
	if err != nil {
		r.t.Fatal(err)
	}
	r.sim = sim
}

// step does one update.
func (r *trained) step() {
	r.t.Helper()
	if err := r.sim.Step(r.data); err != nil {
		r.t.Fatal(err)
	}
}

// near holds x to the numbers worked out by hand.
func near(t *testing.T, what string, x *ir.Array, err error, want ...float64) {
	t.Helper()
	if err != nil || x == nil {
		t.Errorf("%s: %v, %v", what, x, err)
		return
	}
	got := slices.Clone(x.F)
	for _, v := range x.I {
		got = append(got, float64(v))
	}
	if len(got) != len(want) {
		t.Errorf("%s is %v, want %v", what, got, want)
		return
	}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-6*max(1, math.Abs(want[i])) {
			t.Errorf("%s is %v, want %v", what, got, want)
			return
		}
	}
}

// result holds a named result of the last step to want.
func (r *trained) result(name string, want ...float64) {
	r.t.Helper()
	x, err := r.sim.Result(name, false)
	near(r.t, name, x, err, want...)
}

// kept holds what ranks keep to want.
func (r *trained) kept(name string, want ...float64) {
	r.t.Helper()
	x, err := r.sim.Whole(name)
	near(r.t, name, x, err, want...)
}

func f32(dims []int, v ...float64) *ir.Array { return &ir.Array{Type: ir.T(dtype.F32, dims...), F: v} }

func i64(dims []int, v ...int64) *ir.Array { return &ir.Array{Type: ir.T(dtype.I64, dims...), I: v} }

func ones(n int) *ir.Array {
	a := ir.NewArray(ir.T(dtype.F32, n))
	for i := range a.F {
		a.F[i] = 1
	}
	return a
}

// state is everything that the ranks keep, whole.
func (r *trained) state() map[string]*ir.Array {
	r.t.Helper()
	out := map[string]*ir.Array{}
	for _, name := range r.sim.Names() {
		x, err := r.sim.Whole(name)
		if err != nil || x == nil {
			r.t.Fatalf("%s: %v, %v", name, x, err)
		}
		out[name] = x
	}
	return out
}
