// Matrix products of any element type but float, which gemm.c has: rows of C are shared among threads, sums run over k in
// order.
#include <stddef.h>

#include "elem.h"
#include "threads.h"
#include "vec.h"

enum { ROWS = 4, COLS = 256 };

typedef struct {
	long m, n, k, ta, tb;
} gemm_any;

// GTC_GEMM defines rows_T: rows [i0, i0 + r) of one product, r at most ROWS. p holds those rows of A, one after another.
#define GTC_GEMM(CODE, T, A)                                                                                               \
	static void dots_##T(const T *p, const T *b, const T *bias, T *c, const gemm_any *g, long r) {                     \
		for (long i = 0; i < r; i++)                                                                               \
			for (long j = 0; j < g->n; j++) {                                                                  \
				A s = 0;                                                                                   \
				const T *x = p + i * g->k, *y = b + j * g->k;                                              \
				for (long l = 0; l < g->k; l++) s += (A)x[l] * (A)y[l];                                    \
				c[i * g->n + j] = (T)(bias ? s + (A)bias[j] : s);                                          \
			}                                                                                                  \
	}                                                                                                                  \
	static void rows_##T(const T *p, const T *b, const T *bias, T *c, const gemm_any *g, long r) {                     \
		for (long j0 = 0; j0 < g->n; j0 += COLS) {                                                                 \
			long w = g->n - j0 < COLS ? g->n - j0 : COLS;                                                      \
			A acc[ROWS][COLS] = {{0}};                                                                         \
			for (long l = 0; l < g->k; l++) {                                                                  \
				const T *y = b + l * g->n + j0;                                                            \
				A v[ROWS] = {0};                                                                           \
				for (long i = 0; i < r; i++) v[i] = (A)p[i * g->k + l];                                    \
				for (long j = 0; j < w; j++) {                                                             \
					A u = (A)y[j];                                                                     \
					acc[0][j] += v[0] * u, acc[1][j] += v[1] * u;                                      \
					acc[2][j] += v[2] * u, acc[3][j] += v[3] * u;                                      \
				}                                                                                          \
			}                                                                                                  \
			for (long i = 0; i < r; i++)                                                                       \
				for (long j = 0; j < w; j++)                                                               \
					c[i * g->n + j0 + j] = (T)(bias ? acc[i][j] + (A)bias[j0 + j] : acc[i][j]);        \
		}                                                                                                          \
	}                                                                                                                  \
	static void block_##T(const T *a, const T *b, const T *bias, T *c, const gemm_any *g, long i0) {                   \
		long r = g->m - i0 < ROWS ? g->m - i0 : ROWS;                                                              \
		const T *p = a + i0 * g->k;                                                                                \
		if (g->ta) {                                                                                               \
			T *q = gtc_scratch((size_t)(ROWS * g->k) * sizeof(T));                                             \
			for (long l = 0; l < g->k; l++)                                                                    \
				for (long i = 0; i < r; i++) q[i * g->k + l] = a[l * g->m + i0 + i];                       \
			p = q;                                                                                             \
		}                                                                                                          \
		(g->tb ? dots_##T : rows_##T)(p, b, bias, c + i0 * g->n, g, r);                                            \
	}
GTC_ARITH(GTC_GEMM)

void gtc_gemm_any(const void *a, const void *b, const void *bias, void *c, long batch, long m, long n, long k, long ta, long tb, long sa,
		  long sb, long sc, long elem) {
	gemm_any g = {m, n, k, ta, tb};
	long blocks = (m + ROWS - 1) / ROWS;
	int nt = gtc_for_threads((double)batch * (double)m * (double)n * (double)k);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long t = 0; t < batch * blocks; t++) {
		long e = t / blocks, i0 = t % blocks * ROWS;
#define GTC_GEMM_AS(CODE, T, A) \
	case CODE: block_##T((const T *)a + e * sa, (const T *)b + e * sb, (const T *)bias, (T *)c + e * sc, &g, i0); break;
		switch (elem) { GTC_ARITH(GTC_GEMM_AS) }
	}
}
