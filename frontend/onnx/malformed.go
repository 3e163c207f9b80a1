package onnx

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// A file that says two things is refused: readers would differ in which of them they believe.

// wellNamed refuses a value's name that is no text. Plans and checkpoints would write it otherwise than the file does.
func wellNamed(name string) error {
	if !utf8.ValidString(name) {
		return fmt.Errorf("the name %q is not valid UTF-8", name)
	}
	return nil
}

// givenTwice is the first of names that is there twice. Empty ones may be.
func givenTwice(names []string) (string, bool) {
	for i, name := range names {
		if name != "" && slices.Contains(names[:i], name) {
			return name, true
		}
	}
	return "", false
}

// values names the fields of a that hold a value. Numbers of 0 count as absent: some writers fill in all fields.
func values(a *onnxpb.AttributeProto) (fields []string) {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"a float", a.GetF() != 0},
		{"an integer", a.GetI() != 0},
		{"a string", len(a.S) > 0},
		{"a tensor", a.T != nil},
		{"a graph", a.G != nil},
		{"a sparse tensor", a.SparseTensor != nil},
		{"a type", a.Tp != nil},
		{"floats", len(a.Floats) > 0},
		{"integers", len(a.Ints) > 0},
		{"strings", len(a.Strings) > 0},
		{"tensors", len(a.Tensors) > 0},
		{"graphs", len(a.Graphs) > 0},
		{"sparse tensors", len(a.SparseTensors) > 0},
		{"types", len(a.TypeProtos) > 0},
		{"a reference", a.GetRefAttrName() != ""},
	} {
		if f.given {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// asDeclared refuses an output of another element type than the file declares, and warns of other dims: some tools leave those as
// they were for another batch or before a change.
func (m *Model) asDeclared(name string, x *val) error {
	i := slices.IndexFunc(m.Proto.Graph.Output, func(o *onnxpb.ValueInfoProto) bool { return o.GetName() == name })
	if i < 0 || x.isSeq || x.none {
		return nil
	}
	t := m.Proto.Graph.Output[i].GetType().GetTensorType()
	if t == nil || t.GetElemType() == 0 {
		return nil
	}
	if d, err := convertType(t.GetElemType()); err != nil || d != x.t.DType {
		return fmt.Errorf("output %q is declared to hold elements of type %s, and holds %s", name, onnxpb.TensorProto_DataType(t.GetElemType()), x.t.DType)
	}
	if t.Shape == nil {
		return nil
	}
	differs := len(t.Shape.Dim) != len(x.t.Dims)
	for k, d := range t.Shape.Dim {
		differs = differs || d.GetDimValue() > 0 && d.GetDimValue() != int64(x.t.Dims[k])
	}
	if differs {
		m.warn("output %q is %s, the file declares other dims", name, x.t)
	}
	return nil
}
