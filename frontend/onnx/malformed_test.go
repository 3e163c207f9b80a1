package onnx

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// TestTwofold: what a file says twice, or in a way that readers would take differently, is refused, naming it.
func TestTwofold(t *testing.T) {
	function := func(m *onnxpb.ModelProto, f *onnxpb.FunctionProto) {
		f.Name, f.Domain = ptr("F"), ptr("own")
		m.Functions = append(m.Functions, f)
		m.Graph.Node[2].OpType, m.Graph.Node[2].Domain = f.Name, f.Domain
		m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: f.Domain, Version: ptr(int64(1))})
	}
	narrow := func(typ onnxpb.TensorProto_DataType, v ...int32) func(m *onnxpb.ModelProto) {
		return func(m *onnxpb.ModelProto) {
			m.Graph.Initializer = append(m.Graph.Initializer, &onnxpb.TensorProto{Name: ptr("n"), DataType: ptr(int32(typ)), Dims: []int64{int64(len(v))}, Int32Data: v})
		}
	}
	for name, c := range map[string]struct {
		change func(m *onnxpb.ModelProto)
		want   string // "" is none
	}{
		"a float and a list": {func(m *onnxpb.ModelProto) {
			m.Graph.Node[2] = nodeOf("LeakyRelu", "relu", list("a"), list("y"), "alpha", float32(0.5))
			m.Graph.Node[2].Attribute[0].Ints = []int64{1}
		}, `node "relu" (LeakyRelu, opset 17)` + "\n  " + `attribute "alpha" has more than one value: a float and integers`},
		"a float and fields that a writer fills in": {func(m *onnxpb.ModelProto) {
			m.Graph.Node[2] = nodeOf("LeakyRelu", "relu", list("a"), list("y"), "alpha", float32(0.5))
			m.Graph.Node[2].Attribute[0].I, m.Graph.Node[2].Attribute[0].S = ptr(int64(0)), []byte{}
		}, ""},
		"an input without a name": {func(m *onnxpb.ModelProto) { m.Graph.Input = append(m.Graph.Input, portOf("", f32, 1)) }, "input 1 has no name"},
		"an input of no text":     {func(m *onnxpb.ModelProto) { m.Graph.Input = append(m.Graph.Input, portOf("a\xff", f32, 1)) }, `input 1: the name "a\xff" is not valid UTF-8`},
		"an initializer of no text": {func(m *onnxpb.ModelProto) { m.Graph.Initializer = append(m.Graph.Initializer, ramp("\xc0", 1, 3)) },
			`initializer: the name "\xc0" is not valid UTF-8`},
		"a result of no text": {func(m *onnxpb.ModelProto) { m.Graph.Node[1].Output = append(m.Graph.Node[1].Output, "\xff") }, `node "add" (Add, opset 17)` + "\n  " + `the name "\xff" is not valid UTF-8`},
		"an operand of a function twice": {func(m *onnxpb.ModelProto) {
			function(m, &onnxpb.FunctionProto{Input: list("a", "a"), Output: list("b"), Node: []*onnxpb.NodeProto{nodeOf("Relu", "r", list("a"), list("b"))}})
		}, `function "F" of domain "own": input "a" is given twice`},
		"a result of a function twice": {func(m *onnxpb.ModelProto) {
			function(m, &onnxpb.FunctionProto{Input: list("a"), Output: list("b", "b"), Node: []*onnxpb.NodeProto{nodeOf("Relu", "r", list("a"), list("b"))}})
		}, `function "F" of domain "own": result "b" is given twice`},
		"an operator set of a function": {func(m *onnxpb.ModelProto) {
			function(m, &onnxpb.FunctionProto{Input: list("a"), Output: list("b"), Node: []*onnxpb.NodeProto{nodeOf("Relu", "r", list("a"), list("b"))},
				OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: ptr(int64(99))}}})
		}, `function "F": opset 99 is outside 1 to`},
		"a function of itself": {func(m *onnxpb.ModelProto) {
			call := nodeOf("F", "r", list("a"), list("b"))
			call.Domain = ptr("own")
			function(m, &onnxpb.FunctionProto{Input: list("a"), Output: list("b"), Node: []*onnxpb.NodeProto{call}})
		}, `more than 32 deep, at last from "r"`},
		"an initializer of a body": {func(m *onnxpb.ModelProto) {
			branch := &onnxpb.GraphProto{Initializer: []*onnxpb.TensorProto{ramp("k", 1, 3), ramp("k", 2, 3)}, Node: []*onnxpb.NodeProto{nodeOf("Add", "n", list("a", "k"), list("z"))},
				Output: []*onnxpb.ValueInfoProto{portOf("z", f32)}}
			m.Graph.Input = append(m.Graph.Input, portOf("c", onnxpb.TensorProto_BOOL))
			m.Graph.Node[2] = nodeOf("If", "if", list("c"), list("y"), "then_branch", branch, "else_branch", branch)
		}, `initializer name "k" of its graph "then_branch" is empty or given twice`},
		"no auto_pad": {func(m *onnxpb.ModelProto) {
			m.Graph.Node = append(m.Graph.Node[:0], nodeOf("Conv", "relu", list("x", "k"), list("y"), "auto_pad", "SAME"))
			m.Graph.Input[0] = portOf("x", f32, 2, 4, 5)
			m.Graph.Initializer[1] = ramp("k", 1, 3, 4, 2)
		}, `auto_pad is "SAME", but must be NOTSET, VALID, SAME_UPPER or SAME_LOWER`},
		"joined along nothing": {func(m *onnxpb.ModelProto) { m.Graph.Node[2] = nodeOf("Concat", "relu", list("a", "a"), list("y")) }, `attribute "axis" is missing`},
		"cut twice": {func(m *onnxpb.ModelProto) {
			m.Graph.Initializer = append(m.Graph.Initializer, intsOf("at", 0, 0), intsOf("to", 1, 2), intsOf("along", 0, -2))
			m.Graph.Node[2] = nodeOf("Slice", "relu", list("a", "at", "to", "along"), list("y"))
		}, "axes [0 -2] name a dimension twice"},
		"an output of another type": {func(m *onnxpb.ModelProto) { m.Graph.Output[0] = portOf("y", onnxpb.TensorProto_INT64, 2, 3) },
			`output "y" is declared to hold elements of type INT64, but holds f32`},
		"a number in another field": {func(m *onnxpb.ModelProto) {
			m.Graph.Initializer[1] = &onnxpb.TensorProto{Name: ptr("fc.bias"), DataType: ptr(int32(1)), Dims: []int64{3}, Int32Data: []int32{1, 2, 3}}
		}, `tensor "fc.bias" f32[3]: its values are in field int32_data, where tensors of this type have none`},
		"a byte of 300":         {narrow(onnxpb.TensorProto_UINT8, 1, 300), `tensor "n" u8[2]: value 1 of int32_data is 300, which u8 does not hold`},
		"a short of less":       {narrow(onnxpb.TensorProto_INT16, -1<<15-1), `value 0 of int32_data is -32769, which i16 does not hold`},
		"bits of a half":        {narrow(onnxpb.TensorProto_FLOAT16, 0xffff, 0), ""},
		"signed bytes as bits":  {narrow(onnxpb.TensorProto_INT8, 255, -128), ""},
		"two fours in one byte": {narrow(onnxpb.TensorProto_UINT4, 0x100, 0), `value 0 of int32_data is 256, which u4 does not hold`},
	} {
		m := linearModel()
		c.change(m)
		if name == "two fours in one byte" {
			m.Graph.Initializer[2].Int32Data = m.Graph.Initializer[2].Int32Data[:1]
		}
		if err := importBytes(encode(m), Options{Batch: 2}); (c.want == "") != (err == nil) || !strings.Contains(errText(err), c.want) {
			t.Errorf("%s: got  %v\nwant %s", name, err, c.want)
		}
	}
}

