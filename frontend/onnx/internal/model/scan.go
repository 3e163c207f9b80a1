package model

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Limits on what a file may ask of the decoder. The generated protobuf code recurses once per nested message
// and allocates a struct per message, so both are bounded before it runs; real exports stay far below.
const (
	maxNesting  = 100     // graph in attribute in node in graph counts three
	maxMessages = 1 << 25 // sub-messages in one file
)

// msgKind names the message types that can contain one another.
type msgKind uint8

const (
	kLeaf msgKind = iota
	kModel
	kGraph
	kNode
	kAttr
	kFunction
	kTraining
	kValueInfo
	kType
	kTypeBox
	kTensor
	kSparse
)

// nested lists, for each message, the fields that hold further messages (field number -> kind), as numbered
// in onnxpb/onnx.proto. Fields not listed are scalars, strings or messages that nest no deeper than two.
var nested = map[msgKind]map[int]msgKind{
	kModel: {7: kGraph, 8: kLeaf, 14: kLeaf, 20: kTraining, 25: kFunction, 26: kLeaf},
	kGraph: {1: kNode, 5: kTensor, 11: kValueInfo, 12: kValueInfo, 13: kValueInfo, 14: kLeaf, 15: kSparse,
		16: kLeaf},
	kNode:      {5: kAttr, 9: kLeaf, 10: kLeaf},
	kAttr:      {5: kTensor, 6: kGraph, 10: kTensor, 11: kGraph, 14: kType, 15: kType, 22: kSparse, 23: kSparse},
	kFunction:  {7: kNode, 9: kLeaf, 11: kAttr, 12: kValueInfo, 14: kLeaf},
	kTraining:  {1: kGraph, 2: kGraph, 3: kLeaf, 4: kLeaf},
	kValueInfo: {2: kType, 4: kLeaf},
	kType:      {1: kLeaf, 4: kTypeBox, 5: kTypeBox, 7: kLeaf, 8: kLeaf, 9: kTypeBox},
	kTypeBox:   {1: kType, 2: kType},
	kTensor:    {3: kLeaf, 13: kLeaf, 16: kLeaf},
	kSparse:    {1: kTensor, 2: kTensor},
}

var errTruncated = errors.New("the file ends in the middle of a message: it is truncated or not an ONNX file")

// scanner walks the wire format without building anything.
type scanner struct {
	messages int
}

// scan checks that data is a well-formed protobuf message of the given kind whose parts all lie inside it,
// with bounded nesting and number of messages. Run before the generated decoder.
func scan(data []byte) error {
	s := &scanner{}
	return s.message(data, kModel, 0)
}

func (s *scanner) message(data []byte, kind msgKind, depth int) error {
	if depth > maxNesting {
		return fmt.Errorf("messages nest deeper than %d", maxNesting)
	}
	if s.messages++; s.messages > maxMessages {
		return fmt.Errorf("more than %d messages in one file", maxMessages)
	}
	fields := nested[kind]
	for len(data) > 0 {
		key, n := binary.Uvarint(data)
		if n <= 0 {
			return errTruncated
		}
		data = data[n:]
		body, rest, err := field(data, int(key&7))
		if err != nil {
			return err
		}
		data = rest
		if sub, ok := fields[int(key>>3)]; ok && key&7 == 2 {
			if err := s.message(body, sub, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// field splits one field's body from what follows it.
func field(data []byte, wire int) (body, rest []byte, err error) {
	size := 0
	switch wire {
	case 0:
		if _, size = binary.Uvarint(data); size <= 0 {
			return nil, nil, errTruncated
		}
	case 1:
		size = 8
	case 2:
		length, n := binary.Uvarint(data)
		if n <= 0 || length > uint64(len(data)-n) {
			return nil, nil, errTruncated
		}
		data, size = data[n:], int(length)
	case 5:
		size = 4
	default:
		return nil, nil, fmt.Errorf("wire type %d does not occur in ONNX files: this is not an ONNX file", wire)
	}
	if size > len(data) {
		return nil, nil, errTruncated
	}
	return data[:size], data[size:], nil
}
