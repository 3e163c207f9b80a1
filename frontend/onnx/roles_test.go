package onnx

import (
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// trained lists the parameters that m trains.
func trained(t *testing.T, m *onnxpb.ModelProto) string {
	t.Helper()
	return paramNames(imported(t, m, Options{}), ir.Param)
}

// signed adds the record that PyTorch's dynamo exporter leaves of a model's parameters.
func signed(m *onnxpb.ModelProto, names ...string) *onnxpb.ModelProto {
	var sig strings.Builder
	for _, n := range names {
		sig.WriteString("p_" + strings.ReplaceAll(n, ".", "_") + ": PARAMETER target='" + n + "'\n")
	}
	m.MetadataProps = append(m.MetadataProps, &onnxpb.StringStringEntryProto{Key: ptr(model.KeySignature), Value: ptr(sig.String())})
	return m
}

// called records the PyTorch call that a node was made from.
func called(n *onnxpb.NodeProto, call string) *onnxpb.NodeProto {
	n.MetadataProps = append(n.MetadataProps, &onnxpb.StringStringEntryProto{Key: ptr(model.KeyFx),
		Value: ptr("call_function[target=torch.ops." + call)})
	return n
}

// A head tied to an embedding: the file keeps the table by the head's name and a folded transpose of it. Both uses
// train one parameter.
func TestTiedHead(t *testing.T) {
	table, folded := ramp("head.weight", 0.1, 5, 4), tensorOf("val_1", []int64{4, 5}, make([]float64, 20)...)
	for i := range 20 {
		copy((*folded.RawData)[((i%4)*5+i/4)*4:][:4], (*table.RawData)[i*4:][:4])
	}
	m := signed(modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("i", onnxpb.TensorProto_INT64, 3)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", onnxpb.TensorProto_FLOAT, 3, 5)},
		Initializer: []*onnxpb.TensorProto{table, folded},
		Node: []*onnxpb.NodeProto{
			nodeOf("Gather", "embed", list("head.weight", "i"), list("e")),
			called(nodeOf("MatMul", "head", list("e", "val_1"), list("y")), "aten.linear.default](args = (%e, %p_head_weight), kwargs = {})"),
		},
	}), "head.weight")
	if got := trained(t, m); got != "head.weight" {
		t.Errorf("trains %q, not head.weight once", got)
	}
}

// Experts chosen by x[i]: the file keeps a transpose of x that moves nothing, under a name of the exporter's. It is x, of all
// its elements; with a whole dim before the indexed one (x[:, i]) it is not.
func TestIndexedExperts(t *testing.T) {
	for args, want := range map[string]string{"(%p_experts_up, [%i])": "experts.up", "(%p_experts_up, [None, %i])": ""} {
		got := trained(t, signed(modelOf(17, &onnxpb.GraphProto{
			Input:       []*onnxpb.ValueInfoProto{portOf("i", onnxpb.TensorProto_INT64, 3, 1)},
			Output:      []*onnxpb.ValueInfoProto{portOf("y", onnxpb.TensorProto_FLOAT, 3, 2, 2)},
			Initializer: []*onnxpb.TensorProto{ramp("val_3", 0.1, 4, 2, 2)},
			Node:        []*onnxpb.NodeProto{called(nodeOf("GatherND", "index", list("val_3", "i"), list("y")), "aten.index.Tensor](args = "+args+", kwargs = {})")},
		}), "experts.up"))
		if got != want {
			t.Errorf("%s: trains %q, want %q", args, got, want)
		}
	}
}

// The first step of an unrolled recurrent network adds a bias to the product of a zero state, which is folded: the
// bias gets the gradient of that step too.
func TestFoldedBiasRows(t *testing.T) {
	bias, folded := ramp("r.bias", 0.1, 4), tensorOf("linear_1", []int64{1, 3, 4}, make([]float64, 12)...)
	*folded.RawData = slices.Repeat(*bias.RawData, 3)
	f := imported(t, signed(modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_FLOAT, 1, 3, 4)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", onnxpb.TensorProto_FLOAT, 1, 3, 4)},
		Initializer: []*onnxpb.TensorProto{bias, folded},
		Node: []*onnxpb.NodeProto{
			nodeOf("Add", "first", list("x", "linear_1"), list("h")),
			nodeOf("Add", "second", list("h", "r.bias"), list("y")),
		},
	}), "r.bias"), Options{})
	for _, op := range f.Ops {
		if op.Def.Name == "const" {
			t.Errorf("a constant is left beside r.bias")
		}
	}
}

// A scalar with a name of PyTorch's is a parameter of the model (CLIP's logit_scale), whatever reads it.
func TestScalarParameter(t *testing.T) {
	m := modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_FLOAT, 2, 3)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", onnxpb.TensorProto_FLOAT, 2, 3)},
		Initializer: []*onnxpb.TensorProto{tensorOf("logit_scale", nil, 1.5), tensorOf("onnx::Mul_3", nil, 2.0)},
		Node: []*onnxpb.NodeProto{
			nodeOf("Exp", "exp", list("logit_scale"), list("s")),
			nodeOf("Mul", "scale", list("x", "s"), list("a")),
			nodeOf("Mul", "twice", list("a", "onnx::Mul_3"), list("y")),
		},
	})
	if got := trained(t, m); got != "" {
		t.Errorf("trains %q of a file that is not PyTorch's", got)
	}
	m.ProducerName = ptr("pytorch")
	if got := trained(t, m); got != "logit_scale" {
		t.Errorf("trains %q, not logit_scale", got)
	}
}

