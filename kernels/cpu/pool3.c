// Plain loops over windows of up to three dims, for the shapes and element types that pool.c does not take.
#include "pool3.h"

#include <string.h>

#include "elem.h"
#include "threads.h"
#include "vec.h"

// taps are the positions of one window along one dim: first, first + step, … of them count.
typedef struct {
	long first, count;
} taps;

static taps taps_of(const pool3_dims *d, int i, long o) {
	long start = o * d->stride[i] - d->low[i], skip = start < 0 ? (-start + d->dil[i] - 1) / d->dil[i] : 0;
	taps t = {start + skip * d->dil[i], d->k[i] - skip};
	long room = t.first < d->in[i] ? (d->in[i] - 1 - t.first) / d->dil[i] + 1 : 0;
	if (t.count > room) t.count = room;
	if (t.count < 0) t.count = 0;
	return t;
}

// taps3 counts what a window's sum is divided by: mode 0 the taps inside the image, 1 those before the padded end, 2 one.
static double taps3(const pool3_dims *d, const taps *t, long a, long b, long c) {
	if (d->mode == 2) return 1;
	long at[3] = {a, b, c}, n = 1;
	for (int i = 0; i < 3; i++) {
		long m = t[i].count;
		if (d->mode == 1) {
			long start = at[i] * d->stride[i] - d->low[i], room = (d->in[i] + d->high[i] - 1 - start) / d->dil[i] + 1;
			m = d->k[i] < room ? d->k[i] : room;
		}
		n *= m;
	}
	return n < 1 ? 1 : (double)n;
}

// WINDOWS runs over the outputs o of a plane, with the taps t of each.
#define GTC_WINDOWS(...)                                                                          \
	long o = 0;                                                                                  \
	for (long a = 0; a < d->out[0]; a++)                                                         \
		for (long b = 0; b < d->out[1]; b++)                                                 \
			for (long c = 0; c < d->out[2]; c++, o++) {                                  \
				taps t[3] = {taps_of(d, 0, a), taps_of(d, 1, b), taps_of(d, 2, c)};  \
				__VA_ARGS__                                                                 \
			}
// TAPS runs over the positions p of a window in the plane, in row-major order.
#define GTC_TAPS(...)                                                                                                      \
	for (long i = 0; i < t[0].count; i++)                                                                                 \
		for (long j = 0; j < t[1].count; j++)                                                                         \
			for (long k = 0; k < t[2].count; k++) {                                                               \
				long p = ((t[0].first + i * d->dil[0]) * d->in[1] + t[1].first + j * d->dil[1]) * d->in[2] +   \
					 t[2].first + k * d->dil[2];                                                          \
				__VA_ARGS__                                                                                          \
			}

#define GTC_MAX3(CODE, T, A)                                                                               \
	static void max3_##T(const T *x, T *y, int32_t *idx, const pool3_dims *d) {                        \
		GTC_WINDOWS({                                                                              \
			T best = 0;                                                                        \
			long at = -1;                                                                      \
			GTC_TAPS(if (at < 0 || x[p] > best || (x[p] != x[p] && best == best)) best = x[p], at = p;) \
			y[o] = best, idx[o] = (int32_t)at;                                                 \
		})                                                                                         \
	}
GTC_ARITH(GTC_MAX3)

#define GTC_MEAN3(T)                                                                                \
	static void mean3_##T(const T *x, T *y, const pool3_dims *d) {                              \
		GTC_WINDOWS({                                                                       \
			double sum = 0;                                                             \
			GTC_TAPS(sum += (double)x[p];)                                              \
			y[o] = (T)(sum / taps3(d, t, a, b, c));                                     \
		})                                                                                  \
	}                                                                                           \
	static void mean3_back_##T(const T *dy, T *dx, const pool3_dims *d) {                       \
		GTC_WINDOWS({                                                                       \
			T g = (T)((double)dy[o] / taps3(d, t, a, b, c));                            \
			GTC_TAPS(dx[p] += g;)                                                       \
		})                                                                                  \
	}                                                                                           \
	static void max3_back_##T(const T *dy, const int32_t *idx, T *dx, long n) {                 \
		for (long o = 0; o < n; o++)                                                        \
			if (idx[o] >= 0) dx[idx[o]] += dy[o];                                       \
	}
GTC_MEAN3(float)
GTC_MEAN3(double)

static long volume(const long *v) { return v[0] * v[1] * v[2]; }

static int team_for(const pool3_dims *d) {
	return gtc_for_threads((double)d->planes * (double)volume(d->out) * (double)volume(d->k));
}

void gtc_maxpool3_fwd(const void *x, void *y, int32_t *idx, const pool3_dims *d) {
	long in = volume(d->in), out = volume(d->out);
	int nt = team_for(d);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long p = 0; p < d->planes; p++) {
#define GTC_MAX3_AS(CODE, T, A) \
	case CODE: max3_##T((const T *)x + p * in, (T *)y + p * out, idx + p * out, d); break;
		switch (d->elem) { GTC_ARITH(GTC_MAX3_AS) }
	}
}

void gtc_maxpool3_bwd(const void *dy, const int32_t *idx, void *dx, const pool3_dims *d) {
	long in = volume(d->in), out = volume(d->out), size = gtc_elem_size(d->elem);
	int nt = team_for(d);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long p = 0; p < d->planes; p++) {
		memset((char *)dx + p * in * size, 0, (size_t)(in * size));
		if (d->elem == GTC_F64)
			max3_back_double((const double *)dy + p * out, idx + p * out, (double *)dx + p * in, out);
		else
			max3_back_float((const float *)dy + p * out, idx + p * out, (float *)dx + p * in, out);
	}
}

void gtc_avgpool3_fwd(const void *x, void *y, const pool3_dims *d) {
	long in = volume(d->in), out = volume(d->out);
	int nt = team_for(d);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long p = 0; p < d->planes; p++) {
		if (d->elem == GTC_F64)
			mean3_double((const double *)x + p * in, (double *)y + p * out, d);
		else
			mean3_float((const float *)x + p * in, (float *)y + p * out, d);
	}
}

void gtc_avgpool3_bwd(const void *dy, void *dx, const pool3_dims *d) {
	long in = volume(d->in), out = volume(d->out), size = gtc_elem_size(d->elem);
	int nt = team_for(d);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long p = 0; p < d->planes; p++) {
		memset((char *)dx + p * in * size, 0, (size_t)(in * size));
		if (d->elem == GTC_F64)
			mean3_back_double((const double *)dy + p * out, (double *)dx + p * in, d);
		else
			mean3_back_float((const float *)dy + p * out, (float *)dx + p * in, d);
	}
}
