package onnx

import (
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// recorded is a model with the record of python/gtc: a product with one matrix that is trained and one that is frozen, a
// scalar parameter, a buffer of ones and zeros, and a batch normalization that the module held in evaluation mode.
func recorded(entries map[string]string) *onnxpb.ModelProto {
	m := modelOf(17, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf("x", f32, 2, 3)},
		Output: []*onnxpb.ValueInfoProto{portOf("y", f32, 2, 3)},
		Initializer: []*onnxpb.TensorProto{ramp("w", 0.1, 3, 3), ramp("f", 0.1, 3, 3), tensorOf("scale", nil, 2.0), ramp("k", 1, 3),
			ramp("bn.weight", 1, 3), ramp("bn.bias", 1, 3), ramp("bn.running_mean", 1, 3), ramp("bn.running_var", 1, 3), ramp("val_3", 1, 3, 3)},
		Node: []*onnxpb.NodeProto{
			nodeOf("MatMul", "a", list("x", "w"), list("a")),
			nodeOf("MatMul", "b", list("a", "f"), list("b")),
			nodeOf("BatchNormalization", "bn", list("b", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"), list("c")),
			nodeOf("Mul", "s", list("c", "scale"), list("d")),
			nodeOf("Add", "k", list("d", "k"), list("e")),
			nodeOf("MatMul", "c", list("e", "val_3"), list("y")),
		},
	})
	for k, v := range entries {
		m.MetadataProps = append(m.MetadataProps, &onnxpb.StringStringEntryProto{Key: ptr(k), Value: ptr(v)})
	}
	return m
}

func TestRecord(t *testing.T) {
	m := recorded(map[string]string{
		model.KeyParameters: `["w", "scale", "bn.weight", "bn.bias"]`, model.KeyFrozen: `["f"]`,
		model.KeyBuffers: `["k", "bn.running_mean", "bn.running_var"]`, model.KeyTied: `{"head.w": "w"}`, model.KeyLoss: `"mse"`,
	})
	f := imported(t, m, Options{})
	if got := paramNames(f, ir.Param); got != "w scale bn.weight bn.bias" {
		t.Errorf("trains %q", got)
	}
	for _, op := range f.Ops {
		if op.Def.Name == "batch_norm_stat" {
			t.Error("the statistics of a batch normalization in evaluation mode are updated")
		}
	}
	p, err := Parse(encode(m), "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.DefaultLoss() != "mse" || len(p.Warnings) > 0 {
		t.Errorf("loss %q, warnings %q", p.DefaultLoss(), p.Warnings)
	}
	if got := paramNames(imported(t, m, Options{Train: []string{"f"}}), ir.Param); !strings.Contains(got, "f") {
		t.Errorf("--train f trains %q", got)
	}
}

// A record that no longer fits the file is left aside, with a warning.
func TestStaleRecord(t *testing.T) {
	for _, text := range []string{`["w", "gone"]`, `{"w": 1}`, `[`} {
		p, err := Parse(encode(recorded(map[string]string{model.KeyParameters: text})), "", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Record != nil || len(p.Warnings) != 1 {
			t.Errorf("%s: warnings %q", text, p.Warnings)
		}
	}
}

// Identity that the exporter recorded as detach, or that gtc.export marked, stops the gradient; any other does not.
func TestDetach(t *testing.T) {
	for _, c := range []struct {
		mark func(n *onnxpb.NodeProto)
		ops  string
	}{
		{func(*onnxpb.NodeProto) {}, "relu"},
		{func(n *onnxpb.NodeProto) { called(n, "aten.detach.default](args = (%x,), kwargs = {})") }, "detach relu"},
		{func(n *onnxpb.NodeProto) { called(n, "aten.clone.default](args = (%x,), kwargs = {})") }, "relu"},
		{func(n *onnxpb.NodeProto) {
			n.MetadataProps = append(n.MetadataProps, &onnxpb.StringStringEntryProto{Key: ptr(model.KeyDetach), Value: ptr("true")})
		}, "detach relu"},
	} {
		same := nodeOf("Identity", "same", list("x"), list("h"))
		c.mark(same)
		f := imported(t, modelOf(17, &onnxpb.GraphProto{
			Input:  []*onnxpb.ValueInfoProto{portOf("x", f32, 2, 3)},
			Output: []*onnxpb.ValueInfoProto{portOf("y", f32, 2, 3)},
			Node:   []*onnxpb.NodeProto{same, nodeOf("Relu", "r", list("h"), list("y"))},
		}), Options{})
		var names []string
		for _, op := range f.Ops {
			names = append(names, op.Def.Name)
		}
		if got := strings.Join(names, " "); got != c.ops {
			t.Errorf("imports as %q, not %q", got, c.ops)
		}
	}
}

// PyTorch's exporter leaves label smoothing out of the node that it writes, and in the record of the call.
func TestLabelSmoothing(t *testing.T) {
	for args, want := range map[string]string{"0.0": "", "0.1": "label smoothing of 0.1"} {
		m := modelOf(17, &onnxpb.GraphProto{
			Input:  []*onnxpb.ValueInfoProto{portOf("x", f32, 2, 3), portOf("t", onnxpb.TensorProto_INT64, 2)},
			Output: []*onnxpb.ValueInfoProto{portOf("y", f32)},
			Node: []*onnxpb.NodeProto{called(nodeOf("SoftmaxCrossEntropyLoss", "l", list("x", "t"), list("y")),
				"aten.cross_entropy_loss.default](args = (%x, %t, None, 1, -100, "+args+"), kwargs = {})")},
		})
		p, err := Parse(encode(m), "", Options{})
		if err == nil {
			_, err = p.Import()
		}
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// The padding row of an embedding that gtc.export recorded keeps still, where the exporter's own record has none.
func TestPaddingRecord(t *testing.T) {
	for text, want := range map[string]string{`{"w": 1}`: "embed", `{"v": 1}`: "gather", `{"w": 9}`: "gather", `[1]`: "gather"} {
		m := modelOf(17, &onnxpb.GraphProto{
			Input:       []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_INT64, 2)},
			Output:      []*onnxpb.ValueInfoProto{portOf("y", f32, 2, 3)},
			Initializer: []*onnxpb.TensorProto{ramp("w", 0.1, 4, 3)},
			Node:        []*onnxpb.NodeProto{nodeOf("Gather", "g", list("w", "x"), list("y"))},
		})
		for k, v := range map[string]string{model.KeyParameters: `["w"]`, model.KeyPadding: text} {
			m.MetadataProps = append(m.MetadataProps, &onnxpb.StringStringEntryProto{Key: ptr(k), Value: ptr(v)})
		}
		f := imported(t, m, Options{})
		if got := strings.Contains(f.String(), "noGrad="); got != (want == "embed") {
			t.Errorf("%s: imports as %s", text, f)
		}
	}
}

// An input that nothing reads is told.
func TestUnreadInput(t *testing.T) {
	m := modelOf(17, &onnxpb.GraphProto{
		Input:  []*onnxpb.ValueInfoProto{portOf("x", f32, 2, 3), portOf("labels", f32, 2, 3)},
		Output: []*onnxpb.ValueInfoProto{portOf("y", f32, 2, 3)},
		Node: []*onnxpb.NodeProto{nodeOf("Shape", "s", list("labels"), list("dims")), nodeOf("Relu", "r", list("x"), list("h")),
			nodeOf("Reshape", "v", list("h", "dims"), list("y"))},
	})
	p, err := Parse(encode(m), "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Import(); err != nil {
		t.Fatal(err)
	}
	if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], `nothing reads input "labels"`) {
		t.Errorf("warnings %q", p.Warnings)
	}
}
