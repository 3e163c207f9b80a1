package onnx

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/codegen/codegentest"
	frontend "github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/autodiff"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// contribCase is one operator of com.microsoft with inputs and what ONNX Runtime 1.32 gave; testdata/contrib.py made them.
type contribCase struct {
	Name  string
	Model string               // base64
	Fixed []string             // inputs known when compiling
	In    map[string][]float64 // every input's elements
	Out   []struct {
		Dims []int
		Data []float64
	}
}

// readCases reads a file of testdata: a JSON list.
func readCases[T any](t *testing.T, name string) []T {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var cases []T
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatalf("testdata/%s: %v", name, err)
	}
	return cases
}

// load imports the case and gives its function, named after it, and its arguments.
func (c *contribCase) load(t *testing.T) (*ir.Func, map[string]*ir.Array) {
	t.Helper()
	model, err := base64.StdEncoding.DecodeString(c.Model)
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]ir.Type{}
	open := func(fixed map[string]*ir.Tensor) *ir.Module {
		m, err := frontend.Parse(model, "", frontend.Options{Name: c.Name, Fixed: fixed})
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range m.Proto.Graph.Input {
			tt := in.Type.GetTensorType()
			ty := map[int32]dtype.DType{1: dtype.F32, 2: dtype.U8, 3: dtype.I8, 6: dtype.I32, 7: dtype.I64}[tt.GetElemType()]
			dims := []int{}
			for _, d := range tt.Shape.Dim {
				dims = append(dims, int(d.GetDimValue()))
			}
			types[in.GetName()] = ir.T(ty, dims...)
		}
		if fixed == nil {
			return nil
		}
		mod, err := m.Import()
		if err != nil {
			t.Fatal(err)
		}
		return mod
	}
	open(nil)
	args, fixed := map[string]*ir.Array{}, map[string]*ir.Tensor{}
	for name, values := range c.In {
		a := ir.NewArray(types[name])
		for i, v := range values {
			if a.F != nil {
				a.F[i] = v
			} else {
				a.I[i] = int64(v)
			}
		}
		if slices.Contains(c.Fixed, name) {
			fixed[name] = a.Tensor()
		} else {
			args[name] = a
		}
	}
	f := open(fixed).Funcs[0]
	f.Name = c.Name
	return f, args
}

// near compares a result with ONNX Runtime's: it computes in f32 and was printed with six digits.
func (c *contribCase) near(out []*ir.Array) error {
	for i, want := range c.Out {
		got := out[i]
		if !slices.Equal(got.Type.Dims, want.Dims) {
			return fmt.Errorf("output %d is %s, want %v", i, got.Type, want.Dims)
		}
		for k, x := range want.Data {
			y := 0.0
			if got.F != nil {
				y = got.F[k]
			} else {
				y = float64(got.I[k])
			}
			if !(math.Abs(x-y) <= 2e-5+2e-5*math.Abs(x)) {
				return fmt.Errorf("output %d, element %d is %g, want %g", i, k, y, x)
			}
		}
	}
	return nil
}

// TestContrib compares the operators of com.microsoft with ONNX Runtime, in the interpreter and in kernels.
func TestContrib(t *testing.T) {
	mod, all := &ir.Module{}, map[string]map[string]*ir.Array{}
	cases := readCases[contribCase](t, "contrib.json")
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			f, args := c.load(t)
			out, err := interp.Run(f, args)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.near(out.All); err != nil {
				t.Error(err)
			}
			for _, p := range f.Params { // kernels of all cases share one memory
				args[c.Name+"."+p.Name] = args[p.Name]
				p.Name = c.Name + "." + p.Name
			}
			mod.Funcs, all[c.Name] = append(mod.Funcs, f), args
		})
	}
	if t.Failed() || testing.Short() {
		return
	}
	got, err := codegentest.Run(mod, t.TempDir(), all)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if out := got[c.Name]; out != nil {
			if err := c.near(out); err != nil {
				t.Errorf("%s, kernels: %v", c.Name, err)
			}
		}
	}
}

// TestContribGradients compares every gradient of those operators with central differences in float64.
func TestContribGradients(t *testing.T) {
	for _, c := range readCases[contribCase](t, "contrib.json") {
		t.Run(c.Name, func(t *testing.T) {
			f, args := c.load(t)
			if !slices.ContainsFunc(f.Results, func(r ir.Result) bool { return r.Value.Type.DType.IsFloat() }) ||
				slices.Contains(straight, c.Name) {
				return // quantised: nothing to differentiate, or the gradient passes straight through
			}
			checkGradients(t, f, args)
		})
	}
}

// checkGradients makes f's float inputs parameters and the loss a sum of its float results with uneven weights, and
// compares the gradients with central differences.
func checkGradients(t *testing.T, f *ir.Func, args map[string]*ir.Array) {
	t.Helper()
	f.Name = "step"
	for _, p := range f.Params {
		if p.Type.DType.IsFloat() {
			p.Role, p.Init = ir.Param, args[p.Name].Tensor()
		}
	}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "loss"}
	var loss *ir.Value
	for i, r := range f.Results {
		v := r.Value
		if !v.Type.DType.IsFloat() || v.Type.Elems() == 0 {
			continue
		}
		w := ir.NewArray(v.Type)
		for k := range w.F {
			w.F[k] = math.Sin(float64(3*k+i) + 1)
		}
		s := ops.Reshape(b, ops.ReduceSum(b, ops.Mul(b, v, ops.Const(b, w.Tensor())), ops.AllDims(v)...), nil)
		if len(v.Type.Dims) == 0 {
			s = ops.Mul(b, v, ops.Const(b, w.Tensor()))
		}
		if loss == nil {
			loss = s
		} else {
			loss = ops.Add(b, loss, s)
		}
	}
	f.Results = nil
	b.Result("loss_sum", loss)
	ctx := &pass.Context{Module: &ir.Module{Funcs: []*ir.Func{f}}, Opt: &pass.Options{}, Pass: "autodiff"}
	if err := autodiff.Run(ctx); err != nil {
		t.Fatal(err)
	}
	run := func() *interp.Outcome {
		out, err := interp.Run(f, args)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	grads, checked, r := run().Named, 0, rand.New(rand.NewPCG(1, 2))
	for _, p := range f.Params {
		g := grads[abi.Gradient.Of(p.Name)]
		if g == nil {
			continue
		}
		checked++
		a, along := args[p.Name], 0.0
		x, u := slices.Clone(a.F), make([]float64, len(a.F))
		at := func(h float64) float64 {
			for i := range x {
				a.F[i] = x[i] + h*u[i]
			}
			return run().Named["loss_sum"].F[0]
		}
		for i := range u {
			if u[i] = r.NormFloat64(); math.IsInf(x[i], 0) {
				u[i] = 0 // a hidden key stays hidden
			}
			along += u[i] * g.F[i]
		}
		const h = 1e-5
		want := (at(h) - at(-h)) / (2 * h)
		at(0)
		if !(math.Abs(along-want) <= 2e-5*max(1, math.Abs(want))) {
			t.Errorf("along a direction of %s the loss grows by %.8g, differences say %.8g", p.Name, along, want)
		}
	}
	if checked == 0 {
		t.Error("nothing has a gradient")
	}
}
