// Convolution without im2col.
//
// Each image is copied once into planes that hold its padding and are cut by phase (position modulo stride), all of one
// width Wv. In that layout the value that tap (c, kh, kw) takes for output (oh, ow) lies at off[c, kh, kw] + oh * Wv + ow:
// a fixed distance for each tap. Outputs are therefore computed over the virtual row q = oh * Wv + ow, vectors of
// neighbouring q at once, with one unaligned load per tap and vector; the few q with ow >= OW are computed and dropped.
// The data gradient is the same computation on the output gradient, once per phase of the input with the taps that reach
// that phase, and the weight gradient (conv_weight.c) is a set of dot products over q.
#include "conv_planes.h"

// copy_row writes one row of a phase plane: element j is source column j*sW + b - padL. It may
// write up to a vector past the row, where the next row or the slack follows.
static void copy_row(float *dst, const float *src, const geometry *g, long b) {
	if (g->sW == 1) {
		long lo = min_l(g->Wv, max_l(0, g->padL)), hi = max_l(lo, min_l(g->Wv, g->W + g->padL));
		for (long j = 0; j < lo; j += VL) vstore(dst + j, vset(0));
		long j = lo;
		for (; j < hi; j += VL) vstore(dst + j, vload_n(src + j - g->padL, min_l(VL, hi - j), 0));
		for (; j < g->Wv; j += VL) vstore(dst + j, vset(0));
		return;
	}
	long o = b - g->padL, lo = o >= 0 ? 0 : min_l(g->Wv, ceil_div(-o, g->sW));
	long hi = o >= g->W ? lo : max_l(lo, min_l(g->Wv, (g->W - 1 - o) / g->sW + 1));
	for (long j = 0; j < lo; j++) dst[j] = 0;
	for (long j = lo; j < hi; j++) dst[j] = src[j * g->sW + o];
	for (long j = hi; j < g->Wv; j++) dst[j] = 0;
}

