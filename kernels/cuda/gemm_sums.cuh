// The sums over rows of a matrix, beside a product that a library makes of it.
#pragma once
#include "gemm.cuh"

namespace gtc {

// gemm_sums makes sums[W] of x [K,W] in f32. A block has 32 strips of V columns, eight threads for each; SPLITS blocks share K,
// and the last of them adds up what they found, always in the same order.
template <int K, int W, int V, int SPLITS, typename T, typename TC> GTC_FN void gemm_sums(const T *x, TC *sums, float *partial, u32 *count)
{
	constexpr int COLS = 32 * V, BLOCKS = ceil_div(W, COLS), PART = ceil_div(K, SPLITS);
	GTC_SHARED(float, parts, [8 * COLS]);
	const int strip = threadIdx.x % 32, first = blockIdx.x % BLOCKS * COLS + strip * V, slice = blockIdx.x / BLOCKS;
	const int end = (slice + 1) * PART < K ? (slice + 1) * PART : K;
	float acc[V];
#pragma unroll
	for (int j = 0; j < V; j++)
		acc[j] = 0;
	if (first < W) {
#pragma unroll 4
		for (int k = slice * PART + threadIdx.x / 32; k < end; k += 8) {
			float v[V];
			gemm_read<V>(v, x + (i64)k * W + first);
#pragma unroll
			for (int j = 0; j < V; j++)
				acc[j] += v[j];
		}
	}
	gemm_write<V>(parts + threadIdx.x / 32 * COLS + strip * V, acc);
	sync();
	const GemmPlace at = {0, 0, slice, 0, (int)blockIdx.x % BLOCKS};
	float sum[4] = {0, 0, 0, 0}; // this thread's column of the block's, if it has one
	if (threadIdx.x < COLS) {
#pragma unroll
		for (int i = 0; i < 8; i++)
			sum[0] += parts[i * COLS + threadIdx.x];
	}
	if (!gemm_gather<SPLITS, 256>(sum, partial, count, at))
		return;
	const int col = blockIdx.x % BLOCKS * COLS + threadIdx.x;
	if (threadIdx.x < COLS && col < W)
		gemm_write<1>(sums + col, sum);
}

} // namespace gtc
