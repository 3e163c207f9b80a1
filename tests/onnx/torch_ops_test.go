package onnx

import (
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/codegen/codegentest"
	frontend "github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/autodiff"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// torchCase is one operator in double precision with what PyTorch makes of it: the result, and the gradients of the sum
// of result times Weight. testdata/torch_ops.py made them.
type torchCase struct {
	Name  string
	Model string // base64
	In    []struct {
		Name  string
		Known bool // fixed when compiling
		Data  []float64
		Grad  []float64 // nil for none
	}
	Dims        []int
	Out, Weight []float64
}

// load makes @step of the case: its result as out, and the gradients.
func (c *torchCase) load() (*ir.Func, map[string]*ir.Array, error) {
	raw, err := base64.StdEncoding.DecodeString(c.Model)
	if err != nil {
		return nil, nil, err
	}
	model := &onnxpb.ModelProto{}
	if err := model.Unmarshal(raw); err != nil {
		return nil, nil, err
	}
	args, fixed := map[string]*ir.Array{}, map[string]*ir.Tensor{}
	for i, in := range c.In {
		tt := model.Graph.Input[i].Type.GetTensorType()
		a := ir.NewArray(ir.T(map[int32]dtype.DType{11: dtype.F64, 7: dtype.I64}[tt.GetElemType()]))
		for _, d := range tt.Shape.Dim {
			a.Type.Dims = append(a.Type.Dims, int(d.GetDimValue()))
		}
		a = ir.NewArray(a.Type)
		copy(a.F, in.Data)
		for k := range a.I {
			a.I[k] = int64(in.Data[k])
		}
		if in.Known {
			fixed[in.Name] = a.Tensor()
		} else {
			args[in.Name] = a
		}
	}
	m, err := frontend.Parse(raw, "", frontend.Options{Name: c.Name, Fixed: fixed})
	if err != nil {
		return nil, nil, err
	}
	mod, err := m.Import()
	if err != nil {
		return nil, nil, err
	}
	return mod.Funcs[0], args, c.differentiate(mod)
}

// differentiate adds the loss and its gradients to the module's function.
func (c *torchCase) differentiate(mod *ir.Module) error {
	f := mod.Funcs[0]
	grads := false
	for _, p := range f.Params {
		for _, in := range c.In {
			if in.Name == p.Name && in.Grad != nil {
				p.Role, grads = ir.Param, true
			}
		}
	}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "loss"}
	out := f.Results[0].Value
	if !slices.Equal(out.Type.Dims, c.Dims) {
		return fmt.Errorf("the result is %s, want %v", out.Type, c.Dims)
	}
	sum := ops.Mul(b, out, ops.Const(b, ir.Floats(out.Type, c.Weight...)))
	if dims := ops.AllDims(sum); len(dims) > 0 {
		sum = ops.Reshape(b, ops.ReduceSum(b, sum, dims...), nil)
	}
	f.Results = nil
	b.Result("loss_sum", sum)
	b.Result("out", out)
	if !grads {
		return nil
	}
	f.Name = "step"
	return autodiff.Run(&pass.Context{Module: mod, Opt: &pass.Options{}, Pass: "autodiff"})
}

// judge compares results by name with PyTorch's to tol of the largest element. A gradient that is missing counts as zeros.
func (c *torchCase) judge(t *testing.T, what string, got map[string]*ir.Array, tol float64) {
	t.Helper()
	compare := func(name string, got, want []float64) {
		size := 1e-3
		for _, x := range want {
			if !math.IsInf(x, 0) && !math.IsNaN(x) {
				size = max(size, math.Abs(x))
			}
		}
		for i, x := range want {
			if y := got[i]; !(math.Abs(x-y) <= tol*size) && x != y && !(math.IsNaN(x) && math.IsNaN(y)) {
				t.Errorf("%s, %s: %s[%d] is %g, PyTorch says %g", c.Name, what, name, i, y, x)
				return
			}
		}
	}
	compare("result", got["out"].F, c.Out)
	for _, in := range c.In {
		if in.Grad == nil {
			continue
		}
		g := make([]float64, len(in.Grad))
		if a := got[abi.Gradient.Of(in.Name)]; a != nil {
			g = a.F
		}
		compare("gradient of "+in.Name, g, in.Grad)
	}
}

// TestTorchOps compares results and gradients with PyTorch, in the interpreter and, unless -short, in kernels.
func TestTorchOps(t *testing.T) {
	mod, all := &ir.Module{}, map[string]map[string]*ir.Array{}
	cases, funcs := readCases[torchCase](t, "torch_ops.json"), map[string]*ir.Func{}
	for i, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			f, args, err := c.load()
			if err != nil {
				t.Fatal(err)
			}
			out, err := interp.Run(f, args)
			if err != nil {
				t.Fatal(err)
			}
			c.judge(t, "interpreter", out.Named, 1e-7)
			f.Name = fmt.Sprintf("case%d", i)
			for _, p := range f.Params { // kernels of all cases share one memory
				args[f.Name+"."+p.Name] = args[p.Name]
				p.Name = f.Name + "." + p.Name
			}
			mod.Funcs, all[f.Name], funcs[c.Name] = append(mod.Funcs, f), args, f
		})
	}
	if testing.Short() || t.Failed() {
		return
	}
	got, err := codegentest.Run(mod, t.TempDir(), all)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		f := funcs[c.Name]
		if f == nil {
			continue // filtered out
		}
		named := map[string]*ir.Array{}
		for i, r := range f.Results {
			named[r.Name] = got[f.Name][i]
		}
		c.judge(t, "kernels", named, 1e-5)
	}
}
