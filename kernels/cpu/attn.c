// Attention that never stores the whole score matrix, after Dao et al., "FlashAttention" (2022) and "FlashAttention-2"
// (2023): keys are taken in blocks, each row keeps a running maximum and sum, and the backward pass computes the
// probabilities again from the saved log-sum-exp.
//
// A task is one (batch, key head) with all its query heads, cut further by query rows in the forward pass when there
// are few heads. A task owns all that it writes, so no sum depends on the number of threads.
#include "attn.h"
#include "gemm.h"
#include "gemm_ukr.h"
#include "gtc_math.h"
#include "threads.h"
#include "vec_math.h"

enum { BK = 256, BQ = 24, LDP = BK };

static long min_l(long a, long b) { return a < b ? a : b; }
static long max_l(long a, long b) { return a > b ? a : b; }
static long round_up(long a, long b) { return (a + b - 1) / b * b; }

// visible is the number of keys of the block [k0, k0+bk) that query i may see.
static long visible(const attn_dims *s, long i, long k0, long bk) {
	if (!s->causal) return bk;
	return max_l(0, min_l(bk, i + s->causal - k0));
}

// hidden is the number of keys of the block from k0 that come before those query i sees.
static long hidden(const attn_dims *s, long i, long k0) {
	return s->window ? max_l(0, i + s->causal - s->window - k0) : 0;
}

// first_block is the start of the first block of keys that query i, or one after it, sees something of.
static long first_block(const attn_dims *s, long i) {
	return s->window ? max_l(0, min_l(i + s->causal - s->window, s->sk - 1)) / BK * BK : 0;
}

// scores fills S[rows, LDP] = Q . K^T for query rows [i0, i0+rows) against a packed block, up to lim keys.
static void scores(float *p, const float *q, long ldq, const float *kt, long rows, long lim, long depth) {
	for (long c0 = 0; c0 < depth; c0 += GTC_KC) {
		long kc = min_l(GTC_KC, depth - c0);
		for (long j = 0; j < lim; j += GTC_NR)
			gtc_panel(p + j, LDP, (gtc_mat){q + c0, ldq, 1}, kt + j * depth + c0 * GTC_NR, GTC_NR, rows, GTC_NR, kc, c0 > 0);
	}
}

// pack_t stores rows [0, bk) of a [bk, depth] operand transposed: panels of GTC_NR keys, each [depth][GTC_NR].
static void pack_t(float *dst, const float *src, long ld, long bk, long depth) {
	for (long j = 0; j < bk; j += GTC_NR)
		gtc_transpose_panel(dst + j * depth, src + j * ld, ld, depth, min_l(GTC_NR, bk - j));
}

// scale_mask turns raw scores of one row into scale * s + mask, -inf before the visible keys [from, n) and past them, and
// gives the maximum.
static float scale_mask(float *p, long from, long n, long width, float scale, const float *mask) {
	vf top = vset(-INFINITY);
	for (long j = 0; j < width; j += VL) {
		long w = min_l(VL, n - j);
		vf v = vset(-INFINITY);
		if (w > 0) {
			v = vload(p + j) * scale;
			if (mask) v += vload_n(mask + j, w, 0);
			if (w < VL) {
				vstore(p + j, v);
				v = vload_n(p + j, w, -INFINITY);
			}
		}
		if (j < from) {
			vstore(p + j, v);
			for (long x = j; x < min_l(from, j + VL); x++) p[x] = -INFINITY;
			v = vload(p + j);
		}
		vstore(p + j, v);
		top = vmax(v, top);
	}
	return vhmax(top);
}

static float exp_row(float *p, long width, float top) {
	vf sum = vset(0);
	for (long j = 0; j < width; j += VL) {
		vf e = vexp(vload(p + j) - top);
		vstore(p + j, e);
		sum += e;
	}
	return vsum(sum);
}

static void scale_row(float *o, long n, float f) {
	for (long j = 0; j < n; j += VL) {
		long w = min_l(VL, n - j);
		vstore_n(o + j, vload_n(o + j, w, 0) * f, w);
	}
}

// softmax_block updates the running maximum and sum of each row and leaves exp(score - maximum) in P. Rows of O hold
// the sum over earlier blocks, when there are any, and are rescaled to the new maximum.
static void softmax_block(const attn_dims *s, float *p, float *o, const float *mask, long i0, long rows, long k0, long bk, long width,
			  float *top, float *sum) {
	int more = k0 > first_block(s, i0);
	for (long r = 0; r < rows; r++) {
		float *pr = p + r * LDP;
		float m = scale_mask(pr, hidden(s, i0 + r, k0), visible(s, i0 + r, k0, bk), width, s->scale, mask ? mask + (i0 + r) * s->maskQ + k0 : NULL);
		m = m > top[r] ? m : top[r];
		if (m == -INFINITY) { // every key so far is masked
			memset(pr, 0, (size_t)width * sizeof(float));
			continue;
		}
		float old = top[r] == -INFINITY ? 0 : gtc_expf(top[r] - m);
		sum[r] = sum[r] * old + exp_row(pr, width, m);
		if (more && old != 1) scale_row(o + r * s->oS, s->dv, old);
		top[r] = m;
	}
}

