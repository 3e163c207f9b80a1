// Convolution without im2col.
//
// Each image is copied once into planes that hold its padding and are cut by phase (position modulo stride), all of one
// width Wv. In that layout the value that tap (c, kh, kw) takes for output (oh, ow) lies at off[c, kh, kw] + oh * Wv + ow:
// a fixed distance for each tap. Outputs are therefore computed over the virtual row q = oh * Wv + ow, vectors of
// neighbouring q at once, with one unaligned load per tap and vector; the few q with ow >= OW are computed and dropped.
// The data gradient is the same computation on the (zero-spread) output gradient with flipped weights, and the weight
// gradient is a set of dot products over q.
#include "conv.h"

#include "gemm_ukr.h"
#include "threads.h"

static long min_l(long a, long b) { return a < b ? a : b; }
static long max_l(long a, long b) { return a > b ? a : b; }
static long ceil_div(long a, long b) { return (a + b - 1) / b; }
static long round_up(long a, long b) { return ceil_div(a, b) * b; }
static size_t align64(size_t x) { return (x + 63) / 64 * 64; }

// geometry is one forward-like problem: source planes spread by ins, padded, then taken by windows.
typedef struct {
	long N, C, H, W, O, KH, KW, OH, OW, padT, padL, sH, sW, dH, dW, insH, insW, groups;
	long CG, OG, K;	      // channels and outputs per group, taps per output
	long Hv, Wv, plane, Q; // phase plane extents, phase planes' size per channel, virtual outputs
} geometry;

static geometry finish(geometry g) {
	g.CG = g.C / g.groups, g.OG = g.O / g.groups, g.K = g.CG * g.KH * g.KW;
	g.Hv = g.OH + (g.KH - 1) * g.dH / g.sH;
	g.Wv = g.OW + (g.KW - 1) * g.dW / g.sW;
	g.plane = g.sH * g.sW * g.Hv * g.Wv;
	g.Q = (g.OH - 1) * g.Wv + g.OW;
	return g;
}

static geometry forward_geometry(const conv_dims *d) {
	return finish((geometry){.N = d->N, .C = d->C, .H = d->H, .W = d->W, .O = d->O, .KH = d->KH, .KW = d->KW, .OH = d->OH, .OW = d->OW,
				 .padT = d->padT, .padL = d->padL, .sH = d->strideH, .sW = d->strideW, .dH = d->dilH, .dW = d->dilW,
				 .insH = 1, .insW = 1, .groups = d->groups});
}

// data_geometry: dx is a stride-1 convolution of dy, spread by the strides, with the flipped weights.
static geometry data_geometry(const conv_dims *d) {
	return finish((geometry){.N = d->N, .C = d->O, .H = d->OH, .W = d->OW, .O = d->C, .KH = d->KH, .KW = d->KW, .OH = d->H, .OW = d->W,
				 .padT = d->dilH * (d->KH - 1) - d->padT, .padL = d->dilW * (d->KW - 1) - d->padL, .sH = 1, .sW = 1,
				 .dH = d->dilH, .dW = d->dilW, .insH = d->strideH, .insW = d->strideW, .groups = d->groups});
}

enum { SLACK = 2 * GTC_NR }; // floats readable past the last plane, for the vectors of its last virtual outputs

static size_t image_floats(const geometry *g, long channels) { return (size_t)round_up(channels * g->plane + SLACK, 16); }

// copy_row writes one row of a phase plane: element j is source column (j*sW + b - padL) / insW when that divides. It may
// write up to a vector past the row, where the next row or the slack follows.
static void copy_row(float *dst, const float *src, const geometry *g, long b) {
	if (g->sW == 1 && g->insW == 1) {
		long lo = min_l(g->Wv, max_l(0, g->padL)), hi = max_l(lo, min_l(g->Wv, g->W + g->padL));
		for (long j = 0; j < lo; j += VL) vstore(dst + j, vset(0));
		long j = lo;
		for (; j < hi; j += VL) vstore(dst + j, vload_n(src + j - g->padL, min_l(VL, hi - j), 0));
		for (; j < g->Wv; j += VL) vstore(dst + j, vset(0));
		return;
	}
	if (g->insW == 1) {
		long o = b - g->padL, lo = o >= 0 ? 0 : min_l(g->Wv, ceil_div(-o, g->sW));
		long hi = o >= g->W ? lo : max_l(lo, min_l(g->Wv, (g->W - 1 - o) / g->sW + 1));
		for (long j = 0; j < lo; j++) dst[j] = 0;
		for (long j = lo; j < hi; j++) dst[j] = src[j * g->sW + o];
		for (long j = hi; j < g->Wv; j++) dst[j] = 0;
		return;
	}
	for (long j = 0; j < g->Wv; j++) {
		long t = j * g->sW + b - g->padL;
		dst[j] = t >= 0 && t % g->insW == 0 && t / g->insW < g->W ? src[t / g->insW] : 0;
	}
}

