// Determinants and cofactors of small matrices by Gaussian elimination with partial pivoting, in double precision; a block
// works on one matrix, in the workspace.
#pragma once
#include "gtc.cuh"

namespace gtc {

// eliminate brings a[n][n] to upper triangular form, applying the row steps to b[n][m] too, and gives the determinant. All
// threads of the block call, and get it; shared is scratch.
template <int THREADS> GTC_FN double eliminate(double* a, double* b, int n, int m, int* shared) {
	const int tid = int(threadIdx.x), wide = n + m;
	double det = 1;
	for (int k = 0; k < n; k++) {
		sync();
		if (tid == 0) {
			int p = k;
			for (int i = k + 1; i < n; i++)
				if (fabs(a[i * n + k]) > fabs(a[p * n + k])) p = i;
			*shared = p;
		}
		sync();
		const int p = *shared;
		if (a[p * n + k] == 0) return 0;
		sync();
		if (p != k) {
			det = -det;
			for (int j = tid; j < wide; j += THREADS) {
				double* r = j < n ? a + j : b + j - n;
				const int step = j < n ? n : m;
				const double t = r[k * step];
				r[k * step] = r[p * step], r[p * step] = t;
			}
			sync();
		}
		det *= a[k * n + k];
		// The column below the pivot is read by every column's thread, so that it is left as it is: nothing reads it later.
		const int cols = wide - k - 1;
#pragma unroll 1
		for (int t = tid; t < (n - k - 1) * cols; t += THREADS) {
			const int i = k + 1 + t / cols, j = k + 1 + t % cols;
			const double f = a[i * n + k] / a[k * n + k];
			if (j < n)
				a[i * n + j] -= f * a[k * n + j];
			else
				b[i * m + j - n] -= f * b[k * m + j - n];
		}
	}
	sync();
	return det;
}

// det makes y[batch] of x[batch, N, N]; work has N*N doubles for each block.
template <class T, int N, int THREADS> __device__ void det(const T* x, T* y, double* work) {
	GTC_SHARED(int, pivot, [1]);
	const i64 at = blockIdx.x;
	double* a = work + at * N * N;
	for (int i = int(threadIdx.x); i < N * N; i += THREADS) a[i] = double(x[at * N * N + i]);
	const double d = eliminate<THREADS>(a, a, N, 0, pivot);
	if (threadIdx.x == 0) y[at] = T(d);
}

// cofactor_inverse makes c, which eliminate has turned along with a, the cofactors: det times the transposed inverse.
template <class T, int N, int THREADS> GTC_FN void cofactor_inverse(const double* a, double* c, double det, T* y) {
	for (int j = int(threadIdx.x); j < N; j += THREADS)
		for (int i = N - 1; i >= 0; i--) {
			double v = c[i * N + j];
#pragma unroll 1
			for (int k = i + 1; k < N; k++) v -= a[i * N + k] * c[k * N + j];
			c[i * N + j] = v / a[i * N + i];
			y[j * N + i] = T(c[i * N + j] * det);
		}
}

// cofactor makes y[batch, N, N], the cofactors of x; where a determinant is 0 each minor by itself. work has 2*N*N doubles for
// each block.
template <class T, int N, int THREADS> __device__ void cofactor(const T* x, T* y, double* work) {
	GTC_SHARED(int, pivot, [1]);
	const int tid = int(threadIdx.x);
	x += i64(blockIdx.x) * N * N, y += i64(blockIdx.x) * N * N;
	double *a = work + i64(blockIdx.x) * 2 * N * N, *c = a + N * N;
	for (int i = tid; i < N * N; i += THREADS) a[i] = double(x[i]), c[i] = i / N == i % N ? 1 : 0;
	const double det = eliminate<THREADS>(a, c, N, N, pivot);
	if (det != 0) return cofactor_inverse<T, N, THREADS>(a, c, det, y);
	constexpr int M = N - 1, D = M > 0 ? M : 1;
	for (int e = 0; e < N * N; e++) {
		const int i = e / N, j = e % N;
		sync();
		for (int t = tid; t < M * M; t += THREADS) {
			const int r = t / D, s = t % D;
			a[t] = double(x[(r + (r >= i)) * N + s + (s >= j)]);
		}
		const double minor = eliminate<THREADS>(a, a, M, 0, pivot);
		if (tid == 0) y[e] = T((i + j) % 2 ? -minor : minor);
	}
}

} // namespace gtc
