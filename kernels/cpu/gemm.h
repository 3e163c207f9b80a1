// Internal matrix-product interface used by gemm.c, attn.c and conv.c.
#ifndef GTC_GEMM_H
#define GTC_GEMM_H

#include "vec.h"

enum { GTC_KC = 256 }; // k block: a 256 x 32 panel of B is 32 KiB, and a tile of A 12 KiB

// gtc_mat names a row-major operand with free strides: element (i, p) is at p[i*rs + p*cs].
typedef struct {
	const float *p;
	long rs, cs;
} gtc_mat;

// gtc_pack_b_bytes is the size of the packed form of a k x n operand.
size_t gtc_pack_b_bytes(long k, long n);

// gtc_pack_b writes panels [j0, j1) (GTC_NR columns each) of B (rs: stride over k, cs: stride over n).
void gtc_pack_b(float *dst, gtc_mat b, long k, long n, long j0, long j1);

// gtc_block computes C[m, n] (+)= A[m, k] . B, where B was packed by gtc_pack_b for a k x n operand and only
// panels [j0, j1) are computed. abuf: GTC_ABUF floats. One thread.
void gtc_block(float *c, long ldc, gtc_mat a, const float *bpack, long m, long n, long k, long j0, long j1, int add,
	       const float *bias, float *abuf);

// gtc_small computes C[m, n] (+)= A[m, k] . B[k, n] on one thread with B read in place (cs == 1) or packed into bbuf
// (gtc_pack_b_bytes(k, n)); for operands that fit in the second-level cache.
void gtc_small(float *c, long ldc, gtc_mat a, gtc_mat b, long m, long n, long k, int add, const float *bias,
	       float *bbuf, float *abuf);

// gtc_panel computes C[m, nr] (+)= A[m, kc] . B[kc, nr] for one panel on one thread: nr <= GTC_NR, kc <= GTC_KC, rows of B
// ldb apart and readable up to the next multiple of VL columns. A is read in place whatever its strides.
void gtc_panel(float *c, long ldc, gtc_mat a, const float *b, long ldb, long m, long nr, long kc, int add);

// gtc_rows computes C[m, n] (+)= A[m, kc] . B[kc, n] for B with contiguous rows ldb apart, kc <= GTC_KC; edge panels are
// copied into bbuf (kc * GTC_NR floats).
void gtc_rows(float *c, long ldc, gtc_mat a, const float *b, long ldb, long m, long n, long kc, int add, float *bbuf);

// gtc_transpose_panel writes dst[depth][GTC_NR] from nr rows of src, each depth long and ld apart; missing columns are 0.
void gtc_transpose_panel(float *dst, const float *src, long ld, long depth, long nr);

enum { GTC_MC = 120, GTC_ABUF = GTC_MC * GTC_KC };

#endif
