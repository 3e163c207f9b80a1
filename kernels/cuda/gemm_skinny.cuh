// Products with few rows or few columns: one operand is read once, from memory to registers, and the other stays in the cache.
#pragma once
#include "gemm.cuh"

namespace gtc {

// SkinnyShape: the long operand is A when FLIP is false, and the result has few columns; it is B when FLIP is true.
template <class S, bool FLIP> struct SkinnyShape {
	static constexpr int R = FLIP ? S::N : S::M, W = FLIP ? S::M : S::N, K = S::K;
	static constexpr bool KC = FLIP ? S::TB : !S::TA;			    // K is contiguous in the long operand
	static constexpr bool WC = FLIP ? S::TA : !S::TB;			    // columns are contiguous in the short one
	static constexpr i64 LONG = FLIP ? S::SB : S::SA, SHORT = FLIP ? S::SA : S::SB;
};

// skinny_put stores result w of row r.
template <class S, class E, bool FLIP, class P> GTC_FN void skinny_put(const P &p, int batch, int r, int w, float sum)
{
	gemm_put<S, E, 1>(p, batch, FLIP ? w : r, FLIP ? r : w, &sum);
}

// gemm_skinny_dot: K is contiguous in the long operand, a team of WARPS warps makes the results of a row. A block has 8 warps.
template <class S, class E, bool FLIP, int WARPS, class P> GTC_FN void gemm_skinny_dot(const P &p)
{
	using H = SkinnyShape<S, FLIP>;
	constexpr int V = gemm_width(4, H::K, H::LONG), ROWS = 8 / WARPS, BLOCKS = ceil_div(H::R, ROWS), W = H::W;
	GTC_SHARED(float, parts, [8 * W]);
	const int batch = blockIdx.x / BLOCKS, warp = threadIdx.x / 32, r = blockIdx.x % BLOCKS * ROWS + warp / WARPS;
	const auto *tall = (FLIP ? p.b : p.a) + batch * H::LONG, *small = (FLIP ? p.a : p.b) + batch * H::SHORT;
	float acc[W];
#pragma unroll
	for (int w = 0; w < W; w++)
		acc[w] = 0;
	if (r < H::R) {
		for (int k = (warp % WARPS * 32 + threadIdx.x % 32) * V; k < H::K; k += WARPS * 32 * V) {
			float x[V];
			gemm_read<V>(x, tall + (i64)r * H::K + k);
#pragma unroll
			for (int j = 0; j < V; j++)
#pragma unroll
				for (int w = 0; w < W; w++)
					acc[w] = fmaf(x[j], to_float(small[H::WC ? (i64)(k + j) * W + w : (i64)w * H::K + k + j]), acc[w]);
		}
	}
#pragma unroll
	for (int w = 0; w < W; w++)
		acc[w] = warp_sum(acc[w]);
	if (threadIdx.x % 32 == 0) {
#pragma unroll
		for (int w = 0; w < W; w++)
			parts[warp * W + w] = acc[w];
	}
	sync();
	for (int n = threadIdx.x; n < ROWS * W; n += 256) {
		const int row = blockIdx.x % BLOCKS * ROWS + n / W;
		float sum = 0;
#pragma unroll
		for (int i = 0; i < WARPS; i++)
			sum += parts[(n / W * WARPS + i) * W + n % W];
		if (row < H::R)
			skinny_put<S, E, FLIP>(p, batch, row, n % W, sum);
	}
}

// gemm_skinny_walk: rows are contiguous in the long operand; a block makes 32 of them, and its 8 warps share K.
template <class S, class E, bool FLIP, class P> GTC_FN void gemm_skinny_walk(const P &p)
{
	using H = SkinnyShape<S, FLIP>;
	constexpr int BLOCKS = ceil_div(H::R, 32), W = H::W;
	GTC_SHARED(float, parts, [8 * 32 * W]);
	const int batch = blockIdx.x / BLOCKS, warp = threadIdx.x / 32, lane = threadIdx.x % 32, r = blockIdx.x % BLOCKS * 32 + lane;
	const auto *tall = (FLIP ? p.b : p.a) + batch * H::LONG, *small = (FLIP ? p.a : p.b) + batch * H::SHORT;
	float acc[W];
#pragma unroll
	for (int w = 0; w < W; w++)
		acc[w] = 0;
	if (r < H::R) {
#pragma unroll 4
		for (int k = warp; k < H::K; k += 8) {
			const float x = to_float(tall[(i64)k * H::R + r]);
#pragma unroll
			for (int w = 0; w < W; w++)
				acc[w] = fmaf(x, to_float(small[H::WC ? (i64)k * W + w : (i64)w * H::K + k]), acc[w]);
		}
	}
#pragma unroll
	for (int w = 0; w < W; w++)
		parts[(warp * W + w) * 32 + lane] = acc[w];
	sync();
	for (int n = warp; n < W; n += 8) {
		float sum = 0;
#pragma unroll
		for (int i = 0; i < 8; i++)
			sum += parts[(i * W + n) * 32 + lane];
		if (r < H::R)
			skinny_put<S, E, FLIP>(p, batch, r, n, sum);
	}
}

} // namespace gtc
