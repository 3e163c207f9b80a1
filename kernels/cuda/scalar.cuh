// The scalar functions that generated kernels call, by the names that codegen/scalar gives them: those of kernels/cpu's
// gtc_math.h and of the head of generated C files, which document what they give at the ends of their domains.
#pragma once
#include "gtc.cuh"

#ifdef __CUDACC_RTC__ // NVRTC has no stdint.h and math.h
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INT32_MIN (-2147483647 - 1)
#define INT64_MAX 9223372036854775807ll
#define INT64_MIN (-9223372036854775807ll - 1)
#define UINT64_MAX 18446744073709551615ull
#define INT64_C(x) x##ll
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#else
#include <math.h>
#include <stdint.h>
#endif


typedef gtc::f16 gtc_f16;
typedef gtc::bf16 gtc_bf16;

GTC_FN float gtc_f16_get(gtc_f16 x) { return gtc::to_float(x); }
GTC_FN gtc_f16 gtc_f16_put(float x) { return gtc::from_float<gtc_f16>(x); }
GTC_FN float gtc_bf16_get(gtc_bf16 x) { return gtc::to_float(x); }
GTC_FN gtc_bf16 gtc_bf16_put(float x) { return gtc::from_float<gtc_bf16>(x); }

template <class To, class From> GTC_FN To gtc_bitcast(From x) {
	static_assert(sizeof(To) == sizeof(From), "bits are as many");
	union Both {
		From from;
		To to;
		__device__ Both() {}
	} u;
	u.from = x;
	return u.to;
}
#define GTC_BITCAST(TO, FROM, x) gtc_bitcast<TO, FROM>(x)

GTC_FN float gtc_expf(float x) { return expf(x); }
GTC_FN float gtc_logf(float x) { return logf(x); }
GTC_FN float gtc_log1pf(float x) { return log1pf(x); }
GTC_FN float gtc_expm1f(float x) { return expm1f(x); }
GTC_FN float gtc_sqrtf(float x) { return sqrtf(x); }
GTC_FN float gtc_sinf(float x) { return sinf(x); }
GTC_FN float gtc_cosf(float x) { return cosf(x); }
GTC_FN float gtc_tanhf(float x) { return tanhf(x); }
GTC_FN float gtc_erff(float x) { return erff(x); }
GTC_FN float gtc_powf(float x, float y) { return powf(x, y); }
GTC_FN float gtc_absf(float x) { return fabsf(x); }
GTC_FN float gtc_rsqrtf(float x) {
#ifdef __CUDA_ARCH__
	return rsqrtf(x);
#else
	return 1.0f / sqrtf(x);
#endif
}

// Both use e^-|x|, so that they neither overflow nor lose the tail.
GTC_FN float gtc_sigmoidf(float x) {
	float e = expf(-fabsf(x)), d = 1.0f / (1.0f + e);
	return x >= 0.0f ? d : e * d;
}
GTC_FN float gtc_softplusf(float x) { return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x))); }

// gtc_ncdff: the normal distribution function, as gtc_math.h computes it. The bell exp(-x^2 / 2) is one with that of a
// density computed beside it.
GTC_FN float gtc_ncdf_of(float x, float v, float bell) { // v is 1 - 1 / (1 + |x| / 4)
	float q = 0.0953362816f;
	q = q * v - 0.307315071f;
	q = q * v + 0.146819888f;
	q = q * v + 0.862275483f;
	q = q * v - 2.10535814f;
	q = q * v + 2.40416361f;
	q = q * v - 1.59576784f;
	q = q * v + 0.5f;
	float tail = bell * q;
	return x < 0.0f ? tail : 1.0f - tail;
}
GTC_FN float gtc_ncdff(float x) { return gtc_ncdf_of(x, 1.0f - 1.0f / (1.0f + 0.25f * fabsf(x)), expf(x * x * -0.5f)); }

// Faster ones, for what is rounded to half precision in the end: they err by some 1e-6 of the result, or of 1 where that is
// subtracted or added next. A GELU of half precision has time for 27 instructions at the memory's speed.
GTC_FN float gtc_fast_expf(float x) { return gtc::fast_exp(x); }
GTC_FN float gtc_fast_sigmoidf(float x) { return gtc::fast_reciprocal(1.0f + gtc::fast_exp(-x)); }
GTC_FN float gtc_fast_tanhf(float x) {
	float t = 1.0f - 2.0f * gtc::fast_reciprocal(1.0f + gtc::fast_exp(2.0f * x));
	return fabsf(x) < 0.04f ? x - x * x * x * 0.333333333f : t;
}
GTC_FN float gtc_fast_softplusf(float x) { return fmaxf(x, 0.0f) + log1pf(gtc::fast_exp(-fabsf(x))); }
GTC_FN float gtc_fast_ncdff(float x) {
	return gtc_ncdf_of(x, 1.0f - gtc::fast_reciprocal(1.0f + 0.25f * fabsf(x)), gtc::fast_exp(x * x * -0.5f));
}

