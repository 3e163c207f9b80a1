// Max and average pooling over NCHW planes; a thread owns whole planes.
#include "pool.h"

#include "threads.h"
#include "vec.h"

static long max_l(long a, long b) { return a > b ? a : b; }
static long min_l(long a, long b) { return a < b ? a : b; }
static long ceil_div(long a, long b) { return (a + b - 1) / b; }

// out_range gives the outputs [lo, hi) whose tap at offset o (which may be negative) falls inside [0, size).
static void out_range(long o, long stride, long size, long outs, long *lo, long *hi) {
	*lo = o >= 0 ? 0 : min_l(outs, ceil_div(-o, stride));
	*hi = size - 1 - o < 0 ? 0 : min_l(outs, (size - 1 - o) / stride + 1);
	if (*hi < *lo) *hi = *lo;
}

// strided reads n (1..VL) floats stride apart; other lanes are unspecified. It touches nothing past the last of them.
INLINE vf strided(const float *p, long stride, long n) {
	if (stride == 1) return vload_n(p, n, 0);
#if VL == 16
	if (stride == 2) {
		long m = 2 * n - 1;
		vf a = vload_n(p, min_l(m, VL), 0), b = m > VL ? vload_n(p + VL, m - VL, 0) : a;
		__m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
		return (vf)_mm512_permutex2var_ps((__m512)a, even, (__m512)b);
	}
#endif
	vf v = vset(0);
	for (long i = 0; i < n; i++) v[i] = p[i * stride];
	return v;
}

// max_row computes one row of outputs, VL at a time, taps in row-major order: a NaN wins, as in PyTorch; ties keep the
// earlier position.
static void max_row(const float *x, float *y, int32_t *idx, const pool_dims *d, long oh) {
	long h0 = oh * d->strideH - d->padT, hf = h0;
	while (hf < 0) hf += d->dilH;
	const vi lanes = GTC_LANES;
	for (long j = 0; j < d->OW; j += VL) {
		long nj = min_l(VL, d->OW - j);
		vi pos = lanes * (int32_t)d->strideW, col = vseti((int32_t)(j * d->strideW - d->padL)) + pos;
		for (long k = 0; k < d->KW && d->padL > 0; k++) col = col + (col < 0) * -(int32_t)d->dilW;
		vf best = vset(-__builtin_inff());
		vi at = col + (int32_t)(hf * d->W); // the window's first element, for windows of -inf
		for (long kh = 0; kh < d->KH; kh++) {
			long ih = h0 + kh * d->dilH;
			if (ih < 0 || ih >= d->H) continue;
			for (long kw = 0; kw < d->KW; kw++) {
				long o = j * d->strideW + kw * d->dilW - d->padL, lo, hi;
				out_range(o, d->strideW, d->W, nj, &lo, &hi);
				if (hi <= lo) continue;
				const float *p = x + ih * d->W + o;
				vf v = vset(0);
				if (lo == 0)
					v = strided(p, d->strideW, hi);
				else
					for (long i = lo; i < hi; i++) v[i] = p[i * d->strideW];
				vi take = (vi)((v > best) | (v != v)) & (lanes >= (int32_t)lo) & (lanes < (int32_t)hi);
				best = vsel(take, v, best);
				at = (take & (vseti((int32_t)(ih * d->W + o)) + pos)) | (~take & at);
			}
		}
		vstore_n(y + j, best, nj);
		vstore_n((float *)(idx + j), (vf)at, nj);
	}
}

void gtc_maxpool_fwd(const float *x, float *y, int32_t *idx, const pool_dims *d) {
	long planes = d->N * d->C, out = d->OH * d->OW;
	int nt = gtc_for_threads((double)planes * (double)out * (double)(d->KH * d->KW));
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long p = 0; p < planes; p++)
		for (long i = 0; i < d->OH; i++)
			max_row(x + p * d->H * d->W, y + p * out + i * d->OW, idx + p * out + i * d->OW, d, i);
}

