// Arguments that attn.go hands to attn.c.
#ifndef GTC_ATTN_H
#define GTC_ATTN_H

// attn_dims mirrors the integers of AttnFwd, in its order.
typedef struct {
	long batch, heads, kvHeads, sq, sk, d, dv;
	long qB, qH, qS, kB, kH, kS, vB, vH, vS, oB, oH, oS;
	long causal, window, maskB, maskH, maskQ;
	float scale;
} attn_dims;

// bwd_strides are the strides of dout, dq, dk and dv, in the order of AttnBwd.
typedef struct {
	long gB, gH, gS, dqB, dqH, dqS, dkB, dkH, dkS, dvB, dvH, dvS;
} bwd_strides;

void gtc_attn_fwd(const float *q, const float *k, const float *v, const float *mask, float *out, float *lse, const attn_dims *s);
void gtc_attn_bwd(const float *q, const float *k, const float *v, const float *mask, const float *out, const float *lse, const float *dout,
		  float *dq, float *dk, float *dv, const attn_dims *s, const bwd_strides *z);

#endif
