// The weight gradient of a convolution: dw[o, k] is the dot product over images and virtual outputs q of dy[o, q] with the
// view of x that tap k takes (see conv.c). Tiles of DO x DK dot products run in registers; images are laid out in blocks
// that stay in the second-level cache. Threads share the tiles, and each tile sums over images in order.
#include "conv_planes.h"

enum { DO = 4, DK = 6 };

// dot_body adds into s[DO*DK] the dot products of DO rows of dy with NK shifted views of x, n (a multiple of VL) long,
// over images images that lie xstep and dystep apart.
INLINE void dot_body(const int NK, long n, long images, const float *dy, long ldy, size_t dystep, const float *x, size_t xstep,
		     const int32_t *off, float *s) {
	vf acc[DO][DK];
#pragma GCC unroll 4
	for (int i = 0; i < DO; i++)
#pragma GCC unroll 6
		for (int j = 0; j < NK; j++) acc[i][j] = (vf){0};
	for (long m = 0; m < images; m++, x += xstep, dy += dystep) {
		const float *xs[DK];
#pragma GCC unroll 6
		for (int j = 0; j < NK; j++) xs[j] = x + off[j];
		for (long q = 0; q < n; q += VL) {
			vf a[DO];
#pragma GCC unroll 4
			for (int i = 0; i < DO; i++) a[i] = vload(dy + i * ldy + q);
#pragma GCC unroll 6
			for (int j = 0; j < NK; j++) {
				vf b = vload(xs[j] + q);
#pragma GCC unroll 4
				for (int i = 0; i < DO; i++) acc[i][j] += a[i] * b;
			}
		}
	}
#pragma GCC unroll 4
	for (int i = 0; i < DO; i++)
#pragma GCC unroll 6
		for (int j = 0; j < NK; j++) s[i * DK + j] += vsum(acc[i][j]);
}
#define GTC_DOT(NK)                                                                                                              \
	static NOINLINE void dot_##NK(long n, long images, const float *dy, long ldy, size_t dystep, const float *x, size_t xstep, \
				      const int32_t *off, float *s) {                                                            \
		dot_body(NK, n, images, dy, ldy, dystep, x, xstep, off, s);                                                      \
	}
GTC_DOT(6) GTC_DOT(3)

// weight_plan: images are laid out in blocks that fit the second-level cache together.
typedef struct {
	geometry g;
	long K;
	long Qp, orows, per_block;  // virtual outputs rounded up, rows of dy per image (padded), images per block
	size_t xf, dyf, block_bytes; // floats per image of x and of dy; bytes of both per block
} weight_plan;

static weight_plan plan_weight(const conv_dims *d) {
	weight_plan p = {.g = forward_geometry(d)};
	p.K = p.g.CG * d->KH * d->KW;
	p.Qp = round_up(p.g.Q, VL);
	p.orows = p.g.groups * round_up(p.g.OG, DO);
	p.xf = image_floats(&p.g, p.g.C), p.dyf = (size_t)round_up(p.orows * p.Qp, 16);
	size_t image = (p.xf + p.dyf) * sizeof(float);
	p.per_block = max_l(1, min_l(p.g.N, (long)((3 << 19) / image)));
	p.block_bytes = (size_t)p.per_block * image;
	return p;
}

// The workspace holds one block of images, the tap offsets, and the sums in tile order.
static size_t sums_floats(const weight_plan *p) {
	return (size_t)(p->orows / DO * ceil_div(p->K, DK)) * DO * DK;
}
size_t gtc_conv_bwd_weight_workspace(const conv_dims *d) {
	weight_plan p = plan_weight(d);
	return align64(p.block_bytes) + align64((size_t)round_up(p.K, DK) * sizeof(int32_t)) + align64(sums_floats(&p) * sizeof(float));
}

// spread_dy copies one image's dy into rows of Qp virtual outputs, zero where ow >= OW and for missing rows.
static void spread_dy(float *dst, const float *dy, const weight_plan *p) {
	const geometry *g = &p->g;
	long per = round_up(g->OG, DO);
	for (long r = 0; r < p->orows; r++, dst += p->Qp) {
		long grp = r / per, o = r % per;
		memset(dst, 0, (size_t)p->Qp * sizeof(float));
		if (o >= g->OG) continue;
		const float *s = dy + (grp * g->OG + o) * g->OH * g->OW;
		for (long i = 0; i < g->OH; i++)
			for (long j = 0; j < g->OW; j += VL) {
				long n = min_l(VL, g->OW - j), room = p->Qp - i * g->Wv - j;
				vf v = vload_n(s + i * g->OW + j, n, 0);
				if (room >= VL)
					vstore(dst + i * g->Wv + j, v);
				else
					vstore_n(dst + i * g->Wv + j, v, n);
			}
	}
}