// TestDeclaredDims: an output of other dims than declared is only told.
func TestDeclaredDims(t *testing.T) {
	m := linearModel()
	m.Graph.Output[0] = portOf("y", f32, "batch", 5)
	p, err := Parse(encode(m), "", Options{Batch: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Import(); err != nil || !strings.Contains(strings.Join(p.Warnings, "\n"), `output "y" is f32[2,3], but the file declares other dims`) {
		t.Errorf("%v, %q", err, p.Warnings)
	}
}

// TestUnknownAttributes: an attribute that the operator has in no version is told; one of an older version is not.
func TestUnknownAttributes(t *testing.T) {
	m := linearModel()
	m.Graph.Node[2] = nodeOf("LeakyRelu", "relu", list("a"), list("y"), "alpha", float32(0.5), "Alpha", float32(0.1), "consumed_inputs", []int64{0})
	p, err := Parse(encode(m), "", Options{Batch: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Import(); err != nil {
		t.Fatal(err)
	}
	if want := []string{`LeakyRelu has no attribute "Alpha" in any version, so it is ignored: "relu"`}; !slices.Equal(p.Warnings, want) {
		t.Errorf("got  %q\nwant %q", p.Warnings, want)
	}
	for _, op := range Operators() {
		if _, known := walk.StandardAttributes[op]; !known && !strings.HasPrefix(op, "com.microsoft.") && op != "SimplifiedLayerNormalization" {
			t.Errorf("attributes.tsv lacks %s", op)
		}
	}
}

// TestPlaceTwice: external data has one place.
func TestPlaceTwice(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "w.bin"), make([]byte, 48), 0o600); err != nil {
		t.Fatal(err)
	}
	m := linearModel()
	w := m.Graph.Initializer[0]
	w.RawData, w.DataLocation = nil, ptr(onnxpb.TensorProto_EXTERNAL)
	for _, kv := range [][2]string{{"location", "w.bin"}, {"offset", "0"}, {"offset", "4"}} {
		w.ExternalData = append(w.ExternalData, &onnxpb.StringStringEntryProto{Key: ptr(kv[0]), Value: ptr(kv[1])})
	}
	p, err := Parse(encode(m), dir, Options{Batch: 2})
	if err == nil {
		defer p.Close()
		_, err = p.Import()
	}
	if want := `tensor "fc.weight" f32[4,3]: external data: "offset" is given twice`; !strings.Contains(errText(err), want) {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