void gtc_maxpool_bwd(const float *dy, const int32_t *idx, float *dx, const pool_dims *d) {
	long planes = d->N * d->C, out = d->OH * d->OW, in = d->H * d->W;
	int nt = gtc_for_threads((double)planes * (double)(out + in));
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long p = 0; p < planes; p++) {
		float *g = dx + p * in;
		memset(g, 0, (size_t)in * sizeof(float));
		for (long i = 0; i < out; i++) g[idx[p * out + i]] += dy[p * out + i];
	}
}

// taps counts the taps of one window that divide its average: those before the padded end with includePad, else those
// inside the image.
static long taps(long start, long k, long dil, long size, long end, long include) {
	long n = 0;
	for (long i = 0; i < k; i++) {
		long at = start + i * dil;
		n += include ? at < end : at >= 0 && at < size;
	}
	return max_l(n, 1);
}

// avg_scales fills 1 / (taps of column j) for every output column.
static void avg_scales(float *s, const pool_dims *d) {
	for (long j = 0; j < d->OW; j++)
		s[j] = 1.0f / (float)taps(j * d->strideW - d->padL, d->KW, d->dilW, d->W, d->W + d->padR, d->includePad);
}

void gtc_avgpool_fwd(const float *x, float *y, const pool_dims *d) {
	long planes = d->N * d->C, out = d->OH * d->OW;
	int nt = gtc_for_threads((double)planes * (double)out * (double)(d->KH * d->KW));
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long p = 0; p < planes; p++) {
		float *s = gtc_scratch((size_t)d->OW * sizeof(float));
		avg_scales(s, d);
		for (long i = 0; i < d->OH; i++) {
			float *r = y + p * out + i * d->OW;
			long h0 = i * d->strideH - d->padT;
			memset(r, 0, (size_t)d->OW * sizeof(float));
			for (long kh = 0; kh < d->KH; kh++)
				for (long kw = 0; kw < d->KW; kw++) {
					long ih = h0 + kh * d->dilH, o = kw * d->dilW - d->padL, lo, hi;
					if (ih < 0 || ih >= d->H) continue;
					out_range(o, d->strideW, d->W, d->OW, &lo, &hi);
					const float *q = x + p * d->H * d->W + ih * d->W + o;
					for (long j = lo; j < hi; j++) r[j] += q[j * d->strideW];
				}
			float f = 1.0f / (float)taps(h0, d->KH, d->dilH, d->H, d->H + d->padB, d->includePad);
			for (long j = 0; j < d->OW; j++) r[j] *= f * s[j];
		}
	}
}

void gtc_avgpool_bwd(const float *dy, float *dx, const pool_dims *d) {
	long planes = d->N * d->C, out = d->OH * d->OW, in = d->H * d->W;
	int nt = gtc_for_threads((double)planes * (double)out * (double)(d->KH * d->KW));
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long p = 0; p < planes; p++) {
		float *s = gtc_scratch((size_t)d->OW * sizeof(float));
		avg_scales(s, d);
		memset(dx + p * in, 0, (size_t)in * sizeof(float));
		for (long i = 0; i < d->OH; i++) {
			const float *r = dy + p * out + i * d->OW;
			long h0 = i * d->strideH - d->padT;
			float f = 1.0f / (float)taps(h0, d->KH, d->dilH, d->H, d->H + d->padB, d->includePad);
			for (long kh = 0; kh < d->KH; kh++)
				for (long kw = 0; kw < d->KW; kw++) {
					long ih = h0 + kh * d->dilH, o = kw * d->dilW - d->padL, lo, hi;
					if (ih < 0 || ih >= d->H) continue;
					out_range(o, d->strideW, d->W, d->OW, &lo, &hi);
					float *q = dx + p * in + ih * d->W + o;
					for (long j = lo; j < hi; j++) q[j * d->strideW] += r[j] * (f * s[j]);
				}
		}
	}
}
