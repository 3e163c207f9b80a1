package compiler

import (
	"context"
	"encoding/binary"
	"go/parser"
	"go/token"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/passes/pass"
)

func ptr[T any](v T) *T { return &v }

// hostile are names that would do harm if they reached code, a path or a terminal as they are. The two at the end
// differ in what Go and C do not allow in a name only.
var hostile = []string{"x\x1b[31m\a*/ \n//go:embed /etc/passwd\n\"`${x}\u202e%s%n", "../../../escape", "a.b", "a_b"}

// hostileModel is y = x.w + c + d with those names, for its nodes and source files too.
func hostileModel() *onnxpb.ModelProto {
	port := func(name string, dims ...int64) *onnxpb.ValueInfoProto {
		shape := &onnxpb.TensorShapeProto{}
		for _, d := range dims {
			shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}})
		}
		return &onnxpb.ValueInfoProto{Name: ptr(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
			TensorType: &onnxpb.TypeProto_Tensor{ElemType: ptr(int32(1)), Shape: shape}}}}
	}
	weight := func(name string, dims ...int64) *onnxpb.TensorProto {
		raw := onnxpb.Bytes{}
		for i := range dims[0] * dims[len(dims)-1] {
			if len(dims) == 1 && i >= dims[0] {
				break
			}
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(i)+0.5))
		}
		return &onnxpb.TensorProto{Name: ptr(name), DataType: ptr(int32(1)), Dims: dims, RawData: &raw}
	}
	node := func(op, name, a, b, y string) *onnxpb.NodeProto {
		return &onnxpb.NodeProto{OpType: ptr(op), Name: ptr(name), Input: []string{a, b}, Output: []string{y},
			MetadataProps: []*onnxpb.StringStringEntryProto{{Key: ptr("pkg.torch.onnx.stack_trace"),
				Value: ptr("File \"/a/evil*/\x1b[2J.py\", line 7, in \x1b[32mforward")}}}
	}
	return &onnxpb.ModelProto{
		IrVersion: ptr(int64(8)), OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: ptr(int64(17))}}, ProducerName: ptr(hostile[0]),
		Graph: &onnxpb.GraphProto{
			Name: ptr(hostile[0]), Input: []*onnxpb.ValueInfoProto{port(hostile[0], 4, 3)}, Output: []*onnxpb.ValueInfoProto{port("y\x1b", 4, 3)},
			Initializer: []*onnxpb.TensorProto{weight(hostile[1], 3, 3), weight(hostile[2], 3), weight(hostile[3], 3)},
			Node: []*onnxpb.NodeProto{
				node("MatMul", "n*/ func init() { panic(1) } /*", hostile[0], hostile[1], "h\nfunc init() {}"),
				node("Add", "../../n", "h\nfunc init() {}", hostile[2], "h.b"), node("Add", "n\x00", "h.b", hostile[3], "y\x1b"),
			},
		},
	}
}

// hostileFile writes hostileModel into the folder dir, which it makes.
func hostileFile(t *testing.T, dir string) string {
	t.Helper()
	data, err := hostileModel().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.onnx")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// control are characters that text made from a model may not hold as they are; JSON may hold those that change the
// direction of text.
var (
	control = regexp.MustCompile(`[\x00-\x08\x0b-\x1f\x7f]`)
	turning = regexp.MustCompile(`[\x{202a}-\x{202e}]`)
)

// TestHostileNames compiles a model whose names are code, paths and escape sequences: all of them stay data.
func TestHostileNames(t *testing.T) {
	dir := t.TempDir()
	model := hostileFile(t, filepath.Join(dir, "in"))
	out := filepath.Join(dir, "in", "out")
	o := &Options{Model: model, Out: out, Pass: pass.Options{Loss: "mse", Optimizer: pass.Optimizer{Name: "sgd", LR: 0.1}}}
	res, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	var trained []string
	for _, p := range res.Parameters {
		trained = append(trained, p.Name)
	}
	if !slices.Equal(trained, hostile[1:]) {
		t.Errorf("parameters %q, want %q", trained, hostile[1:])
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("files outside the folders: %v", left)
	}
	err = filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(path, "vendor") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".go":
			if _, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments); err != nil {
				t.Error(err)
			}
			if at := strings.Index(string(text), "\n//go:embed /etc"); at >= 0 || strings.Contains(string(text), "\nfunc init() {") {
				t.Errorf("%s holds a name as code", path)
			}
			fallthrough
		case ".c", ".h":
			if bad := turning.Find(text); bad != nil {
				t.Errorf("%s holds %q", path, bad)
			}
			fallthrough
		case ".json":
			if bad := control.Find(text); bad != nil {
				t.Errorf("%s holds %q", path, bad)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
