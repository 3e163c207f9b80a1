package dtype

import "math"

// Sources: OCP 8-bit Floating Point Specification (OFP8) for E4M3 and E5M2, OCP Microscaling Formats (MX) for E8M0 and
// E2M1, "8-bit Numerical Formats for Deep Neural Networks" (arXiv 2206.02915) for the FNUZ forms.

// format describes a float type of at most 8 bits with a sign: value = (-1)^s * 2^(e-bias) * 1.m, subnormal at e = 0.
type format struct {
	exp, man int
	bias     int
	max      float64 // the largest finite value
	over     uint8   // code of a positive value beyond max when not saturating
	nan      uint8   // code of a positive NaN
	unsigned bool    // no negative zero: its code is the NaN
}

var formats = map[DType]format{
	F8E4M3:  {exp: 4, man: 3, bias: 7, max: 448, over: 0x7f, nan: 0x7f},
	F8E4M3Z: {exp: 4, man: 3, bias: 8, max: 240, over: 0x80, nan: 0x80, unsigned: true},
	F8E5M2:  {exp: 5, man: 2, bias: 15, max: 57344, over: 0x7c, nan: 0x7e},
	F8E5M2Z: {exp: 5, man: 2, bias: 16, max: 57344, over: 0x80, nan: 0x80, unsigned: true},
	F4E2M1:  {exp: 2, man: 1, bias: 1, max: 6, over: 0x07, nan: 0x00},
}

// Decode is the value of an 8-bit code of a small float type, exactly. It panics for other types.
func (t DType) Decode(code uint8) float64 {
	if t == F8E8M0 {
		if code == 255 {
			return math.NaN()
		}
		return math.Ldexp(1, int(code)-127)
	}
	f, ok := formats[t]
	if !ok {
		panic("BUG: " + t.String() + " has no 8-bit codes")
	}
	sign, abs := 1.0, code&(1<<(f.exp+f.man)-1)
	if code>>(f.exp+f.man)&1 != 0 {
		sign = -1
	}
	switch {
	case f.unsigned && code == f.nan:
		return math.NaN()
	case t == F8E4M3 && abs == 0x7f, t == F8E5M2 && abs > 0x7c:
		return math.NaN()
	case t == F8E5M2 && abs == 0x7c:
		return math.Inf(int(sign))
	}
	e, m := int(abs)>>f.man, float64(int(abs)&(1<<f.man-1))
	if e == 0 {
		return sign * math.Ldexp(m, 1-f.bias-f.man)
	}
	return sign * math.Ldexp(m+float64(int(1)<<f.man), e-f.bias-f.man)
}

// Encode is the code of x rounded to the nearest value of the small float type t, ties to even. Beyond the largest
// value it is that value when saturate is set, infinities included, and else infinity or NaN as the type has them;
// F4E2M1, which has neither, always saturates, and makes NaN a zero. The rules are those of ONNX Cast. F8E8M0 rounds up.
func (t DType) Encode(x float64, saturate bool) uint8 {
	if t == F8E8M0 {
		return EncodeE8M0(x, saturate, RoundUp)
	}
	f, ok := formats[t]
	if !ok {
		panic("BUG: " + t.String() + " has no 8-bit codes")
	}
	sign := uint8(0)
	if math.Signbit(x) {
		sign = 1 << (f.exp + f.man)
	}
	abs := math.Abs(x)
	switch {
	case x != x && t == F4E2M1: // as ml_dtypes has it: a zero of the other sign
		return sign ^ 8
	case x != x && f.unsigned:
		return f.nan
	case x != x:
		return sign | f.nan
	}
	_, e := math.Frexp(abs)
	e = max(e-1, 1-f.bias)
	quantum := math.Ldexp(1, e-f.man)
	n := math.RoundToEven(abs / quantum)
	if abs > f.max && n*quantum > f.max { // infinities too
		switch {
		case saturate || t == F4E2M1:
			n, quantum = f.max, 1
		case f.unsigned:
			return f.nan
		default:
			return sign | f.over
		}
	}
	v := n * quantum
	if v == 0 {
		if f.unsigned {
			return 0
		}
		return sign
	}
	_, e = math.Frexp(v)
	if e--; e < 1-f.bias { // subnormal
		return sign | uint8(v/math.Ldexp(1, 1-f.bias-f.man))
	}
	m := v/math.Ldexp(1, e-f.man) - float64(int(1)<<f.man)
	return sign | uint8(e+f.bias)<<f.man | uint8(m)
}

