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

// max_tap folds one tap into a row of maxima. A NaN wins, as in PyTorch; ties keep the earlier position.
INLINE void max_tap(const float *x, long stride, float *restrict y, int32_t *restrict idx, int32_t at, long lo, long hi) {
#pragma omp simd
	for (long j = lo; j < hi; j++) {
		float v = x[j * stride], m = y[j];
		int take = (v > m) | (v != v);
		y[j] = take ? v : m;
		idx[j] = take ? at + (int32_t)(j * stride) : idx[j];
	}
}

static void max_row(const float *x, float *y, int32_t *idx, const pool_dims *d, long oh) {
	long h0 = oh * d->strideH - d->padT, hf = h0;
	while (hf < 0) hf += d->dilH;
	for (long j = 0; j < d->OW; j++) {
		long w = j * d->strideW - d->padL;
		while (w < 0) w += d->dilW;
		y[j] = -__builtin_inff();
		idx[j] = (int32_t)(hf * d->W + w); // the window's first element, for windows of -inf
	}
	for (long kh = 0; kh < d->KH; kh++) {
		long ih = h0 + kh * d->dilH;
		if (ih < 0 || ih >= d->H) continue;
		for (long kw = 0; kw < d->KW; kw++) {
			long o = kw * d->dilW - d->padL, lo, hi;
			out_range(o, d->strideW, d->W, d->OW, &lo, &hi);
			int32_t at = (int32_t)(ih * d->W + o);
			if (d->strideW == 1)
				max_tap(x + ih * d->W + o, 1, y, idx, at, lo, hi);
			else if (d->strideW == 2)
				max_tap(x + ih * d->W + o, 2, y, idx, at, lo, hi);
			else
				max_tap(x + ih * d->W + o, d->strideW, y, idx, at, lo, hi);
		}
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