typedef struct {
	const float *q, *k, *v, *mask;
	float *out, *lse;
} fwd_ptrs;

// fwd_task computes query rows [i0, i1) of one head.
static void fwd_task(const attn_dims *s, const fwd_ptrs *x, long b, long h, long i0, long i1) {
	long rows = i1 - i0, kv = h / (s->heads / s->kvHeads);
	const float *q = x->q + b * s->qB + h * s->qH, *k = x->k + b * s->kB + kv * s->kH, *v = x->v + b * s->vB + kv * s->vH;
	const float *mask = x->mask ? x->mask + b * s->maskB + h * s->maskH : NULL;
	float *o = x->out + b * s->oB + h * s->oH, *lse = x->lse + (b * s->heads + h) * s->sq;
	long ktn = BK * s->d, pn = BQ * LDP, bb = BK * GTC_NR, rn = round_up(rows, 16);
	float *kt = gtc_scratch((size_t)(ktn + pn + bb + 2 * rn) * sizeof(float));
	float *p = kt + ktn, *bbuf = p + pn, *top = bbuf + bb, *sum = top + rn;
	for (long r = 0; r < rows; r++) top[r] = -INFINITY, sum[r] = 0;
	for (long k0 = 0; k0 < s->sk; k0 += BK) {
		long bk = min_l(BK, s->sk - k0);
		if (visible(s, i1 - 1, k0, bk) == 0) break;
		pack_t(kt, k + k0 * s->kS, s->kS, bk, s->d);
		for (long i = i0; i < i1; i += BQ) {
			long n = min_l(BQ, i1 - i), lim = visible(s, i + n - 1, k0, bk), width = round_up(lim, VL);
			if (lim == 0 || k0 < first_block(s, i)) continue;
			scores(p, q + i * s->qS, s->qS, kt, n, lim, s->d);
			softmax_block(s, p, o + i * s->oS, mask, i, n, k0, bk, width, top + i - i0, sum + i - i0);
			gtc_rows(o + i * s->oS, s->oS, (gtc_mat){p, LDP, 1}, v + k0 * s->vS, s->vS, n, s->dv, lim, k0 > first_block(s, i), bbuf);
		}
	}
	for (long r = 0; r < rows; r++) {
		scale_row(o + (i0 + r) * s->oS, s->dv, sum[r] > 0 || sum[r] != sum[r] ? 1 / sum[r] : 0);
		if (lse) lse[i0 + r] = sum[r] > 0 || sum[r] != sum[r] ? top[r] + gtc_logf(sum[r]) : -INFINITY;
	}
}

void gtc_attn_fwd(const float *q, const float *k, const float *v, const float *mask, float *out, float *lse, const attn_dims *s) {
	fwd_ptrs x = {q, k, v, mask, out, lse};
	// Query rows are cut only when there are few heads; each cut packs the keys again.
	long chunk = s->batch * s->heads >= 16 ? s->sq : round_up(max_l(1, (s->sq + 7) / 8), BQ);
	if (chunk < 1) return;
	long chunks = (s->sq + chunk - 1) / chunk, tasks = s->batch * s->heads * chunks;
	int nt = gtc_for_threads((double)tasks * (double)chunk * (double)s->sk * (double)(s->d + s->dv) / 8);
#pragma omp parallel for schedule(static, 1) num_threads(nt) if (nt > 1)
	for (long t = 0; t < tasks; t++) {
		long c = t % chunks, h = t / chunks % s->heads, b = t / chunks / s->heads;
		fwd_task(s, &x, b, h, c * chunk, min_l(s->sq, (c + 1) * chunk));
	}
}

typedef struct {
	const float *q, *k, *v, *mask, *out, *lse, *dout;
	float *dq, *dk, *dv;
} bwd_ptrs;

// probs_block recomputes P = exp(scale s + mask - lse) in place and turns dP into dS = P (dP - delta) scale.
static void probs_block(const attn_dims *s, float *p, float *dp, const float *mask, const float *lse, const float *delta, long i0, long rows,
			long k0, long bk, long width) {
	for (long r = 0; r < rows; r++) {
		float *pr = p + r * LDP, *dr = dp + r * LDP, l = lse[i0 + r];
		scale_mask(pr, hidden(s, i0 + r, k0), visible(s, i0 + r, k0, bk), width, s->scale, mask ? mask + (i0 + r) * s->maskQ + k0 : NULL);
		if (l == -INFINITY) { // a row with every key masked has zero probabilities
			memset(pr, 0, (size_t)width * sizeof(float));
			memset(dr, 0, (size_t)width * sizeof(float));
			continue;
		}
		for (long j = 0; j < width; j += VL) {
			vf e = vexp(vload(pr + j) - l);
			vstore(pr + j, e);
			vstore(dr + j, e * (vload(dr + j) - delta[i0 + r]) * s->scale);
		}
	}
}

