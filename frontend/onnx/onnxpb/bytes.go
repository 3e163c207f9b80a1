// Package onnxpb holds the ONNX model format as Go structs, generated from the ONNX project's onnx.proto
// with gogo/protobuf. It knows the encoding and nothing of what a model means.
package onnxpb

//go:generate ./generate.sh

// Bytes is tensor data that aliases the buffer it was decoded from. Models are decoded from a read-only
// memory map, so that weights are neither copied nor read until they are used; never write through it.
type Bytes []byte

// Unmarshal points b at data without copying.
func (b *Bytes) Unmarshal(data []byte) error {
	*b = data[:len(data):len(data)]
	return nil
}

// Size is the encoded length in bytes.
func (b Bytes) Size() int { return len(b) }

// MarshalTo copies the bytes into data and returns how many were written.
func (b Bytes) MarshalTo(data []byte) (int, error) { return copy(data, b), nil }

// Marshal returns the bytes themselves.
func (b Bytes) Marshal() ([]byte, error) { return b, nil }
