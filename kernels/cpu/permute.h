// Arguments that permute.go hands to permute.c.
#ifndef GTC_PERMUTE_H
#define GTC_PERMUTE_H

typedef struct {
	long n, d[6], p[6], size;
} perm_dims;

void gtc_transpose(const void *in, void *out, const perm_dims *d);
void gtc_fill(float *out, long n, float value);
void gtc_copy(const void *in, void *out, long bytes);

#endif
