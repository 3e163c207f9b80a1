// gtc_math.h's exponential on explicit vectors, for kernels that keep whole rows in registers.
#ifndef GTC_VEC_MATH_H
#define GTC_VEC_MATH_H

#include "vec.h"

// vexp: e^x as gtc_expf computes it, e^-inf = 0.
INLINE vf vexp(vf x) {
	vf c = vmax(vmin(vset(89.0f), x), vset(-104.0f));
	vf n = (c * 1.44269504f + 12582912.0f) - 12582912.0f;
	vf r = c - n * 0.693359375f;
	r = r + n * 2.12194440e-4f;
	vf q = 0.00139508335f * r + 0.00836908828f;
	q = q * r + 0.0416662007f;
	q = q * r + 0.166665172f;
	q = q * r + 0.50000001f;
	vf p = r + r * r * q + 1.0f;
#if VL == 16
	return (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
	vi i = __builtin_convertvector(n, vi), h = i >> 1;
	return p * (vf)((h + 127) << 23) * (vf)((i - h + 127) << 23);
#endif
}

#endif
