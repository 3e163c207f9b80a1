// Matrix products on the tile unit (AMX) of recent Intel servers.
#ifndef GTC_GEMM_AMX_H
#define GTC_GEMM_AMX_H

#include "gemm.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && VL == 16 && defined(__linux__)
#define GTC_AMX 1
#endif

// gtc_amx_on says whether products may use the tile unit: it was asked for and the kernel has granted it.
int gtc_amx_on(void);

// gtc_amx_set asks for (1) or forbids (0) the tile unit, and gives what gtc_amx_on says then.
int gtc_amx_set(int on);

// Scratch of gtc_amx_block in bytes.
enum { GTC_AMX_KC = 128, GTC_AMX_MC = 768, GTC_AMX_BYTES = (GTC_AMX_MC + 32) * GTC_AMX_KC * 6 + 32 * 32 * 4 };

// gtc_amx_block is gtc_block for the tile unit, without bias: C[m, n] (+)= A[m, k] . B[k, n], panels [j0, j1) of 32 columns.
void gtc_amx_block(float *c, long ldc, gtc_mat a, gtc_mat b, long m, long n, long k, long j0, long j1, int add, char *scratch);

#endif