// copy_planes lays out channels of one image; src points at the first of them.
static void copy_planes(float *dst, const float *src, const geometry *g, long channels) {
	for (long c = 0; c < channels; c++)
		for (long a = 0; a < g->sH; a++)
			for (long b = 0; b < g->sW; b++)
				for (long i = 0; i < g->Hv; i++, dst += g->Wv) {
					long t = i * g->sH + a - g->padT;
					if (t >= 0 && t % g->insH == 0 && t / g->insH < g->H)
						copy_row(dst, src + (c * g->H + t / g->insH) * g->W, g, b);
					else
						memset(dst, 0, (size_t)g->Wv * sizeof(float));
				}
	memset(dst, 0, SLACK * sizeof(float));
}

// tap_offsets fills off[K] for one group's channels.
static void tap_offsets(int32_t *off, const geometry *g) {
	for (long c = 0; c < g->CG; c++)
		for (long kh = 0; kh < g->KH; kh++)
			for (long kw = 0; kw < g->KW; kw++) {
				long h = kh * g->dH, w = kw * g->dW, phase = (c * g->sH + h % g->sH) * g->sW + w % g->sW;
				*off++ = (int32_t)((phase * g->Hv + h / g->sH) * g->Wv + w / g->sW);
			}
}

#define GTC_TAPS(MR, NV)                                                                                                       \
	static NOINLINE void taps_##MR##_##NV(long K, const float *w, const float *x, const int32_t *off, float *c, long ldc,   \
					      const float *bias) {                                                              \
		gtc_ukr_indirect(MR, NV, K, w, x, off, c, ldc, bias);                                                           \
	}
#define GTC_TAPS2(MR) GTC_TAPS(MR, 1) GTC_TAPS(MR, 2)
typedef void (*taps_fn)(long, const float *, const float *, const int32_t *, float *, long, const float *);
#if VL == 8
GTC_TAPS2(6) GTC_TAPS2(4) GTC_TAPS2(2)
static const taps_fn taps_table[3][2] = {{taps_2_1, taps_2_2}, {taps_4_1, taps_4_2}, {taps_6_1, taps_6_2}};
#else
GTC_TAPS2(12) GTC_TAPS2(8) GTC_TAPS2(4)
static const taps_fn taps_table[3][2] = {{taps_4_1, taps_4_2}, {taps_8_1, taps_8_2}, {taps_12_1, taps_12_2}};
#endif

static int tile_class(long mr) { return mr > GTC_MR2 ? 2 : mr > GTC_MR1 ? 1 : 0; }
static const int tile_rows[3] = {GTC_MR1, GTC_MR2, GTC_MR};

// packed_rows is the rows of one group's packed weights: whole tiles, and a last one padded to a kernel's height.
static long packed_rows(long rows) {
	long full = rows / GTC_MR * GTC_MR, rest = rows - full;
	return full + (rest ? tile_rows[tile_class(rest)] : 0);
}
static size_t packed_floats(const geometry *g) { return (size_t)(g->groups * packed_rows(g->OG) * g->K); }

// weight_at reads the weight of row o and tap k of a group: the forward weights, or with flip the data gradient's,
// f[c, (o, kh, kw)] = w[o, c, KH-1-kh, KW-1-kw], where g describes the flipped problem.
static float weight_at(const float *w, const geometry *g, long grp, long o, long k, int flip) {
	if (!flip) return w[(grp * g->OG + o) * g->K + k];
	long T = g->KH * g->KW;
	return w[((grp * g->CG + k / T) * g->OG + o) * T + T - 1 - k % T];
}

static void pack_weights(float *dst, const float *w, const geometry *g, int flip) {
	for (long grp = 0; grp < g->groups; grp++)
		for (long o = 0; o < g->OG; o += GTC_MR) {
			long mr = min_l(GTC_MR, g->OG - o), rows = tile_rows[tile_class(mr)];
			for (long k = 0; k < g->K; k++)
				for (long r = 0; r < rows; r++) *dst++ = r < mr ? weight_at(w, g, grp, o + r, k, flip) : 0;
		}
}

