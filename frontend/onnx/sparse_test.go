package onnx

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// TestSparse makes a sparse initializer of the bias of the linear model: both forms of indices mean the same, and what is no
// index is refused.
func TestSparse(t *testing.T) {
	cases := []struct {
		name    string
		dims    []int64 // of the tensor
		shape   []int64 // of the indices
		indices []int64
		want    string // of the error
	}{
		{"linear", []int64{1, 3}, []int64{2}, []int64{0, 2}, ""},
		{"coordinates", []int64{1, 3}, []int64{2, 2}, []int64{0, 0, 0, 2}, ""},
		{"outside", []int64{1, 3}, []int64{2}, []int64{0, 3}, `sparse initializer "fc.bias": index 3 of value 1 is outside 0 to 2`},
		{"negative", []int64{1, 3}, []int64{2}, []int64{-1, 2}, "index -1 of value 0 is outside"},
		{"coordinate outside", []int64{1, 3}, []int64{2, 2}, []int64{0, 0, 1, 0}, "index 1 of value 1 is outside 0 to 0"},
		{"unsorted", []int64{1, 3}, []int64{2}, []int64{2, 0}, "the index of value 1 does not follow"},
		{"twice", []int64{1, 3}, []int64{2}, []int64{2, 2}, "the index of value 1 does not follow"},
		{"too few", []int64{1, 3}, []int64{1}, []int64{2}, "indices are i64[1], but must be [2] or [2,2]"},
		{"columns", []int64{3}, []int64{2, 2}, []int64{0, 0, 0, 2}, "indices are i64[2,2], but must be [2] or [2,1]"},
		{"huge", []int64{1 << 20, 1 << 20}, []int64{2}, []int64{0, 2}, "when stored densely"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := linearModel()
			var raw onnxpb.Bytes
			for _, v := range c.indices {
				raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
			}
			m.Graph.SparseInitializer = []*onnxpb.SparseTensorProto{{Values: ramp("fc.bias", 1, 2), Dims: c.dims,
				Indices: &onnxpb.TensorProto{Name: ptr("i"), DataType: ptr(int32(onnxpb.TensorProto_INT64)), Dims: c.shape, RawData: &raw}}}
			values, err := (&model.File{}).NewTensor(m.Graph.SparseInitializer[0].Values)
			if err != nil {
				t.Fatal(err)
			}
			given, err := values.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			m.Graph.Initializer = m.Graph.Initializer[:1]
			p, err := Parse(encode(m), "", Options{Name: "m.onnx", Batch: 2})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got  %v\nwant %s", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			got, err := p.Inits["fc.bias"].Bytes()
			want := slices.Concat(given[:4], make([]byte, 4), given[4:])
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
			if _, err := p.Import(); err != nil {
				t.Error(err)
			}
			if role := p.roles.Named["fc.bias"].Role; role != RoleConstant {
				t.Errorf("it is a %s", role)
			}
		})
	}
}

// sparseOf is a sparse tensor of dims with 1, 2, … at the linear indices at.
func sparseOf(name string, dims []int64, at ...int64) *onnxpb.SparseTensorProto {
	return &onnxpb.SparseTensorProto{Values: ramp(name, 1, int64(len(at))), Dims: dims, Indices: intsOf("at", at...)}
}

// TestSparseConstants: sparse Constant nodes, in functions too, and sparse initializers of subgraphs are what they are densely.
func TestSparseConstants(t *testing.T) {
	constant := func(out string) *onnxpb.NodeProto {
		n := nodeOf("Constant", "const", nil, list(out))
		kind := onnxpb.AttributeProto_SPARSE_TENSOR
		n.Attribute = []*onnxpb.AttributeProto{{Name: ptr("sparse_value"), Type: &kind, SparseTensor: sparseOf("", []int64{2, 3}, 1, 5)}}
		return n
	}
	branch := func() *onnxpb.GraphProto {
		return &onnxpb.GraphProto{Node: []*onnxpb.NodeProto{nodeOf("Add", "add", list("x", "s"), list("r"))}, Output: []*onnxpb.ValueInfoProto{portOf("r", f32)},
			SparseInitializer: []*onnxpb.SparseTensorProto{sparseOf("s", []int64{2, 3}, 1, 5)}}
	}
	call := nodeOf("F", "call", list("x"), list("y"))
	call.Domain = ptr("own")
	for name, c := range map[string]struct {
		nodes     []*onnxpb.NodeProto
		functions []*onnxpb.FunctionProto
	}{
		"a constant": {nodes: []*onnxpb.NodeProto{constant("s"), nodeOf("Add", "add", list("x", "s"), list("y"))}},
		"of a branch": {nodes: []*onnxpb.NodeProto{nodeOf("Constant", "yes", nil, list("c"), "value", typed("", onnxpb.TensorProto_BOOL, 1)),
			nodeOf("If", "if", list("c"), list("y"), "then_branch", branch(), "else_branch", branch())}},
		"in a function": {nodes: []*onnxpb.NodeProto{call}, functions: []*onnxpb.FunctionProto{{Name: ptr("F"), Domain: ptr("own"), Input: list("a"), Output: list("b"),
			Node: []*onnxpb.NodeProto{constant("s"), nodeOf("Add", "add", list("a", "s"), list("b"))}}}},
	} {
		m := graphOf(17, f32, []any{2, 3}, nil, c.nodes...)
		m.Functions = c.functions
		y := evaluate(t, m, Options{}, floatsOf([]int{2, 3}, 10, 20, 30, 40, 50, 60))
		if want := []float64{10, 21, 30, 40, 50, 62}; !slices.Equal(y.F, want) {
			t.Errorf("%s: %v, want %v", name, y.F, want)
		}
	}
}

// TestSparseTogether: many sparse tensors of a small file take no more than one may.
func TestSparseTogether(t *testing.T) {
	m := linearModel()
	for i := range 5 {
		m.Graph.SparseInitializer = append(m.Graph.SparseInitializer, sparseOf(string(rune('a'+i)), []int64{1 << 13, 1 << 13}, 1)) // 256 MiB each
	}
	if err := importBytes(encode(m), Options{Batch: 2}); !strings.Contains(errText(err), `sparse initializer "e": dims [8192 8192] take more than`) {
		t.Error(err)
	}
}

// TestSparseExport: what was sparse is written once.
func TestSparseExport(t *testing.T) {
	m := linearModel()
	m.Graph.Initializer = m.Graph.Initializer[:1]
	m.Graph.SparseInitializer = []*onnxpb.SparseTensorProto{sparseOf("fc.bias", []int64{3}, 1)}
	p, err := Parse(encode(m), "", Options{Batch: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Import(); err != nil {
		t.Fatal(err)
	}
	text, err := p.Export(nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := importBytes(text, Options{Batch: 2}); err != nil {
		t.Errorf("what is written cannot be read: %v", err)
	}
}
