package onnx

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// The forms in which other converters write weights, after files that they made: tf2onnx names tensors after variables
// ("…/ReadVariableOp:0"), or const_fold_opt__N where it transposed a kernel, folds batch normalisation to a product and a sum and
// keeps Keras' Normalization layer as a difference and a quotient.
func TestTensorFlowNames(t *testing.T) {
	m := modelOf(13, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf("x:0", onnxpb.TensorProto_FLOAT, 2, 3, 4, 4)},
		Output: []*onnxpb.ValueInfoProto{portOf("y:0", onnxpb.TensorProto_FLOAT, 2, 1)},
		Initializer: []*onnxpb.TensorProto{
			ramp("normalization/mean:0", 0.1, 1, 3, 1, 1), ramp("normalization/Sqrt:0", 0.3, 1, 3, 1, 1),
			ramp("const_fold_opt__37", 0.1, 2, 3, 3, 3), ramp("sequential/conv2d/BiasAdd/ReadVariableOp:0", 0.2, 2),
			ramp("sequential/batch_normalization/batchnorm/mul:0", 0.3, 1, 2, 1, 1),
			ramp("sequential/batch_normalization/batchnorm/sub:0", 0.1, 1, 2, 1, 1),
			ramp("sequential/dense/MatMul/ReadVariableOp:0", 0.1, 8, 1), tensorOf("sequential/dense/BiasAdd/ReadVariableOp:0", []int64{1}, 0.5),
			tensorOf("sequential/rescale/Cast:0", nil, 0.25), tensorOf("shape__12", []int64{2}, int64(2), 8),
		},
		Node: []*onnxpb.NodeProto{
			nodeOf("Sub", "sub", list("x:0", "normalization/mean:0"), list("a")),
			nodeOf("Div", "div", list("a", "normalization/Sqrt:0"), list("b")),
			nodeOf("Mul", "rescale", list("b", "sequential/rescale/Cast:0"), list("c")),
			nodeOf("Conv", "conv", list("c", "const_fold_opt__37", "sequential/conv2d/BiasAdd/ReadVariableOp:0"), list("d")),
			nodeOf("Mul", "bn_scale", list("d", "sequential/batch_normalization/batchnorm/mul:0"), list("e")),
			nodeOf("Add", "bn_shift", list("e", "sequential/batch_normalization/batchnorm/sub:0"), list("f")),
			nodeOf("Reshape", "flat", list("f", "shape__12"), list("g")),
			nodeOf("MatMul", "dense", list("g", "sequential/dense/MatMul/ReadVariableOp:0"), list("h")),
			nodeOf("Add", "bias", list("h", "sequential/dense/BiasAdd/ReadVariableOp:0"), list("y:0")),
		},
	})
	m.ProducerName = ptr("tf2onnx")
	want := "const_fold_opt__37 sequential/batch_normalization/batchnorm/mul:0 sequential/batch_normalization/batchnorm/sub:0 " +
		"sequential/conv2d/BiasAdd/ReadVariableOp:0 sequential/dense/BiasAdd/ReadVariableOp:0 sequential/dense/MatMul/ReadVariableOp:0"
	got := strings.Fields(trained(t, m))
	for _, name := range strings.Fields(want) {
		if !strings.Contains(" "+strings.Join(got, " ")+" ", " "+name+" ") {
			t.Errorf("%s is not trained", name)
		}
	}
	if len(got) != 6 {
		t.Errorf("trains %q", got)
	}
}

// Paddle's and MXNet's converters, and sklearn's, write weights as Constant nodes. Exporting gives initializers.
func TestConstantNodes(t *testing.T) {
	m := modelOf(13, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_FLOAT, 2, 3)},
		Output: []*onnxpb.ValueInfoProto{portOf("y", onnxpb.TensorProto_FLOAT, 2, 4)},
		Node: []*onnxpb.NodeProto{
			nodeOf("Constant", "c0", nil, list("linear_0.w_0"), "value", ramp("", 0.1, 4, 3)),
			nodeOf("Constant", "c1", nil, list("linear_0.b_0"), "value", ramp("", 0.2, 4)),
			nodeOf("Constant", "c2", nil, list("half"), "value", tensorOf("", nil, 0.5)),
			nodeOf("Transpose", "t", list("linear_0.w_0"), list("wt")),
			nodeOf("MatMul", "m", list("x", "wt"), list("a")),
			nodeOf("Add", "b", list("a", "linear_0.b_0"), list("c")),
			nodeOf("Mul", "h", list("c", "half"), list("y")),
		},
	})
	m.ProducerName = ptr("PaddlePaddle")
	if got := trained(t, m); got != "linear_0.b_0 linear_0.w_0" && got != "linear_0.w_0 linear_0.b_0" {
		t.Errorf("trains %q", got)
	}
	p, err := Parse(encode(m), "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Import(); err != nil {
		t.Fatal(err)
	}
	data, err := p.Export(map[string][]byte{"linear_0.b_0": make([]byte, 16)}, false)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Parse(data, "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := back.Import(); err != nil {
		t.Fatal(err)
	}
	if tt := back.Inits["linear_0.b_0"]; tt == nil || len(back.InitList) != 2 {
		t.Errorf("the exported file has %d initializers", len(back.InitList))
	}
}

// Before IR version 4 every initializer is also listed as an input: it stays a parameter.
func TestInitializerInputs(t *testing.T) {
	m := linearModel()
	m.IrVersion = ptr(int64(3))
	want := paramNames(imported(t, m, Options{Batch: 2}), ir.Param)
	for _, i := range m.Graph.Initializer {
		dims := []any{}
		for _, d := range i.Dims {
			dims = append(dims, int(d))
		}
		m.Graph.Input = append(m.Graph.Input, portOf(i.GetName(), onnxpb.TensorProto_DataType(i.GetDataType()), dims...))
	}
	if got := paramNames(imported(t, m, Options{Batch: 2}), ir.Param); got != want || want == "" {
		t.Errorf("trains %q, not %q", got, want)
	}
}

// Norms whose equal scales and shifts an optimizer of files merged get their own again.
func TestMergedNorms(t *testing.T) {
	m := modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_FLOAT, 2, 3)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", onnxpb.TensorProto_FLOAT, 2, 3)},
		Initializer: []*onnxpb.TensorProto{tensorOf("ones", []int64{3}, 1.0, 1, 1), tensorOf("zeros", []int64{3}, 0.0, 0, 0)},
		Node: []*onnxpb.NodeProto{
			nodeOf("LayerNormalization", "n1", list("x", "ones", "zeros"), list("a")),
			nodeOf("Tanh", "t", list("a"), list("b")),
			nodeOf("LayerNormalization", "n2", list("b", "ones", "zeros"), list("y")),
		},
	})
	f := imported(t, m, Options{})
	n := 0
	for _, p := range f.Params {
		if p.Role == ir.Param {
			n++
		}
	}
	if n != 4 {
		t.Errorf("two norms have %d parameters", n)
	}
}