// segment says that n outputs at lane q of a panel go to offset at of the output plane.
typedef struct {
	long q, at, n;
} segment;

// cut_panel splits virtual outputs [q0, q0+nq) at the ends of output rows and drops what lies past them.
static int cut_panel(segment *s, const geometry *g, long q0, long nq) {
	long oh = q0 / g->Wv, ow = q0 % g->Wv;
	int count = 0;
	for (long q = 0; q < nq;) {
		long n = min_l(nq - q, g->OW - ow);
		if (n > 0) s[count++] = (segment){q, oh * g->OW + ow, n};
		q += g->Wv - ow, oh++, ow = 0;
	}
	return count;
}

static void store_row(float *y, const float *t, const segment *s, int count) {
	for (int i = 0; i < count; i++)
		for (long j = 0; j < s[i].n; j += VL) {
			long w = min_l(VL, s[i].n - j);
			vstore_n(y + s[i].at + j, vload(t + s[i].q + j), w);
		}
}

enum { PANELS = 4 }; // panels that share a tile of weights while it is in the first-level cache

// conv_panels computes virtual outputs [q0, q1), at most PANELS panels, of one image and group.
static void conv_panels(const geometry *g, const float *x, const float *w, const float *bias, const int32_t *off, float *y, long q0, long q1) {
	float t[GTC_MR * GTC_NR + VL] __attribute__((aligned(64))), tb[GTC_MR];
	segment seg[PANELS][GTC_NR];
	int count[PANELS];
	long plane = g->OH * g->OW;
	for (long q = q0, p = 0; q < q1; q += GTC_NR, p++) count[p] = cut_panel(seg[p], g, q, min_l(GTC_NR, q1 - q));
	for (long o = 0; o < g->OG; o += GTC_MR) {
		long mr = min_l(GTC_MR, g->OG - o), rows = tile_rows[tile_class(mr)];
		const float *wt = w + o * g->K;
		for (long r = 0; r < rows; r++) tb[r] = bias && r < mr ? bias[o + r] : 0;
		for (long q = q0, p = 0; q < q1; q += GTC_NR, p++) {
			long nq = min_l(GTC_NR, q1 - q);
			taps_fn fn = taps_table[tile_class(mr)][nq > VL];
			if (mr == rows && count[p] == 1 && seg[p][0].n == GTC_NR) {
				fn(g->K, wt, x + q, off, y + o * plane + seg[p][0].at, plane, tb);
				continue;
			}
			fn(g->K, wt, x + q, off, t, GTC_NR, tb);
			for (long r = 0; r < mr; r++) store_row(y + (o + r) * plane, t + r * GTC_NR, seg[p], count[p]);
		}
	}
}

// run_conv is the forward-like computation over images, groups and, when those are few, bands of virtual outputs.
// ws receives the packed weights.
static void run_conv(const geometry *g, const float *x, const float *w, int flip, const float *bias, float *y, float *ws) {
	long pairs = g->N * g->groups, bands = pairs >= 8 ? 1 : min_l(8, ceil_div(g->Q, PANELS * GTC_NR));
	long band = round_up(ceil_div(g->Q, bands), GTC_NR), wrows = packed_rows(g->OG);
	size_t image = image_floats(g, g->CG);
	int want = gtc_for_threads((double)g->N * (double)g->O * (double)g->Q * (double)g->K / 8);
	pack_weights(ws, w, g, flip);
#pragma omp parallel num_threads(want) if (want > 1)
	{
		float *buf = gtc_scratch((image + (size_t)g->K) * sizeof(float));
		int32_t *off = (int32_t *)(buf + image);
		long have = -1;
		tap_offsets(off, g);
#pragma omp for schedule(static)
		for (long t = 0; t < pairs * bands; t++) {
			long p = t / bands, q0 = t % bands * band, grp = p % g->groups, n = p / g->groups, q1 = min_l(g->Q, q0 + band);
			if (q0 >= g->Q) continue;
			if (p != have) copy_planes(buf, x + (n * g->C + grp * g->CG) * g->H * g->W, g, g->CG), have = p;
			for (long q = q0; q < q1; q += PANELS * GTC_NR)
				conv_panels(g, buf, ws + grp * wrows * g->K, bias ? bias + grp * g->OG : NULL, off,
					    y + (n * g->O + grp * g->OG) * g->OH * g->OW, q, min_l(q1, q + PANELS * GTC_NR));
		}
	}
}

