// The matrix micro-kernel: C[MR, NV*VL] (+)= A[MR, kc] . B[kc, NV*VL], accumulators in registers.
//
// One text serves packed and unpacked operands, because A has a row stride and a k stride, and B a row
// stride. 12x2 vectors use 24 accumulators, 2 registers for B and broadcasts of A: 14 loads for 24
// multiply-adds, so the two FMA ports of a server core are the limit, not the load ports.
#ifndef GTC_GEMM_UKR_H
#define GTC_GEMM_UKR_H

#include "vec.h"

#if VL == 8
#define GTC_MR 6 // 16 registers: 6x2 accumulators
#define GTC_MR2 4
#define GTC_MR1 2
#else
#define GTC_MR 12
#define GTC_MR2 8
#define GTC_MR1 4
#endif
#define GTC_NR (2 * VL)

typedef void (*gtc_ukr_fn)(long kc, const float *a, long ars, long acs, const float *b, long ldb, float *c, long ldc, int add,
			   const float *bias);

#define GTC_ROW(i, r)                                                        \
	if ((r) < MR) {                                                      \
		vf x = vset((i)[((r) % 3) * ars]);                           \
		_Pragma("GCC unroll 4") for (int j = 0; j < NV; j++) acc[r][j] += x * y[j]; \
	}

// gtc_ukr_body computes one tile. add: 0 overwrites C, 1 adds to it; bias (may be NULL) is added once.
INLINE void gtc_ukr_body(const int MR, const int NV, long kc, const float *a, long ars, long acs, const float *b, long ldb,
			 float *c, long ldc, int add, const float *bias) {
	vf acc[GTC_MR][4];
#pragma GCC unroll 16
	for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
		for (int j = 0; j < NV; j++) acc[i][j] = (vf){0};
	const float *p0 = a, *p3 = a + 3 * ars, *p6 = a + 6 * ars, *p9 = a + 9 * ars;
	for (long k = 0; k < kc; k++) {
		vf y[4];
#pragma GCC unroll 4
		for (int j = 0; j < NV; j++) y[j] = vload(b + j * VL);
		GTC_ROW(p0, 0) GTC_ROW(p0, 1) GTC_ROW(p0, 2)
		GTC_ROW(p3, 3) GTC_ROW(p3, 4) GTC_ROW(p3, 5)
#if GTC_MR > 6
		GTC_ROW(p6, 6) GTC_ROW(p6, 7) GTC_ROW(p6, 8)
		GTC_ROW(p9, 9) GTC_ROW(p9, 10) GTC_ROW(p9, 11)
#endif
		p0 += acs, p3 += acs, p6 += acs, p9 += acs;
		b += ldb;
	}
	if (bias)
#pragma GCC unroll 4
		for (int j = 0; j < NV; j++) {
			vf bj = vload(bias + j * VL);
#pragma GCC unroll 16
			for (int i = 0; i < MR; i++) acc[i][j] += bj;
		}
#pragma GCC unroll 16
	for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
		for (int j = 0; j < NV; j++) {
			float *p = c + i * ldc + j * VL;
			vstore(p, add ? vload(p) + acc[i][j] : acc[i][j]);
		}
}

// gtc_ukr_indirect is the same tile for convolutions: A packed in tiles of MR, row k of B at b + off[k], C overwritten;
// bias (may be NULL) holds one value per row.
INLINE void gtc_ukr_indirect(const int MR, const int NV, long kc, const float *a, const float *b, const int32_t *off, float *c, long ldc,
			     const float *bias) {
	vf acc[GTC_MR][4];
#pragma GCC unroll 16
	for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
		for (int j = 0; j < NV; j++) acc[i][j] = (vf){0};
	for (long k = 0; k < kc; k++) {
		const float *p = b + off[k];
		vf y[4];
#pragma GCC unroll 4
		for (int j = 0; j < NV; j++) y[j] = vload(p + j * VL);
#pragma GCC unroll 16
		for (int i = 0; i < MR; i++) {
			vf x = vset(a[i]);
#pragma GCC unroll 4
			for (int j = 0; j < NV; j++) acc[i][j] += x * y[j];
		}
		a += MR;
	}
#pragma GCC unroll 16
	for (int i = 0; i < MR; i++) {
		vf x = vset(bias ? bias[i] : 0);
#pragma GCC unroll 4
		for (int j = 0; j < NV; j++) vstore(c + i * ldc + j * VL, acc[i][j] + x);
	}
}

#endif
