// Softmax cross entropy by rows: the maximum in one sweep, exponentials and their sum in a second, and the gradient's
// scaling in a third over a row that is still in cache.
#include <stdint.h>

#include "gtc_math.h"
#include "threads.h"
#include "vec_math.h"

static long min_l(long a, long b) { return a < b ? a : b; }

static float row_max(const float *x, long n) {
	vf m = vset(-INFINITY), m2 = m;
	long j = 0;
	for (; j + 2 * VL <= n; j += 2 * VL) m = vmax(vload(x + j), m), m2 = vmax(vload(x + j + VL), m2);
	for (; j < n; j += VL) m = vmax(vload_n(x + j, min_l(VL, n - j), -INFINITY), m);
	float t = vhmax(vmax(m, m2));
	return t == -INFINITY ? 0 : t; // all -inf: exponentials are 0 and the loss +inf
}

// row_exp writes exp(x - top) to e (skipped when NULL) and gives the sum.
static float row_exp(float *e, const float *x, long n, float top) {
	vf s = vset(0), s2 = s;
	long j = 0;
	for (; j + 2 * VL <= n; j += 2 * VL) {
		vf a = vexp(vload(x + j) - top), b = vexp(vload(x + j + VL) - top);
		if (e) vstore(e + j, a), vstore(e + j + VL, b);
		s += a, s2 += b;
	}
	for (; j < n; j += VL) {
		long w = min_l(VL, n - j);
		vf a = vexp(vload_n(x + j, w, -INFINITY) - top);
		if (e) vstore_n(e + j, a, w);
		s += a;
	}
	return vsum(s + s2);
}

static void row_scale(float *e, long n, float f) {
	long j = 0;
	for (; j + VL <= n; j += VL) vstore(e + j, vload(e + j) * f);
	if (j < n) vstore_n(e + j, vload_n(e + j, n - j, 0) * f, n - j);
}

// xent_row gives 1 for a target out of range, whose row then counts as ignored.
static int xent_row(const float *x, int64_t t, float w, float *loss, float *lse, float *dx, long classes, int64_t ignore) {
	int bad = t != ignore && (t < 0 || t >= classes);
	if (t == ignore || bad) {
		*loss = 0;
		if (lse) *lse = 0;
		if (dx) memset(dx, 0, (size_t)classes * sizeof(float));
		return bad;
	}
	float top = row_max(x, classes), xt = x[t], sum = row_exp(dx, x, classes, top), l = top + gtc_logf(sum);
	*loss = w * (l - xt);
	if (lse) *lse = l;
	if (dx) {
		row_scale(dx, classes, w / sum);
		dx[t] -= w;
	}
	return 0;
}

int64_t gtc_xent(const float *logits, const int64_t *target, const float *weight, float *loss, float *lse, float *dlogits, long rows,
		 long classes, int64_t ignore) {
	int64_t bad = rows;
	int nt = gtc_for_threads((double)rows * (double)classes * 4);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1) reduction(min : bad)
	for (long i = 0; i < rows; i++) {
		float *dx = dlogits ? dlogits + i * classes : NULL;
		if (xent_row(logits + i * classes, target[i], weight ? weight[i] : 1, loss + i, lse ? lse + i : NULL, dx, classes, ignore))
			bad = i < bad ? i : bad;
	}
	return bad < rows ? bad : -1;
}

void gtc_xent_bwd(const float *logits, const int64_t *target, const float *weight, const float *lse, float *dlogits, long rows, long classes,
		  int64_t ignore) {
	int nt = gtc_for_threads((double)rows * (double)classes * 4);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long i = 0; i < rows; i++) {
		float *dx = dlogits + i * classes, w = weight ? weight[i] : 1;
		int64_t t = target[i];
		if (t == ignore || t < 0 || t >= classes) {
			memset(dx, 0, (size_t)classes * sizeof(float));
			continue;
		}
		row_exp(dx, logits + i * classes, classes, lse[i]);
		row_scale(dx, classes, w);
		dx[t] -= w;
	}
}
