// Matrix products of any element type but those of gemm.cuh: tiles in shared memory, sums over k in order. Integers wrap.
#pragma once
#include "wide.cuh"

namespace gtc {

// dot_type is what products of T are summed in.
template <class T> struct dot_type { using type = u64; };
template <> struct dot_type<float> { using type = float; };
template <> struct dot_type<double> { using type = double; };

// gemm_any makes one tile of 16 x 16 of C = A . B + bias for one matrix of the batch, by 256 threads. A is [M, K], or [K, M] when
// TA; B is [K, N], or [N, K] when TB. bias [N] may be null.
template <class T, int M, int N, int K, bool TA, bool TB, i64 SA, i64 SB, i64 SC>
__device__ void gemm_any(const T* a, const T* b, const T* bias, T* c) {
	using A = typename dot_type<T>::type;
	constexpr int TILE = 16, ACROSS = (N + TILE - 1) / TILE, DOWN = (M + TILE - 1) / TILE;
	GTC_SHARED(A, left, [TILE][TILE + 1]);
	GTC_SHARED(A, right, [TILE][TILE + 1]);
	const int x = int(threadIdx.x) % TILE, y = int(threadIdx.x) / TILE;
	const i64 t = blockIdx.x, e = t / ACROSS / DOWN;
	const int i0 = int(t / ACROSS % DOWN) * TILE, j0 = int(t % ACROSS) * TILE;
	a += e * SA, b += e * SB, c += e * SC;
	A sum = 0;
	for (int k0 = 0; k0 < K; k0 += TILE) {
		// The thread's fast place runs along the dim that is contiguous in memory.
		const int li = TA ? x : y, lk = TA ? y : x, rj = TB ? y : x, rk = TB ? x : y;
		const bool l = i0 + li < M && k0 + lk < K, r = j0 + rj < N && k0 + rk < K;
		left[li][lk] = l ? A(a[TA ? i64(k0 + lk) * M + i0 + li : i64(i0 + li) * K + k0 + lk]) : A(0);
		right[rk][rj] = r ? A(b[TB ? i64(j0 + rj) * K + k0 + rk : i64(k0 + rk) * N + j0 + rj]) : A(0);
		sync();
#pragma unroll
		for (int k = 0; k < TILE; k++) sum += left[y][k] * right[k][x];
		sync();
	}
	if (i0 + y >= M || j0 + x >= N) return;
	if (bias) sum += A(bias[j0 + x]);
	c[i64(i0 + y) * N + j0 + x] = T(sum);
}

} // namespace gtc
