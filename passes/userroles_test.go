package passes_test

import (
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

func ref[T any](v T) *T { return &v }

// graph is a model of nodes over float initializers and one input.
func graph(input *onnxpb.ValueInfoProto, out string, inits []*onnxpb.TensorProto, nodes ...*onnxpb.NodeProto) *onnxpb.ModelProto {
	opset := int64(17)
	return &onnxpb.ModelProto{IrVersion: ref(int64(8)), OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: ref(""), Version: &opset}},
		Graph: &onnxpb.GraphProto{Name: ref("g"), Input: []*onnxpb.ValueInfoProto{input}, Output: []*onnxpb.ValueInfoProto{{Name: &out}},
			Initializer: inits, Node: nodes}}
}

func tensor(name string, dims []int64, data ...float32) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: &name, DataType: ref(int32(onnxpb.TensorProto_FLOAT)), Dims: dims, FloatData: data}
}

func port(name string, typ onnxpb.TensorProto_DataType, dims ...int64) *onnxpb.ValueInfoProto {
	s := &onnxpb.TensorShapeProto{}
	for _, d := range dims {
		s.Dim = append(s.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}})
	}
	return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: ref(int32(typ)), Shape: s}}}}
}

func node(op, out string, in ...string) *onnxpb.NodeProto {
	return &onnxpb.NodeProto{OpType: &op, Name: &out, Input: in, Output: []string{out}}
}

// step compiles m for the mean squared error and runs @step once.
func step(t *testing.T, m *onnxpb.ModelProto, o onnx.Options, args map[string]*ir.Array) *interp.Outcome {
	t.Helper()
	data, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	model, err := onnx.Parse(data, "", o)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := model.Import()
	if err != nil {
		t.Fatal(err)
	}
	c := &pass.Context{Module: mod, Opt: &pass.Options{Loss: "mse", Check: true, StopAfter: "simplify", Optimizer: pass.Optimizer{LR: 0.5}}}
	if err := passes.Run(c, passes.Table); err != nil {
		t.Fatal(err)
	}
	f := mod.Func("step")
	for _, p := range f.Params {
		if p.Role == ir.Target || p.Role == ir.Weight {
			args[p.Name] = ir.NewArray(p.Type)
			for i := range args[p.Name].F {
				args[p.Name].F[i] = 1
			}
		}
	}
	out, err := interp.Run(f, args)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestUserRoles: --padding-idx, and --freeze of a batch normalisation's scale, of which PyTorch's meaning is eval() of that module.
func TestUserRoles(t *testing.T) {
	embed := graph(port("i", onnxpb.TensorProto_INT64, 3), "e", []*onnxpb.TensorProto{tensor("emb.weight", []int64{3, 2}, 1, 2, 3, 4, 5, 6)},
		node("Gather", "e", "emb.weight", "i"))
	idx := &ir.Array{Type: ir.T(dtype.I64, 3), I: []int64{0, 2, 1}}
	for _, pad := range []string{"1", "emb.weight=-2", "emb*=1"} {
		g := step(t, embed, onnx.Options{PaddingIdx: []string{pad}}, map[string]*ir.Array{"i": idx}).Named["grad/emb.weight"].F
		for i, x := range g {
			if want := i == 2 || i == 3; (x == 0) != (want || i == 0) { // element 0 equals the target, 1
				t.Errorf("--padding-idx %s: gradient %v", pad, g)
				break
			}
		}
	}
	norm := graph(port("x", onnxpb.TensorProto_FLOAT, 2, 2), "y", []*onnxpb.TensorProto{
		tensor("scale", []int64{2}, 1, 2), tensor("bias", []int64{2}, 0, 1), tensor("mean", []int64{2}, 1, 1), tensor("var", []int64{2}, 4, 9)},
		node("BatchNormalization", "y", "x", "scale", "bias", "mean", "var"))
	out := step(t, norm, onnx.Options{Roles: []onnx.RoleRule{{Glob: "scale"}}}, map[string]*ir.Array{"x": {Type: ir.T(dtype.F32, 2, 2), F: []float64{1, 2, 3, 4}}})
	for i, want := range []float64{0, 1 + 2.0/3, 1, 1 + 2.0} { // (x-mean)/sqrt(var) * scale + bias
		if got := out.Named["out0"].F[i]; math.Abs(got-want) > 1e-4 {
			t.Errorf("frozen batch normalisation gives %v", out.Named["out0"].F)
			break
		}
	}
	if out.Updates["mean"] != nil || out.Updates["var"] != nil || out.Updates["bias"] == nil {
		t.Errorf("updates %v", out.Updates)
	}
}

// TestRoleOrder: of --freeze and --train the later one holds, and a glob that no whole name matches is tried at dots.
func TestRoleOrder(t *testing.T) {
	m := graph(port("x", onnxpb.TensorProto_FLOAT, 2, 2), "z", []*onnxpb.TensorProto{
		tensor("fc.lora_A.weight", []int64{2, 2}, 1, 2, 3, 5), tensor("fc.base.weight", []int64{2, 2}, 1, 2, 3, 4)},
		node("MatMul", "a", "x", "fc.base.weight"), node("MatMul", "b", "x", "fc.lora_A.weight"), node("Add", "z", "a", "b"))
	x := map[string]*ir.Array{"x": {Type: ir.T(dtype.F32, 2, 2), F: []float64{1, 2, 3, 4}}}
	for _, c := range []struct {
		rules []onnx.RoleRule
		lora  bool
	}{{[]onnx.RoleRule{{Glob: "*"}, {Train: true, Glob: "lora_*"}}, true}, {[]onnx.RoleRule{{Train: true, Glob: "fc.*"}, {Glob: "lora_*"}}, false}} {
		out := step(t, m, onnx.Options{Roles: c.rules}, x)
		if (out.Updates["fc.lora_A.weight"] != nil) != c.lora || (out.Updates["fc.base.weight"] != nil) == c.lora {
			t.Errorf("%v updates %v", c.rules, out.Updates)
		}
	}
}
