package data

import (
	"encoding/binary"
	"fmt"
	"math"
)

// kind is what is known of an element type.
type kind struct {
	size   int
	float  bool
	lo, hi int64 // of an integer: lo <= v <= hi; of u64 what an int64 can hold
}

var kinds = map[string]kind{
	"bool": {size: 1, lo: 0, hi: 1},
	"i8":   {size: 1, lo: math.MinInt8, hi: math.MaxInt8},
	"i16":  {size: 2, lo: math.MinInt16, hi: math.MaxInt16},
	"i32":  {size: 4, lo: math.MinInt32, hi: math.MaxInt32},
	"i64":  {size: 8, lo: math.MinInt64, hi: math.MaxInt64},
	"u8":   {size: 1, hi: math.MaxUint8},
	"u16":  {size: 2, hi: math.MaxUint16},
	"u32":  {size: 4, hi: math.MaxUint32},
	"u64":  {size: 8, hi: math.MaxInt64},
	"f16":  {size: 2, float: true},
	"bf16": {size: 2, float: true},
	"f32":  {size: 4, float: true},
	"f64":  {size: 8, float: true},
}

// converter turns one sample of a source type into the input's type.
type converter struct {
	src, dst string
	n        int // elements of a sample
	in       *Input
	plain    bool          // copy: nothing to convert and nothing to check
	table    [][256]uint32 // u8 to f32: the bits for each channel and value
	scale    []float64     // for each channel
	shift    []float64
	lo, hi   int64 // integers: inclusive bounds
}

// newConverter decides by the rules in the package comment; t may be nil.
func newConverter(src string, in *Input, t *Transform) (*converter, error) {
	from, okSrc := kinds[src]
	to, okDst := kinds[in.DType]
	c := &converter{src: src, dst: in.DType, n: in.size(), in: in, lo: to.lo, hi: to.hi}
	switch {
	case !okSrc || !okDst:
		return nil, fmt.Errorf("there is no conversion from %s to %s", src, in.DType)
	case !to.float && t != nil:
		return nil, fmt.Errorf("a transform needs a float input, but this one is %s", in.DType)
	case !to.float && from.float:
		return nil, fmt.Errorf("floats are never turned into integers: save the array as integers, or name another with --map %s=ARRAY", in.Name)
	case to.float && from.float && src != in.DType && t == nil:
		return nil, fmt.Errorf("floats of another width need a transform (--transform %s=identity will do) or data saved as %s", in.Name, in.DType)
	}
	if !to.float {
		if in.Lo < in.Hi {
			c.lo, c.hi = max(c.lo, in.Lo), min(c.hi, in.Hi-1)
		}
		c.plain = src == in.DType && src != "bool" && c.lo == to.lo && c.hi == to.hi
		return c, nil
	}
	if t == nil {
		t = &Transform{}
		c.plain = src == in.DType
	}
	if err := t.check(in); err != nil {
		return nil, err
	}
	for ch := range t.channels() {
		scale, shift := t.channel(ch)
		c.scale, c.shift = append(c.scale, scale), append(c.shift, shift)
	}
	if src == "u8" && in.DType == "f32" && len(c.scale) <= 16 {
		c.table = make([][256]uint32, len(c.scale))
		for ch := range c.table {
			for v := range 256 {
				c.table[ch][v] = math.Float32bits(float32(float64(v)*c.scale[ch] + c.shift[ch]))
			}
		}
	}
	return c, nil
}

// scratch is the room that converting one sample takes; a loader has one of its own.
type scratch struct {
	ints   []int64
	floats []float64
	bytes  []byte // of a sample that lies in pieces
}

// valueError says which element of a sample has a value that the input cannot take.
type valueError struct {
	element int
	what    string
}

// Error says element and value; the caller adds file, array and sample.
func (e *valueError) Error() string { return fmt.Sprintf("element %d: %s", e.element, e.what) }

// convert fills dst with the sample src.
func (c *converter) convert(dst, src []byte, s *scratch) error {
	switch {
	case c.plain:
		copy(dst, src)
	case c.table != nil:
		per := c.n / len(c.table)
		for ch := range c.table {
			tab := &c.table[ch]
			row, out := src[ch*per:(ch+1)*per], dst[4*ch*per:4*(ch+1)*per]
			for i, v := range row {
				binary.LittleEndian.PutUint32(out[4*i:], tab[v])
			}
		}
	case kinds[c.dst].float:
		v := s.floats[:c.n]
		loadFloats(v, src, c.src)
		per := c.n / len(c.scale)
		for ch := range c.scale {
			scale, shift := c.scale[ch], c.shift[ch]
			for i := ch * per; i < (ch+1)*per; i++ {
				v[i] = float64(v[i]*scale) + shift // no fused multiply-add: the same on every machine
			}
		}
		storeFloats(dst, v, c.dst)
	default:
		v := s.ints[:c.n]
		if i := loadInts(v, src, c.src); i >= 0 {
			return &valueError{i, fmt.Sprintf("%d does not fit into %s", uint64(v[i]), c.dst)}
		}
		for i, x := range v {
			if (x < c.lo || x > c.hi) && (c.in.Ignore == nil || x != *c.in.Ignore) {
				return &valueError{i, fmt.Sprintf("value %d is not in [%d, %d]", x, c.lo, c.hi)}
			}
		}
		storeInts(dst, v, c.dst)
	}
	return nil
}

