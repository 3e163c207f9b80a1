package onnx

import (
	"maps"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// openModel tiles x, of which the file gives no shape, as often as its other input says, and adds a loop of so many steps.
func openModel(trips ...any) *onnxpb.ModelProto {
	body := &onnxpb.GraphProto{
		Node: []*onnxpb.NodeProto{nodeOf("Tanh", "tanh", list("v_in"), list("v_out")), nodeOf("Identity", "go_on", list("c_in"), list("c_out"))},
		Input: []*onnxpb.ValueInfoProto{portOf("i", onnxpb.TensorProto_INT64), portOf("c_in", onnxpb.TensorProto_BOOL),
			portOf("v_in", onnxpb.TensorProto_FLOAT, 4, 6)},
		Output: []*onnxpb.ValueInfoProto{portOf("c_out", onnxpb.TensorProto_BOOL), portOf("v_out", onnxpb.TensorProto_FLOAT, 4, 6)},
	}
	x := portOf("x", onnxpb.TensorProto_FLOAT)
	x.Type.GetTensorType().Shape = nil
	return modelOf(17, &onnxpb.GraphProto{
		Node: []*onnxpb.NodeProto{
			nodeOf("Tile", "tile", list("x", "repeats"), list("t")),
			nodeOf("Loop", "loop", list("n", "", "t"), list("y"), "body", body),
		},
		Input:  []*onnxpb.ValueInfoProto{portOf("n", onnxpb.TensorProto_INT64, trips...), x, portOf("repeats", onnxpb.TensorProto_INT64, 2)},
		Output: []*onnxpb.ValueInfoProto{portOf("y", onnxpb.TensorProto_FLOAT, 4, 6)},
	})
}

// TestGiven binds what a file leaves open; without it, the error names the flag.
func TestGiven(t *testing.T) {
	shapes := map[string][]int{"x": {2, 2}}
	values := map[string]string{"n": "3", "repeats": "2, 3"}
	with := func(name, value string) map[string]string {
		out := maps.Clone(values)
		if out[name] = value; value == "" {
			delete(out, name)
		}
		return out
	}
	for _, c := range []struct {
		name  string
		o     Options
		trips []any
		want  string
	}{
		{name: "all", o: Options{Shapes: shapes, Values: values}},
		{name: "a trip count of one dimension", o: Options{Shapes: shapes, Values: values}, trips: []any{1}},
		{name: "of an open one", o: Options{Shapes: shapes, Values: values}, trips: []any{"k"}},
		{name: "no shape", o: Options{Values: values}, want: `input "x" has no shape in the file: give its dimensions, as in --dim x=4x16`},
		{name: "no trip count", o: Options{Shapes: shapes, Values: with("n", "")}, want: `operand 0, "n", must be known when compiling, but it depends on the model's inputs or parameters; --value n=N makes it known`},
		{name: "no repeats", o: Options{Shapes: shapes, Values: with("repeats", "")}, want: `--value repeats=N,M makes it known`},
		{name: "too many numbers", o: Options{Shapes: shapes, Values: with("n", "3,4")}, want: `--value n=3,4: it gives 2 numbers for an input of dims []`},
		{name: "no number", o: Options{Shapes: shapes, Values: with("n", "3.5")}, want: `--value n=3.5: "3.5" is not a number of type i64`},
		{name: "no such input", o: Options{Shapes: shapes, Values: with("m", "3")}, want: `--value m=3: the model has no input of that name; there are: n, x, repeats`},
		{name: "no input to give a shape", o: Options{Shapes: map[string][]int{"z": {2}}, Values: values}, want: `--dim z=2: the model has no input of that name`},
		{name: "another shape", o: Options{Shapes: map[string][]int{"x": {2, 2}, "repeats": {3}}, Values: values}, want: `--dim repeats=3: dimension 0 is fixed to 2 in the file`},
		{name: "another rank", o: Options{Shapes: map[string][]int{"x": {2, 2}, "n": {3}}, Values: values}, want: `--dim n=3: the input has 0 dimensions in the file`},
		{name: "too large", o: Options{Shapes: map[string][]int{"x": {1 << 30, 1 << 30}}, Values: values}, want: "hold more elements than can be addressed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse(encode(openModel(c.trips...)), "", c.o)
			if err == nil {
				defer p.Close()
				m, err2 := p.Import()
				if err = err2; err == nil {
					text := m.String()
					if strings.Count(text, "= tanh") != 3 || !strings.Contains(text, "(%x: f32[2,2])") || !strings.Contains(text, "f32[4,6]\n  return") {
						t.Errorf("imported as\n%s", text)
					}
				}
			}
			if got := errText(err); (c.want == "") != (err == nil) || !strings.Contains(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestGivenOneDim: --dim x=4 is a dimension that the file calls x, else the only one of an input of that name without a shape.
func TestGivenOneDim(t *testing.T) {
	m := linearModel()
	x := m.Graph.Input[0].Type.GetTensorType()
	x.Shape = nil
	p, err := Parse(encode(m), "", Options{Dims: map[string]int{"x": 4}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	module, err := p.Import()
	if err != nil || !strings.Contains(module.String(), "%x: f32[4]") {
		t.Errorf("%v\n%v", err, module)
	}
	for text, want := range map[string]string{"4x16": "4x16", "scalar": "scalar", "0": "0", "4x": "", "x": "", "4x-1": ""} {
		dims, err := ParseShape(text)
		if (err != nil) != (want == "") || err == nil && ShapeText(dims) != want {
			t.Errorf("%q is %v, %v", text, dims, err)
		}
	}
}

// TestGivenCondition: where the branches of an If have other shapes the condition must be known, and --value says it.
func TestGivenCondition(t *testing.T) {
	branch := func(op, out string) *onnxpb.GraphProto {
		return &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{nodeOf(op, op, list("x"), list(out))}, Output: []*onnxpb.ValueInfoProto{portOf(out, onnxpb.TensorProto_FLOAT)}}
	}
	m := encode(modelOf(17, &onnxpb.GraphProto{
		Node:   []*onnxpb.NodeProto{nodeOf("If", "if", list("c"), list("y"), "then_branch", branch("Neg", "n"), "else_branch", branch("Transpose", "t"))},
		Input:  []*onnxpb.ValueInfoProto{portOf("x", onnxpb.TensorProto_FLOAT, 2, 3), portOf("c", onnxpb.TensorProto_BOOL)},
		Output: []*onnxpb.ValueInfoProto{portOf("y", onnxpb.TensorProto_FLOAT)},
	}))
	want := "the results of its branches are f32[2,3] and f32[3,2], but must have the same type where the condition is not known when compiling; --value c=N makes it known"
	if err := importBytes(m, Options{}); !strings.Contains(errText(err), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if err := importBytes(m, Options{Values: map[string]string{"c": "0"}}); err != nil {
		t.Error(err)
	}
}
