package onnxgo

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gogo/protobuf/proto"
	gtconnx "github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/pass"
	onnx "github.com/owulveryck/onnx-go"
	"github.com/owulveryck/onnx-go/backend"
	"gorgonia.org/tensor"
)

var _ backend.ComputationBackend = (*Graph)(nil)

func dense(dims []int, data any) tensor.Tensor {
	return tensor.New(tensor.WithShape(dims...), tensor.WithBacking(data))
}

// file is y = x w + b with w f32[2,2], b f32[2].
func file(t *testing.T, more ...*onnxpb.NodeProto) []byte {
	t.Helper()
	w, err := toProto("w", dense([]int{2, 2}, []float32{0.5, 1, -1, 2}))
	if err != nil {
		t.Fatal(err)
	}
	b, err := toProto("b", dense([]int{2}, []float32{0.25, 0}))
	if err != nil {
		t.Fatal(err)
	}
	g := &onnxpb.GraphProto{Name: proto.String("g"), Initializer: []*onnxpb.TensorProto{w, b},
		Input:  []*onnxpb.ValueInfoProto{valueInfo("x", &elements[0], []int{3, 2})},
		Output: []*onnxpb.ValueInfoProto{valueInfo("y", &elements[0], []int{3, 2})},
		Node: append([]*onnxpb.NodeProto{
			{OpType: proto.String("MatMul"), Input: []string{"x", "w"}, Output: []string{"xw"}},
			{OpType: proto.String("Add"), Input: []string{"xw", "b"}, Output: []string{"y"}},
		}, more...)}
	m := &onnxpb.ModelProto{IrVersion: proto.Int64(8), Graph: g,
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: proto.String(""), Version: proto.Int64(17)}}}
	data, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func near(t *testing.T, what string, got tensor.Tensor, want []float64, tol float64) {
	t.Helper()
	list, ok := got.Data().([]float32)
	if !ok || len(list) != len(want) {
		t.Fatalf("%s is %v, want %v", what, got, want)
	}
	for i, x := range list {
		if !(math.Abs(float64(x)-want[i]) <= tol*(1+math.Abs(want[i]))) {
			t.Errorf("%s: element %d is %g, want %g", what, i, x, want[i])
		}
	}
}

// TestTrain infers, takes one step of gradient descent whose result is worked out by hand, and infers again.
func TestTrain(t *testing.T) {
	m, g, err := Load(file(t))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	x, y := dense([]int{3, 2}, []float32{1, 2, -1, 0, 3, 1}), dense([]int{3, 2}, []float32{1, 5, 0, -1, 2, 5})
	if err := m.SetInput(0, x); err != nil {
		t.Fatal(err)
	}
	infer := func(want []float64) {
		t.Helper()
		if err := g.Run(); err != nil {
			t.Fatal(err)
		}
		out, err := m.GetOutputTensors()
		if err != nil {
			t.Fatal(err)
		}
		near(t, "y", out[0], want, 1e-6)
	}
	infer([]float64{-1.25, 5, -0.25, -1, 0.75, 5})
	err = g.Train(context.Background(), &Training{Inputs: map[string]tensor.Tensor{"x": x}, Target: y, Batch: 3, Steps: 1,
		Options: pass.Options{Loss: "mse", Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1}}, Flags: []string{"--checkpoint-dir", filepath.Join(t.TempDir(), "c")}})
	if err == nil { // the checkpoint must lie where export looks for it
		t.Fatal("a checkpoint folder elsewhere went unnoticed")
	}
	err = g.Train(context.Background(), &Training{Inputs: map[string]tensor.Tensor{"x": x}, Target: y, Batch: 3, Steps: 1,
		Options: pass.Options{Loss: "mse", Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1}}})
	if err != nil {
		t.Fatal(err)
	}
	// d = y - target = ((-2.25, 0), (-0.25, 0), (-1.25, 0)); dw = 2/6 x'd, db = 2/6 sum d
	w0, w1, b := 0.5+0.1/3*(2.25-0.25+3.75), -1+0.1/3*(4.5+1.25), 0.25+0.1/3*3.75
	infer([]float64{w0 + 2*w1 + b, 5, -w0 + b, -1, 3*w0 + w1 + b, 5})
	n, _ := m.GetNodeByName("b") // a weight that is set anew counts
	if err := n.(*Node).SetTensor(dense([]int{2}, []float32{0, 1})); err != nil {
		t.Fatal(err)
	}
	infer([]float64{w0 + 2*w1, 6, -w0, 0, 3*w0 + w1, 6})
}