// loadInts decodes integers; it returns the index of the first that an int64 cannot
// hold, or -1.
func loadInts(v []int64, b []byte, dtype string) int {
	le := binary.LittleEndian
	bad := -1
	switch dtype {
	case "bool", "u8":
		for i := range v {
			v[i] = int64(b[i])
		}
	case "i8":
		for i := range v {
			v[i] = int64(int8(b[i]))
		}
	case "i16":
		for i := range v {
			v[i] = int64(int16(le.Uint16(b[2*i:])))
		}
	case "u16":
		for i := range v {
			v[i] = int64(le.Uint16(b[2*i:]))
		}
	case "i32":
		for i := range v {
			v[i] = int64(int32(le.Uint32(b[4*i:])))
		}
	case "u32":
		for i := range v {
			v[i] = int64(le.Uint32(b[4*i:]))
		}
	case "i64", "u64":
		for i := range v {
			v[i] = int64(le.Uint64(b[8*i:]))
			if bad < 0 && v[i] < 0 && dtype == "u64" {
				bad = i
			}
		}
	}
	return bad
}

// storeInts encodes integers that are known to fit.
func storeInts(b []byte, v []int64, dtype string) {
	le := binary.LittleEndian
	switch kinds[dtype].size {
	case 1:
		for i, x := range v {
			b[i] = byte(x)
		}
	case 2:
		for i, x := range v {
			le.PutUint16(b[2*i:], uint16(x))
		}
	case 4:
		for i, x := range v {
			le.PutUint32(b[4*i:], uint32(x))
		}
	case 8:
		for i, x := range v {
			le.PutUint64(b[8*i:], uint64(x))
		}
	}
}

// loadFloats decodes numbers of any type to float64. Integers beyond 2^53 are rounded.
func loadFloats(v []float64, b []byte, dtype string) {
	le := binary.LittleEndian
	switch dtype {
	case "f64":
		for i := range v {
			v[i] = math.Float64frombits(le.Uint64(b[8*i:]))
		}
	case "f32":
		for i := range v {
			v[i] = float64(math.Float32frombits(le.Uint32(b[4*i:])))
		}
	case "bf16":
		for i := range v {
			v[i] = float64(math.Float32frombits(uint32(le.Uint16(b[2*i:])) << 16))
		}
	case "f16":
		for i := range v {
			v[i] = fromF16(le.Uint16(b[2*i:]))
		}
	case "u64":
		for i := range v {
			v[i] = float64(le.Uint64(b[8*i:]))
		}
	default:
		size := kinds[dtype].size
		var one [1]int64
		for i := range v {
			loadInts(one[:], b[size*i:], dtype)
			v[i] = float64(one[0])
		}
	}
}

// storeFloats encodes v, rounding to nearest even.
func storeFloats(b []byte, v []float64, dtype string) {
	le := binary.LittleEndian
	switch dtype {
	case "f64":
		for i, x := range v {
			le.PutUint64(b[8*i:], math.Float64bits(x))
		}
	case "f32":
		for i, x := range v {
			le.PutUint32(b[4*i:], math.Float32bits(float32(x)))
		}
	case "f16":
		for i, x := range v {
			le.PutUint16(b[2*i:], toHalf(x, 10, 15))
		}
	case "bf16":
		for i, x := range v {
			le.PutUint16(b[2*i:], toHalf(x, 7, 127))
		}
	}
}

// toHalf rounds x once, to nearest even, to a 16-bit float of mant mantissa bits and the
// given exponent bias.
func toHalf(x float64, mant, bias int) uint16 {
	sign := uint16(math.Float64bits(x) >> 63 << 15)
	inf := uint16(2*bias+1) << mant
	x = math.Abs(x)
	switch {
	case x != x:
		return sign | inf | 1<<(mant-1)
	case x == 0:
		return sign
	case math.IsInf(x, 0):
		return sign | inf
	}
	exp := max(math.Ilogb(x), 1-bias) // below lie the subnormals, all with this exponent
	if exp > bias {
		return sign | inf
	}
	// The mantissa with its leading one, as an integer; a carry flows into the exponent.
	m := uint16(math.RoundToEven(math.Ldexp(x, mant-exp)))
	return sign | (uint16(exp+bias-1)<<mant + m)
}

// fromF16 is exact.
func fromF16(h uint16) float64 {
	exp, m := int(h>>10&31), float64(h&1023)
	var v float64
	switch exp {
	case 0:
		v = math.Ldexp(m, -24)
	case 31:
		v = math.Inf(1)
		if m != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(1024+m, exp-25)
	}
	if h>>15 != 0 {
		v = -v
	}
	return v
}
