package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Tensor is one tensor of the file: its type is checked when it is indexed, its data read when first used.
type Tensor struct {
	Name  string
	Type  ir.Type
	Proto *onnxpb.TensorProto
	model *File
	Data  []byte
	Bad   error // why it cannot be used, such as an element type gtc does not have

	Absent bool // its contents are not there, and need not be
}

// DTypes are gtc's element types by ONNX's code (TensorProto.DataType).
var DTypes = map[int32]dtype.DType{
	1: dtype.F32, 2: dtype.U8, 3: dtype.I8, 4: dtype.U16, 5: dtype.I16, 6: dtype.I32, 7: dtype.I64,
	9: dtype.Bool, 10: dtype.F16, 11: dtype.F64, 12: dtype.U32, 13: dtype.U64, 16: dtype.BF16,
	17: dtype.F8E4M3, 18: dtype.F8E4M3Z, 19: dtype.F8E5M2, 20: dtype.F8E5M2Z, 21: dtype.U4, 22: dtype.I4,
	23: dtype.F4E2M1, 24: dtype.F8E8M0, 25: dtype.U2, 26: dtype.I2,
}

// DTypeOf maps an ONNX element type to gtc's.
func DTypeOf(t int32) (dtype.DType, error) {
	if d, ok := DTypes[t]; ok {
		return d, nil
	}
	switch t {
	case 8:
		return dtype.Invalid, errors.New("strings are not supported: gtc computes with numbers only, so turn text into numbers " +
			"before the model")
	case 14, 15:
		return dtype.Invalid, errors.New("complex numbers are not supported: export the real and the " +
			"imaginary part as two tensors")
	}
	if name, ok := onnxpb.TensorProto_DataType_name[t]; ok {
		return dtype.Invalid, fmt.Errorf("element type %s is not supported", name)
	}
	return dtype.Invalid, fmt.Errorf("element type %d does not exist", t)
}

// NewTensor checks a tensor's dims and the length of its data. Types gtc lacks are only an error when used.
func (m *File) NewTensor(p *onnxpb.TensorProto) (*Tensor, error) {
	t := &Tensor{Name: p.GetName(), Proto: p, model: m}
	if p.Segment != nil {
		return nil, fmt.Errorf("tensor %q is stored in segments, which gtc does not read", t.Name)
	}
	if kinds := payloads(p); len(kinds) > 1 {
		return nil, fmt.Errorf("tensor %q has more than one payload: %s", t.Name, strings.Join(kinds, " and "))
	}
	dims := make([]int, len(p.Dims))
	for i, d := range p.Dims {
		dims[i] = int(d)
	}
	if _, err := Elements(dims); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
	}
	d, err := DTypeOf(p.GetDataType())
	t.Type = ir.Type{DType: d, Dims: dims}
	if err != nil {
		t.Bad = fmt.Errorf("tensor %q: %w", t.Name, err)
		return t, nil
	}
	if m.Options.Abstract {
		if t.Absent, err = t.missing(); err != nil {
			return nil, fmt.Errorf("tensor %q %s: %w", t.Name, t.Type, err)
		}
		if t.Absent {
			return t, m.claim(t)
		}
	}
	if err := t.checkLength(); err != nil {
		return nil, fmt.Errorf("tensor %q %s: %w", t.Name, t.Type, err)
	}
	return t, nil
}