// row_dots sets delta[i] = sum_j dout[i, j] out[i, j], the derivative of the softmax's normaliser.
static void row_dots(float *delta, const float *o, long oS, const float *g, long gS, long sq, long dv) {
	for (long i = 0; i < sq; i++) {
		vf acc = vset(0);
		for (long j = 0; j < dv; j += VL) {
			long w = min_l(VL, dv - j);
			acc += vload_n(o + i * oS + j, w, 0) * vload_n(g + i * gS + j, w, 0);
		}
		delta[i] = vsum(acc);
	}
}

static void zero_rows(float *p, long ld, long rows, long n) {
	for (long i = 0; i < rows; i++) memset(p + i * ld, 0, (size_t)n * sizeof(float));
}

typedef struct {
	float *kt, *vt, *p, *dp, *bbuf, *delta;
} bwd_scratch;

// bwd_keys handles one block of keys against every query of every head that shares them.
static void bwd_keys(const attn_dims *s, const bwd_strides *z, const bwd_ptrs *x, const bwd_scratch *w, long b, long kv, long k0) {
	long group = s->heads / s->kvHeads, bk = min_l(BK, s->sk - k0);
	const float *k = x->k + b * s->kB + kv * s->kH + k0 * s->kS, *v = x->v + b * s->vB + kv * s->vH + k0 * s->vS;
	float *dk = x->dk + b * z->dkB + kv * z->dkH + k0 * z->dkS, *dv = x->dv + b * z->dvB + kv * z->dvH + k0 * z->dvS;
	pack_t(w->kt, k, s->kS, bk, s->d);
	pack_t(w->vt, v, s->vS, bk, s->dv);
	zero_rows(dk, z->dkS, bk, s->d);
	zero_rows(dv, z->dvS, bk, s->dv);
	for (long g = 0; g < group; g++) {
		long h = kv * group + g;
		const float *q = x->q + b * s->qB + h * s->qH, *go = x->dout + b * z->gB + h * z->gH;
		const float *mask = x->mask ? x->mask + b * s->maskB + h * s->maskH : NULL;
		const float *lse = x->lse + (b * s->heads + h) * s->sq;
		float *dq = x->dq + b * z->dqB + h * z->dqH;
		for (long i = 0; i < s->sq; i += BQ) {
			long n = min_l(BQ, s->sq - i), lim = visible(s, i + n - 1, k0, bk), width = round_up(lim, VL);
			if (lim == 0 || k0 < first_block(s, i)) continue;
			scores(w->p, q + i * s->qS, s->qS, w->kt, n, lim, s->d);
			scores(w->dp, go + i * z->gS, z->gS, w->vt, n, lim, s->dv);
			probs_block(s, w->p, w->dp, mask, lse, w->delta + g * s->sq, i, n, k0, bk, width);
			gtc_rows(dv, z->dvS, (gtc_mat){w->p, 1, LDP}, go + i * z->gS, z->gS, lim, s->dv, n, 1, w->bbuf);
			gtc_rows(dk, z->dkS, (gtc_mat){w->dp, 1, LDP}, q + i * s->qS, s->qS, lim, s->d, n, 1, w->bbuf);
			gtc_rows(dq + i * z->dqS, z->dqS, (gtc_mat){w->dp, LDP, 1}, k, s->kS, n, s->d, lim, k0 > first_block(s, i), w->bbuf);
		}
	}
}

static void bwd_task(const attn_dims *s, const bwd_strides *z, const bwd_ptrs *x, long b, long kv) {
	long group = s->heads / s->kvHeads, ktn = BK * s->d, vtn = BK * s->dv, pn = BQ * LDP, bb = BK * GTC_NR;
	bwd_scratch w;
	w.kt = gtc_scratch((size_t)(ktn + vtn + 2 * pn + bb + group * s->sq) * sizeof(float));
	w.vt = w.kt + ktn, w.p = w.vt + vtn, w.dp = w.p + pn, w.bbuf = w.dp + pn, w.delta = w.bbuf + bb;
	for (long g = 0; g < group; g++) {
		long h = kv * group + g;
		row_dots(w.delta + g * s->sq, x->out + b * s->oB + h * s->oH, s->oS, x->dout + b * z->gB + h * z->gH, z->gS, s->sq, s->dv);
		if (s->sk == 0) zero_rows(x->dq + b * z->dqB + h * z->dqH, z->dqS, s->sq, s->d);
	}
	for (long k0 = 0; k0 < s->sk; k0 += BK) bwd_keys(s, z, x, &w, b, kv, k0);
}

void gtc_attn_bwd(const float *q, const float *k, const float *v, const float *mask, const float *out, const float *lse, const float *dout,
		  float *dq, float *dk, float *dv, const attn_dims *s, const bwd_strides *z) {
	bwd_ptrs x = {q, k, v, mask, out, lse, dout, dq, dk, dv};
	long tasks = s->batch * s->kvHeads;
	int nt = gtc_for_threads((double)s->batch * (double)s->heads * (double)s->sq * (double)s->sk * (double)(s->d + s->dv) / 4);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long t = 0; t < tasks; t++) bwd_task(s, z, &x, t / s->kvHeads, t % s->kvHeads);
}
