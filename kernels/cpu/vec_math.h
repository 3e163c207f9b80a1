// gtc_math.h's exponential on explicit vectors, for kernels that keep whole rows in registers.
#ifndef GTC_VEC_MATH_H
#define GTC_VEC_MATH_H

#include "vec.h"

// vexp: e^x as gtc_expf computes it, with results below the smallest normal float flushed to 0: masked scores are common
// in softmax, and arithmetic that makes a denormal costs over a hundred cycles.
INLINE vf vexp(vf x) {
	vf c = vmin(vset(89.0f), vmax(vset(-87.3f), x));
	vf n = (c * 1.44269504f + 12582912.0f) - 12582912.0f;
	vf r = c - n * 0.693359375f;
	r = r + n * 2.12194440e-4f;
	vf q = 0.00139508335f * r + 0.00836908828f;
	q = q * r + 0.0416662007f;
	q = q * r + 0.166665172f;
	q = q * r + 0.50000001f;
	vf p = r + r * r * q + 1.0f;
#if VL == 16
	vf y = (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
	return (vf)_mm512_mask_mov_ps(_mm512_setzero_ps(), _mm512_cmp_ps_mask((__m512)x, (__m512)vset(-87.3f), _CMP_NLT_UQ), (__m512)y);
#else
	vi i = __builtin_convertvector(n, vi), h = i >> 1;
	return vsel(x < -87.3f, vset(0), p * (vf)((h + 127) << 23) * (vf)((i - h + 127) << 23));
#endif
}

#endif
