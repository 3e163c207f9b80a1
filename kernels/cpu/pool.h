// Arguments that pool.go hands to pool.c.
#ifndef GTC_POOL_H
#define GTC_POOL_H

#include <stdint.h>

typedef struct {
	long N, C, H, W, KH, KW, OH, OW, padT, padL, padB, padR, strideH, strideW, dilH, dilW, includePad;
} pool_dims;

void gtc_maxpool_fwd(const float *x, float *y, int32_t *idx, const pool_dims *d);
void gtc_maxpool_bwd(const float *dy, const int32_t *idx, float *dx, const pool_dims *d);
void gtc_avgpool_fwd(const float *x, float *y, const pool_dims *d);
void gtc_avgpool_bwd(const float *dy, float *dx, const pool_dims *d);

#endif
