package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

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
	if depth > MaxInline {
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
	return fmt.Errorf("values of type %s are not supported", TypeName(typ, 0))
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

// TypeName is how ONNX writes a type, for messages.
func TypeName(t *onnxpb.TypeProto, depth int) string {
	switch {
	case depth > MaxInline:
		return "..."
	case t.GetTensorType() != nil:
		name := onnxpb.TensorProto_DataType_name[t.GetTensorType().GetElemType()]
		return "tensor(" + strings.ToLower(name) + ")"
	case t.GetSequenceType() != nil:
		return "sequence(" + TypeName(t.GetSequenceType().ElemType, depth+1) + ")"
	case t.GetOptionalType() != nil:
		return "optional(" + TypeName(t.GetOptionalType().ElemType, depth+1) + ")"
	case t.GetMapType() != nil:
		return "map"
	case t.GetSparseTensorType() != nil:
		return "sparse tensor"
	}
	return "of no type"
}
