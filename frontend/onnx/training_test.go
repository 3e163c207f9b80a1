package onnx

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// gradientModel is y = sum(w*x*x) with a Gradient of it at given operands, and a Gradient of one of its results.
func gradientModel(at []string) *onnxpb.ModelProto {
	first := nodeOf("Gradient", "first", at, list("dw", "dx"), "xs", list("w", "x"), "y", "y")
	second := nodeOf("Gradient", "second", list("x", "w"), list("dxx"), "xs", list("x"), "zs", list("w"), "y", "dx")
	first.Domain, second.Domain = ptr(model.TrainingDomain), ptr(model.TrainingDomain)
	return modelOf(17, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf("x", f32, 2), portOf("w", f32, 2), portOf("x2", f32, 2)},
		Output: []*onnxpb.ValueInfoProto{portOf("dw", f32, 2), portOf("dx", f32, 2), portOf("dxx", f32, 2)},
		Node: []*onnxpb.NodeProto{
			nodeOf("Mul", "wx", list("w", "x"), list("a")),
			nodeOf("Mul", "wxx", list("a", "x"), list("b")),
			nodeOf("ReduceSum", "sum", list("b"), list("y"), "keepdims", 0),
			first, second,
		},
	})
}

// Gradients at the graph's own values, at other ones, where everything is known, and of gradients.
func TestGradientOperator(t *testing.T) {
	args := func() map[string]*ir.Array {
		return map[string]*ir.Array{"x": floatsOf([]int{2}, 3, 4), "w": floatsOf([]int{2}, 5, 6), "x2": floatsOf([]int{2}, 1, -1)}
	}
	fixed := map[string]*ir.Tensor{}
	for name, a := range args() {
		fixed[name] = a.Tensor()
	}
	for _, c := range []struct {
		name string
		at   string
		dw   []float64
		dx   []float64
		dxx  []float64
	}{
		{"at its own values", "x", []float64{9, 16}, []float64{30, 48}, []float64{10, 12}},
		{"elsewhere", "x2", []float64{1, 1}, []float64{10, -12}, []float64{0, 0}}, // dx depends on x2 instead of x
	} {
		for _, o := range []Options{{}, {Fixed: fixed}} {
			given := args()
			if o.Fixed != nil {
				given = nil
			}
			out := resultsOf(t, gradientModel(list("w", c.at)), o, given)
			closeTo(t, c.name+": dw", out[0].F, 0, c.dw...)
			closeTo(t, c.name+": dx", out[1].F, 0, c.dx...)
			closeTo(t, c.name+": dxx", out[2].F, 0, c.dxx...)
		}
	}
	m := gradientModel(list("w", "x"))
	m.Graph.Node[3].Attribute[1].S = []byte("nobody")
	if err := importBytes(encode(m), Options{}); err == nil || !strings.Contains(err.Error(), `y is "nobody", which is not a float tensor`) {
		t.Error(err)
	}
}

// A file's own training algorithm is reported and said to be ignored.
func TestTrainingInfo(t *testing.T) {
	p := linearModel()
	step := nodeOf("Sub", "step", list("fc.weight", "g"), list("new"))
	p.TrainingInfo = []*onnxpb.TrainingInfoProto{{
		Algorithm:     &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{gradNode("y", list("fc.weight"), "g"), step}},
		UpdateBinding: []*onnxpb.StringStringEntryProto{{Key: ptr("fc.weight"), Value: ptr("new")}, {Key: ptr("gone"), Value: ptr("new")}},
	}}
	m, err := Parse(encode(p), "", Options{Batch: 2})
	if err != nil {
		t.Fatal(err)
	}
	info, err := m.Inspect()
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Training) != 1 || len(info.Training[0].Algorithm) != 2 || info.Training[0].Updates[0] != (Binding{Initializer: "fc.weight", Output: "new"}) {
		t.Errorf("%+v", info.Training)
	}
	all := strings.Join(info.Warnings, "\n")
	for _, want := range []string{`training_info 0 assigns to "gone", which is not an initializer`,
		`a training algorithm of its own (2 nodes, 0 to initialize; it updates "fc.weight", "gone"): gtc ignores it`} {
		if !strings.Contains(all, want) {
			t.Errorf("warnings %s\nlack %s", all, want)
		}
	}
}

// A file may import other domains only, as long as it uses nothing of the default one.
func TestOtherDomainsOnly(t *testing.T) {
	p := modelOf(1, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf("x", f32, 3)},
		Output: []*onnxpb.ValueInfoProto{portOf("y", f32, 3)},
		Node:   []*onnxpb.NodeProto{nodeOf("Binarizer", "bin", list("x"), list("y"), "threshold", float32(1))},
	})
	p.Graph.Node[0].Domain, p.OpsetImport[0].Domain = ptr("ai.onnx.ml"), ptr("ai.onnx.ml")
	out := resultsOf(t, p, Options{}, map[string]*ir.Array{"x": floatsOf([]int{3}, 0.5, 1, 2)})
	closeTo(t, "y", out[0].F, 0, 0, 0, 1)
	p.Graph.Node[0] = nodeOf("Relu", "relu", list("x"), list("y"))
	if err := importBytes(encode(p), Options{}); err == nil || !strings.Contains(err.Error(), "the file imports no standard operator set") {
		t.Error(err)
	}
}

// LabelEncoder on numbers: keys map to values, all else to the default.
func TestLabelEncoderOnNumbers(t *testing.T) {
	p := modelOf(17, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf("x", i64Type, 2, 2)},
		Output: []*onnxpb.ValueInfoProto{portOf("y", f32, 2, 2)},
		Node: []*onnxpb.NodeProto{nodeOf("LabelEncoder", "le", list("x"), list("y"), "keys_int64s", []int64{7, -1},
			"values_floats", []float32{0.5, 2}, "default_float", float32(9))},
	})
	p.Graph.Node[0].Domain = ptr("ai.onnx.ml")
	x := &ir.Array{Type: ir.T(dtype.I64, 2, 2), I: []int64{-1, 7, 0, 7}}
	closeTo(t, "y", resultsOf(t, p, Options{}, map[string]*ir.Array{"x": x})[0].F, 0, 2, 0.5, 9, 0.5)
}
