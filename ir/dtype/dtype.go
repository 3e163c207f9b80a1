// Package dtype names the element types of tensors and converts between their
// encodings. It knows nothing of tensors, ops or files.
package dtype

import (
	"fmt"
	"math"
)

// DType is an element type. The zero value is Invalid.
type DType uint8

// The element types. Names and sizes follow the ONNX TensorProto data types. Elements of fewer than 8 bits (F4E2M1,
// I4, U4, I2, U2) take a byte each: files hold them packed, readers unpack them. Signed ones are sign-extended.
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
	F8E4M3  // FLOAT8E4M3FN: no infinities, one NaN of each sign
	F8E4M3Z // FLOAT8E4M3FNUZ: no infinities, no negative zero, one NaN
	F8E5M2  // as IEEE 754 would have it
	F8E5M2Z // FLOAT8E5M2FNUZ
	F8E8M0  // a power of two, the scale of a microscaling block: no sign, no zero, one NaN
	F4E2M1  // no infinities, no NaN
	I4
	U4
	I2
	U2
	numDTypes
)

type info struct {
	name string
	size int
	safe string // the name that safetensors uses; codes of types that it has only packed or not at all are bytes
}

var infos = [numDTypes]info{
	{"invalid", 0, ""},
	{"f32", 4, "F32"}, {"f64", 8, "F64"}, {"f16", 2, "F16"}, {"bf16", 2, "BF16"},
	{"i8", 1, "I8"}, {"i16", 2, "I16"}, {"i32", 4, "I32"}, {"i64", 8, "I64"},
	{"u8", 1, "U8"}, {"u16", 2, "U16"}, {"u32", 4, "U32"}, {"u64", 8, "U64"},
	{"bool", 1, "BOOL"},
	{"f8_e4m3", 1, "F8_E4M3"}, {"f8_e4m3fnuz", 1, "F8_E4M3FNUZ"}, {"f8_e5m2", 1, "F8_E5M2"},
	{"f8_e5m2fnuz", 1, "F8_E5M2FNUZ"}, {"f8_e8m0", 1, "F8_E8M0"}, {"f4_e2m1", 1, "U8"},
	{"i4", 1, "I8"}, {"u4", 1, "U8"}, {"i2", 1, "I8"}, {"u2", 1, "U8"},
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

// Safetensors is the name in the safetensors format, such as "BF16". F4E2M1 is stored as its codes, in "U8", and integers of
// 2 and 4 bits in "I8" and "U8".
func (t DType) Safetensors() string { return infos[t].safe }

// IsFloat reports whether t is a floating-point type.
func (t DType) IsFloat() bool { return t >= F32 && t <= BF16 || t >= F8E4M3 && t <= F4E2M1 }

// IsInt reports whether t is a signed or unsigned integer type (Bool is not).
func (t DType) IsInt() bool { return t >= I8 && t <= U64 || t >= I4 && t <= U2 }

// IsSmallFloat reports whether t is a float type of 8 bits or fewer, which is stored but never computed in.
func (t DType) IsSmallFloat() bool { return t >= F8E4M3 && t <= F4E2M1 }

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
