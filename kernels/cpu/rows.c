// Row gather and its transpose, deterministic scatter-add.
#include <stdint.h>
#include <string.h>

#include "threads.h"
#include "vec.h"

int64_t gtc_gather_rows(const float *table, const int64_t *idx, float *out, long rows, long width, long n) {
	int64_t bad = n;
	int nt = gtc_for_threads((double)n * (double)width / 4);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1) reduction(min : bad)
	for (long i = 0; i < n; i++) {
		int64_t r = idx[i] < 0 ? idx[i] + rows : idx[i];
		if (r < 0 || r >= rows) {
			bad = i < bad ? i : bad;
			memset(out + i * width, 0, (size_t)width * sizeof(float));
			continue;
		}
		memcpy(out + i * width, table + r * width, (size_t)width * sizeof(float));
	}
	return bad < n ? bad : -1;
}

// add_part adds columns [c0, c1) of every update whose row lies in [r0, r1), in the order of idx.
static void add_part(const int64_t *idx, const float *upd, float *out, long rows, long width, long n, long r0, long r1, long c0, long c1) {
	for (long i = 0; i < n; i++) {
		int64_t r = idx[i] < 0 ? idx[i] + rows : idx[i];
		if (r < r0 || r >= r1) continue;
		float *o = out + r * width;
		const float *u = upd + i * width;
#pragma omp simd
		for (long c = c0; c < c1; c++) o[c] += u[c];
	}
}

int64_t gtc_scatter_add_rows(const int64_t *idx, const float *upd, float *out, long rows, long width, long n, long zero) {
	for (long i = 0; i < n; i++)
		if (idx[i] < -rows || idx[i] >= rows) return i;
	int want = gtc_for_threads((double)n * (double)width / 4 + (zero ? (double)rows * (double)width / 16 : 0));
#pragma omp parallel num_threads(want) if (want > 1)
	{
		long t = gtc_tid(), nt = gtc_team();
		int by_column = width >= 16 * nt;
		if (zero) {
			size_t all = (size_t)(rows * width), lo = all * (size_t)t / (size_t)nt, hi = all * (size_t)(t + 1) / (size_t)nt;
			memset(out + lo, 0, (hi - lo) * sizeof(float));
#pragma omp barrier
		}
		if (by_column) {
			long blocks = (width + 15) / 16, c0 = blocks * t / nt * 16, c1 = blocks * (t + 1) / nt * 16;
			add_part(idx, upd, out, rows, width, n, 0, rows, c0, c1 < width ? c1 : width);
		} else {
			add_part(idx, upd, out, rows, width, n, rows * t / nt, rows * (t + 1) / nt, 0, width);
		}
	}
	return -1;
}