size_t gtc_conv_fwd_workspace(const conv_dims *d) {
	geometry g = forward_geometry(d);
	return align64(packed_floats(&g) * sizeof(float));
}

void gtc_conv_fwd(const float *x, const float *w, const float *bias, float *y, void *ws, const conv_dims *d) {
	geometry g = forward_geometry(d);
	if (g.N > 0 && g.OH > 0 && g.OW > 0) run_conv(&g, x, w, 0, bias, y, ws);
}

size_t gtc_conv_bwd_data_workspace(const conv_dims *d) {
	geometry g = data_geometry(d);
	return align64(packed_floats(&g) * sizeof(float));
}

void gtc_conv_bwd_data(const float *dy, const float *w, float *dx, void *ws, const conv_dims *d) {
	geometry g = data_geometry(d);
	if (g.N > 0 && g.OH > 0 && g.OW > 0) run_conv(&g, dy, w, 1, NULL, dx, ws);
}

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
	long Qp, orows, per_block;  // virtual outputs rounded up, rows of dy per image (padded), images per block
	size_t xf, dyf, block_bytes; // floats per image of x and of dy; bytes of both per block
} weight_plan;

static weight_plan plan_weight(const conv_dims *d) {
	weight_plan p = {.g = forward_geometry(d)};
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
	return (size_t)(p->orows / DO * ceil_div(p->g.K, DK)) * DO * DK;
}
size_t gtc_conv_bwd_weight_workspace(const conv_dims *d) {
	weight_plan p = plan_weight(d);
	return align64(p.block_bytes) + align64((size_t)round_up(p.g.K, DK) * sizeof(int32_t)) + align64(sums_floats(&p) * sizeof(float));
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
	long per = round_up(g->OG, DO), grp = ot * DO / per, kt = ceil_div(g->K, DK);
	for (long k = 0; k < kt; k++) {
		float *s = sums + (ot * kt + k) * DO * DK;
		const float *x = xb + grp * g->CG * g->plane, *dy = dyb + ot * DO * p->Qp;
		if (g->K - k * DK <= 3)
			dot_3(p->Qp, n, dy, p->Qp, p->dyf, x, p->xf, off + k * DK, s);
		else
			dot_6(p->Qp, n, dy, p->Qp, p->dyf, x, p->xf, off + k * DK, s);
	}
}

static void store_weights(float *dw, const float *sums, const weight_plan *p) {
	const geometry *g = &p->g;
	long per = round_up(g->OG, DO), kt = ceil_div(g->K, DK);
	for (long o = 0; o < g->O; o++) {
		long r = o / g->OG * per + o % g->OG;
		for (long k = 0; k < g->K; k++) dw[o * g->K + k] = sums[((r / DO) * kt + k / DK) * DO * DK + r % DO * DK + k % DK];
	}
}

void gtc_conv_bwd_weight(const float *x, const float *dy, float *dw, void *ws, const conv_dims *d) {
	weight_plan p = plan_weight(d);
	const geometry *g = &p.g;
	float *xb = ws, *dyb = xb + (size_t)p.per_block * p.xf;
	int32_t *off = (int32_t *)((char *)ws + align64(p.block_bytes));
	float *sums = (float *)((char *)off + align64((size_t)round_up(g->K, DK) * sizeof(int32_t)));
	tap_offsets(off, g);
	for (long k = g->K; k < round_up(g->K, DK); k++) off[k] = off[g->K - 1];
	memset(sums, 0, sums_floats(&p) * sizeof(float));
	int nt = gtc_for_threads((double)g->N * (double)g->O * (double)g->Q * (double)g->K / 8);
#pragma omp parallel num_threads(nt) if (nt > 1)
	for (long n0 = 0; n0 < g->N; n0 += p.per_block) {
		long n = min_l(p.per_block, g->N - n0);
#pragma omp for schedule(static)
		for (long i = 0; i < n; i++) {
			copy_planes(xb + (size_t)i * p.xf, x + (n0 + i) * g->C * g->H * g->W, g, g->C);
			spread_dy(dyb + (size_t)i * p.dyf, dy + (n0 + i) * g->O * g->OH * g->OW, &p);
		}
#pragma omp for schedule(static)
		for (long ot = 0; ot < p.orows / DO; ot++) weight_tiles(&p, xb, dyb, off, sums, n, ot);
	}
	store_weights(dw, sums, &p);
}