// Rounding is how a value between two powers of two becomes an F8E8M0.
type Rounding string

// The rounding modes of ONNX Cast's round_mode.
const (
	RoundUp      Rounding = "up"
	RoundDown    Rounding = "down"
	RoundNearest Rounding = "nearest" // in value, not in exponent; ties go up
)

// EncodeE8M0 is the code of x as a power of two. What is beyond the range becomes its end when saturate is set, and else
// NaN; negative values, for which ONNX leaves the result open, are taken by their magnitude.
func EncodeE8M0(x float64, saturate bool, mode Rounding) uint8 {
	const nan, largest = 255, 254
	abs := math.Abs(x)
	switch {
	case x != x, math.IsInf(x, 0) && !saturate:
		return nan
	case math.IsInf(x, 0):
		return largest
	case abs == 0 && saturate:
		return 0
	case abs == 0:
		return nan
	}
	m, e := math.Frexp(abs) // m in [0.5, 1)
	e--
	if m > 0.5 && mode == RoundUp || m >= 0.75 && mode == RoundNearest {
		e++
	}
	switch {
	case e < -127 && saturate:
		return 0
	case e > 127 && saturate:
		return largest
	case e < -127 || e > 127:
		return nan
	}
	return uint8(e + 127)
}

// Round is x rounded to the nearest value of the float type t, ties to even, as a cast to t and back gives. What is
// too large becomes what Encode makes of it when not saturating, but F8E8M0 saturates, so that 0 is its least value. It
// returns x for other types.
func (t DType) Round(x float64) float64 {
	switch {
	case t == F32:
		return float64(float32(x))
	case t == F16:
		return float64(F16ToF32(F32ToF16(float32(x))))
	case t == BF16:
		return float64(BF16ToF32(F32ToBF16(float32(x))))
	case t.IsSmallFloat():
		return t.Decode(t.Encode(x, t == F8E8M0))
	}
	return x
}

// Bits is the number of bits of one element in a file: 4 and 2 for the types that files pack.
func (t DType) Bits() int {
	switch t {
	case F4E2M1, I4, U4:
		return 4
	case I2, U2:
		return 2
	}
	return 8 * t.Size()
}

// Signed reports whether t is a signed integer type.
func (t DType) Signed() bool { return t >= I8 && t <= I64 || t == I4 || t == I2 }

// Range gives the least and the largest finite value of a number type; the ends of 64-bit integers are rounded to
// float64. It panics for Bool.
func (t DType) Range() (lo, hi float64) {
	switch {
	case t == F32:
		hi = math.MaxFloat32
	case t == F64:
		hi = math.MaxFloat64
	case t == F16:
		hi = 65504
	case t == BF16:
		hi = float64(BF16ToF32(0x7f7f))
	case t == F8E8M0:
		return math.Ldexp(1, -127), math.Ldexp(1, 127)
	case t.IsSmallFloat():
		hi = formats[t].max
	case t.Signed():
		return -math.Ldexp(1, t.Bits()-1), math.Ldexp(1, t.Bits()-1) - 1
	case t.IsInt():
		return 0, math.Ldexp(1, t.Bits()) - 1
	default:
		panic("BUG: element type " + t.String() + " has no range")
	}
	return -hi, hi
}

// Wrap keeps the bits of v that the integer type t has, in two's complement when it is signed.
func (t DType) Wrap(v int64) int64 {
	shift := 64 - t.Bits()
	if !t.IsInt() || shift <= 0 {
		return v
	}
	if t.Signed() {
		return v << shift >> shift
	}
	return int64(uint64(v) << shift >> shift)
}

// Truncate converts a float to the integer type t: towards zero, then as the x86 instructions that NumPy is compiled to do
// for what is out of range, which ONNX leaves open: the least value of the 32- or 64-bit integer that is converted
// to, cut to t's bits. Values of U64 are returned as their bits.
func (t DType) Truncate(x float64) int64 {
	const two63 = 1 << 63
	switch {
	case t == U64 && x >= two63:
		if x < 2*two63 {
			return int64(uint64(x-two63)) ^ math.MinInt64
		}
		return 0
	case t == I64 || t == U64 || t == U32:
		if !(x > -two63-1 && x < two63) {
			return t.Wrap(math.MinInt64)
		}
		return t.Wrap(int64(x))
	}
	if !(x > -(1<<31)-1 && x < 1<<31) {
		return t.Wrap(math.MinInt32)
	}
	return t.Wrap(int64(x))
}