// weight_tiles adds the block's images [0, n) into the sums of tile row ot (DO outputs of one group), every tap tile.
static void weight_tiles(const weight_plan *p, const float *xb, const float *dyb, const int32_t *off, float *sums, long n, long ot) {
	const geometry *g = &p->g;
	long per = round_up(g->OG, DO), grp = ot * DO / per, kt = ceil_div(p->K, DK);
	for (long k = 0; k < kt; k++) {
		float *s = sums + (ot * kt + k) * DO * DK;
		const float *x = xb + grp * g->CG * g->plane, *dy = dyb + ot * DO * p->Qp;
		if (p->K - k * DK <= 3)
			dot_3(p->Qp, n, dy, p->Qp, p->dyf, x, p->xf, off + k * DK, s);
		else
			dot_6(p->Qp, n, dy, p->Qp, p->dyf, x, p->xf, off + k * DK, s);
	}
}

static void store_weights(float *dw, const float *sums, const weight_plan *p) {
	const geometry *g = &p->g;
	long per = round_up(g->OG, DO), kt = ceil_div(p->K, DK);
	for (long o = 0; o < g->O; o++) {
		long r = o / g->OG * per + o % g->OG;
		for (long k = 0; k < p->K; k++) dw[o * p->K + k] = sums[((r / DO) * kt + k / DK) * DO * DK + r % DO * DK + k % DK];
	}
}

// pointwise_weight: dw[O, C] = sum over images of dy[O, HW] . x[C, HW]^T, threads sharing the rows of dw.
static void pointwise_weight(const float *x, const float *dy, float *dw, const conv_dims *d) {
	long CG = d->C / d->groups, OG = d->O / d->groups, P = d->H * d->W;
	int want = gtc_for_threads((double)d->N * (double)d->O * (double)P * (double)CG / 8);
	long bands = d->groups >= want ? 1 : want; // where the rows are cut does not change their sums
#pragma omp parallel for schedule(static) num_threads(want) if (want > 1)
	for (long t = 0; t < d->groups * bands; t++) {
		long grp = t / bands, units = ceil_div(OG, GTC_MR1);
		long o0 = units * (t % bands) / bands * GTC_MR1, o1 = min_l(OG, units * (t % bands + 1) / bands * GTC_MR1);
		float *scratch = gtc_scratch(GTC_BLOCK_FLOATS * sizeof(float));
		for (long n = 0; n < d->N; n++) {
			gtc_mat a = {dy + (n * d->O + grp * OG + o0) * P, P, 1}, b = {x + (n * d->C + grp * CG) * P, 1, P};
			gtc_block(dw + (grp * OG + o0) * CG, CG, a, b, o1 - o0, CG, P, 0, ceil_div(CG, GTC_NR), n > 0, NULL, scratch);
		}
	}
}

void gtc_conv_bwd_weight(const float *x, const float *dy, float *dw, void *ws, const conv_dims *d) {
	if (pointwise(d) && d->N > 0) {
		pointwise_weight(x, dy, dw, d);
		return;
	}
	weight_plan p = plan_weight(d);
	const geometry *g = &p.g;
	float *xb = ws, *dyb = xb + (size_t)p.per_block * p.xf;
	int32_t *off = (int32_t *)((char *)ws + align64(p.block_bytes));
	float *sums = (float *)((char *)off + align64((size_t)round_up(p.K, DK) * sizeof(int32_t)));
	for (long k = 0; k < p.K; k++) off[k] = (int32_t)forward_tap(g, d, k / (d->KH * d->KW), k / d->KW % d->KH, k % d->KW);
	for (long k = p.K; k < round_up(p.K, DK); k++) off[k] = off[p.K - 1];
	memset(sums, 0, sums_floats(&p) * sizeof(float));
	int nt = gtc_for_threads((double)g->N * (double)g->O * (double)g->Q * (double)p.K / 8);
#pragma omp parallel num_threads(nt) if (nt > 1)
	for (long n0 = 0; n0 < g->N; n0 += p.per_block) {
		long n = min_l(p.per_block, g->N - n0);
#pragma omp for schedule(static)
		for (long i = 0; i < n; i++) {
			gtc_copy_planes(xb + (size_t)i * p.xf, x + (n0 + i) * g->C * g->H * g->W, g, g->C);
			spread_dy(dyb + (size_t)i * p.dyf, dy + (n0 + i) * g->O * g->OH * g->OW, &p);
		}
#pragma omp for schedule(static)
		for (long ot = 0; ot < p.orows / DO; ot++) weight_tiles(&p, xb, dyb, off, sums, n, ot);
	}
	store_weights(dw, sums, &p);
}
