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

#if VL == 16
// max_pairs is max_row for windows two wide and two apart that lie wholly inside the image: no edges to work out.
static void max_pairs(const float *x, float *y, int32_t *idx, const pool_dims *d, long h0) {
	const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0), one = _mm512_set1_epi32(1);
	const __m512i odd = _mm512_add_epi32(even, one), below = _mm512_set1_epi32((int32_t)d->W);
	for (long j = 0; j < d->OW; j += VL) {
		long n = min_l(VL, d->OW - j), m = 2 * n;
		__mmask16 lo = (__mmask16)((1u << min_l(m, VL)) - 1u), hi = (__mmask16)((1u << max_l(m - VL, 0)) - 1u), out = (__mmask16)((1u << n) - 1u);
		__m512i pos = _mm512_add_epi32(_mm512_set1_epi32((int32_t)(h0 * d->W + 2 * j)), even), at = pos;
		__m512 best = _mm512_set1_ps(-__builtin_inff());
		for (long kh = 0; kh < d->KH; kh++) {
			const float *p = x + (h0 + kh) * d->W + 2 * j;
			__m512 a = _mm512_maskz_loadu_ps(lo, p), b = _mm512_maskz_loadu_ps(hi, p + VL);
			__m512 u = _mm512_permutex2var_ps(a, even, b), v = _mm512_permutex2var_ps(a, odd, b);
			__mmask16 k = _mm512_cmp_ps_mask(u, best, _CMP_GT_OQ) | _mm512_cmp_ps_mask(u, u, _CMP_UNORD_Q);
			best = _mm512_mask_mov_ps(best, k, u);
			at = _mm512_mask_mov_epi32(at, k, pos);
			k = _mm512_cmp_ps_mask(v, best, _CMP_GT_OQ) | _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
			best = _mm512_mask_mov_ps(best, k, v);
			at = _mm512_mask_add_epi32(at, k, pos, one);
			pos = _mm512_add_epi32(pos, below);
		}
		_mm512_mask_storeu_ps(y + j, out, best);
		_mm512_mask_storeu_epi32(idx + j, out, at);
	}
}

static int pairs(const pool_dims *d) {
	return d->KW == 2 && d->strideW == 2 && d->dilW == 1 && d->dilH == 1 && !d->padT && !d->padL && 2 * d->OW <= d->W &&
	       (d->OH - 1) * d->strideH + d->KH <= d->H;
}
#else
static void max_pairs(const float *x, float *y, int32_t *idx, const pool_dims *d, long h0) {
	max_row(x, y, idx, d, h0 / d->strideH);
}
static int pairs(const pool_dims *d) { return 0; }
#endif

void gtc_maxpool_fwd(const float *x, float *y, int32_t *idx, const pool_dims *d) {
	long planes = d->N * d->C, out = d->OH * d->OW;
	int nt = gtc_for_threads((double)planes * (double)out * (double)(d->KH * d->KW)), inside = pairs(d);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long p = 0; p < planes; p++) {
		const float *plane = x + p * d->H * d->W;
		float *yp = y + p * out;
		int32_t *ip = idx + p * out;
		for (long i = 0; i < d->OH; i++)
			if (inside)
				max_pairs(plane, yp + i * d->OW, ip + i * d->OW, d, i * d->strideH);
			else
				max_row(plane, yp + i * d->OW, ip + i * d->OW, d, i);
	}
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

// taps counts the taps of one window that divide its average: those before the padded end when include is 1, one when it
// is 2 (a sum), else those inside the image.
static long taps(long start, long k, long dil, long size, long end, long include) {
	long n = 0;
	if (include == 2) return 1;
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
