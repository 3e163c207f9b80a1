package onnx

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/autodiff"
	"github.com/gtc-compiler/gtc/passes/normalize"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/recognize"
	"github.com/gtc-compiler/gtc/passes/simplify"
	"github.com/gtc-compiler/gtc/passes/trainstep"
)

type dims []int

// edge is one operand of a case: its values, and the gradient that PyTorch gives it.
type edge struct {
	dims     dims
	at, grad []float64
}

func of(x ...float64) []float64 { return x }

var inf, nan = math.Inf(1), math.NaN()

// edgeCases are points where a derivative does not exist, jumps or is not finite. The loss is the sum of the outputs, element
// i times i+1. The gradients are those of torch 2.15 in float64, of the functions by the names: torch.maximum, torch.amax,
// torch.nn.functional.max_pool1d(x, 2), x.clamp(-1, 1), torch.linalg.vector_norm, torch.where(c > 0, torch.log(x), 5) with
// c = [1, 0], torch.topk(x, 2), torch.sort(x, stable=True) and so on.
var edgeCases = []struct {
	name     string
	op       string // ONNX operator with attributes; y, min, max and axes are constant operands
	operands []edge
}{
	{"maximum", `Max()`, []edge{{dims{3}, of(1, 2, 0), of(0.5, 2, 1.5)}, {dims{3}, of(1, 1, 0), of(0.5, 0, 1.5)}}},
	{"minimum", `Min()`, []edge{{dims{3}, of(1, 2, 0), of(0.5, 0, 1.5)}, {dims{3}, of(1, 1, 0), of(0.5, 2, 1.5)}}},
	{"amax", `ReduceMax(keepdims=0,axes=[1])`, []edge{{dims{2, 3}, of(1, 3, 3, 2, 2, 2), of(0, 0.5, 0.5, 0.666666667, 0.666666667, 0.666666667)}}},
	{"amin", `ReduceMin(keepdims=0,axes=[1])`, []edge{{dims{2, 3}, of(1, 1, 3, 2, 2, 2), of(0.5, 0.5, 0, 0.666666667, 0.666666667, 0.666666667)}}},
	{"max_pool", `MaxPool(kernel_shape=[2],strides=[2])`, []edge{{dims{1, 1, 6}, of(1, 1, 3, 3, 2, 5), of(1, 0, 2, 0, 0, 3)}}},
	{"max_pool overlapping", `MaxPool(kernel_shape=[3],strides=[1])`, []edge{{dims{1, 1, 6}, of(1, 1, 1, 0, 1, 1), of(1, 2, 3, 0, 4, 0)}}},
	{"relu", `Relu()`, []edge{{dims{4}, of(0, 0, 1, -1), of(0, 0, 3, 0)}}},
	{"leaky_relu", `LeakyRelu(alpha=0.25)`, []edge{{dims{3}, of(0, -1, 1), of(0.25, 0.5, 3)}}},
	{"prelu", `PRelu()`, []edge{{dims{3}, of(0, -1, 1), of(0.5, 1, 3)}, {dims{3}, of(0.5, 0.5, 0.5), of(0, -2, 0)}}},
	{"elu", `Elu(alpha=2.0)`, []edge{{dims{3}, of(0, -1, 1), of(2, 1.471517765, 3)}}},
	{"selu", `Selu()`, []edge{{dims{3}, of(0, -1, 1), of(1.758099341, 1.293537206, 3.152102962)}}},
	{"celu", `Celu(alpha=2.0)`, []edge{{dims{3}, of(0, -1, 1), of(1, 1.213061319, 3)}}},
	{"threshold", `ThresholdedRelu(alpha=1.0)`, []edge{{dims{3}, of(1, 0, 2), of(0, 0, 3)}}},
	{"hardsigmoid", `HardSigmoid(alpha=0.16666667,beta=0.5)`, []edge{{dims{4}, of(-3, 3, 0, 4), of(0, 0, 0.500000015, 0)}}},
	{"hardswish", `HardSwish()`, []edge{{dims{5}, of(-3, 3, 0, 4, -4), of(0, 2, 1.5, 4, 0)}}},
	{"softsign", `Softsign()`, []edge{{dims{3}, of(0, 1, -1), of(1, 0.5, 0.75)}}},
	{"softshrink", `Shrink(lambd=0.5,bias=0.5)`, []edge{{dims{4}, of(0.5, -0.5, 0, 1), of(0, 0, 0, 4)}}},
	{"hardshrink", `Shrink(lambd=0.5,bias=0.0)`, []edge{{dims{4}, of(0.5, -0.5, 0, 1), of(0, 0, 0, 4)}}},
	{"clamp", `Clip(min=-1,max=1)`, []edge{{dims{5}, of(-1, 1, 0, 2, -2), of(0, 0, 3, 0, 0)}}},
	{"abs", `Abs()`, []edge{{dims{4}, of(0, 0, -2, 2), of(0, 0, -3, 4)}}},
	{"sqrt", `Sqrt()`, []edge{{dims{2}, of(0, 4), of(inf, 0.5)}}},
	{"log", `Log()`, []edge{{dims{2}, of(0, 4), of(inf, 0.5)}}},
	{"reciprocal", `Reciprocal()`, []edge{{dims{2}, of(0, 4), of(-inf, -0.125)}}},
	{"div", `Div()`, []edge{{dims{3}, of(1, 0, 1), of(0.5, 1, 0.75)}, {dims{3}, of(2, 2, 4), of(-0.25, 0, -0.1875)}}},
	{"norm of zeros", `ReduceL2(keepdims=0,axes=[1])`, []edge{{dims{2, 2}, of(0, 0, 3, 4), of(0, 0, 1.2, 1.6)}}},
	{"l1 norm of zeros", `ReduceL1(keepdims=0,axes=[1])`, []edge{{dims{2, 2}, of(0, 0, 3, -4), of(0, 0, 2, -2)}}},
	{"prod one zero", `ReduceProd(keepdims=0,axes=[1])`, []edge{{dims{3, 3}, of(0, 2, 3, 0, 0, 3, 1, 2, 3), of(6, 0, 0, 0, 0, 0, 18, 9, 6)}}},
	{"pow square", `Pow(y=2)`, []edge{{dims{3}, of(0, -1, 2), of(0, -4, 12)}}},
	{"pow one", `Pow(y=1)`, []edge{{dims{3}, of(0, -1, 2), of(1, 2, 3)}}},
	{"pow zero", `Pow(y=0)`, []edge{{dims{3}, of(0, -1, 2), of(0, 0, 0)}}},
	{"pow half", `Pow(y=0.5)`, []edge{{dims{3}, of(0, 1, 4), of(inf, 1, 0.75)}}},
	{"pow cube", `Pow(y=3)`, []edge{{dims{3}, of(0, -1, 2), of(0, 6, 36)}}},
	{"pow tensor", `Pow()`, []edge{{dims{4}, of(0, 0, 0, 2), of(0, 2, 0, 48)}, {dims{4}, of(2, 1, 0, 3), of(0, 0, 0, 22.180709778)}}},
	{"asin", `Asin()`, []edge{{dims{2}, of(1, 0), of(inf, 2)}}},
	{"acos", `Acos()`, []edge{{dims{2}, of(1, 0), of(-inf, -2)}}},
	{"acosh", `Acosh()`, []edge{{dims{2}, of(1, 2), of(inf, 1.154700538)}}},
	{"atanh", `Atanh()`, []edge{{dims{2}, of(1, 0), of(inf, 2)}}},
	{"floor", `Floor()`, []edge{{dims{2}, of(0, 1.5), of(0, 0)}}},
	{"round", `Round()`, []edge{{dims{2}, of(0.5, 1.5), of(0, 0)}}},
	{"sign", `Sign()`, []edge{{dims{3}, of(0, -2, 2), of(0, 0, 0)}}},
	{"logsumexp", `ReduceLogSumExp(keepdims=0,axes=[1])`, []edge{{dims{2, 2}, of(1, 1, -inf, 0), of(0.5, 0.5, 0, 2)}}},
	{"log_sum zero", `ReduceLogSum(keepdims=0,axes=[1])`, []edge{{dims{2, 2}, of(0, 0, 1, 1), of(inf, inf, 1, 1)}}},
	{"softmax tie", `Softmax(axis=-1)`, []edge{{dims{2, 2}, of(1, 1, -inf, 0), of(-0.25, 0.25, 0, 0)}}},
	{"where log", `where(Log)`, []edge{{dims{2}, of(2, 0), of(0.5, nan)}}},
	{"where sqrt", `where(Sqrt)`, []edge{{dims{2}, of(4, 0), of(0.25, nan)}}},
	{"where reciprocal", `where(Reciprocal)`, []edge{{dims{2}, of(4, 0), of(-0.0625, nan)}}},
	{"cumprod", `CumProd(axis=0)`, []edge{{dims{5}, of(2, 0, 3, 0, 1), of(1, 22, 0, 0, 0)}}},
	{"mod", `Mod(y=2,fmod=1)`, []edge{{dims{3}, of(4, 3, -1), of(1, 2, 3)}}},
	{"gelu", `Gelu()`, []edge{{dims{3}, of(0, -inf, inf), of(0.5, nan, nan)}}},
	{"mish", `Mish()`, []edge{{dims{3}, of(0, -800, 800), of(0.6, 0, 3)}}},
	{"softplus", `Softplus()`, []edge{{dims{3}, of(0, -800, 800), of(0.5, 0, 3)}}},
	{"sigmoid", `Sigmoid()`, []edge{{dims{3}, of(0, -800, 800), of(0.25, 0, 0)}}},
	{"tanh", `Tanh()`, []edge{{dims{3}, of(0, -800, 800), of(1, 0, 0)}}},
	{"logsoftmax", `LogSoftmax(axis=-1)`, []edge{{dims{2, 2}, of(0, -800, 10000, 0), of(-2, 2, -4, 4)}}},
	{"topk", `topk`, []edge{{dims{4}, of(1, 3, 3, 2), of(0, 1, 2, 0)}}},
	{"median-sort", `sort`, []edge{{dims{3}, of(2, 1, 1), of(3, 1, 2)}}},
}

