package onnx

import (
	"maps"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// TestResized: a batch grows by what has given its size.
func TestResized(t *testing.T) {
	open := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "n"}}
	five := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 5}}
	for _, c := range []struct {
		dim  *onnxpb.TensorShapeProto_Dimension
		opts Options
		ok   bool
		want Options
	}{
		{open, Options{Batch: 4}, true, Options{Batch: 8}},
		{open, Options{Dims: map[string]int{"n": 3, "m": 7}}, true, Options{Dims: map[string]int{"n": 6, "m": 7}}},
		{five, Options{Dims: map[string]int{"m": 7}}, false, Options{}},
		{five, Options{}, false, Options{}},
	} {
		shape := &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{c.dim, five}}
		m := &model.File{Options: c.opts, InputInfos: []*onnxpb.ValueInfoProto{{Name: ptr("x"), Type: &onnxpb.TypeProto{
			Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{ElemType: ptr(int32(1)), Shape: shape}}}}}}
		got, ok := m.Resized(func(n int) int { return 2 * n })
		if ok != c.ok || ok && (got.Batch != c.want.Batch || !maps.Equal(got.Dims, c.want.Dims)) {
			t.Errorf("%+v: %+v %v", c.opts, got, ok)
		}
		if size := c.opts.Dims["n"]; size == 6 {
			t.Errorf("the options that were given have changed: %+v", c.opts)
		}
	}
}
