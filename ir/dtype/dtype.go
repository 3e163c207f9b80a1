// Package dtype names the element types of tensors and converts between their
// encodings. It knows nothing of tensors, ops or files.
package dtype

import (
	"fmt"
	"math"
)

// DType is an element type. The zero value is Invalid.
type DType uint8

// The element types. Names and sizes follow the ONNX TensorProto data types.
const (
	Invalid DType = iota
	F32
	F64
	F16
	BF16
	I8
	I16
	I32
	I64
	U8
	U16
	U32
	U64
	Bool
	numDTypes
)

type info struct {
	name string
	size int
	safe string // the name that safetensors uses
}

var infos = [numDTypes]info{
	{"invalid", 0, ""},
	{"f32", 4, "F32"}, {"f64", 8, "F64"}, {"f16", 2, "F16"}, {"bf16", 2, "BF16"},
	{"i8", 1, "I8"}, {"i16", 2, "I16"}, {"i32", 4, "I32"}, {"i64", 8, "I64"},
	{"u8", 1, "U8"}, {"u16", 2, "U16"}, {"u32", 4, "U32"}, {"u64", 8, "U64"},
	{"bool", 1, "BOOL"},
}

// String is the short lower-case name, such as "f32".
func (t DType) String() string {
	if t >= numDTypes {
		return fmt.Sprintf("dtype(%d)", uint8(t))
	}
	return infos[t].name
}

// Size is the number of bytes of one element; 0 for Invalid.
func (t DType) Size() int {
	if t >= numDTypes {
		return 0
	}
	return infos[t].size
}

// Safetensors is the dtype's name in the safetensors format, such as "BF16".
func (t DType) Safetensors() string { return infos[t].safe }

// IsFloat reports whether t is a floating-point type.
func (t DType) IsFloat() bool { return t >= F32 && t <= BF16 }

// IsInt reports whether t is a signed or unsigned integer type (Bool is not).
func (t DType) IsInt() bool { return t >= I8 && t <= U64 }

// Parse returns the type with the given short name.
func Parse(name string) (DType, error) {
	for i := F32; i < numDTypes; i++ {
		if infos[i].name == name {
			return i, nil
		}
	}
	return Invalid, fmt.Errorf("unknown element type %q", name)
}

// F16ToF32 converts an IEEE 754 binary16 value exactly.
func F16ToF32(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h)&1023
	switch {
	case exp == 31:
		return math.Float32frombits(sign | 255<<23 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	v := float32(frac) * (1.0 / (1 << 24))
	if sign != 0 {
		v = -v
	}
	return v
}

// F32ToF16 rounds to the nearest binary16, ties to even; overflow gives an infinity.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, abs := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00
	case abs >= 0x477ff000: // rounds to 2^16 or is infinite
		return sign | 0x7c00
	case abs < 0x33000001: // at most half the least subnormal: rounds to zero
		return sign
	}
	exp := int(abs>>23) - 112
	frac, shift := abs&0x7fffff, uint(13)
	if exp <= 0 {
		frac |= 0x800000
		shift = uint(14 - exp)
		exp = 0
	}
	half := uint32(1) << (shift - 1)
	out := uint32(exp)<<10 + frac>>shift
	rest := frac & (1<<shift - 1)
	if rest > half || rest == half && out&1 == 1 {
		out++
	}
	return sign | uint16(out)
}

// BF16ToF32 converts a bfloat16 value exactly.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 rounds to the nearest bfloat16, ties to even.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