// The weights of classes in a loss are a buffer of PyTorch's, and so is what follows them in their module.
func TestClassWeights(t *testing.T) {
	m := modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_FLOAT, 2, 3), portOf("y", onnxpb.TensorProto_INT64, 2)},
		Output:      []*onnxpb.ValueInfoProto{portOf("loss", onnxpb.TensorProto_FLOAT)},
		Initializer: []*onnxpb.TensorProto{tensorOf("scale", []int64{3}, 1.5, 2.0, 3), tensorOf("classes", []int64{3}, 0.5, 2, 1), tensorOf("shift", []int64{3}, 3.5, 2, 1)},
		Node: []*onnxpb.NodeProto{
			nodeOf("Mul", "mul", list("x", "scale"), list("s")),
			nodeOf("Add", "add", list("s", "shift"), list("z")),
			nodeOf("SoftmaxCrossEntropyLoss", "ce", list("z", "y", "classes"), list("loss")),
		},
	})
	if got := trained(t, m); got != "scale shift" {
		t.Errorf("trains %q", got)
	}
	m.ProducerName = ptr("pytorch")
	if got := trained(t, m); got != "scale" {
		t.Errorf("trains %q, and what follows a buffer is one", got)
	}
}

// Attributes of the wrong type are found while roles are decided, before any node is imported.
func TestAttributeType(t *testing.T) {
	m := modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_FLOAT, 2, 3)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", onnxpb.TensorProto_FLOAT, 2, 3)},
		Initializer: []*onnxpb.TensorProto{ramp("w", 1, 3, 3)},
		Node:        []*onnxpb.NodeProto{nodeOf("Gemm", "g", list("x", "w"), list("y"), "transB", float32(1))},
	})
	p, err := Parse(encode(m), "", Options{})
	if err == nil {
		_, err = p.Import()
	}
	if err == nil || !strings.Contains(err.Error(), `attribute "transB" is of type FLOAT, not INT`) {
		t.Error(err)
	}
}

// A parameter of which the exporter kept only the exponential is said to be lost.
func TestLostParameter(t *testing.T) {
	m := signed(modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_FLOAT, 2, 3)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", onnxpb.TensorProto_FLOAT, 2, 3)},
		Initializer: []*onnxpb.TensorProto{tensorOf("exp", nil, 2.5), ramp("bias", 0.1, 3)},
		Node: []*onnxpb.NodeProto{
			nodeOf("Mul", "scale", list("x", "exp"), list("a")),
			nodeOf("Add", "shift", list("a", "bias"), list("y")),
		},
	}), "logit_scale", "bias")
	p, err := Parse(encode(m), "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := p.Inspect()
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Warnings) != 1 || !strings.Contains(info.Warnings[0], "parameters logit_scale (it is in \"exp\")") {
		t.Errorf("warnings %q", info.Warnings)
	}
}

// A norm that TorchScript's exporter calls twice keeps one scale, though it is all ones; two norms that it merged because
// their scales are equal get one each.
func TestNormCalledTwice(t *testing.T) {
	for second, want := range map[string]string{
		"/block/norm_1/LayerNormalization": "block.norm.weight",
		"/block/last/LayerNormalization":   "block.norm.weight /block/last/LayerNormalization/weight",
		"/block.1/norm/LayerNormalization": "block.norm.weight /block.1/norm/LayerNormalization/weight",
	} {
		m := modelOf(17, &onnxpb.GraphProto{
			Input:       []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_FLOAT, 2, 3)},
			Output:      []*onnxpb.ValueInfoProto{portOf("y", onnxpb.TensorProto_FLOAT, 2, 3)},
			Initializer: []*onnxpb.TensorProto{tensorOf("block.norm.weight", []int64{3}, 1.0, 1.0, 1.0)},
			Node: []*onnxpb.NodeProto{
				nodeOf("LayerNormalization", "/block/norm/LayerNormalization", list("x", "block.norm.weight"), list("h")),
				nodeOf("LayerNormalization", second, list("h", "block.norm.weight"), list("y")),
			},
		})
		m.ProducerName = ptr("pytorch")
		if got := trained(t, m); got != want {
			t.Errorf("%s: trains %q, not %q", second, got, want)
		}
	}
}

// So does one that the dynamo exporter recorded as such.
func TestNormRecordedTwice(t *testing.T) {
	m := modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_FLOAT, 2, 3)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", onnxpb.TensorProto_FLOAT, 2, 3)},
		Initializer: []*onnxpb.TensorProto{tensorOf("norm.weight", []int64{3}, 1.0, 1.0, 1.0)},
		Node: []*onnxpb.NodeProto{
			called(nodeOf("LayerNormalization", "a", list("x", "norm.weight"), list("h")), "aten.layer_norm.default](args = (%x, [3], %p_norm_weight), kwargs = {})"),
			called(nodeOf("LayerNormalization", "b", list("h", "norm.weight"), list("y")), "aten.layer_norm.default](args = (%h, [3], %p_norm_weight), kwargs = {})"),
		},
	})
	if got := trained(t, signed(m, "norm.weight")); got != "norm.weight" {
		t.Errorf("trains %q, not one scale", got)
	}
}
