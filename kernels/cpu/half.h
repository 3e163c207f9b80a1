// Rows of 16-bit floats: binary16 (GTC_F16) and bfloat16 (GTC_BF16).
#ifndef GTC_HALF_H
#define GTC_HALF_H

#include "elem.h"
#include "vec.h"

// gtc_half_get widens one element.
INLINE float gtc_half_get(uint16_t h, int elem) {
	union {
		uint32_t u;
		float f;
	} x;
	if (elem == GTC_BF16) {
		x.u = (uint32_t)h << 16;
		return x.f;
	}
#ifdef __F16C__
	return _cvtsh_ss(h);
#else
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
	if (e == 0) { // subnormal: m units of 2^-24
		x.f = (float)m * 5.9604644775390625e-8f;
		x.u |= sign;
		return x.f;
	}
	x.u = sign | (e == 31 ? 0x7f800000 : (e + 112) << 23) | m << 13;
	return x.f;
#endif
}

// gtc_half_put rounds to nearest, ties to even; NaN stays a NaN.
INLINE uint16_t gtc_half_put(float f, int elem) {
	union {
		float f;
		uint32_t u;
	} x = {f};
	if (elem == GTC_BF16) {
		if (f != f) return (uint16_t)(x.u >> 16 | 0x40);
		return (uint16_t)((x.u + 0x7fff + (x.u >> 16 & 1)) >> 16);
	}
#ifdef __F16C__
	return (uint16_t)_cvtss_sh(f, 0);
#else
	uint32_t sign = x.u >> 16 & 0x8000;
	x.u &= 0x7fffffff;
	if (x.u > 0x7f800000) return (uint16_t)(sign | 0x7e00);
	if (x.u >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // 65520 and above
	if (x.u < 0x38800000) {					  // below 2^-14: the sum with 0.5 has units of 2^-24
		x.f += 0.5f;
		return (uint16_t)(sign | (x.u - 0x3f000000));
	}
	return (uint16_t)(sign | ((x.u + 0xfff + (x.u >> 13 & 1)) - 0x38000000) >> 13);
#endif
}

// gtc_half_row widens n elements.
INLINE void gtc_half_row(float *dst, const uint16_t *src, long n, int elem) {
	if (elem == GTC_BF16) {
#pragma omp simd
		for (long i = 0; i < n; i++) dst[i] = gtc_half_get(src[i], GTC_BF16);
		return;
	}
	long i = 0;
#if VL == 16
	for (; i + 16 <= n; i += 16) _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(src + i))));
#endif
	for (; i < n; i++) dst[i] = gtc_half_get(src[i], GTC_F16);
}

// gtc_half_round rounds n elements.
INLINE void gtc_half_round(uint16_t *dst, const float *src, long n, int elem) {
	if (elem == GTC_BF16) {
#pragma omp simd
		for (long i = 0; i < n; i++) dst[i] = gtc_half_put(src[i], GTC_BF16);
		return;
	}
	long i = 0;
#if VL == 16
	for (; i + 16 <= n; i += 16) _mm256_storeu_si256((__m256i *)(dst + i), _mm512_cvtps_ph(_mm512_loadu_ps(src + i), 0));
#endif
	for (; i < n; i++) dst[i] = gtc_half_put(src[i], GTC_F16);
}

#endif
