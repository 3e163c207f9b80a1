// Tiles of convolutions of f32 in plain fp32: gemm_simt.cuh's, with operands of conv_tile.cuh.
#pragma once
#include "conv_tile.cuh"
#include "gemm_simt.cuh"

namespace gtc {

// conv_simt_operand brings ROWS x BK of an operand to shared memory, [BK][PITCH], 16 bytes at a time.
template <class SOURCE, int ROWS, int BK, int PITCH, int THREADS> struct conv_simt_operand {
	using Layout = SimtOperand<ROWS, BK, PITCH, THREADS, SOURCE::KC, 4, 4, 0>;
	Layout hold;

	GTC_FN void fetch(const SOURCE& from, int row0, int k0) {
#pragma unroll
		for (int i = 0; i < Layout::COUNT; i++) {
			const int n = i * THREADS + int(threadIdx.x);
			int row, k;
			bool in;
			Layout::place(n, row, k);
			const float* x = from.at(row0 + row, k0 + k, in);
			for (int j = 0; j < 4; j++) hold.reg[i][j] = 0;
			if (in && (Layout::ALL % THREADS == 0 || n < Layout::ALL)) gemm_read<4>(hold.reg[i], x);
		}
	}
};

// conv_simt makes a tile: out = left . right over K, of which this block takes slice at.slice of T::SPLITS.
template <class T, int K, class L, class R, class OUT> GTC_FN void conv_simt(const L& a, const R& b, const OUT& out, const conv_block& at) {
	static_assert(T::GROUPS == 1, "one team");
	constexpr int SLABS = ceil_div(K, T::BK), PART = ceil_div(SLABS, T::SPLITS);
	GTC_DYNAMIC_SHARED(float, shared);
	const SimtThread<T> me;
	conv_simt_operand<L, T::BM, T::BK, T::PA, T::THREADS> left;
	conv_simt_operand<R, T::BN, T::BK, T::PB, T::THREADS> right;
	float acc[T::TM * T::TN];
#pragma unroll
	for (int i = 0; i < T::TM * T::TN; i++) acc[i] = 0;
	const int first = at.slice * PART, end = first + PART < SLABS ? first + PART : SLABS;
	left.fetch(a, at.row, first * T::BK);
	right.fetch(b, at.col, first * T::BK);
	left.hold.put(shared);
	right.hold.put(shared + T::BK * T::PA);
	sync();
#pragma unroll 1
	for (int n = first; n < end; n++) {
		float *now = shared + (n - first) % 2 * T::SLAB, *next = shared + (n - first + 1) % 2 * T::SLAB;
		if (n + 1 < end) {
			left.fetch(a, at.row, (n + 1) * T::BK);
			right.fetch(b, at.col, (n + 1) * T::BK);
		}
		float none[1];
		simt_multiply<T, 0>(acc, none, false, now, now + T::BK * T::PA, me);
		if (n + 1 < end) {
			left.hold.put(next);
			right.hold.put(next + T::BK * T::PA);
			sync();
		}
	}
#pragma unroll
	for (int i = 0; i < T::TM; i++)
#pragma unroll
		for (int j = 0; j < T::TN; j += 4)
			out.template put<4>(at.row + i / 4 * 4 * SimtThread<T>::YS + me.y * 4 + i % 4, at.col + me.x * 4 + j * SimtThread<T>::XS, acc + i * T::TN + j);
}

} // namespace gtc
