package model

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
