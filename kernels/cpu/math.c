// Elementwise maps over gtc_math.h, so that tests reach its functions in the vectorised form that kernels use.
#include "gtc_math.h"

#define GTC_MAP(name, expr)                                                            \
	static void map_##name(const float *x, const float *y, float *out, long n) {   \
		(void)y;                                                               \
		_Pragma("omp simd") for (long i = 0; i < n; i++) out[i] = (expr);      \
	}
GTC_MAP(exp, gtc_expf(x[i]))
GTC_MAP(log, gtc_logf(x[i]))
GTC_MAP(log1p, gtc_log1pf(x[i]))
GTC_MAP(expm1, gtc_expm1f(x[i]))
GTC_MAP(tanh, gtc_tanhf(x[i]))
GTC_MAP(sigmoid, gtc_sigmoidf(x[i]))
GTC_MAP(softplus, gtc_softplusf(x[i]))
GTC_MAP(erf, gtc_erff(x[i]))
GTC_MAP(sqrt, gtc_sqrtf(x[i]))
GTC_MAP(rsqrt, gtc_rsqrtf(x[i]))
GTC_MAP(sin, gtc_sinf(x[i]))
GTC_MAP(cos, gtc_cosf(x[i]))
GTC_MAP(pow, gtc_powf(x[i], y[i]))
GTC_MAP(max, gtc_maxf(x[i], y[i]))
GTC_MAP(min, gtc_minf(x[i], y[i]))
GTC_MAP(ncdf, gtc_ncdff(x[i]))

typedef void (*map_fn)(const float *, const float *, float *, long);
static const map_fn maps[] = {map_exp, map_log, map_log1p, map_expm1, map_tanh, map_sigmoid, map_softplus, map_erf,
			      map_sqrt, map_rsqrt, map_sin, map_cos, map_pow, map_max, map_min, map_ncdf};

void gtc_map(const float *x, const float *y, float *out, long fn, long n) {
	if (fn >= 0 && fn < (long)(sizeof maps / sizeof maps[0])) maps[fn](x, y, out, n);
}
