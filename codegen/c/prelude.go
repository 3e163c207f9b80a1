package c

import (
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// prelude is the head of every generated C file: the includes, the thread count and small functions that the vector math
// header does not have.
const prelude = `#include "gtc_math.h"
#include <stddef.h>

#define GTC_BITCAST(TO, FROM, x) (((union { FROM from; TO to; }){.from = x}).to)

static int gtc_threads = 1;

GTC_FN double gtc_sigmoid64(double x) { return 1.0 / (1.0 + exp(-x)); }
GTC_FN double gtc_ncdf64(double x) { return 0.5 * erfc(x * -0.70710678118654752440); }
GTC_FN double gtc_softplus64(double x) { return fmax(x, 0.0) + log1p(exp(-fabs(x))); }

// Conversions to integers truncate; what is out of range becomes what x86 instructions make of it.
GTC_FN int32_t gtc_to_i32f(float x) { return x >= -2147483648.0f && x < 2147483648.0f ? (int32_t)x : INT32_MIN; }
GTC_FN int32_t gtc_to_i32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN; }
GTC_FN int64_t gtc_to_i64(double x) { return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64_t)x : INT64_MIN; }
GTC_FN uint64_t gtc_to_u64(double x) {
	if (x >= 9223372036854775808.0) return x < 18446744073709551616.0 ? (uint64_t)x : 0;
	return (uint64_t)gtc_to_i64(x);
}

// Quotients by 0 are 0, and so are remainders; none traps.
GTC_FN int64_t gtc_div_s(int64_t x, int64_t y) { return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y; }
GTC_FN int64_t gtc_rem_s(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }
GTC_FN uint64_t gtc_div_u(uint64_t x, uint64_t y) { return y == 0 ? 0 : x / y; }
GTC_FN uint64_t gtc_rem_u(uint64_t x, uint64_t y) { return y == 0 ? 0 : x % y; }

// Powers of integers wrap; those to negative exponents are 0 but for bases 1 and -1.
GTC_FN uint64_t gtc_pow_u(uint64_t x, uint64_t y) {
	uint64_t r = 1;
	for (; y; y >>= 1, x *= x) {
		if (y & 1) r *= x;
	}
	return r;
}
GTC_FN int64_t gtc_pow_s(int64_t x, int64_t y) {
	if (y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
	return (int64_t)gtc_pow_u((uint64_t)x, (uint64_t)y);
}

// Shifts by as many bits as there are, or more, move all of them out.
GTC_FN uint64_t gtc_shl(uint64_t x, uint64_t y, int bits) { return y < (uint64_t)bits ? x << y : 0; }
GTC_FN uint64_t gtc_shr_u(uint64_t x, uint64_t y, int bits) { return y < (uint64_t)bits ? x >> y : 0; }
GTC_FN int64_t gtc_shr_s(int64_t x, uint64_t y, int bits) { return x >> (y < (uint64_t)bits ? y : 63); }
`

// half holds the 16-bit floats. Conversion from f32 rounds to nearest, ties to even.
const half = `
#ifdef __FLT16_MANT_DIG__
typedef _Float16 gtc_f16;
GTC_FN float gtc_f16_get(gtc_f16 x) { return (float)x; }
GTC_FN gtc_f16 gtc_f16_put(float x) { return (gtc_f16)x; }
#else
typedef uint16_t gtc_f16;
GTC_FN float gtc_f16_get(gtc_f16 h) { // the exponent's bias is put right by a product, which also normalises
	float y = gtc_float((int32_t)(h & 0x7fff) << 13) * gtc_float(0x77800000); // 2^112
	int32_t b = gtc_bits(y) | ((h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0);
	return gtc_float(b | (int32_t)((uint32_t)(h & 0x8000) << 16));
}
GTC_FN gtc_f16 gtc_f16_put(float x) {
	uint32_t b = (uint32_t)gtc_bits(x), a = b & 0x7fffffff, s = b >> 16 & 0x8000;
	uint32_t sub = (uint32_t)gtc_bits(gtc_float((int32_t)a) + 0.5f) - 0x3f000000; // a < 2^-14: its fraction, rounded
	uint32_t r = (a + 0xfff + (a >> 13 & 1) - 0x38000000) >> 13;
	r = a < 0x38800000 ? sub : r;
	r = a >= 0x477ff000 ? 0x7c00 : r;
	r = a > 0x7f800000 ? 0x7e00 : r;
	return (uint16_t)(s | r);
}
#endif
typedef uint16_t gtc_bf16;
GTC_FN float gtc_bf16_get(gtc_bf16 x) { return gtc_float((int32_t)((uint32_t)x << 16)); }
GTC_FN gtc_bf16 gtc_bf16_put(float x) {
	uint32_t b = (uint32_t)gtc_bits(x);
	uint32_t r = (b + 0x7fff + (b >> 16 & 1)) >> 16;
	return (uint16_t)((b & 0x7fffffff) > 0x7f800000 ? b >> 16 | 0x40 : r);
}
`

// small encodes floats of 8 bits and fewer. n counts quanta: those of the binade that x is in, or of the subnormals.
const small = `
GTC_FN uint8_t gtc_small_put(float x, int exp, int man, int bias, float most, int over, int nan, int unsign) {
	int32_t b = gtc_bits(x), a = b & 0x7fffffff;
	int sign = b < 0 ? 1 << (exp + man) : 0;
	if (x != x) return (uint8_t)(unsign ? nan : exp == 2 ? sign ^ nan : sign | nan);
	int e = (a >> 23) - 127;
	if (e < 1 - bias) e = 1 - bias;
	double quantum = gtc_double((int64_t)(e - man + 1023) << 52);
	double n = rint((double)gtc_float(a) / quantum);
	if (!(n * quantum <= most)) return (uint8_t)(unsign ? over : sign | over);
	int code = ((e + bias - 1) << man) + (int)n;
	return (uint8_t)(unsign && code == 0 ? 0 : sign | code);
}
GTC_FN uint8_t gtc_f8_e8m0_put(float x) { // up to the next power of two that there is
	float a = gtc_absf(x);
	if (x != x) return 255;
	if (a == 0.0f) return 0;
	if (a > 1.70141183e38f) return 254;
	int e;
	float m = frexpf(a, &e);
	e -= m > 0.5f ? 0 : 1;
	return (uint8_t)(e < -127 ? 0 : e + 127);
}
`

// smallFloats are the parameters of gtc_small_put: bits of exponent and mantissa, bias, largest value, and the codes of
// what is beyond it and of NaN.
var smallFloats = []struct {
	d      dtype.DType
	params string
}{
	{dtype.F8E4M3, "4, 3, 7, 448.0f, 0x7f, 0x7f, 0"},
	{dtype.F8E4M3Z, "4, 3, 8, 240.0f, 0x80, 0x80, 1"},
	{dtype.F8E5M2, "5, 2, 15, 57344.0f, 0x7c, 0x7e, 0"},
	{dtype.F8E5M2Z, "5, 2, 16, 57344.0f, 0x80, 0x80, 1"},
	{dtype.F4E2M1, "2, 1, 1, 6.0f, 0x07, 0x08, 0"},
	{dtype.F8E8M0, ""},
}

// Prelude is the head of a generated C file whose functions are text: it declares what they use.
func Prelude(text string) string {
	var b strings.Builder
	b.WriteString(prelude)
	if strings.Contains(text, "f16") {
		b.WriteString(half)
	}
	first := true
	for _, s := range smallFloats {
		if !strings.Contains(text, fmt.Sprintf("gtc_%s_", s.d)) {
			continue
		}
		if first {
			b.WriteString(small)
			first = false
		}
		smallFloat(&b, s.d, s.params)
	}
	return b.String()
}

// smallFloat writes the conversions of one type: a table of its values, and the encoder.
func smallFloat(b *strings.Builder, d dtype.DType, params string) {
	fmt.Fprintf(b, "static const float gtc_%s_value[256] = {", d)
	for i := range 256 {
		if i%8 == 0 {
			b.WriteString("\n\t")
		}
		fmt.Fprintf(b, "%s, ", scalar.Literal(dtype.F32, d.Decode(uint8(i))))
	}
	fmt.Fprintf(b, "\n};\nGTC_FN float gtc_%s_get(uint8_t x) { return gtc_%s_value[x]; }\n", d, d)
	if params != "" {
		fmt.Fprintf(b, "GTC_FN uint8_t gtc_%s_put(float x) { return gtc_small_put(x, %s); }\n", d, params)
	}
}
