// Permutation of dims. transpose.go has merged neighbours; what is left are runs of contiguous elements, or planes that are
// turned over in shared memory, so that both sides are read and written in order.
#pragma once
#include "take.cuh"

namespace gtc {

// outer_dims is the list of the other dims: extents, strides of the input and of the output, outermost first.
template <i64 E0, i64 I0, i64 O0, i64 E1, i64 I1, i64 O1, i64 E2, i64 I2, i64 O2, i64 E3, i64 I3, i64 O3> struct outer_dims {
	// places gives where index t of the dims lies on both sides.
	GTC_FN static void places(i64 t, i64& in, i64& out) {
		const i64 d = t % E3, c = t / E3 % E2, b = t / (E3 * E2) % E1, a = t / (E3 * E2 * E1);
		in = a * I0 + b * I1 + c * I2 + d * I3;
		out = a * O0 + b * O1 + c * O2 + d * O3;
	}
};

// transpose_plane turns planes over: element (r, c) of a plane lies at r + c*IS in the input and at r*OS + c in the output. A
// block of 256 threads moves one tile.
template <int BYTES, i64 ROWS, i64 COLS, i64 IS, i64 OS, class OUTER> __device__ void transpose_plane(const void* from, void* to) {
	using U = typename unit<BYTES>::type;
	constexpr int TILE = BYTES <= 2 ? 64 : 32, SIDE = 256 / TILE;
	constexpr i64 RT = (ROWS + TILE - 1) / TILE, CT = (COLS + TILE - 1) / TILE;
	GTC_SHARED(U, tile, [TILE][TILE + 1]);
	const i64 t = blockIdx.x, r0 = t % RT * TILE, c0 = t / RT % CT * TILE;
	i64 in, out;
	OUTER::places(t / (RT * CT), in, out);
	const U* x = static_cast<const U*>(from) + in + r0 + c0 * IS;
	U* y = static_cast<U*>(to) + out + r0 * OS + c0;
	const int a = int(threadIdx.x) % TILE, b = int(threadIdx.x) / TILE;
#pragma unroll
	for (int k = 0; k < TILE; k += SIDE)
		if (r0 + a < ROWS && c0 + b + k < COLS) tile[b + k][a] = x[a + (b + k) * IS];
	sync();
#pragma unroll
	for (int k = 0; k < TILE; k += SIDE)
		if (r0 + b + k < ROWS && c0 + a < COLS) y[(b + k) * OS + a] = tile[a][b + k];
}

// transpose_runs copies runs of RUN units that are contiguous on both sides; the output is written in order.
template <int BYTES, i64 RUN, i64 TOTAL, class OUTER, int THREADS> __device__ void transpose_runs(const void* from, void* to) {
	using U = typename unit<BYTES>::type;
	using F = flat<TOTAL>;
	const F at = thread_at<F, THREADS>();
	if (at >= F(TOTAL)) return;
	i64 in, out;
	OUTER::places(i64(at / F(RUN)), in, out);
	static_cast<U*>(to)[at] = static_cast<const U*>(from)[in + i64(at % F(RUN))];
}

// copy_units copies N units; fill_units sets N elements.
template <int BYTES, i64 N, int THREADS> __device__ void copy_units(const void* from, void* to) {
	using U = typename unit<BYTES>::type;
	const i64 at = thread_at<i64, THREADS>();
	if (at < N) static_cast<U*>(to)[at] = static_cast<const U*>(from)[at];
}
template <i64 N, u32 BITS, int THREADS> __device__ void fill_units(u32* out) {
	const i64 at = thread_at<i64, THREADS>();
	if (at < N) out[at] = BITS;
}

} // namespace gtc
