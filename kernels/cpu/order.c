// The k greatest or least elements along a dim, in order, and running sums and products.
#include <string.h>

#include "elem.h"
#include "index.h"
#include "threads.h"
#include "vec.h"

// place is an element: the smaller key is the better one, and the earlier position among equals.
typedef struct {
	uint64_t key;
	int64_t at;
} place;

INLINE int before(place a, place b) { return a.key < b.key || (a.key == b.key && a.at < b.at); }

// float_key maps the bits of a float of some width, shifted to the top, to a number of the same order. Both zeros are
// one, NaN is the greatest.
INLINE uint64_t float_key(uint64_t bits, uint64_t inf) {
	uint64_t sign = 1ull << 63, mag = bits & ~sign;
	if (mag > inf) return UINT64_MAX;
	if (mag == 0) return sign;
	return bits & sign ? ~bits : bits | sign;
}

static uint64_t key_of(const void *x, long i, long elem) {
	uint64_t b = 0;
	switch (elem) {
	case GTC_F64: return float_key(((const uint64_t *)x)[i], 0x7ffull << 52);
	case GTC_F32: return float_key((uint64_t)((const uint32_t *)x)[i] << 32, 0x7f8ull << 52);
	case GTC_F16: return float_key((uint64_t)((const uint16_t *)x)[i] << 48, 0x7c0ull << 52);
	case GTC_BF16: return float_key((uint64_t)((const uint16_t *)x)[i] << 48, 0x7f8ull << 52);
	case GTC_I8: b = (uint64_t)((const int8_t *)x)[i]; break;
	case GTC_I16: b = (uint64_t)((const int16_t *)x)[i]; break;
	case GTC_I32: b = (uint64_t)((const int32_t *)x)[i]; break;
	case GTC_I64: b = (uint64_t)((const int64_t *)x)[i]; break;
	case GTC_U16: return ((const uint16_t *)x)[i];
	case GTC_U32: return ((const uint32_t *)x)[i];
	case GTC_U64: return ((const uint64_t *)x)[i];
	default: return ((const uint8_t *)x)[i];
	}
	return b ^ 1ull << 63;
}

// sift moves the worst of the heap h of k to its root, from a root that may be better than its children.
static void sift(place *h, long k, long i) {
	for (long c = 2 * i + 1; c < k; i = c, c = 2 * i + 1) {
		if (c + 1 < k && before(h[c], h[c + 1])) c++;
		if (!before(h[i], h[c])) return;
		place t = h[i];
		h[i] = h[c], h[c] = t;
	}
}

// sort_places is a merge sort, bottom up, of v with spare room w; the result is where it returns.
static place *sort_places(place *v, place *w, long n) {
	for (long run = 1; run < n; run *= 2) {
		for (long lo = 0; lo < n; lo += 2 * run) {
			long mid = lo + run < n ? lo + run : n, hi = mid + run < n ? mid + run : n, i = lo, j = mid;
			for (long o = lo; o < hi; o++) w[o] = j >= hi || (i < mid && !before(v[j], v[i])) ? v[i++] : v[j++];
		}
		place *t = v;
		v = w, w = t;
	}
	return v;
}

// lane orders one lane of n elements that lie stride apart and writes its k best.
static void lane(const void *x, char *values, int64_t *at, long from, long to, const topk_dims *d, place *v) {
	long size = gtc_elem_size(d->elem), kept = 0, heap = d->k < d->n / 4;
	uint64_t flip = d->largest ? UINT64_MAX : 0;
	for (long i = 0; i < d->n; i++) {
		place p = {key_of(x, from + i * d->inner, d->elem) ^ flip, i};
		if (!heap || kept < d->k) {
			v[kept++] = p;
			if (heap && kept == d->k)
				for (long r = d->k / 2 - 1; r >= 0; r--) sift(v, d->k, r);
		} else if (before(p, v[0])) {
			v[0] = p;
			sift(v, d->k, 0);
		}
	}
	v = sort_places(v, v + kept, kept);
	for (long j = 0; j < d->k; j++) {
		memcpy(values + (to + j * d->inner) * size, (const char *)x + (from + v[j].at * d->inner) * size, (size_t)size);
		at[to + j * d->inner] = v[j].at;
	}
}

void gtc_topk(const void *x, void *values, int64_t *at, const topk_dims *d) {
	if (d->k == 0) return;
	long lanes = d->outer * d->inner;
	int nt = gtc_for_threads((double)lanes * (double)d->n * 4);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long t = 0; t < lanes; t++) {
		long o = t / d->inner, w = t % d->inner;
		place *v = gtc_scratch(2 * (size_t)d->n * sizeof(place));
		lane(x, values, at, o * d->n * d->inner + w, o * d->k * d->inner + w, d, v);
	}
}

enum { BAND = 64 };

// scan runs over a band of w lanes; sums of floats are kept in double, as PyTorch does on CPU.
#define GTC_SCAN(CODE, T, A)                                                                                      \
	static void scan_##T(const T *x, T *y, const scan_dims *d, long w) {                                      \
		A acc[BAND];                                                                                      \
		for (long j = 0; j < w; j++) acc[j] = (A)d->product;                                              \
		for (long i = 0; i < d->n; i++) {                                                                 \
			long at = (d->reverse ? d->n - 1 - i : i) * d->inner;                                     \
			for (long j = 0; j < w; j++) {                                                            \
				A next = d->product ? acc[j] * (A)x[at + j] : acc[j] + (A)x[at + j];              \
				y[at + j] = (T)(d->exclusive ? acc[j] : next);                                    \
				acc[j] = next;                                                                    \
			}                                                                                         \
		}                                                                                                 \
	}
GTC_ARITH(GTC_SCAN)

void gtc_scan(const void *x, void *y, const scan_dims *d) {
	long bands = (d->inner + BAND - 1) / BAND;
	int nt = gtc_for_threads((double)d->outer * (double)d->n * (double)d->inner);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long t = 0; t < d->outer * bands; t++) {
		long w = t % bands * BAND, at = t / bands * d->n * d->inner + w, n = d->inner - w < BAND ? d->inner - w : BAND;
#define GTC_SCAN_AS(CODE, T, A) \
	case CODE: scan_##T((const T *)x + at, (T *)y + at, d, n); break;
		switch (d->elem) { GTC_ARITH(GTC_SCAN_AS) }
	}
}
