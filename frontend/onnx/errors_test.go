package onnx

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxtest"
)

// importBytes parses and imports; the error of either.
func importBytes(data []byte, opts Options) error {
	m, err := Parse(data, "", opts)
	if err != nil {
		return err
	}
	defer m.Close()
	_, err = m.Import()
	return err
}

// TestErrors changes a good model in one way each and checks the message.
func TestErrors(t *testing.T) {
	cases := []struct {
		name   string
		change func(m *onnxpb.ModelProto, o *Options)
		want   string
	}{
		{"open dimension", func(_ *onnxpb.ModelProto, o *Options) { o.Batch = 0 },
			`m.onnx: dimension 0 of input "x", "batch", is open: give --dim batch=N or --batch N`},
		{"unknown dimension", func(_ *onnxpb.ModelProto, o *Options) { o.Dims = map[string]int{"seq": 3} },
			`m.onnx: --dim seq: no input has a dimension of that name; there are: batch`},
		{"inner dimensions", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Initializer[0] = ramp("fc.weight", 1, 3, 4) },
			"m.onnx: node \"mm\" (MatMul, opset 17)\n    net.py:7, in Net.forward\n  operand 1 has inner dimension 3, operand 0 has 4\n" +
				"  note: operand 0 is \"x\" f32[2,4]\n  note: operand 1 is \"fc.weight\" f32[3,4]"},
		{"broadcast", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Initializer[1] = ramp("fc.bias", 1, 5) },
			"operand 0 is f32[2,3], operand 1 is f32[5]: the shapes do not broadcast"},
		{"undefined", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Node[2].Input[0] = "nope" },
			`input 0 is "nope", which no node produces`},
		{"cycle", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Node[0].Input[0] = "y" },
			"depends on this node's own result: the graph has a cycle, mm reads relu reads add reads mm"},
		{"result with the name of an input", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Node[0].Output[0], m.Graph.Node[1].Input[0] = "x", "x" },
			`result "x" already exists, as an input: every value must be produced once`},
		{"batch given twice", func(_ *onnxpb.ModelProto, o *Options) { o.Dims = map[string]int{"batch": 3} },
			`m.onnx: --batch 2 has no effect beside --dim batch=3, which binds the dimension of the batch; leave one of them out`},
		{"two payloads", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Initializer[1].FloatData = []float32{1, 2, 3} },
			`tensor "fc.bias" has more than one payload: raw_data and float_data`},
		{"opset twice", func(m *onnxpb.ModelProto, _ *Options) {
			m.OpsetImport = append(m.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: ptr("ai.onnx"), Version: ptr(int64(18))})
		}, `operator set "" is imported twice`},
		{"function twice", func(m *onnxpb.ModelProto, _ *Options) {
			f := &onnxpb.FunctionProto{Name: ptr("F"), Domain: ptr("own")}
			m.Functions = append(m.Functions, f, f)
		}, `function "F" of domain "own" is given twice`},
		{"reference outside a function", func(m *onnxpb.ModelProto, _ *Options) {
			m.Graph.Node[2].Attribute = []*onnxpb.AttributeProto{{Name: ptr("alpha"), RefAttrName: ptr("slope")}}
		}, `attribute "alpha" refers to attribute "slope" of a function, but the node is in none`},
		{"group 0", func(m *onnxpb.ModelProto, _ *Options) {
			m.Graph.Node = m.Graph.Node[2:]
			m.Graph.Node[0] = nodeOf("Conv", "relu", list("x", "k"), list("y"), "group", 0)
			m.Graph.Input[0] = portOf("x", onnxpb.TensorProto_FLOAT, 2, 4, 5)
			m.Graph.Initializer[1] = ramp("k", 1, 3, 4, 2)
		}, `attribute "group" is 0, but must be 1 or more`},
		{"made twice", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Node[1].Output[0] = "h" },
			`result "h" already exists: every value must be produced once`},
		{"same initializer", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Initializer[1].Name = ptr("fc.weight") },
			`initializer name "fc.weight" is empty or given twice`},
		{"no such output", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Output[0].Name = ptr("z") },
			`no node produces output "z"`},
		{"raw data length", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Initializer[1].Dims[0] = 4 },
			`m.onnx: tensor "fc.bias" f32[4]: its raw data has 12 bytes, not 16`},
		{"negative dims", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Initializer[1].Dims[0] = -3 },
			`tensor "fc.bias": dimension -3 is outside 0 to 2147483648`},
		{"huge dims", func(m *onnxpb.ModelProto, _ *Options) {
			m.Graph.Initializer[1].Dims = []int64{1 << 31, 1 << 31, 1 << 31}
		}, "hold more elements than can be addressed"},
		{"unsupported", func(m *onnxpb.ModelProto, _ *Options) {
			m.Graph.Node[1].OpType, m.Graph.Node[2].OpType = ptr("Frob"), ptr("Zonk")
		}, "m.onnx: 2 nodes use operators that gtc cannot import\n  note: Frob (opset 17): \"add\"\n  note: Zonk (opset 17): \"relu\""},
		{"newer operator", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Node[2].OpType = ptr("Gelu") },
			"note: Gelu (opset 17): needs opset 20: \"relu\""},
		{"opset", func(m *onnxpb.ModelProto, _ *Options) { m.OpsetImport[0].Version = ptr(int64(0)) }, "opset 0 is outside 1 to"},
		{"no opset", func(m *onnxpb.ModelProto, _ *Options) { m.OpsetImport = nil }, "imports no operator set"},
		{"IR version", func(m *onnxpb.ModelProto, _ *Options) { m.IrVersion = ptr(int64(99)) }, "IR version 99 is outside"},
		{"no graph", func(m *onnxpb.ModelProto, _ *Options) { m.Graph = nil }, "the file has no graph"},
		{"attribute type", func(m *onnxpb.ModelProto, _ *Options) {
			m.Graph.Node[2] = nodeOf("LeakyRelu", "relu", list("a"), list("y"), "alpha", 3)
		}, `attribute "alpha" is of type INT, not FLOAT`},
		{"too many inputs", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Node[2].Input = list("a", "a") },
			"it has 2 inputs, but takes at most 1"},
		{"too few inputs", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Node[1].Input = list("h") },
			"it has 1 input, but needs at least 2"},
		{"left-out input", func(m *onnxpb.ModelProto, _ *Options) { m.Graph.Node[1].Input = list("", "fc.bias") },
			"input 0 is left out, but is required"},
		{"run-time shape", func(m *onnxpb.ModelProto, _ *Options) {
			m.Graph.Input = append(m.Graph.Input, portOf("s", onnxpb.TensorProto_INT64, 2))
			m.Graph.Node[2] = nodeOf("Reshape", "relu", list("a", "s"), list("y"))
		}, `operand 1, "s", must be known when compiling, but it depends on the model's inputs or parameters`},
		{"element type", func(m *onnxpb.ModelProto, _ *Options) {
			m.Graph.Initializer[1].DataType = ptr(int32(onnxpb.TensorProto_STRING))
		}, `tensor "fc.bias": strings are not supported: gtc computes with numbers only`},
		{"glob of bytes", func(_ *onnxpb.ModelProto, o *Options) { o.Freeze = []string{"\xff*"} },
			`--freeze "\xff*" matches no float initializer; gtc inspect lists them`},
		{"freeze glob", func(_ *onnxpb.ModelProto, o *Options) { o.Freeze = []string{"conv*"} },
			`--freeze "conv*" matches no float initializer`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m, o := linearModel(), Options{Name: "m.onnx", Batch: 2}
			m.Graph.Node[0].MetadataProps = []*onnxpb.StringStringEntryProto{
				{Key: ptr(model.KeyStack), Value: ptr("File \"/a/b/net.py\", line 7, in forward\n  x\nFile \"/v/torch/nn/linear.py\", line 1, in forward")},
				{Key: ptr(model.KeyClasses), Value: ptr("['app.Net', 'torch.nn.modules.linear.Linear', 'aten.linear.default']")},
			}
			c.change(m, &o)
			err := importBytes(encode(m), o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// TestUnsorted turns a graph round: it means what it meant, with a remark.
func TestUnsorted(t *testing.T) {
	text := func(m *onnxpb.ModelProto) (string, []string) {
		p, err := Parse(encode(m), "", Options{Name: "m.onnx", Batch: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		module, err := p.Import()
		if err != nil {
			t.Fatal(err)
		}
		return module.String(), p.Warnings
	}
	m := linearModel()
	want, _ := text(m)
	slices.Reverse(m.Graph.Node)
	got, warnings := text(m)
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !strings.Contains(strings.Join(warnings, "\n"), "are not sorted") {
		t.Errorf("no remark: %q", warnings)
	}
}

// TestTruncated cuts a file at every length: always an error, never a panic.
func TestTruncated(t *testing.T) {
	data := encode(linearModel())
	if err := importBytes(data, Options{Batch: 2}); err != nil {
		t.Fatal(err)
	}
	for n := range data {
		if err := importBytes(data[:n], Options{Batch: 2}); err == nil {
			t.Errorf("the first %d of %d bytes import", n, len(data))
		}
	}
}

// TestNesting feeds messages nested far deeper than the decoder's stack would bear.
func TestNesting(t *testing.T) {
	g := &onnxpb.GraphProto{}
	for range 60 {
		g = &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{nodeOf("If", "n", list("c"), list("y"), "then_branch", g)}}
	}
	err := importBytes(encode(modelOf(17, g)), Options{})
	if err == nil || !strings.Contains(err.Error(), "nest deeper than 100") {
		t.Error(err)
	}
}

func TestExternalData(t *testing.T) {
	dir := t.TempDir()
	raw := *ramp("", 0.1, 4, 3).RawData
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "m"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("m/w.bin", append(make([]byte, 8), raw...))
	write("secret.bin", raw)
	if err := os.Symlink("../secret.bin", filepath.Join(dir, "m", "link.bin")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ location, offset, length, want string }{
		{"w.bin", "8", "48", ""},
		{"w.bin", "8", "", ""},
		{"w.bin", "9", "48", `external data "w.bin" has 56 bytes, but 48 are needed from offset 9 on`},
		{"w.bin", "-8", "", `offset "-8" is not a size`},
		{"w.bin", "99999999999999999999", "", "is not a size"},
		{"w.bin", "0", "56", `its length is given as "56", but the tensor has 48 bytes`},
		{"../secret.bin", "0", "48", `external data "../secret.bin" is outside the model's folder`},
		{filepath.Join(dir, "secret.bin"), "0", "48", "is outside the model's folder"},
		{"link.bin", "0", "48", `external data "link.bin"`},
		{"absent.bin", "0", "48", `external data "absent.bin"`},
		{".", "0", "48", "is not a regular file"},
	} {
		m := linearModel()
		w := m.Graph.Initializer[0]
		w.RawData, w.DataLocation = nil, ptr(onnxpb.TensorProto_EXTERNAL)
		for k, v := range map[string]string{"location": c.location, "offset": c.offset, "length": c.length} {
			if v != "" {
				w.ExternalData = append(w.ExternalData, &onnxpb.StringStringEntryProto{Key: ptr(k), Value: ptr(v)})
			}
		}
		write("m/model.onnx", encode(m))
		got := ""
		model, err := Load(filepath.Join(dir, "m", "model.onnx"), Options{Batch: 2})
		if err == nil {
			if _, err = model.Import(); err == nil {
				err = model.Close()
			}
		}
		if err != nil {
			got = err.Error()
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s at %s: got %q, want %q", c.location, c.offset, got, c.want)
		}
	}
}

// FuzzImport feeds damaged models: the importer may refuse them, it may not panic or run away. It starts from models of
// our own, files that ask for much, and, where they are there, the ONNX project's cases and damaged ones of them.
func FuzzImport(f *testing.F) {
	for _, m := range []*onnxpb.ModelProto{linearModel(), functionModel(), normModel(), shapeModel(), sequenceModel()} {
		f.Add(encode(m))
	}
	for name, m := range bombs() {
		if data := encode(m); len(data) < 1<<12 && !slices.Contains(strings.Split(slow, "|"), name) {
			f.Add(data)
		}
	}
	cases, err := onnxtest.Read(filepath.Join("..", "..", "..", "shared", "onnx", "backend-test-data.tar.gz"), func(string) bool { return true })
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, 8))
	for i, c := range cases {
		p := &onnxpb.ModelProto{}
		if len(c.Model) > 1<<14 || i%4 != 0 || p.Unmarshal(c.Model) != nil || p.Graph == nil || len(p.OpsetImport) == 0 {
			continue
		}
		f.Add(c.Model)
		mutate(r, p)
		if data, err := p.Marshal(); err == nil {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { costly(t, "a fuzzed file", data, Options{Batch: 2}) })
}

// TestInspectTellsOpenDims: a matrix whose rows are an open dimension fits only by chance when that counts as 1.
func TestInspectTellsOpenDims(t *testing.T) {
	m := linearModel()
	dim := m.Graph.Input[0].Type.GetTensorType().Shape.Dim[1]
	dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "k"}
	p, err := Parse(encode(m), "", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, err = p.Inspect()
	want := "note: open dimensions count as 1 here: batch, k; bind them with --batch N or --dim k=N"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nlacks %s", err, want)
	}
}
