package onnx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// Contents is what an input of a sequence or optional type holds. Its tensors are inputs of the program, named
// name.0, name.1, …, or constants of it.
type Contents struct {
	// Elements are the tensors: of a sequence in order, one of an optional tensor. Their data is only read when they
	// are known.
	Elements []*ir.Tensor
	// Sequence tells a sequence (also inside an optional) from an optional tensor; Absent is an optional that holds nothing.
	Sequence, Absent bool
	// Known makes the tensors constants of the program instead of inputs.
	Known bool
}

// Port is the name of the program's input for element i of the graph's input called name.
func (c *Contents) Port(name string, i int) string {
	if c.Sequence {
		return fmt.Sprintf("%s.%d", name, i)
	}
	return name
}

// contents declares an input of a sequence or optional type.
func (w *walker) contents(name string, c *Contents) *val {
	var all []*val
	for i, t := range c.Elements {
		if c.Known {
			all = append(all, &val{t: t.Type, arr: t.Array()})
			continue
		}
		all = append(all, outs(w.b.Param(c.Port(name, i), t.Type, ir.Input))...)
	}
	switch {
	case c.Absent:
		return &val{none: true}
	case c.Sequence:
		return &val{isSeq: true, seq: all}
	case len(all) != 1:
		panic(ir.Errorf(ir.Loc{}, "input %q is an optional tensor and holds %d", name, len(all)))
	}
	return all[0]
}

// ReadContents decodes a file that holds one value of type typ, as the ONNX project's test data stores the inputs and
// outputs of its cases: a TensorProto, SequenceProto or OptionalProto (onnx-data.proto). The type must be that of the
// graph's input or output: nothing in such a file tells the three apart. The tensors are known.
func ReadContents(data []byte, typ *onnxpb.TypeProto) (*Contents, error) {
	c := &Contents{Known: true}
	return c, c.read(data, typ, 0)
}

// Fields of SequenceProto and OptionalProto.
const (
	dataTensor   = 3
	dataSequence = 5
	dataOptional = 7
)

func (c *Contents) read(data []byte, typ *onnxpb.TypeProto, depth int) error {
	if depth > maxInline {
		return errors.New("types nest too deep")
	}
	switch {
	case typ.GetTensorType() != nil:
		t, err := ReadTensor(data)
		c.Elements = append(c.Elements, t)
		return err
	case typ.GetSequenceType() != nil:
		c.Sequence = true
		return eachField(data, func(number int, body []byte) error {
			switch number {
			case dataTensor, dataSequence, dataOptional:
				return c.read(body, typ.GetSequenceType().ElemType, depth+1)
			}
			return nil
		})
	case typ.GetOptionalType() != nil:
		c.Absent = true
		return eachField(data, func(number int, body []byte) error {
			switch number {
			case dataTensor, dataSequence, dataOptional:
				c.Absent = false
				return c.read(body, typ.GetOptionalType().ElemType, depth+1)
			}
			return nil
		})
	}
	return fmt.Errorf("values of type %s are not supported", typeName(typ, 0))
}

// eachField calls f for each field of a message that holds bytes.
func eachField(data []byte, f func(number int, body []byte) error) error {
	for len(data) > 0 {
		key, n := binary.Uvarint(data)
		if n <= 0 {
			return errTruncated
		}
		rest := data[n:]
		body, next, err := field(rest, int(key&7))
		if err != nil {
			return err
		}
		if key&7 == 2 {
			if err := f(int(key>>3), body); err != nil {
				return err
			}
		}
		data = next
	}
	return nil
}

// typeName is how ONNX writes a type, for messages.
func typeName(t *onnxpb.TypeProto, depth int) string {
	switch {
	case depth > maxInline:
		return "..."
	case t.GetTensorType() != nil:
		name := onnxpb.TensorProto_DataType_name[t.GetTensorType().GetElemType()]
		return "tensor(" + strings.ToLower(name) + ")"
	case t.GetSequenceType() != nil:
		return "sequence(" + typeName(t.GetSequenceType().ElemType, depth+1) + ")"
	case t.GetOptionalType() != nil:
		return "optional(" + typeName(t.GetOptionalType().ElemType, depth+1) + ")"
	case t.GetMapType() != nil:
		return "map"
	case t.GetSparseTensorType() != nil:
		return "sparse tensor"
	}
	return "of no type"
}
