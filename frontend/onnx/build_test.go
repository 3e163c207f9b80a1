package onnx

import (
	"encoding/binary"
	"math"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// Small models are built in code, so that tests and fuzz seeds need no files.

func ptr[T any](v T) *T { return &v }

// tensorOf makes a tensor with raw data: int64 from ints, float32 from float64s.
func tensorOf[T int64 | float64](name string, dims []int64, data ...T) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: ptr(name), Dims: dims}
	var raw onnxpb.Bytes
	for _, v := range data {
		switch x := any(v).(type) {
		case int64:
			t.DataType = ptr(int32(onnxpb.TensorProto_INT64))
			raw = binary.LittleEndian.AppendUint64(raw, uint64(x))
		case float64:
			t.DataType = ptr(int32(onnxpb.TensorProto_FLOAT))
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(x)))
		}
	}
	if len(data) == 0 {
		t.DataType = ptr(int32(onnxpb.TensorProto_FLOAT))
	}
	t.RawData = &raw
	return t
}

// ramp makes a float tensor holding scale*(1, 2, 3, …) of the given dims.
func ramp(name string, scale float64, dims ...int64) *onnxpb.TensorProto {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	data := make([]float64, n)
	for i := range data {
		data[i] = scale * float64(i+1)
	}
	return tensorOf(name, dims, data...)
}

// port makes a graph input or output; dims are sizes (int) or names (string).
func portOf(name string, typ onnxpb.TensorProto_DataType, dims ...any) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for _, d := range dims {
		dim := &onnxpb.TensorShapeProto_Dimension{}
		switch v := d.(type) {
		case int:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(v)}
		case string:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: v}
		}
		shape.Dim = append(shape.Dim, dim)
	}
	return &onnxpb.ValueInfoProto{Name: ptr(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{
		TensorType: &onnxpb.TypeProto_Tensor{ElemType: ptr(int32(typ)), Shape: shape}}}}
}

// nodeOf makes a node; attributes come as name, value pairs (int, []int64, float32, string, []string, graph, tensor).
func nodeOf(op, name string, in, out []string, attrs ...any) *onnxpb.NodeProto {
	n := &onnxpb.NodeProto{OpType: ptr(op), Name: ptr(name), Input: in, Output: out}
	for i := 0; i+1 < len(attrs); i += 2 {
		a := &onnxpb.AttributeProto{Name: ptr(attrs[i].(string))}
		kind := onnxpb.AttributeProto_INT
		switch v := attrs[i+1].(type) {
		case int:
			a.I = ptr(int64(v))
		case []int64:
			kind, a.Ints = onnxpb.AttributeProto_INTS, v
		case []float32:
			kind, a.Floats = onnxpb.AttributeProto_FLOATS, v
		case []string:
			kind = onnxpb.AttributeProto_STRINGS
			for _, s := range v {
				a.Strings = append(a.Strings, []byte(s))
			}
		case float32:
			kind, a.F = onnxpb.AttributeProto_FLOAT, ptr(v)
		case string:
			kind, a.S = onnxpb.AttributeProto_STRING, []byte(v)
		case *onnxpb.GraphProto:
			kind, a.G = onnxpb.AttributeProto_GRAPH, v
		case *onnxpb.TensorProto:
			kind, a.T = onnxpb.AttributeProto_TENSOR, v
		case ref:
			kind, a.RefAttrName = onnxpb.AttributeProto_INT, ptr(string(v))
		}
		a.Type = ptr(kind)
		n.Attribute = append(n.Attribute, a)
	}
	return n
}

// ref names an attribute of the enclosing function.
type ref string

func list(names ...string) []string { return names }

// modelOf wraps a graph.
func modelOf(opset int64, g *onnxpb.GraphProto) *onnxpb.ModelProto {
	return &onnxpb.ModelProto{IrVersion: ptr(int64(8)), Graph: g,
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: ptr(opset)}}}
}

func encode(m *onnxpb.ModelProto) []byte {
	data, err := m.Marshal()
	if err != nil {
		panic(err)
	}
	return data
}

const f32 = onnxpb.TensorProto_FLOAT

// linearModel is x[batch,4] times w[4,3] plus b, and relu.
func linearModel() *onnxpb.ModelProto {
	return modelOf(17, &onnxpb.GraphProto{
		Input:       []*onnxpb.ValueInfoProto{portOf("x", f32, "batch", 4)},
		Output:      []*onnxpb.ValueInfoProto{portOf("y", f32, "batch", 3)},
		Initializer: []*onnxpb.TensorProto{ramp("fc.weight", 0.1, 4, 3), ramp("fc.bias", 1, 3)},
		Node: []*onnxpb.NodeProto{
			nodeOf("MatMul", "mm", list("x", "fc.weight"), list("h")),
			nodeOf("Add", "add", list("h", "fc.bias"), list("a")),
			nodeOf("Relu", "relu", list("a"), list("y")),
		},
	})
}
