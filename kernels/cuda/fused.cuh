// What the kernels that codegen/cuda prints share: vectors of elements, and sums, products, maxima and minima over the
// threads that work on one row or column. Orders are fixed by the shape alone, so that equal runs give equal bits.
#pragma once
#include "scalar.cuh"

namespace gtc {

// pack is N neighbouring elements.
template <class T, int N> struct alignas(sizeof(T) * N) pack {
	T x[N];
};

// get reads the N elements from p on, W at a time: p is aligned to W elements.
template <int W, class T, int N> GTC_FN void get(pack<T, N> &r, const T *p) {
#pragma unroll
	for (int i = 0; i < N; i += W) {
		vec<T, W> part = load<W>(p + i);
#pragma unroll
		for (int w = 0; w < W; w++) r.x[i + w] = part[w];
	}
}

// put writes them.
template <int W, class T, int N> GTC_FN void put(T *p, const pack<T, N> &r) {
#pragma unroll
	for (int i = 0; i < N; i += W) {
		vec<T, W> part;
#pragma unroll
		for (int w = 0; w < W; w++) part[w] = r.x[i + w];
		store(p + i, part);
	}
}

// What values are combined by. Maxima and minima pass NaN on.
struct op_sum {
	template <class T> GTC_FN static T of(T a, T b) { return a + b; }
};
struct op_prod {
	template <class T> GTC_FN static T of(T a, T b) { return a * b; }
};
struct op_max {
	template <class T> GTC_FN static T of(T a, T b) { return a > b || a != a ? a : b; }
};
struct op_min {
	template <class T> GTC_FN static T of(T a, T b) { return a < b || a != a ? a : b; }
};

// over_lanes combines x over groups of L neighbouring lanes of a warp, L a power of two; all of them get the result.
template <class Op, int L, class T> GTC_FN T over_lanes(T x) {
#pragma unroll
	for (int m = L / 2; m > 0; m /= 2) x = Op::of(x, shfl_xor(x, m));
	return x;
}

// over_block combines x over a block of T warps; all threads get the result. s has T elements and is written: a barrier
// must lie between two uses.
template <class Op, int T, class X> GTC_FN X over_block(X x, X *s) {
	x = over_lanes<Op, 32>(x);
	if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = x;
	sync();
	X r = s[0];
#pragma unroll
	for (int i = 1; i < T; i++) r = Op::of(r, s[i]);
	return r;
}

// over_lines combines x over the threads of a block that are N apart: N columns of L lines. s has N * L elements.
template <class Op, int N, int L, class X> GTC_FN X over_lines(X x, X *s) {
	s[threadIdx.x] = x;
	sync();
	X r = s[threadIdx.x % N];
#pragma unroll
	for (int i = 1; i < L; i++) r = Op::of(r, s[i * N + threadIdx.x % N]);
	return r;
}

// fold combines COPIES partial results, STEP elements apart, in order. The block is 256 / LINES results wide; each of its
// lines takes every LINES-th copy.
template <class Op, int COPIES, int STEP, int LINES, class X> GTC_FN X fold(const X *from, X start, X *s) {
	X r = start;
#pragma unroll 4
	for (int c = threadIdx.x / (256 / LINES); c < COPIES; c += LINES) r = Op::of(r, from[(i64)c * STEP]);
	return over_lines<Op, 256 / LINES, LINES>(r, s);
}

// find_row is the row, of so many in a table, in which block b's work is. The rows are WIDTH words long, begin with the tensor's first block,
// and are sorted by it. All threads must call.
template <int WIDTH> GTC_FN int find_row(const uint64_t *table, int rows, unsigned b) {
	GTC_SHARED(int, found, [1]);
	for (int t = threadIdx.x; t < rows; t += blockDim.x) {
		if (table[t * WIDTH] <= b && (t + 1 == rows || b < table[(t + 1) * WIDTH])) found[0] = t;
	}
	sync();
	return found[0];
}

} // namespace gtc