void gtc_copy_planes(float *dst, const float *src, const geometry *g, long channels) {
	for (long c = 0; c < channels; c++)
		for (long a = 0; a < g->sH; a++)
			for (long b = 0; b < g->sW; b++)
				for (long i = 0; i < g->Hv; i++, dst += g->Wv) {
					long t = i * g->sH + a - g->padT;
					if (t >= 0 && t < g->H)
						copy_row(dst, src + (c * g->H + t) * g->W, g, b);
					else
						memset(dst, 0, (size_t)g->Wv * sizeof(float));
				}
	memset(dst, 0, SLACK * sizeof(float));
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

// view is a set of taps and the outputs they make: the whole forward convolution, or, in the data gradient of a strided
// one, the inputs of one phase. Virtual output (u, v) with lo <= (u, v) < hi goes to row u*mulH + addH, column
// v*mulW + addW. The taps are those (kh, kw) with kh in [kh0, KH) by steps of khs, kw likewise.
typedef struct {
	long loH, hiH, loW, hiW, mulH, addH, mulW, addW;
	long kh0, khs, kw0, kws, K;
	float *w;     // packed weights, groups * packed_rows * K
	int32_t *off; // distance of each of the K taps
} view;

// problem is what run_conv computes: data is 1 for the data gradient.
typedef struct {
	geometry g;
	int data;
	long views, reachH, reachW; // reach: how far back the data gradient's taps look, in source rows and columns
	long u0, v0;
} problem;

static problem forward_problem(const conv_dims *d) { return (problem){.g = forward_geometry(d), .data = 0, .views = 1}; }

static long gcd(long a, long b) { return b ? gcd(b, a % b) : a; }

// data_problem: input row ih lies at ih + padT = stride*u + phase and gets, from each tap whose dilated row has that phase,
// output row u - kh*dil/stride. All phases read the same padded copy of dy.
static problem data_problem(const conv_dims *d) {
	problem p = {.data = 1, .views = d->strideH * d->strideW};
	p.reachH = (d->KH - 1) * d->dilH / d->strideH, p.reachW = (d->KW - 1) * d->dilW / d->strideW;
	p.u0 = d->padT / d->strideH, p.v0 = d->padL / d->strideW;
	long u1 = (d->H - 1 + d->padT) / d->strideH, v1 = (d->W - 1 + d->padL) / d->strideW;
	geometry g = {.N = d->N, .C = d->O, .H = d->OH, .W = d->OW, .O = d->C, .OH = d->H, .OW = d->W, .padT = p.reachH - p.u0,
		      .padL = p.reachW - p.v0, .sH = 1, .sW = 1, .groups = d->groups, .CG = d->O / d->groups, .OG = d->C / d->groups};
	g.Hv = u1 - p.u0 + 1 + p.reachH, g.Wv = v1 - p.v0 + 1 + p.reachW;
	g.plane = g.Hv * g.Wv, g.Q = (u1 - p.u0) * g.Wv + v1 - p.v0 + 1;
	p.g = g;
	return p;
}

// first_tap gives the first k with k*dil % stride == phase, and the step to the next, or k = size when there is none.
static void first_tap(long size, long dil, long stride, long phase, long *first, long *step) {
	*step = stride / gcd(dil, stride);
	for (*first = 0; *first < min_l(size, *step); ++*first)
		if (*first * dil % stride == phase) return;
	*first = size;
}

// set_range sets which u the outputs [0, size) of one phase need, counted from u0.
static void set_range(long size, long pad, long stride, long phase, long u0, long *lo, long *hi, long *add) {
	*lo = max_l(0, ceil_div(max_l(0, pad - phase), stride) - u0);
	*hi = size - 1 + pad - phase < 0 ? *lo : (size - 1 + pad - phase) / stride - u0 + 1;
	*add = phase - pad + u0 * stride;
}

static view make_view(const problem *p, const conv_dims *d, long index) {
	view v = {.hiH = p->g.OH, .hiW = p->g.OW, .mulH = 1, .mulW = 1, .khs = 1, .kws = 1};
	if (p->data) {
		long ph = index / d->strideW, pw = index % d->strideW;
		v.mulH = d->strideH, v.mulW = d->strideW;
		first_tap(d->KH, d->dilH, d->strideH, ph, &v.kh0, &v.khs);
		first_tap(d->KW, d->dilW, d->strideW, pw, &v.kw0, &v.kws);
		set_range(d->H, d->padT, d->strideH, ph, p->u0, &v.loH, &v.hiH, &v.addH);
		set_range(d->W, d->padL, d->strideW, pw, p->v0, &v.loW, &v.hiW, &v.addW);
	}
	v.K = p->g.CG * ceil_div(d->KH - v.kh0, v.khs) * ceil_div(d->KW - v.kw0, v.kws);
	return v;
}

// fill_view computes the distances of a view's taps and packs their weights tile by tile.
static void fill_view(const view *v, const problem *p, const conv_dims *d, const float *w) {
	const geometry *g = &p->g;
	long rows_all = packed_rows(g->OG), T = d->KH * d->KW, k = 0;
	for (long c = 0; c < g->CG; c++)
		for (long kh = v->kh0; kh < d->KH; kh += v->khs)
			for (long kw = v->kw0; kw < d->KW; kw += v->kws, k++) {
				if (p->data)
					v->off[k] = (int32_t)(c * g->plane + (p->reachH - kh * d->dilH / d->strideH) * g->Wv + p->reachW -
							      kw * d->dilW / d->strideW);
				else
					v->off[k] = (int32_t)forward_tap(g, d, c, kh, kw);
				for (long grp = 0; grp < g->groups; grp++)
					for (long o = 0; o < rows_all; o++) {
						long tile = o / GTC_MR * GTC_MR, rows = min_l(GTC_MR, rows_all - tile);
						const float *s = p->data ? w + ((grp * g->CG + c) * g->OG + o) * T : w + ((grp * g->OG + o) * g->CG + c) * T;
						v->w[(grp * rows_all + tile) * v->K + k * rows + o - tile] = o < g->OG ? s[kh * d->KW + kw] : 0;
					}
			}
}

// segment says that n outputs at lane q of a panel go to offset at of the output plane.
typedef struct {
	long q, at, n;
} segment;

// cut_panel splits virtual outputs [q0, q0+nq) at the ends of output rows and drops what the view does not want.
static int cut_panel(segment *s, const geometry *g, const view *v, long q0, long nq) {
	long u = q0 / g->Wv, c = q0 % g->Wv;
	int count = 0;
	for (long q = 0; q < nq;) {
		long first = max_l(c, v->loW), n = min_l(c + nq - q, v->hiW) - first;
		if (n > 0 && u >= v->loH && u < v->hiH)
			s[count++] = (segment){q + first - c, (u * v->mulH + v->addH) * g->OW + first * v->mulW + v->addW, n};
		q += g->Wv - c, u++, c = 0;
	}
	return count;
}

static void store_row(float *y, const float *t, const segment *s, int count, long step) {
	for (int i = 0; i < count; i++) {
		if (step == 1)
			for (long j = 0; j < s[i].n; j += VL) vstore_n(y + s[i].at + j, vload(t + s[i].q + j), min_l(VL, s[i].n - j));
		else
			for (long j = 0; j < s[i].n; j++) y[s[i].at + j * step] = t[s[i].q + j];
	}
}

enum { PANELS = 4 }; // panels that share a tile of weights while it is in the first-level cache

// conv_panels computes virtual outputs [q0, q1), at most PANELS panels, of one image, group and view.
static void conv_panels(const geometry *g, const view *v, const float *x, const float *w, const float *bias, float *y, long q0, long q1) {
	float t[GTC_MR * GTC_NR + VL] __attribute__((aligned(64))), tb[GTC_MR];
	segment seg[PANELS][GTC_NR];
	int count[PANELS];
	long plane = g->OH * g->OW;
	for (long q = q0, p = 0; q < q1; q += GTC_NR, p++) count[p] = cut_panel(seg[p], g, v, q, min_l(GTC_NR, q1 - q));
	for (long o = 0; o < g->OG; o += GTC_MR) {
		long mr = min_l(GTC_MR, g->OG - o), rows = tile_rows[tile_class(mr)];
		const float *wt = w + o * v->K;
		for (long r = 0; r < rows; r++) tb[r] = bias && r < mr ? bias[o + r] : 0;
		for (long q = q0, p = 0; q < q1; q += GTC_NR, p++) {
			if (count[p] == 0) continue;
			taps_fn fn = taps_table[tile_class(mr)][min_l(GTC_NR, q1 - q) > VL];
			if (mr == rows && v->mulW == 1 && seg[p][0].n == GTC_NR) {
				fn(v->K, wt, x + q, v->off, y + o * plane + seg[p][0].at, plane, tb);
				continue;
			}
			fn(v->K, wt, x + q, v->off, t, GTC_NR, tb);
			for (long r = 0; r < mr; r++) store_row(y + (o + r) * plane, t + r * GTC_NR, seg[p], count[p], v->mulW);
		}
	}
}

// The workspace holds the views, then their packed weights, then their tap distances.
static size_t problem_workspace(const problem *p, const conv_dims *d) {
	size_t taps = (size_t)(p->g.CG * d->KH * d->KW);
	return align64((size_t)p->views * sizeof(view)) + align64(taps * (size_t)(p->g.groups * packed_rows(p->g.OG)) * sizeof(float)) +
	       align64(taps * sizeof(int32_t));
}

static view *make_views(const problem *p, const conv_dims *d, const float *weights, void *ws) {
	view *v = ws;
	float *w = (float *)((char *)ws + align64((size_t)p->views * sizeof(view)));
	long rows = p->g.groups * packed_rows(p->g.OG);
	int32_t *off = (int32_t *)((char *)w + align64((size_t)(p->g.CG * d->KH * d->KW * rows) * sizeof(float)));
	for (long i = 0; i < p->views; i++) {
		v[i] = make_view(p, d, i);
		v[i].w = w, v[i].off = off;
		w += rows * v[i].K, off += v[i].K;
		fill_view(v + i, p, d, weights);
	}
	return v;
}

// run_conv computes images, groups and, when those are few, bands of virtual outputs in parallel.
static void run_conv(const problem *p, const conv_dims *d, const float *x, const float *w, const float *bias, float *y, void *ws) {
	const geometry *g = &p->g;
	if (g->N <= 0 || g->OH <= 0 || g->OW <= 0) return;
	long pairs = g->N * g->groups, bands = pairs >= 8 ? 1 : min_l(8, ceil_div(g->Q, PANELS * GTC_NR));
	long band = round_up(ceil_div(g->Q, bands), GTC_NR), wrows = packed_rows(g->OG);
	const view *views = make_views(p, d, w, ws);
	int want = gtc_for_threads((double)g->N * (double)g->O * (double)g->Q * (double)(g->CG * d->KH * d->KW) / 8);
#pragma omp parallel num_threads(want) if (want > 1)
	{
		float *buf = gtc_scratch(image_floats(g, g->CG) * sizeof(float));
		long have = -1;
#pragma omp for schedule(static)
		for (long t = 0; t < pairs * bands; t++) {
			long pair = t / bands, q0 = t % bands * band, grp = pair % g->groups, n = pair / g->groups, q1 = min_l(g->Q, q0 + band);
			if (q0 >= g->Q) continue;
			if (pair != have) gtc_copy_planes(buf, x + (n * g->C + grp * g->CG) * g->H * g->W, g, g->CG), have = pair;
			for (long i = 0; i < p->views; i++)
				for (long q = q0; q < q1; q += PANELS * GTC_NR)
					conv_panels(g, views + i, buf, views[i].w + grp * wrows * views[i].K, bias ? bias + grp * g->OG : NULL,
						    y + (n * g->O + grp * g->OG) * g->OH * g->OW, q, min_l(q1, q + PANELS * GTC_NR));
		}
	}
}

// pointwise_conv computes dst[m, P] = a[m, k] . src[k, P] (+ bias[m]) per image and group, threads sharing panels of P.
static void pointwise_conv(const conv_dims *d, gtc_mat a, long astep, const float *src, long k, float *dst, long m, const float *bias) {
	long P = d->H * d->W, panels = ceil_div(P, GTC_NR), pairs = d->N * d->groups, bands = pairs >= 8 ? 1 : min_l(8, panels);
	int want = gtc_for_threads((double)pairs * (double)m * (double)k * (double)P / 8);
#pragma omp parallel for schedule(static) num_threads(want) if (want > 1)
	for (long t = 0; t < pairs * bands; t++) {
		long pair = t / bands, grp = pair % d->groups, j0 = panels * (t % bands) / bands, j1 = panels * (t % bands + 1) / bands;
		float *scratch = gtc_scratch(GTC_BLOCK_FLOATS * sizeof(float)), *y = dst + pair * m * P;
		for (long i = 0; bias && i < m; i++)
			for (long j = j0 * GTC_NR; j < min_l(P, j1 * GTC_NR); j++) y[i * P + j] = bias[grp * m + i];
		gtc_mat ag = {a.p + grp * astep, a.rs, a.cs};
		gtc_block(y, P, ag, (gtc_mat){src + pair * k * P, P, 1}, m, P, k, j0, j1, bias != NULL, NULL, scratch);
	}
}

size_t gtc_conv_fwd_workspace(const conv_dims *d) {
	if (pointwise(d)) return 0;
	problem p = forward_problem(d);
	return problem_workspace(&p, d);
}

void gtc_conv_fwd(const float *x, const float *w, const float *bias, float *y, void *ws, const conv_dims *d) {
	long CG = d->C / d->groups, OG = d->O / d->groups;
	if (pointwise(d)) {
		pointwise_conv(d, (gtc_mat){w, CG, 1}, OG * CG, x, CG, y, OG, bias);
		return;
	}
	problem p = forward_problem(d);
	run_conv(&p, d, x, w, bias, y, ws);
}

size_t gtc_conv_bwd_data_workspace(const conv_dims *d) {
	if (pointwise(d)) return 0;
	problem p = data_problem(d);
	return problem_workspace(&p, d);
}

void gtc_conv_bwd_data(const float *dy, const float *w, float *dx, void *ws, const conv_dims *d) {
	long CG = d->C / d->groups, OG = d->O / d->groups;
	if (pointwise(d)) {
		pointwise_conv(d, (gtc_mat){w, 1, CG}, OG * CG, dy, OG, dx, CG, NULL);
		return;
	}
	problem p = data_problem(d);
	run_conv(&p, d, dy, w, NULL, dx, ws);
}
