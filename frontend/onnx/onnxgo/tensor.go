package onnxgo

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"gorgonia.org/tensor"
)

// element pairs the element types that onnx-go, ONNX and NumPy files share.
type element struct {
	dtype tensor.Dtype
	onnx  onnxpb.TensorProto_DataType
	name  string // as NumPy files and gtc have it
}

var elements = []element{
	{tensor.Float32, onnxpb.TensorProto_FLOAT, "f32"},
	{tensor.Float64, onnxpb.TensorProto_DOUBLE, "f64"},
	{tensor.Int32, onnxpb.TensorProto_INT32, "i32"},
	{tensor.Int64, onnxpb.TensorProto_INT64, "i64"},
	{tensor.Int16, onnxpb.TensorProto_INT16, "i16"},
	{tensor.Int8, onnxpb.TensorProto_INT8, "i8"},
	{tensor.Uint8, onnxpb.TensorProto_UINT8, "u8"},
	{tensor.Bool, onnxpb.TensorProto_BOOL, "bool"},
}

func protoType(t tensor.Tensor) (*element, error) {
	if t == nil {
		return nil, fmt.Errorf("there is no tensor")
	}
	for i := range elements {
		if elements[i].dtype == t.Dtype() {
			return &elements[i], nil
		}
	}
	return nil, fmt.Errorf("element type %s is not supported", t.Dtype())
}

// contents are the elements in row-major order, little-endian, whatever view the tensor is.
func contents(t tensor.Tensor) ([]byte, error) {
	dense, ok := t.(*tensor.Dense)
	if !ok {
		return nil, fmt.Errorf("a %T is not a dense tensor", t)
	}
	if dense.RequiresIterator() || dense.DataOrder().IsColMajor() {
		dense = dense.Materialize().(*tensor.Dense)
	}
	var data any = dense.Data()
	if v := reflect.ValueOf(data); v.Kind() != reflect.Slice { // a scalar
		list := reflect.MakeSlice(reflect.SliceOf(v.Type()), 1, 1)
		list.Index(0).Set(v)
		data = list.Interface()
	}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, data); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// toProto stores t in ONNX's form.
func toProto(name string, t tensor.Tensor) (*onnxpb.TensorProto, error) {
	e, err := protoType(t)
	if err != nil {
		return nil, err
	}
	raw, err := contents(t)
	if err != nil {
		return nil, err
	}
	code, stored := int32(e.onnx), onnxpb.Bytes(raw)
	p := &onnxpb.TensorProto{Name: &name, DataType: &code, RawData: &stored}
	for _, d := range t.Shape() {
		p.Dims = append(p.Dims, int64(d))
	}
	return p, nil
}

// toArray stores t as an array of a NumPy file.
func toArray(name string, t tensor.Tensor) (npz.Array, error) {
	e, err := protoType(t)
	if err != nil {
		return npz.Array{}, err
	}
	raw, err := contents(t)
	return npz.Array{Name: name, DType: e.name, Shape: t.Shape().Clone(), Data: raw}, err
}

// fromBytes makes a tensor of little-endian row-major elements.
func fromBytes(e *element, dims []int, raw []byte) (tensor.Tensor, error) {
	n := 1
	for _, d := range dims {
		n *= d
	}
	list := reflect.New(reflect.SliceOf(e.dtype.Type))
	list.Elem().Set(reflect.MakeSlice(reflect.SliceOf(e.dtype.Type), n, n))
	if err := binary.Read(bytes.NewReader(raw), binary.LittleEndian, list.Elem().Interface()); err != nil {
		return nil, fmt.Errorf("reading %d elements of %s: %w", n, e.dtype, err)
	}
	return tensor.New(tensor.WithShape(dims...), tensor.WithBacking(list.Elem().Interface())), nil
}
