// Pooling over windows of up to three dims: a thread makes each element of the result, backward, too, where it gathers from
// the windows that cover it, so that sums have one order.
#pragma once
#include "take.cuh"
#include "wide.cuh"

namespace gtc {

// taps are the positions of a window along one dim that lie inside: first, first + DIL, … count of them.
struct pool_taps {
	int first, count;
};

// pool_dim is one dim of a pooling: sizes of input, kernel and output, pads before and behind, stride and dilation.
template <int SIZE, int K, int OUT, int LOW, int HIGH, int STRIDE, int DIL> struct pool_dim {
	static constexpr int size = SIZE, kernel = K, out = OUT, dil = DIL;

	GTC_FN static pool_taps taps(int o) {
		const int start = o * STRIDE - LOW, skip = start < 0 ? (DIL - 1 - start) / DIL : 0, first = start + skip * DIL;
		const int room = first < SIZE ? (SIZE - 1 - first) / DIL + 1 : 0, count = min(K - skip, room);
		return pool_taps{first, max(count, 0)};
	}

	// divisor is this dim's part of what a mean is divided by: in mode 0 the taps inside, in 1 those before the padded end.
	GTC_FN static int divisor(int o, int mode) {
		return mode == 0 ? taps(o).count : min(K, (SIZE + HIGH - 1 - (o * STRIDE - LOW)) / DIL + 1);
	}

	// lo and hi bound the outputs whose windows may cover position i; covers says which do.
	GTC_FN static int lo(int i) {
		const int past = i + LOW - (K - 1) * DIL;
		return past <= 0 ? 0 : (past + STRIDE - 1) / STRIDE;
	}
	GTC_FN static int hi(int i) { return min((i + LOW) / STRIDE + 1, OUT); }
	GTC_FN static bool covers(int o, int i) { return (i + LOW - o * STRIDE) % DIL == 0; }
};

// pool_divisor is what the mean of an output is divided by; 1 in mode 2.
template <class D, class H, class W> GTC_FN float pool_divisor(int a, int b, int c, int mode) {
	if (mode == 2) return 1;
	const int n = D::divisor(a, mode) * H::divisor(b, mode) * W::divisor(c, mode);
	return n < 1 ? 1.0f : float(n);
}

// pool_place splits index at of [planes, D, H, W] into the plane and the place in it.
template <class F> struct pool_place {
	F plane;
	int a, b, c;
	GTC_FN pool_place(F at, int d, int h, int w)
	    : plane(at / F(w) / F(h) / F(d)), a(int(at / F(w) / F(h) % F(d))), b(int(at / F(w) % F(h))), c(int(at % F(w))) {}
};

// max_pool finds the maxima y of the windows of x and their places idx, flat in the plane. Among equals the first wins; a NaN
// over all numbers, the last of several where LAST. A window that is padding alone gives 0 at -1.
template <class T, i64 PLANES, class D, class H, class W, bool LAST, int THREADS> __device__ void max_pool(const T* x, T* y, i32* idx) {
	constexpr i64 TOTAL = PLANES * D::out * H::out * W::out;
	using F = flat<TOTAL>;
	const F at = thread_at<F, THREADS>();
	if (at >= F(TOTAL)) return;
	const pool_place<F> o(at, D::out, H::out, W::out);
	const pool_taps d = D::taps(o.a), h = H::taps(o.b), w = W::taps(o.c);
	const T* plane = x + i64(o.plane) * (i64(D::size) * H::size * W::size);
	wide<T> best = 0;
	int where = -1;
	for (int i = 0; i < d.count; i++)
		for (int j = 0; j < h.count; j++)
			for (int k = 0; k < w.count; k++) {
				const int p = ((d.first + i * D::dil) * H::size + h.first + j * H::dil) * W::size + w.first + k * W::dil;
				const wide<T> v = widen(plane[p]);
				if (where < 0 || v > best || (v != v && (LAST || best == best))) best = v, where = p;
			}
	y[at] = narrow<T>(best);
	idx[at] = where;
}

// max_pool_back adds to each element of dx the dy of the windows that found it.
template <class T, i64 PLANES, class D, class H, class W, int THREADS> __device__ void max_pool_back(const T* dy, const i32* idx, T* dx) {
	constexpr i64 TOTAL = PLANES * D::size * H::size * W::size;
	using F = flat<TOTAL>;
	const F at = thread_at<F, THREADS>();
	if (at >= F(TOTAL)) return;
	const pool_place<F> p(at, D::size, H::size, W::size);
	const i64 outs = i64(p.plane) * (i64(D::out) * H::out * W::out);
	const int mine = (p.a * H::size + p.b) * W::size + p.c;
	wide<T> sum = 0;
	for (int i = D::lo(p.a); i < D::hi(p.a); i++)
		for (int j = H::lo(p.b); j < H::hi(p.b); j++)
			for (int k = W::lo(p.c); k < W::hi(p.c); k++) {
				const i64 o = outs + (i64(i) * H::out + j) * W::out + k;
				if (idx[o] == mine) sum += widen(dy[o]);
			}
	dx[at] = narrow<T>(sum);
}

// mean_pool makes the means y of the windows of x.
template <class T, i64 PLANES, class D, class H, class W, int MODE, int THREADS> __device__ void mean_pool(const T* x, T* y) {
	constexpr i64 TOTAL = PLANES * D::out * H::out * W::out;
	using F = flat<TOTAL>;
	const F at = thread_at<F, THREADS>();
	if (at >= F(TOTAL)) return;
	const pool_place<F> o(at, D::out, H::out, W::out);
	const pool_taps d = D::taps(o.a), h = H::taps(o.b), w = W::taps(o.c);
	const T* plane = x + i64(o.plane) * (i64(D::size) * H::size * W::size);
	wide<T> sum = 0;
	for (int i = 0; i < d.count; i++)
		for (int j = 0; j < h.count; j++)
			for (int k = 0; k < w.count; k++)
				sum += widen(plane[((d.first + i * D::dil) * H::size + h.first + j * H::dil) * W::size + w.first + k * W::dil]);
	y[at] = narrow<T>(sum / wide<T>(pool_divisor<D, H, W>(o.a, o.b, o.c, MODE)));
}

// mean_pool_warp is mean_pool for large windows, each of which a warp shares out.
template <class T, i64 PLANES, class D, class H, class W, int MODE, int THREADS> __device__ void mean_pool_warp(const T* x, T* y) {
	constexpr i64 TOTAL = PLANES * D::out * H::out * W::out;
	const i64 at = i64(blockIdx.x) * (THREADS / 32) + warp_id();
	if (at >= TOTAL) return;
	const pool_place<i64> o(at, D::out, H::out, W::out);
	const pool_taps d = D::taps(o.a), h = H::taps(o.b), w = W::taps(o.c);
	const T* plane = x + o.plane * (i64(D::size) * H::size * W::size);
	wide<T> sum = 0;
	const int n = d.count * h.count * w.count;
	for (int t = lane_id(); t < n; t += 32) {
		const int k = t % w.count, j = t / w.count % h.count, i = t / w.count / h.count;
		sum += widen(plane[((d.first + i * D::dil) * H::size + h.first + j * H::dil) * W::size + w.first + k * W::dil]);
	}
	sum = warp_sum(sum);
	if (lane_id() == 0) y[at] = narrow<T>(sum / wide<T>(pool_divisor<D, H, W>(o.a, o.b, o.c, MODE)));
}

// mean_pool_back gives each element of dx its share of the dy of the windows that cover it.
template <class T, i64 PLANES, class D, class H, class W, int MODE, int THREADS> __device__ void mean_pool_back(const T* dy, T* dx) {
	constexpr i64 TOTAL = PLANES * D::size * H::size * W::size;
	using F = flat<TOTAL>;
	const F at = thread_at<F, THREADS>();
	if (at >= F(TOTAL)) return;
	const pool_place<F> p(at, D::size, H::size, W::size);
	const i64 outs = i64(p.plane) * (i64(D::out) * H::out * W::out);
	wide<T> sum = 0;
#pragma unroll 1
	for (int i = D::lo(p.a); i < D::hi(p.a); i++)
#pragma unroll 1
		for (int j = H::lo(p.b); j < H::hi(p.b); j++)
			for (int k = W::lo(p.c); k < W::hi(p.c); k++) {
				if (!D::covers(i, p.a) || !H::covers(j, p.b) || !W::covers(k, p.c)) continue;
				sum += widen(dy[outs + (i64(i) * H::out + j) * W::out + k]) / wide<T>(pool_divisor<D, H, W>(i, j, k, MODE));
			}
	dx[at] = narrow<T>(sum);
}

} // namespace gtc
