package elem

import "math"

// widen converts f16 or bf16 bits to f32, exactly.
func widen(dst []float32, src []uint16, dt DType) {
	dst = dst[:len(src)]
	if dt == BF16 {
		n := widenFast(dst, src)
		dst = dst[n:]
		for i, h := range src[n:] {
			dst[i] = math.Float32frombits(uint32(h) << 16)
		}
		return
	}
	for i, h := range src {
		dst[i] = f16ToF32(h)
	}
}

// narrow rounds f32 to f16 or bf16 bits, to nearest even.
func narrow(dst []uint16, src []float32, dt DType) {
	dst = dst[:len(src)]
	if dt == BF16 {
		n := narrowFast(dst, src)
		dst = dst[n:]
		for i, f := range src[n:] {
			dst[i] = f32ToBF16(f)
		}
		return
	}
	for i, f := range src {
		dst[i] = f32ToF16(f)
	}
}

func f32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40 // stay NaN when the low bits go
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func f16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp, man := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch {
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
	}
	// Zero or subnormal: man counts units of 2^-24, which f32 holds exactly.
	f := float32(man) * (1.0 / (1 << 24))
	return math.Float32frombits(sign | math.Float32bits(f))
}

func f32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13&0x1ff)
	case b >= 0x477ff000: // rounds to 65536 or more, or is infinite
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: adding 0.5 aligns units of 2^-24 and rounds to even
		r := math.Float32frombits(b) + 0.5
		return sign | uint16(math.Float32bits(r)-math.Float32bits(0.5))
	}
	b -= 112 << 23
	return sign | uint16((b+0xfff+b>>13&1)>>13)
}
