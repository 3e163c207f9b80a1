package ir_test

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// sound builds a small valid module.
func sound() (*ir.Module, *ir.Func) {
	f := &ir.Func{Name: "f"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "n"}
	x := b.Param("x", ir.T(dtype.F32, 2), ir.Input)
	w := b.Param("w", ir.T(dtype.F32, 2), ir.Param)
	y := ops.Exp(b, ops.Add(b, x, w))
	b.Result("out0", y)
	b.Update(w, y)
	return &ir.Module{Funcs: []*ir.Func{f}}, f
}

// TestVerify breaks a module in each way the verifier must see.
func TestVerify(t *testing.T) {
	tests := []struct {
		name, want string
		harm       func(f *ir.Func)
	}{
		{"sound", "", func(*ir.Func) {}},
		{"order", "is not defined before it", func(f *ir.Func) { f.Ops[0], f.Ops[1] = f.Ops[1], f.Ops[0] }},
		{"name", "%x is defined twice", func(f *ir.Func) { f.Ops[0].Out[0].Name = "x" }},
		{"type", "the rules of exp give f32[2]", func(f *ir.Func) { f.Ops[1].Out[0].Type.Dims = []int{3} }},
		{"operands", "takes 2 to 2", func(f *ir.Func) { f.Ops[0].In = f.Ops[0].In[:1] }},
		{"missing", "operand 1 is missing", func(f *ir.Func) { f.Ops[0].In[1] = nil }},
		{"location", "has no location", func(f *ir.Func) { f.Ops[0].Loc = ir.Loc{} }},
		{"owner", "does not point at its op", func(f *ir.Func) { f.Ops[0].Out[0].Op = f.Ops[1] }},
		{"parameter", "is not number", func(f *ir.Func) { f.Params[0].Index = 1 }},
		{"result", "is not defined", func(f *ir.Func) { f.Results[0].Value = &ir.Value{Name: "z"} }},
		{"update", "cannot update", func(f *ir.Func) { f.Results[1].Updates = f.Ops[0].Out[0] }},
		{"update type", "cannot update", func(f *ir.Func) { f.Results[1].Updates.Type.DType = dtype.F64 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m, f := sound()
			if test.name == "update type" { // another parameter of another type
				p := &ir.Value{Name: "v", Index: 2, Type: ir.T(dtype.F32, 2), Offset: ir.NoOffset}
				f.Params, f.Results[1].Updates = append(f.Params, p), p
			}
			test.harm(f)
			err := m.Verify()
			switch {
			case test.want == "" && err != nil:
				t.Errorf("sound module: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("gives %v, want %q", err, test.want)
			}
		})
	}
}

// TestBuilderErrors checks that operands that do not fit name the node and the operands.
func TestBuilderErrors(t *testing.T) {
	build := func() (err error) {
		defer ir.Recover(&err)
		b := ir.NewBuilder(&ir.Func{})
		b.Loc = ir.Loc{Node: "/0/Gemm", OpType: "Gemm", File: "model.py", Line: 41, Func: "MLP.forward"}
		ops.MatMul(b, b.Param("x", ir.T(dtype.F32, 8, 784), ir.Input), b.Param("w", ir.T(dtype.F32, 512, 10), ir.Param))
		return nil
	}
	want := `node "/0/Gemm" (Gemm)
    model.py:41, in MLP.forward
  matmul: operand 1 has inner dimension 512, operand 0 has 784
  note: operand 0 is "x" f32[8,784]
  note: operand 1 is "w" f32[512,10]`
	if err := build(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestClone checks that a clone shares nothing that passes change, and DCE and Replace.
func TestClone(t *testing.T) {
	_, f := sound()
	g, m := f.Clone()
	if g.String() != f.String() || g.Ops[1].In[0] != g.Ops[0].Out[0] || m[f.Params[0]] != g.Params[0] {
		t.Fatalf("clone is\n%s", g)
	}
	g.Replace(g.Ops[1].Out[0], g.Params[0])
	if n := g.DCE(); n != 2 || len(g.Ops) != 0 || g.Results[1].Updates != g.Params[1] {
		t.Errorf("DCE dropped %d:\n%s", n, g)
	}
	if len(f.Ops) != 2 || len(f.Uses()[f.Params[0]]) != 1 {
		t.Errorf("the original changed:\n%s", f)
	}
}
