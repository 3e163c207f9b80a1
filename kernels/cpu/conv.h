// Arguments that conv.go hands to conv.c.
#ifndef GTC_CONV_H
#define GTC_CONV_H

#include <stddef.h>

typedef struct {
	long N, C, H, W, O, KH, KW, OH, OW, padT, padL, strideH, strideW, dilH, dilW, groups;
} conv_dims;

void gtc_conv_fwd(const float *x, const float *w, const float *bias, float *y, void *ws, const conv_dims *d);
void gtc_conv_bwd_data(const float *dy, const float *w, float *dx, void *ws, const conv_dims *d);
void gtc_conv_bwd_weight(const float *x, const float *dy, float *dw, void *ws, const conv_dims *d);
size_t gtc_conv_fwd_workspace(const conv_dims *d);
size_t gtc_conv_bwd_data_workspace(const conv_dims *d);
size_t gtc_conv_bwd_weight_workspace(const conv_dims *d);

#endif
