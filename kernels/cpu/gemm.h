// Internal matrix-product interface used by gemm.c, attn.c and conv.c.
#ifndef GTC_GEMM_H
#define GTC_GEMM_H

#include "gemm_ukr.h"

enum { GTC_KC = 384 }; // k block: a 384 x 32 panel of B is 48 KiB, a tile of A 18 KiB; measured against 192 and 256

// gtc_mat names a row-major operand with free strides: element (i, p) is at p[i*rs + p*cs].
typedef struct {
	const float *p;
	long rs, cs;
} gtc_mat;

// Rows of A that are packed (or, read in place, kept in the second-level cache) at a time, and the scratch of gtc_block.
enum { GTC_MC = 240, GTC_MC_DIRECT = 1024 };
#define GTC_BLOCK_FLOATS ((GTC_MC + GTC_NR) * GTC_KC)

// gtc_block computes panels [j0, j1) of GTC_NR columns of C[m, n] (+)= A[m, k] . B[k, n] (+ bias) on one thread. scratch
// holds GTC_BLOCK_FLOATS.
void gtc_block(float *c, long ldc, gtc_mat a, gtc_mat b, long m, long n, long k, long j0, long j1, int add, const float *bias,
	       float *scratch);

// gtc_panel computes C[m, nr] (+)= A[m, kc] . B[kc, nr] for one panel on one thread: nr <= GTC_NR, kc <= GTC_KC, rows of B
// ldb apart and readable up to the next multiple of VL columns. A is read in place whatever its strides.
void gtc_panel(float *c, long ldc, gtc_mat a, const float *b, long ldb, long m, long nr, long kc, int add);

// gtc_rows computes C[m, n] (+)= A[m, kc] . B[kc, n] for B with contiguous rows ldb apart, kc <= GTC_KC; edge panels are
// copied into bbuf (kc * GTC_NR floats).
void gtc_rows(float *c, long ldc, gtc_mat a, const float *b, long ldb, long m, long n, long kc, int add, float *bbuf);

// gtc_transpose_panel writes dst[depth][GTC_NR] from nr rows of src, each depth long and ld apart; missing columns are 0.
void gtc_transpose_panel(float *dst, const float *src, long ld, long depth, long nr);

#endif