// TestOperands: a value that is read twice by one node, an operand left out, and a graph that nobody bound.
func TestOperands(t *testing.T) {
	data := file(t, &onnxpb.NodeProto{OpType: proto.String("ReduceMax"), Input: []string{"b"}, Output: []string{"limit"},
		Attribute: []*onnxpb.AttributeProto{{Name: proto.String("keepdims"), Type: onnxpb.AttributeProto_INT.Enum(), I: proto.Int64(0)}}},
		&onnxpb.NodeProto{OpType: proto.String("Mul"), Input: []string{"y", "y"}, Output: []string{"square"}},
		&onnxpb.NodeProto{OpType: proto.String("Clip"), Input: []string{"square", "", "limit"}, Output: []string{"clipped"}})
	g := New(Options{Opset: 17})
	defer g.Close()
	m := onnx.NewModel(g)
	if err := m.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	if err := m.SetInput(0, dense([]int{3, 2}, []float32{1, 2, -1, 0, 3, 1})); err != nil {
		t.Fatal(err)
	}
	if names := func() (s []string) {
		for _, n := range g.outputs() {
			s = append(s, n.name)
		}
		return s
	}(); !slices.Equal(names, []string{"clipped"}) {
		t.Fatalf("outputs are %q", names)
	}
	if err := g.Run(); err != nil {
		t.Fatal(err)
	}
	n, _ := m.GetNodeByName("clipped")
	near(t, "clipped", n.(*Node).GetTensor(), []float64{0.25, 0.25, 0.0625, 0.25, 0.25, 0.25}, 1e-6)
}

// TestExample loads the convolutional network of examples/mnist by way of onnx-go and compares it with gtc's own loader
// and the interpreter.
func TestExample(t *testing.T) {
	path := filepath.Join("..", "..", "..", "examples", "mnist", "cnn.onnx")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, g, err := Load(data)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	const n = 2
	pixels := make([]float32, n*28*28)
	for i := range pixels {
		pixels[i] = float32(i%19) / 19
	}
	if err := m.SetInput(0, dense([]int{n, 1, 28, 28}, pixels)); err != nil {
		t.Fatal(err)
	}
	if err := g.Run(); err != nil {
		t.Fatal(err)
	}
	out, err := m.GetOutputTensors()
	if err != nil {
		t.Fatal(err)
	}
	own, err := gtconnx.Parse(data, "", gtconnx.Options{Batch: n})
	if err != nil {
		t.Fatal(err)
	}
	mod, err := own.Import()
	if err != nil {
		t.Fatal(err)
	}
	in := &ir.Array{Type: mod.Funcs[0].Params[0].Type}
	for _, p := range pixels {
		in.F = append(in.F, float64(p))
	}
	want, err := interp.Run(mod.Funcs[0], map[string]*ir.Array{mod.Funcs[0].Params[0].Name: in})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "logits", out[0], want.All[0].F, 1e-5)
}

// TestErrors: what a caller may do wrong is an error with the name of the value.
func TestErrors(t *testing.T) {
	if _, _, err := Load([]byte("no model")); err == nil {
		t.Error("garbage was loaded")
	}
	m, g, err := Load(file(t))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := m.SetInput(0, dense([]int{1}, []string{"text"})); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("a tensor of strings: %v", err)
	}
	if err := m.SetInput(0, dense([]int{3, 5}, make([]float32, 15))); err != nil {
		t.Fatal(err)
	}
	if err := g.Run(); err == nil || !strings.Contains(err.Error(), "MatMul") {
		t.Errorf("dims that do not match: %v", err)
	}
	if err := g.Train(context.Background(), &Training{}); err == nil {
		t.Error("training without a batch went through")
	}
}
