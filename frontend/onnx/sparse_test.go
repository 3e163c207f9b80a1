package onnx

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

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
		{"too few", []int64{1, 3}, []int64{1}, []int64{2}, "indices are i64[1], want [2] or [2,2]"},
		{"columns", []int64{3}, []int64{2, 2}, []int64{0, 0, 0, 2}, "indices are i64[2,2], want [2] or [2,1]"},
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
			values, err := (&Model{}).newTensor(m.Graph.SparseInitializer[0].Values)
			if err != nil {
				t.Fatal(err)
			}
			given, err := values.bytes()
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
			got, err := p.inits["fc.bias"].bytes()
			want := slices.Concat(given[:4], make([]byte, 4), given[4:])
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
			if _, err := p.Import(); err != nil {
				t.Error(err)
			}
			if role := p.roles.named["fc.bias"].Role; role != RoleConstant {
				t.Errorf("it is a %s", role)
			}
		})
	}
}