GTC_FN double gtc_sigmoid64(double x) { return 1.0 / (1.0 + exp(-x)); }
GTC_FN double gtc_ncdf64(double x) { return 0.5 * erfc(x * -0.70710678118654752440); }
GTC_FN double gtc_softplus64(double x) { return fmax(x, 0.0) + log1p(exp(-fabs(x))); }

GTC_FN int32_t gtc_to_i32f(float x) { return x >= -2147483648.0f && x < 2147483648.0f ? (int32_t)x : INT32_MIN; }
GTC_FN int32_t gtc_to_i32(double x) { return x > -2147483649.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN; }
GTC_FN int64_t gtc_to_i64(double x) { return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64_t)x : INT64_MIN; }
GTC_FN uint64_t gtc_to_u64(double x) {
	if (x >= 9223372036854775808.0) return x < 18446744073709551616.0 ? (uint64_t)x : 0;
	return (uint64_t)gtc_to_i64(x);
}

GTC_FN int64_t gtc_div_s(int64_t x, int64_t y) { return y == 0 ? 0 : y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y; }
GTC_FN int64_t gtc_rem_s(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }
GTC_FN uint64_t gtc_div_u(uint64_t x, uint64_t y) { return y == 0 ? 0 : x / y; }
GTC_FN uint64_t gtc_rem_u(uint64_t x, uint64_t y) { return y == 0 ? 0 : x % y; }
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
GTC_FN uint64_t gtc_shl(uint64_t x, uint64_t y, int bits) { return y < (uint64_t)bits ? x << y : 0; }
GTC_FN uint64_t gtc_shr_u(uint64_t x, uint64_t y, int bits) { return y < (uint64_t)bits ? x >> y : 0; }
GTC_FN int64_t gtc_shr_s(int64_t x, uint64_t y, int bits) { return x >> (y < (uint64_t)bits ? y : 63); }

// A float of 8 bits or fewer: a code of EXP bits of exponent and MAN of mantissa. OVER and NANS are the codes of what is
// beyond MOST and of NaN; UNSIGNED ones have no negative zero.
template <int EXP, int MAN, int BIAS, int MOST, int OVER, int NANS, bool UNSIGNED> struct gtc_small {
	static __device__ inline float get(uint8_t c) {
		int mag = c & ((1 << (EXP + MAN)) - 1), sign = c >> (EXP + MAN) & 1;
		int e = mag >> MAN, m = mag & ((1 << MAN) - 1);
		if (UNSIGNED ? c == NANS : EXP > 2 && mag >= NANS && (mag != OVER || OVER == NANS)) return NAN;
		if (!UNSIGNED && EXP > 2 && OVER != NANS && mag == OVER) return sign ? -INFINITY : INFINITY;
		float v = e ? ldexpf((float)(m + (1 << MAN)), e - BIAS - MAN) : ldexpf((float)m, 1 - BIAS - MAN);
		return sign ? -v : v;
	}
	static __device__ inline uint8_t put(float x) {
		int32_t b = gtc_bitcast<int32_t, float>(x), a = b & 0x7fffffff;
		int sign = b < 0 ? 1 << (EXP + MAN) : 0;
		if (x != x) return (uint8_t)(UNSIGNED ? NANS : EXP == 2 ? sign ^ NANS : sign | NANS);
		int e = (a >> 23) - 127;
		if (e < 1 - BIAS) e = 1 - BIAS;
		double quantum = ldexp(1.0, e - MAN);
		double n = rint((double)fabsf(x) / quantum);
		if (!(n * quantum <= MOST)) return (uint8_t)(UNSIGNED ? OVER : sign | OVER);
		int code = ((e + BIAS - 1) << MAN) + (int)n;
		return (uint8_t)(UNSIGNED && code == 0 ? 0 : sign | code);
	}
};
#define GTC_SMALL(NAME, ...) \
	GTC_FN float gtc_##NAME##_get(uint8_t x) { return gtc_small<__VA_ARGS__>::get(x); } \
	GTC_FN uint8_t gtc_##NAME##_put(float x) { return gtc_small<__VA_ARGS__>::put(x); }
GTC_SMALL(f8_e4m3, 4, 3, 7, 448, 0x7f, 0x7f, false)
GTC_SMALL(f8_e4m3fnuz, 4, 3, 8, 240, 0x80, 0x80, true)
GTC_SMALL(f8_e5m2, 5, 2, 15, 57344, 0x7c, 0x7e, false)
GTC_SMALL(f8_e5m2fnuz, 5, 2, 16, 57344, 0x80, 0x80, true)
GTC_SMALL(f4_e2m1, 2, 1, 1, 6, 0x07, 0x08, false)
#undef GTC_SMALL

GTC_FN float gtc_f8_e8m0_get(uint8_t x) { return x == 255 ? NAN : ldexpf(1.0f, x - 127); }
GTC_FN uint8_t gtc_f8_e8m0_put(float x) { // up to the next power of two that there is
	float a = fabsf(x);
	if (x != x) return 255;
	if (a == 0.0f) return 0;
	if (a > 1.70141183e38f) return 254;
	int e;
	float m = frexpf(a, &e);
	e -= m > 0.5f ? 0 : 1;
	return (uint8_t)(e < -127 ? 0 : e + 127);
}
