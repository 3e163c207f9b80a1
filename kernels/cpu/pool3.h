// Pooling over three spatial dims, for any element type.
#ifndef GTC_POOL3_H
#define GTC_POOL3_H

#include <stdint.h>

// Each list is depth, height, width. mode is the divisor of a mean: see taps3 in pool3.c.
typedef struct {
	long planes, in[3], k[3], out[3], low[3], high[3], stride[3], dil[3];
	long mode, elem;
} pool3_dims;

void gtc_maxpool3_fwd(const void *x, void *y, int32_t *idx, const pool3_dims *d);
void gtc_maxpool3_bwd(const void *dy, const int32_t *idx, void *dx, const pool3_dims *d);
void gtc_avgpool3_fwd(const void *x, void *y, const pool3_dims *d);
void gtc_avgpool3_bwd(const void *dy, void *dx, const pool3_dims *d);

#endif
