// Permutation of dims. Dims of one element are dropped and neighbours that stay neighbours are merged; what remains
// is either runs of contiguous bytes or, per outer index, a plane that is transposed in blocks.
#include "permute.h"

#include <stdint.h>

#include "threads.h"
#include "vec.h"

enum { BLOCK = 32 };

// plan is the reduced problem in output order: extent and input stride (elements) of each dim.
typedef struct {
	long n, ext[6], str[6];
} plan;

static plan reduce(const perm_dims *d) {
	long in[6], s = 1;
	for (long i = d->n - 1; i >= 0; i--) in[i] = s, s *= d->d[i];
	plan q = {0, {0}, {0}};
	for (long i = 0; i < d->n; i++) {
		long e = d->d[d->p[i]], st = in[d->p[i]];
		if (e == 1) continue;
		if (q.n > 0 && q.str[q.n - 1] == e * st) { // the previous output dim runs straight on into this one
			q.ext[q.n - 1] *= e;
			q.str[q.n - 1] = st;
			continue;
		}
		q.ext[q.n] = e, q.str[q.n] = st, q.n++;
	}
	return q;
}

// offset gives the input offset of flat index i over the first n dims of the plan.
static long offset(const plan *q, long n, long i) {
	long o = 0;
	for (long k = n - 1; k >= 0; k--) o += i % q->ext[k] * q->str[k], i /= q->ext[k];
	return o;
}

#define GTC_PLANE(T)                                                                                              \
	static void plane_##T(const T *in, T *out, long rows, long cols, long is, long os) {                      \
		for (long i = 0; i < rows; i++)                                                                   \
			for (long j = 0; j < cols; j++) out[i * os + j] = in[j * is + i];                         \
	}
GTC_PLANE(uint8_t)
GTC_PLANE(uint16_t)
GTC_PLANE(uint64_t)

// plane_uint32_t transposes 4x4 blocks in registers.
static void plane_uint32_t(const uint32_t *in, uint32_t *out, long rows, long cols, long is, long os) {
	long i = 0, full = cols / 4 * 4;
	for (; i + 4 <= rows; i += 4) {
		for (long j = 0; j < full; j += 4) gtc_transpose4(out + i * os + j, os, in + j * is + i, is);
		for (long j = full; j < cols; j++)
			for (long r = 0; r < 4; r++) out[(i + r) * os + j] = in[j * is + i + r];
	}
	for (; i < rows; i++)
		for (long j = 0; j < cols; j++) out[i * os + j] = in[j * is + i];
}

// block_plane transposes one rows x cols block of elements of the given size.
static void block_plane(const char *in, char *out, long rows, long cols, long is, long os, long size) {
	switch (size) {
	case 1: plane_uint8_t((const uint8_t *)in, (uint8_t *)out, rows, cols, is, os); break;
	case 2: plane_uint16_t((const uint16_t *)in, (uint16_t *)out, rows, cols, is, os); break;
	case 4: plane_uint32_t((const uint32_t *)in, (uint32_t *)out, rows, cols, is, os); break;
	case 8: plane_uint64_t((const uint64_t *)in, (uint64_t *)out, rows, cols, is, os); break;
	}
}

// copy_runs handles a last dim that is contiguous on both sides: runs along the last dim but one share an offset.
static void copy_runs(const char *in, char *out, const plan *q, long size, int nt) {
	long outer = 1, run = q->ext[q->n - 1] * size, inner = q->n > 1 ? q->ext[q->n - 2] : 1, step = q->n > 1 ? q->str[q->n - 2] * size : 0;
	for (long k = 0; k < q->n - 2; k++) outer *= q->ext[k];
	int fold = outer < nt; // few outer dims: share the runs themselves
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long t = 0; t < (fold ? outer * inner : outer); t++) {
		long i = fold ? t / inner : t, j0 = fold ? t % inner : 0, j1 = fold ? j0 + 1 : inner;
		const char *s = in + offset(q, q->n - 2, i) * size;
		char *o = out + i * inner * run;
		for (long j = j0; j < j1; j++) {
			if (run % 64 == 0 && run <= 512)
				for (long r = 0; r < run; r += 64) memcpy(o + j * run + r, s + j * step + r, 64);
			else
				memcpy(o + j * run, s + j * step, (size_t)run);
		}
	}
}

// copy_planes transposes the last output dim against the output dim that is contiguous in the input.
static void copy_planes(const char *in, char *out, const plan *q, long size, int nt) {
	long c = 0, cols = q->ext[q->n - 1], is = q->str[q->n - 1];
	while (q->str[c] != 1) c++;
	plan rest = {0, {0}, {0}}; // the other dims, with their output strides
	long ostr[6], os = 1, outs[6], outer = 1;
	for (long k = q->n - 1; k >= 0; k--) outs[k] = os, os *= q->ext[k];
	for (long k = 0; k < q->n - 1; k++) {
		if (k == c) continue;
		rest.ext[rest.n] = q->ext[k], rest.str[rest.n] = q->str[k], ostr[rest.n] = outs[k], rest.n++;
		outer *= q->ext[k];
	}
	plan dst = rest;
	memcpy(dst.str, ostr, sizeof ostr);
	long rows = q->ext[c], bands = (rows + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long t = 0; t < outer * bands; t++) {
		long i = t / bands, r0 = t % bands * BLOCK, nr = rows - r0 < BLOCK ? rows - r0 : BLOCK;
		const char *s = in + (offset(&rest, rest.n, i) + r0) * size;
		char *o = out + (offset(&dst, dst.n, i) + r0 * outs[c]) * size;
		for (long j = 0; j < cols; j += BLOCK)
			block_plane(s + j * is * size, o + j * size, nr, cols - j < BLOCK ? cols - j : BLOCK, is, outs[c], size);
	}
}

void gtc_transpose(const void *in, void *out, const perm_dims *d) {
	long total = d->size;
	for (long i = 0; i < d->n; i++) total *= d->d[i];
	if (total == 0) return;
	plan q = reduce(d);
	int nt = gtc_for_threads((double)total / 16);
	if (q.n == 0 || (q.n == 1 && q.str[0] == 1))
		gtc_copy(in, out, total);
	else if (q.str[q.n - 1] == 1)
		copy_runs(in, out, &q, d->size, nt);
	else
		copy_planes(in, out, &q, d->size, nt);
}

void gtc_fill(float *out, long n, float value) {
	int nt = gtc_for_threads((double)n / 4);
#pragma omp parallel for simd schedule(static) num_threads(nt) if (parallel : nt > 1)
	for (long i = 0; i < n; i++) out[i] = value;
}

void gtc_copy(const void *in, void *out, long bytes) {
	int want = gtc_for_threads((double)bytes / 16);
#pragma omp parallel num_threads(want) if (want > 1)
	{
		long t = gtc_tid(), nt = gtc_team(), blocks = (bytes + 63) / 64, lo = blocks * t / nt * 64, hi = blocks * (t + 1) / nt * 64;
		if (hi > bytes) hi = bytes;
		if (hi > lo) memcpy((char *)out + lo, (const char *)in + lo, (size_t)(hi - lo));
	}
}
