package compress

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/irtest"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// step runs @step of m on all ranks, each with its own samples and its own part of what ranks keep apart.
func step(t *testing.T, m *ir.Module) (args []map[string]*ir.Array, out []*interp.Outcome) {
	t.Helper()
	f, ranks := m.Func("step"), m.Mesh.Ranks()
	for r := range ranks {
		own, same := interp.Random(f, uint64(r+1)), interp.Random(f, 1)
		for _, p := range f.Params {
			if !p.Role.FromData() && len(p.Sharding.Partial) == 0 {
				own[p.Name] = same[p.Name]
			}
			if p.Role == ir.Weight {
				for i := range own[p.Name].F {
					own[p.Name].F[i] = 1
				}
			}
		}
		args = append(args, own)
	}
	out, err := interp.RunRanks(m, f, ranks, args)
	if err != nil {
		t.Fatal(err)
	}
	return args, out
}

// rate is the learning rate of the golden files' programs, which train by plain descent.
const rate = 0.5

// TestGolden holds each form of message to what it promises, whatever it rounds: with sgd, what a parameter is moved by and what ranks
// keep back add up to the mean gradient and what they kept back before. All ranks have the same parameters afterwards.
func TestGolden(t *testing.T) {
	check := func(t *testing.T, c *irtest.Case, before, after *ir.Module) {
		if c.Opt["gradcomm.period"] != "" {
			if f := after.Func("step"); slices.ContainsFunc(f.Ops, func(op *ir.Op) bool { return sums(op) && op.In[0].Type.Elems() > 1 }) {
				t.Error("gradients are reduced")
			}
			return
		}
		args, got := step(t, after)
		_, want := step(t, before)
		w := args[0]["w"].F
		exact, moved, scale := make([]float64, len(w)), make([]float64, len(w)), 0.0
		for i := range w {
			exact[i] = (w[i] - want[0].Updates["w"].F[i]) / rate
			moved[i] = (w[i] - got[0].Updates["w"].F[i]) / rate
			scale = max(scale, math.Abs(exact[i]))
		}
		for r, o := range got {
			if e := o.Updates[abi.Optim(abi.KindError, "w")]; e != nil {
				for i := range w {
					moved[i] += e.F[i] - args[r][abi.Optim(abi.KindError, "w")].F[i]
				}
			}
			if err := interp.Differ(got[0].Updates["w"], o.Updates["w"], 0); err != nil {
				t.Errorf("rank %d has another parameter: %v", r, err)
			}
		}
		tol := 1e-5 * scale // of constants that are f32
		if strings.Contains(c.Opt["gradcomm.dtype"], "16") {
			tol = 3 * math.Ldexp(scale, -8) // two roundings of bf16, and of their sum
		}
		for i := range w {
			if math.Abs(moved[i]-exact[i]) > tol {
				t.Errorf("element %d: moved and kept back is %g, the gradient %g", i, moved[i], exact[i])
			}
		}
	}
	passtest.Golden(t, "compress", Run, irtest.Options{Check: check})
}

// TestRefused: options that do not go together, by the names of their flags.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		comm pass.GradComm
		opt  pass.Options
		axes string
		want string
	}{
		{pass.GradComm{DType: "f64"}, pass.Options{}, "dp=2", `--grad-dtype must be fp32, bf16 or fp16, not "f64"`},
		{pass.GradComm{Compress: "zip"}, pass.Options{}, "dp=2", `--grad-compress must be powersgd, topk or int8, not "zip"`},
		{pass.GradComm{Compress: "powersgd"}, pass.Options{}, "dp=2", "--grad-rank must be at least 1, not 0"},
		{pass.GradComm{Compress: "topk", Fraction: 1.5}, pass.Options{}, "dp=2", "--grad-fraction must be above 0 and at most 1, not 1.5"},
		{pass.GradComm{Compress: "topk", Fraction: math.NaN()}, pass.Options{}, "dp=2", "--grad-fraction must be above 0 and at most 1, not NaN"},
		{pass.GradComm{Period: -1}, pass.Options{}, "dp=2", "must not be negative"},
		{pass.GradComm{After: 5}, pass.Options{}, "dp=2", "--post-local-sgd needs --local-sgd"},
		{pass.GradComm{Compress: "int8"}, pass.Options{}, "tp=2", "needs --dp of at least 2"},
		{pass.GradComm{Compress: "int8", DType: "bf16"}, pass.Options{}, "dp=2", "a format of its own"},
		{pass.GradComm{Period: 2, Compress: "int8"}, pass.Options{}, "dp=2", "parameters instead of gradients"},
		{pass.GradComm{Compress: "int8"}, pass.Options{Precision: "fp16"}, "dp=2", "--precision fp16"},
		{pass.GradComm{Period: 2}, pass.Options{Precision: "fp16"}, "dp=2", "different loss scales"},
		{pass.GradComm{Compress: "int8"}, pass.Options{Zero: 2}, "dp=2", "--zero 2"},
		{pass.GradComm{Period: 2}, pass.Options{Zero: 1}, "dp=2", "--zero 1"},
		{pass.GradComm{Period: 2}, pass.Options{Check: true}, "dp=2", "gtc check"},
		{pass.GradComm{Period: 2}, pass.Options{}, "pp=2, dp=2", "--pp"},
	} {
		m, err := ir.Parse("mesh @m = [" + c.axes + "]\nfunc @step(%x: f32[2]) {\n  return\n}\n")
		if err != nil {
			t.Fatal(err)
		}
		c.opt.GradComm = c.comm
		err = Run(&pass.Context{Module: m, Opt: &c.opt, Pass: "compress"})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.comm, err, c.want)
		}
	}
}

// TestSorted: operands come before their readers, and the rest is in the order of places.
func TestSorted(t *testing.T) {
	m, err := ir.Parse("func @f(%x: f32[2]) {\n  %a = neg %x : f32[2]\n  %b = exp %x : f32[2]\n  %c = add %a, %b : f32[2]\n  %d = tanh %x : f32[2]\n  return c=%c, d=%d\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs[0]
	place := map[*ir.Op]int{f.Ops[0]: 3, f.Ops[1]: 2, f.Ops[2]: 1, f.Ops[3]: 0}
	sorted(f, place)
	var got []string
	for _, op := range f.Ops {
		got = append(got, op.Out[0].Name)
	}
	if strings.Join(got, " ") != "d a b c" {
		t.Error(got)
	}
}
