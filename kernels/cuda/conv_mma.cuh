// Tiles of convolutions in tensor cores: gemm_mma.cuh's, with operands of conv_tile.cuh.
#pragma once
#include "conv_tile.cuh"
#include "gemm_mma.cuh"

namespace gtc {

// conv_mma_operand brings ROWS x BK of an operand to shared memory, 16 bytes at a time.
template <class SOURCE, class T, int ROWS, int BK, int THREADS> struct conv_mma_operand {
	using Layout = MmaOperand<T, ROWS, BK, THREADS, SOURCE::KC, 16, 16, 0>;
	static constexpr int CHUNK = Layout::CHUNK, CHUNKS = Layout::CHUNKS, SIZE = Layout::SIZE;

	GTC_FN static void start(T* s, const SOURCE& from, int row0, int k0) {
#pragma unroll
		for (int i = 0; i < Layout::COUNT; i++) {
			const int n = i * THREADS + int(threadIdx.x), line = n / CHUNKS, chunk = n % CHUNKS;
			if (Layout::ALL % THREADS != 0 && n >= Layout::ALL) break;
			bool in;
			const T* x = from.at(row0 + (SOURCE::KC ? line : chunk * CHUNK), k0 + (SOURCE::KC ? chunk * CHUNK : line), in);
			cp_async16(s + Layout::spot(line, chunk), in ? x : from.p, in);
		}
	}
};

// conv_mma_end turns 16 rows of a warp's sums at a time round in shared memory and stores them, as mma_end does; one by one, side by
// side in the warp, where the result's pixels are not next to one another.
template <class T, class OUT> GTC_FN void conv_mma_end(const OUT& out, float (&acc)[T::MI * T::NI][4], const conv_block& at, float* shared) {
	constexpr int V = 8, COLS = T::BN / T::WN, LANES = COLS / V, ROWS = 32 / LANES;
	const int warp = warp_id(), lane = lane_id();
	const int row = at.row + warp / T::WN * (T::BM / T::WM), col = at.col + warp % T::WN * COLS;
	float* s = shared + warp * 16 * T::PITCH;
#pragma unroll
	for (int i = 0; i < T::MI; i++) {
#pragma unroll
		for (int j = 0; j < T::NI; j++) {
			gemm_write<2>(s + lane / 4 * T::PITCH + 8 * j + lane % 4 * 2, acc[i * T::NI + j]);
			gemm_write<2>(s + (lane / 4 + 8) * T::PITCH + 8 * j + lane % 4 * 2, acc[i * T::NI + j] + 2);
		}
		sync_warp();
		if constexpr (OUT::WIDE) {
#pragma unroll
			for (int r = 0; r < 16; r += ROWS) {
				float x[V];
				gemm_read<V>(x, s + (r + lane / LANES) * T::PITCH + lane % LANES * V);
				out.template put<V>(row + 16 * i + r + lane / LANES, col + lane % LANES * V, x);
			}
		} else {
#pragma unroll 1
			for (int e = lane; e < 16 * COLS; e += 32) {
				const float x = s[e / COLS * T::PITCH + e % COLS];
				out.template put<1>(row + 16 * i + e / COLS, col + e % COLS, &x);
			}
		}
		sync_warp();
	}
}

// conv_mma makes a tile: out = left . right over K, of which this block takes slice at.slice of T::SPLITS.
template <class T, class X, int K, class L, class R, class OUT> GTC_FN void conv_mma(const L& a, const R& b, const OUT& out, const conv_block& at) {
	using Left = conv_mma_operand<L, X, T::BM, T::BK, T::THREADS>;
	using Right = conv_mma_operand<R, X, T::BN, T::BK, T::THREADS>;
	constexpr int SLABS = ceil_div(K, T::BK), PART = ceil_div(SLABS, T::SPLITS), BUFFER = Left::SIZE + Right::SIZE;
	GTC_DYNAMIC_SHARED(X, shared);
	float acc[T::MI * T::NI][4];
#pragma unroll
	for (int i = 0; i < T::MI * T::NI; i++)
#pragma unroll
		for (int j = 0; j < 4; j++) acc[i][j] = 0;
	const int first = at.slice * PART, end = first + PART < SLABS ? first + PART : SLABS;
#pragma unroll
	for (int n = 0; n < T::STAGES - 1; n++) {
		if (first + n < end) {
			Left::start(shared + n * BUFFER, a, at.row, (first + n) * T::BK);
			Right::start(shared + n * BUFFER + Left::SIZE, b, at.col, (first + n) * T::BK);
		}
		cp_async_commit();
	}
#pragma unroll 1
	for (int n = first; n < end; n++) {
		cp_async_wait<T::STAGES - 2>();
		sync();
		const int later = n + T::STAGES - 1;
		const X* now = shared + (n - first) % T::STAGES * BUFFER;
		X* then = shared + (later - first) % T::STAGES * BUFFER;
		if (later < end) {
			Left::start(then, a, at.row, later * T::BK);
			Right::start(then + Left::SIZE, b, at.col, later * T::BK);
		}
		cp_async_commit();
		float none[1][4];
		mma_multiply<T, typename Left::Layout, typename Right::Layout, X, L::KC, R::KC, 0>(acc, none, false, now, now + Left::SIZE);
	}
	cp_async_wait<0>();
	sync();
	conv_mma_end<T>(out, acc, at, reinterpret_cast<float*>(shared));
}

} // namespace gtc