// TestEdges compares gradients at edges with PyTorch's.
func TestEdges(t *testing.T) {
	for _, c := range edgeCases {
		t.Run(c.name, func(t *testing.T) {
			f, args := edgeStep(t, c.op, c.operands)
			out, err := interp.Run(f, args)
			if err != nil {
				t.Fatal(err)
			}
			for i, o := range c.operands {
				got := out.Named[fmt.Sprintf("grad/x%d", i)]
				if got == nil {
					got = ir.NewArray(ir.T(dtype.F64, o.dims...))
				}
				for j, want := range o.grad {
					g := got.F[j]
					same := g == want || math.IsNaN(g) && math.IsNaN(want) || math.Abs(g-want) <= 1e-6*math.Max(1, math.Abs(want))
					if !same {
						t.Errorf("operand %d at %v has gradient %v, PyTorch %v", i, o.at, got.F, o.grad)
						break
					}
				}
			}
		})
	}
}

// edgeStep imports the operator and differentiates it.
func edgeStep(t *testing.T, op string, operands []edge) (*ir.Func, map[string]*ir.Array) {
	t.Helper()
	m, err := onnx.Parse(edgeModel(t, op, operands), "", onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mod, err := m.Import()
	if err != nil {
		t.Fatal(err)
	}
	ctx := &pass.Context{Module: mod, Opt: &pass.Options{Check: true}}
	f := mod.Funcs[0]
	args := map[string]*ir.Array{}
	for i, o := range operands {
		p := f.Param(fmt.Sprintf("x%d", i))
		p.Role = ir.Param
		args[p.Name] = &ir.Array{Type: p.Type, F: o.at}
	}
	if err := trainstep.Inference(ctx, f); err != nil {
		t.Fatal(err)
	}
	b := ir.NewBuilder(f)
	y := f.Results[0].Value
	w := ir.NewArray(y.Type)
	for i := range w.F {
		w.F[i] = float64(i + 1)
	}
	sum := ops.ReduceSum(b, ops.Mul(b, y, ops.Const(b, w.Tensor())), ops.AllDims(y)...)
	f.Results = nil
	b.Result("loss_sum", ops.Cast(b, ops.Reshape(b, sum, nil), dtype.F64))
	f.DCE()
	for _, run := range []func(*pass.Context) error{normalize.Run, recognize.Run, named, autodiff.Run, simplify.Run} {
		if err := run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return f, args
}

// named makes the one function @step, which autodiff differentiates.
func named(c *pass.Context) error {
	c.Module.Funcs[0].Name = "step"
	return nil
}

// edgeModel is a model of one operator in opset 24 on float64.
func edgeModel(t *testing.T, text string, operands []edge) []byte {
	g := &onnxpb.GraphProto{Name: ptr("g"), Output: []*onnxpb.ValueInfoProto{{Name: ptr("out")}}}
	n := &onnxpb.NodeProto{Name: ptr("n"), Output: []string{"out"}}
	for i, o := range operands {
		name := fmt.Sprintf("x%d", i)
		shape := &onnxpb.TensorShapeProto{}
		for _, d := range o.dims {
			shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(d)}})
		}
		g.Input = append(g.Input, &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{ElemType: ptr(int32(onnxpb.TensorProto_DOUBLE)), Shape: shape}}}})
		n.Input = append(n.Input, name)
	}
	constant := func(v ...float64) string {
		name := fmt.Sprintf("c%d", len(g.Initializer))
		g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: &name, DataType: ptr(int32(onnxpb.TensorProto_DOUBLE)), DoubleData: v})
		return name
	}
	op, rest, _ := strings.Cut(strings.TrimSuffix(text, ")"), "(")
	switch op {
	case "where":
		g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: ptr("cond"), DataType: ptr(int32(onnxpb.TensorProto_BOOL)), Dims: []int64{2}, Int32Data: []int32{1, 0}})
		n.OpType, n.Output = ptr(rest), []string{"taken"}
		g.Node = append(g.Node, n)
		n = &onnxpb.NodeProto{OpType: ptr("Where"), Input: []string{"cond", "taken", constant(5)}, Output: []string{"out"}}
		rest = ""
	case "topk", "sort":
		k := int64(2)
		if op == "sort" {
			k = int64(operands[0].dims[0])
			n.Attribute = append(n.Attribute, intAttr("largest", 0))
		}
		g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: ptr("k"), DataType: ptr(int32(onnxpb.TensorProto_INT64)), Dims: []int64{1}, Int64Data: []int64{k}})
		n.OpType, n.Input, n.Output = ptr("TopK"), append(n.Input, "k"), []string{"out", "index"}
	default:
		n.OpType = &op
	}
	for _, kv := range split(rest) {
		key, value, _ := strings.Cut(kv, "=")
		num, _ := strconv.ParseFloat(value, 64)
		switch {
		case key == "y" || key == "min" || key == "max":
			n.Input = append(n.Input, constant(num))
		case op == "CumProd" && key == "axis", key == "axes":
			axis := int64(strings.Trim(value, "[]")[0] - '0')
			g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: ptr("axes"), DataType: ptr(int32(onnxpb.TensorProto_INT64)), Dims: []int64{1}, Int64Data: []int64{axis}})
			n.Input = append(n.Input, "axes")
		case strings.HasPrefix(value, "["):
			a := &onnxpb.AttributeProto{Name: &key, Type: ptr(onnxpb.AttributeProto_INTS)}
			a.Ints = append(a.Ints, int64(value[1]-'0'))
			n.Attribute = append(n.Attribute, a)
		case strings.Contains(value, "."):
			n.Attribute = append(n.Attribute, &onnxpb.AttributeProto{Name: &key, Type: ptr(onnxpb.AttributeProto_FLOAT), F: ptr(float32(num))})
		default:
			n.Attribute = append(n.Attribute, intAttr(key, int64(num)))
		}
	}
	g.Node = append(g.Node, n)
	opset := int64(24)
	m := &onnxpb.ModelProto{IrVersion: ptr(int64(10)), Graph: g, OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: ptr(""), Version: &opset}}}
	if op == "CumProd" {
		*m.OpsetImport[0].Version = 26
	}
	data, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func ptr[T any](v T) *T { return &v }

func intAttr(name string, v int64) *onnxpb.AttributeProto {
	return &onnxpb.AttributeProto{Name: &name, Type: ptr(onnxpb.AttributeProto_INT), I: &v}
}

// split cuts at commas outside brackets.
func split(s string) []string {
	var out []string
	depth, start := 0, 0
	for i, c := range s + "," {
		switch c {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 && i > start {
				out = append(out, s[start:i])
				start = i + 1
			}
		}
	}
	return out
}