// payloads names the fields of p that hold data: one at most is right, or readers of the file would differ.
func payloads(p *onnxpb.TensorProto) (fields []string) {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"external data", p.GetDataLocation() == onnxpb.TensorProto_EXTERNAL},
		{"raw_data", p.RawData != nil && len(*p.RawData) > 0},
		{"float_data", len(p.FloatData) > 0},
		{"int32_data", len(p.Int32Data) > 0},
		{"string_data", len(p.StringData) > 0},
		{"int64_data", len(p.Int64Data) > 0},
		{"double_data", len(p.DoubleData) > 0},
		{"uint64_data", len(p.Uint64Data) > 0},
	} {
		if f.given {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// checkLength compares the stored data's size with the type's, without reading it.
func (t *Tensor) checkLength() error {
	want, p := t.Type.Elems(), t.Proto
	if p.GetDataLocation() == onnxpb.TensorProto_EXTERNAL {
		return nil // checked when mapped
	}
	if p.RawData != nil {
		if len(*p.RawData) != t.packed() {
			return fmt.Errorf("its raw data has %d bytes, not %d%s", len(*p.RawData), t.packed(), t.hint(len(*p.RawData)))
		}
		return nil
	}
	if t.Type.DType.Bits() < 8 {
		want = t.packed()
	}
	if got := t.typedLen(); got != want {
		if kinds := payloads(p); got == 0 && len(kinds) > 0 {
			return fmt.Errorf("its values are in field %s, where tensors of this type have none", kinds[0])
		}
		return fmt.Errorf("it has %d values, not %d%s", got, want, t.hint(got))
	}
	return t.checkNarrow()
}

// checkNarrow refuses values in int32_data that the tensor's narrower type does not hold: readers would differ in what is left
// of them. Those of either sign's range are its bits.
func (t *Tensor) checkNarrow() error {
	bits := max(8, t.Type.DType.Bits()) // elements of fewer bits share bytes
	if bits >= 32 {
		return nil
	}
	for i, v := range t.Proto.Int32Data {
		if v < -1<<(bits-1) || v >= 1<<bits {
			return fmt.Errorf("value %d of int32_data is %d, which %s does not hold", i, v, t.Type.DType)
		}
	}
	return nil
}

// hint tells of --abstract-weights where an initializer has no data at all.
func (t *Tensor) hint(got int) string {
	if got > 0 || t.model.Dir == "" {
		return ""
	}
	return hintAbstract
}

// packed is the number of bytes that the data takes in the file: elements of 4 or 2 bits share bytes there.
func (t *Tensor) packed() int {
	if b := t.Type.DType.Bits(); b < 8 {
		return (t.Type.Elems()*b + 7) / 8
	}
	return t.Type.Bytes()
}

// Unpack spreads elements of 4 or 2 bits, the first in the low bits of a byte, to a byte each; signed integers are
// extended, floats stay codes (ONNX TensorProto, raw_data and int32_data).
func Unpack(d dtype.DType, data []byte, elems int) []byte {
	bits := d.Bits()
	out := make([]byte, elems)
	for i := range out {
		at := i * bits
		code := data[at/8] >> (at % 8) & (1<<bits - 1)
		if d.Signed() {
			code = byte(d.Wrap(int64(code)))
		}
		out[i] = code
	}
	return out
}

func (t *Tensor) typedLen() int {
	switch t.Type.DType {
	case dtype.F32:
		return len(t.Proto.FloatData)
	case dtype.F64:
		return len(t.Proto.DoubleData)
	case dtype.I64:
		return len(t.Proto.Int64Data)
	case dtype.U32, dtype.U64:
		return len(t.Proto.Uint64Data)
	}
	return len(t.Proto.Int32Data)
}

// Bytes is the data, little-endian and dense, at least a byte per element. It may alias the mapped file: never write to it.
func (t *Tensor) Bytes() ([]byte, error) {
	if t.Bad != nil {
		return nil, t.Bad
	}
	if t.Absent {
		return nil, fmt.Errorf("tensor %q %s: %w", t.Name, t.Type, errAbsent)
	}
	if t.Data != nil {
		return t.Data, nil
	}
	if t.Type.Elems() == 0 {
		return []byte{}, nil
	}
	var err error
	switch {
	case t.Proto.GetDataLocation() == onnxpb.TensorProto_EXTERNAL:
		if t.Data, err = t.externalBytes(); err != nil {
			return nil, fmt.Errorf("tensor %q %s: %w", t.Name, t.Type, err)
		}
	case t.Proto.RawData != nil:
		t.Data = *t.Proto.RawData
	default:
		t.Data = t.typedBytes()
	}
	switch {
	case t.Type.DType == dtype.Bool:
		t.Data = normalBools(t.Data)
	case t.Type.DType.Bits() < 8:
		t.Data = Unpack(t.Type.DType, t.Data, t.Type.Elems())
	}
	return t.Data, nil
}

// IR is the tensor as constant data of the IR.
func (t *Tensor) IR() (*ir.Tensor, error) {
	data, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	return &ir.Tensor{Type: t.Type, Data: data}, nil
}

func (t *Tensor) externalBytes() ([]byte, error) {
	at, err := t.place()
	if err != nil {
		return nil, err
	}
	file, err := t.model.mapExternal(at.location)
	if err != nil {
		return nil, lostFile(err)
	}
	if !at.in(file) {
		return nil, fmt.Errorf("external data %q has %d bytes, but %d are needed from offset %d on: is the file "+
			"complete?%s", at.location, len(file), at.length, at.offset, hintAbstract)
	}
	return file[at.offset : at.offset+at.length : at.offset+at.length], nil
}

// place is where the external data of t should be.
func (t *Tensor) place() (place, error) {
	at := place{length: t.packed()}
	for i, e := range t.Proto.ExternalData {
		text := e.GetValue()
		if slices.ContainsFunc(t.Proto.ExternalData[:i], func(o *onnxpb.StringStringEntryProto) bool { return o.GetKey() == e.GetKey() }) {
			return at, fmt.Errorf("external data: %q is given twice", e.GetKey())
		}
		var err error
		switch e.GetKey() {
		case "location":
			at.location = text
		case "offset":
			if at.offset, err = strconv.Atoi(text); err != nil || at.offset < 0 {
				return at, fmt.Errorf("external data %q: offset %q is not a size", at.location, text)
			}
		case "length":
			if length, err := strconv.Atoi(text); err != nil || length != at.length {
				return at, fmt.Errorf("external data %q: its length is given as %q, but the tensor has %d bytes", at.location, text, at.length)
			}
		}
	}
	return at, nil
}

// typedBytes encodes the type-specific fields, which hold narrow types widened (ONNX TensorProto comments).
func (t *Tensor) typedBytes() []byte {
	p, le := t.Proto, binary.LittleEndian
	out := make([]byte, 0, t.packed())
	switch t.Type.DType {
	case dtype.F32:
		for _, v := range p.FloatData {
			out = le.AppendUint32(out, math.Float32bits(v))
		}
	case dtype.F64:
		for _, v := range p.DoubleData {
			out = le.AppendUint64(out, math.Float64bits(v))
		}
	case dtype.I64:
		for _, v := range p.Int64Data {
			out = le.AppendUint64(out, uint64(v))
		}
	case dtype.U64:
		for _, v := range p.Uint64Data {
			out = le.AppendUint64(out, v)
		}
	case dtype.U32:
		for _, v := range p.Uint64Data {
			out = le.AppendUint32(out, uint32(v))
		}
	case dtype.I32:
		for _, v := range p.Int32Data {
			out = le.AppendUint32(out, uint32(v))
		}
	case dtype.I16, dtype.U16, dtype.F16, dtype.BF16:
		for _, v := range p.Int32Data {
			out = le.AppendUint16(out, uint16(v))
		}
	default:
		for _, v := range p.Int32Data {
			out = append(out, byte(v))
		}
	}
	return out
}

// normalBools makes every nonzero byte 1; kernels count on it. The data is copied only if it must change.
func normalBools(data []byte) []byte {
	for i, b := range data {
		if b <= 1 {
			continue
		}
		out := append([]byte(nil), data...)
		for j := i; j < len(out); j++ {
			if out[j] != 0 {
				out[j] = 1
			}
		}
		return out
	}
	return data
}

// Array widens the tensor for inspection and host evaluation.
func (t *Tensor) Array() (*ir.Array, error) {
	c, err := t.IR()
	if err != nil {
		return nil, err
	}
	return c.Array(), nil
}

// MaxRank bounds the number of dimensions of a tensor.
const MaxRank = 64
