// Determinants and cofactors of small matrices by Gaussian elimination with partial pivoting, in double precision.
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "threads.h"

static double load(const void *x, long i, long bytes) { return bytes == 8 ? ((const double *)x)[i] : (double)((const float *)x)[i]; }
static void store(void *x, long i, long bytes, double v) {
	if (bytes == 8)
		((double *)x)[i] = v;
	else
		((float *)x)[i] = (float)v;
}

// eliminate brings a[n][n] to upper triangular form, applying the row steps to b[n][m] too, and returns the determinant.
static double eliminate(double *a, double *b, long n, long m) {
	double det = 1;
	for (long k = 0; k < n; k++) {
		long p = k;
		for (long i = k + 1; i < n; i++)
			if (fabs(a[i * n + k]) > fabs(a[p * n + k])) p = i;
		if (a[p * n + k] == 0) return 0;
		if (p != k) {
			det = -det;
			for (long j = 0; j < n; j++) {
				double t = a[k * n + j];
				a[k * n + j] = a[p * n + j], a[p * n + j] = t;
			}
			for (long j = 0; j < m; j++) {
				double t = b[k * m + j];
				b[k * m + j] = b[p * m + j], b[p * m + j] = t;
			}
		}
		det *= a[k * n + k];
		for (long i = k + 1; i < n; i++) {
			double f = a[i * n + k] / a[k * n + k];
			for (long j = k; j < n; j++) a[i * n + j] -= f * a[k * n + j];
			for (long j = 0; j < m; j++) b[i * m + j] -= f * b[k * m + j];
		}
	}
	return det;
}

void gtc_det(const void *x, void *y, long bytes, long batch, long n) {
	int nt = gtc_for_threads((double)batch * (double)n * (double)n * (double)n);
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long k = 0; k < batch; k++) {
		double *a = gtc_scratch((size_t)(n * n + 1) * sizeof(double));
		for (long i = 0; i < n * n; i++) a[i] = load(x, k * n * n + i, bytes);
		store(y, k, bytes, eliminate(a, a, n, 0));
	}
}

// cofactors fills c[n][n] from x[n][n] with scratch a[n][n]. A regular matrix has det times its inverse, transposed;
// a singular one gets each minor by itself.
static void cofactors(const double *x, double *c, double *a, long n) {
	memcpy(a, x, (size_t)(n * n) * sizeof(double));
	memset(c, 0, (size_t)(n * n) * sizeof(double));
	for (long i = 0; i < n; i++) c[i * n + i] = 1;
	double det = eliminate(a, c, n, n);
	if (det != 0) {
		for (long i = n - 1; i >= 0; i--)
			for (long j = 0; j < n; j++) {
				double v = c[i * n + j];
				for (long k = i + 1; k < n; k++) v -= a[i * n + k] * c[k * n + j];
				c[i * n + j] = v / a[i * n + i];
			}
		for (long i = 0; i < n; i++)
			for (long j = i; j < n; j++) {
				double up = c[i * n + j] * det, low = c[j * n + i] * det;
				c[i * n + j] = low, c[j * n + i] = up;
			}
		return;
	}
	for (long i = 0; i < n; i++)
		for (long j = 0; j < n; j++) {
			long at = 0;
			for (long r = 0; r < n; r++)
				for (long s = 0; s < n; s++)
					if (r != i && s != j) a[at++] = x[r * n + s];
			double minor = eliminate(a, a, n - 1, 0);
			c[i * n + j] = (i + j) % 2 ? -minor : minor;
		}
}

void gtc_cofactor(const void *x, void *y, long bytes, long batch, long n) {
	int nt = gtc_for_threads((double)batch * (double)n * (double)n * (double)n * 3);
	long size = n * n;
#pragma omp parallel for schedule(static) num_threads(nt) if (nt > 1)
	for (long k = 0; k < batch; k++) {
		double *m = gtc_scratch((size_t)(3 * size + 1) * sizeof(double));
		for (long i = 0; i < size; i++) m[i] = load(x, k * size + i, bytes);
		cofactors(m, m + size, m + 2 * size, n);
		for (long i = 0; i < size; i++) store(y, k * size + i, bytes, m[size + i]);
	}
}
