// Take and scatter of rows at run-time indices.
#include "index.h"

#include <string.h>

#include "elem.h"
#include "threads.h"
#include "vec.h"

INLINE int64_t index_at(const void *idx, long idx32, long i) {
	return idx32 ? ((const int32_t *)idx)[i] : ((const int64_t *)idx)[i];
}

// copy_row copies one row; the usual element sizes need no call.
INLINE void copy_row(char *to, const char *from, long bytes) {
	switch (bytes) {
	case 1: *to = *from; break;
	case 2: memcpy(to, from, 2); break;
	case 4: memcpy(to, from, 4); break;
	case 8: memcpy(to, from, 8); break;
	default: memcpy(to, from, (size_t)bytes);
	}
}

int64_t gtc_take(const void *table, const void *idx, void *out, long outer, long size, long bytes, long n, long idx32) {
	for (long i = 0; i < n; i++) {
		int64_t r = index_at(idx, idx32, i);
		if (r < -size || r >= size) {
			memset(out, 0, (size_t)(outer * n * bytes));
			return i;
		}
	}
	int nt = gtc_for_threads((double)outer * (double)n * (double)(bytes / 16 + 1));
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long t = 0; t < outer * n; t++) {
		int64_t r = index_at(idx, idx32, t % n);
		copy_row((char *)out + t * bytes, (const char *)table + (t / n * size + (r < 0 ? r + size : r)) * bytes, bytes);
	}
	return -1;
}

// JOIN is one update: NaN wins over numbers in maxima and minima, as in PyTorch.
#define GTC_JOIN_ADD(T, A, o, u) (o) = (T)((A)(o) + (A)(u))
#define GTC_JOIN_MUL(T, A, o, u) (o) = (T)((A)(o) * (A)(u))
#define GTC_JOIN_MAX(T, A, o, u) (o) = (u) > (o) || (u) != (u) ? (u) : (o)
#define GTC_JOIN_MIN(T, A, o, u) (o) = (u) < (o) || (u) != (u) ? (u) : (o)

// part is a share of the work: rows [r0, r1) and columns [c0, c1) of out, updates in the order of idx.
typedef struct {
	long rows, width, n, r0, r1, c0, c1;
} part;

#define GTC_LOOP(T, A, NAME)                                                                       \
	static void scatter_##NAME##_##T(const int64_t *idx, const T *upd, T *out, const part *p) { \
		for (long i = 0; i < p->n; i++) {                                                  \
			int64_t r = idx[i] < 0 ? idx[i] + p->rows : idx[i];                        \
			if (r < p->r0 || r >= p->r1) continue;                                     \
			T *o = out + r * p->width;                                                 \
			const T *u = upd + i * p->width;                                           \
			for (long c = p->c0; c < p->c1; c++) GTC_JOIN_##NAME(T, A, o[c], u[c]);    \
		}                                                                                  \
	}
#define GTC_SCATTER(CODE, T, A) \
	GTC_LOOP(T, A, ADD)     \
	GTC_LOOP(T, A, MUL)     \
	GTC_LOOP(T, A, MAX)     \
	GTC_LOOP(T, A, MIN)
GTC_ARITH(GTC_SCATTER)

static void scatter_set(const int64_t *idx, const char *upd, char *out, const part *p, long size) {
	for (long i = 0; i < p->n; i++) {
		int64_t r = idx[i] < 0 ? idx[i] + p->rows : idx[i];
		if (r < p->r0 || r >= p->r1) continue;
		copy_row(out + (r * p->width + p->c0) * size, upd + (i * p->width + p->c0) * size, (p->c1 - p->c0) * size);
	}
}

static void scatter_part(const int64_t *idx, const void *upd, void *out, const part *p, long elem, long how) {
#define GTC_HOW(CODE, T, A)                                                               \
	case CODE:                                                                        \
		switch (how) {                                                            \
		case GTC_ADD: scatter_ADD_##T(idx, (const T *)upd, (T *)out, p); return;   \
		case GTC_MUL: scatter_MUL_##T(idx, (const T *)upd, (T *)out, p); return;   \
		case GTC_MAX: scatter_MAX_##T(idx, (const T *)upd, (T *)out, p); return;   \
		case GTC_MIN: scatter_MIN_##T(idx, (const T *)upd, (T *)out, p); return;   \
		}                                                                         \
		break;
	switch (elem) { GTC_ARITH(GTC_HOW) }
	scatter_set(idx, upd, out, p, gtc_elem_size(elem));
}

int64_t gtc_scatter_rows(const void *data, const int64_t *idx, const void *upd, void *out, long rows, long width, long n, long elem,
			 long how) {
	long size = gtc_elem_size(elem), all = rows * width * size;
	int64_t bad = -1;
	for (long i = n - 1; i >= 0; i--)
		if (idx[i] < -rows || idx[i] >= rows) bad = i;
	int want = gtc_for_threads((double)n * (double)width + (out != data ? (double)all / 16 : 0));
#pragma omp parallel num_threads(want) if (want > 1)
	{
		long t = gtc_tid(), nt = gtc_team();
		if (out != data) {
			long lo = all / nt * t, hi = t == nt - 1 ? all : all / nt * (t + 1);
			if (hi > lo) memcpy((char *)out + lo, (const char *)data + lo, (size_t)(hi - lo));
#pragma omp barrier
		}
		if (bad < 0) { // by columns when rows are wide, else by rows: no two threads write one element
			part p = {rows, width, n, 0, rows, 0, width};
			if (width >= 64 * nt)
				p.c0 = width / 64 * t / nt * 64, p.c1 = t == nt - 1 ? width : width / 64 * (t + 1) / nt * 64;
			else
				p.r0 = rows * t / nt, p.r1 = rows * (t + 1) / nt;
			scatter_part(idx, upd, out, &p, elem, how);
		}
	}
	return bad;
}
