// Vector types shared by every C file of this package.
//
// VL is the number of float lanes in the widest register that the compiler may use; all code is
// written with GCC/Clang vector extensions over VL so that one text serves AVX-512, AVX2, SSE and NEON.
#ifndef GTC_VEC_H
#define GTC_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
// Go's cgo flag list has no -fno-math-errno; the pragma does the same for the file that includes this one.
#pragma GCC optimize("no-math-errno", "no-trapping-math")
#endif

#if defined(__AVX512F__) && defined(__AVX512VL__)
#include <immintrin.h>
#define VL 16
#elif defined(__AVX2__)
#include <immintrin.h>
#define VL 8
#else
#define VL 4
#endif

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
// Unaligned, aliasing forms for loads and stores.
typedef float vfu __attribute__((vector_size(4 * VL), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline, unused))
#define NOINLINE __attribute__((noinline))

INLINE vf vload(const float *p) { return *(const vfu *)p; }
INLINE void vstore(float *p, vf v) { *(vfu *)p = v; }
INLINE vf vset(float x) { return x - (vf){0}; }
INLINE vi vseti(int32_t x) { return x - (vi){0}; }

// GTC_LANES numbers the lanes.
#if VL == 16
#define GTC_LANES {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#elif VL == 8
#define GTC_LANES {0, 1, 2, 3, 4, 5, 6, 7}
#else
#define GTC_LANES {0, 1, 2, 3}
#endif

// vload_n reads the first n (0..VL) floats at p and puts pad in the others; it touches no byte past p[n-1].
INLINE vf vload_n(const float *p, long n, float pad) {
#if VL == 16
	return (vf)_mm512_mask_loadu_ps((__m512)vset(pad), (__mmask16)((1u << n) - 1u), p);
#elif VL == 8
	vi m = (vi)GTC_LANES < vseti((int32_t)n);
	return (vf)((m & (vi)_mm256_maskload_ps(p, (__m256i)m)) | (~m & (vi)vset(pad)));
#else
	vf v = vset(pad);
	for (long i = 0; i < VL; i++)
		if (i < n) v[i] = p[i];
	return v;
#endif
}

// vstore_n writes the first n (0..VL) floats of v.
INLINE void vstore_n(float *p, vf v, long n) {
#if VL == 16
	_mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), (__m512)v);
#elif VL == 8
	_mm256_maskstore_ps(p, (__m256i)((vi)GTC_LANES < vseti((int32_t)n)), (__m256)v);
#else
	for (long i = 0; i < VL; i++)
		if (i < n) p[i] = v[i];
#endif
}

// vsel returns a where mask is set (all ones) and b elsewhere.
INLINE vf vsel(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }
// vmax and vmin give b when either is NaN.
#if VL == 16
INLINE vf vmax(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf vmin(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
#else
INLINE vf vmax(vf a, vf b) { return vsel(a > b, a, b); }
INLINE vf vmin(vf a, vf b) { return vsel(a < b, a, b); }
#endif

// gtc_transpose4 transposes a 4x4 block of 4-byte elements: row i of the source at src + i*ld, of the result at dst + i*ldd.
typedef uint32_t gtc_v4 __attribute__((vector_size(16)));
typedef uint32_t gtc_v4u __attribute__((vector_size(16), aligned(4), may_alias));
#ifdef __clang__
#define GTC_MIX(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define GTC_MIX(a, b, i, j, k, l) __builtin_shuffle(a, b, (gtc_v4){i, j, k, l})
#endif
INLINE void gtc_transpose4(void *dst, long ldd, const void *src, long ld) {
	const uint32_t *s = src;
	uint32_t *o = dst;
	gtc_v4 a = *(const gtc_v4u *)s, b = *(const gtc_v4u *)(s + ld);
	gtc_v4 c = *(const gtc_v4u *)(s + 2 * ld), d = *(const gtc_v4u *)(s + 3 * ld);
	gtc_v4 ab0 = GTC_MIX(a, b, 0, 4, 1, 5), ab1 = GTC_MIX(a, b, 2, 6, 3, 7);
	gtc_v4 cd0 = GTC_MIX(c, d, 0, 4, 1, 5), cd1 = GTC_MIX(c, d, 2, 6, 3, 7);
	*(gtc_v4u *)o = GTC_MIX(ab0, cd0, 0, 1, 4, 5);
	*(gtc_v4u *)(o + ldd) = GTC_MIX(ab0, cd0, 2, 3, 6, 7);
	*(gtc_v4u *)(o + 2 * ldd) = GTC_MIX(ab1, cd1, 0, 1, 4, 5);
	*(gtc_v4u *)(o + 3 * ldd) = GTC_MIX(ab1, cd1, 2, 3, 6, 7);
}

// vswap exchanges lanes whose indices differ in bit w; log2(VL) of them reduce a vector without leaving registers.
#ifdef __clang__
INLINE vf vswap(vf v, int w) {
	vf r;
	for (int i = 0; i < VL; i++) r[i] = v[i ^ w];
	return r;
}
#else
INLINE vf vswap(vf v, int w) { return __builtin_shuffle(v, (vi)GTC_LANES ^ w); }
#endif

// Horizontal reductions in a fixed (pairwise) order, so that a result never depends on timing.
INLINE float vsum(vf v) {
#pragma GCC unroll 4
	for (int w = VL / 2; w > 0; w /= 2) v += vswap(v, w);
	return v[0];
}
INLINE float vhmax(vf v) {
#pragma GCC unroll 4
	for (int w = VL / 2; w > 0; w /= 2) v = vmax(v, vswap(v, w));
	return v[0];
}

#endif
