// Softmax cross entropy by rows, with its gradient: each logit is read from memory once, and stays in the block's shared
// memory between the sum of exponentials and the gradient, as far as the row fits there.
#pragma once
#include "gtc.cuh"

namespace gtc {

// xent_exp is exp; the fast one where logits and gradients are rounded to 16 bits anyway.
template <class T> GTC_FN float xent_exp(float x) {
	if constexpr (sizeof(T) == 2)
		return fast_exp(x);
	else
		return expf(x);
}

// xent_base is what exponentials are relative to: 0 when there is no maximum, so that they are 0, or NaN.
GTC_FN float xent_base(float top) { return top == -inf() ? 0.0f : top; }

// xent_sum is a running maximum and the sum of the exponentials relative to it ("online softmax": Milakov and Gimelshein, 2018).
template <class T> struct xent_sum {
	float top, sum;

	template <int N> GTC_FN void add(const float (&x)[N]) {
		float m = top;
		for (int j = 0; j < N; j++) m = fmaxf(m, x[j]);
		const float base = xent_base(m);
		float s = sum * xent_exp<T>(top - base);
		for (int j = 0; j < N; j++) s += xent_exp<T>(x[j] - base);
		top = m, sum = s;
	}
};

// xent_slice says how a block shares out a row: head elements before the first 16-byte boundary, vecs accesses of N
// elements, and the rest. Threads hold at most one element of head and rest: edge, or -1.
template <int N, int CLASSES> struct xent_slice {
	int head, vecs, edge;

	template <class T> GTC_FN explicit xent_slice(const T* x) {
		head = int((16 - (u64(x) & 15)) & 15) / int(sizeof(T));
		head = head < CLASSES ? head : CLASSES;
		vecs = (CLASSES - head) / N;
		const int t = int(threadIdx.x), last = head + vecs * N + t - N;
		edge = t < head ? t : t >= N && last < CLASSES ? last : -1;
	}
};

template <class T, int N> GTC_FN void xent_floats(float (&f)[N], const vec<T, N>& v) {
	for (int j = 0; j < N; j++) f[j] = to_float(v[j]);
}

template <class T, int THREADS, int CLASSES> GTC_FN void xent_zero(T* dx) {
	for (int c = int(threadIdx.x); c < CLASSES; c += THREADS) dx[c] = from_float<T>(0.0f);
}

// xent_refuse handles a row whose target is IGNORE or out of range: its loss, lse and gradient are 0.
template <class T, class L, class E, int CLASSES, i64 IGNORE, int THREADS>
GTC_FN void xent_refuse(i64 row, i64 t, L* loss, E* lse, T* dlogits, i64* status) {
	if (dlogits) xent_zero<T, THREADS, CLASSES>(dlogits + row * CLASSES);
	if (threadIdx.x != 0) return;
	if (t != IGNORE) atomic_min(status, row);
	loss[row] = from_float<L>(0.0f);
	if (lse) lse[row] = from_float<E>(0.0f);
}

// xent_block computes one row in one block. weight, lse and dlogits may be null; dlogits may be logits. The first KEEP
// vectors of the row stay in shared memory, the others are read again (from the L2 cache, mostly).
template <class T, class W, class L, class E, int CLASSES, i64 IGNORE, int THREADS, int KEEP>
GTC_FN void xent_block(const T* logits, const i64* target, const W* weight, L* loss, E* lse, T* dlogits, i64* status) {
	constexpr int N = 16 / sizeof(T), U = 4;
	GTC_SHARED(float, reduced, [32]);
	GTC_DYNAMIC_SHARED(T, kept);
	const int tid = int(threadIdx.x);
	const i64 row = blockIdx.x, t = target[row];
	if (t == IGNORE || t < 0 || t >= CLASSES) return xent_refuse<T, L, E, CLASSES, IGNORE, THREADS>(row, t, loss, lse, dlogits, status);

	const T* x = logits + row * CLASSES;
	const float xt = to_float(x[t]), w = weight ? to_float(weight[row]) : 1.0f;
	const xent_slice<N, CLASSES> s(x);
	const T* body = x + s.head;
	xent_sum<T> p{-inf(), 0.0f};
	float edge[1] = {-inf()};
	if (s.edge >= 0) edge[0] = to_float(x[s.edge]), p.add(edge);
	for (int i = tid; i < s.vecs; i += U * THREADS) {
		vec<T, N> v[U];
#pragma unroll
		for (int u = 0; u < U; u++)
			if (i + u * THREADS < s.vecs) v[u] = load<N>(body + (i + u * THREADS) * N);
#pragma unroll
		for (int u = 0; u < U; u++) {
			if (i + u * THREADS >= s.vecs) continue;
			if (KEEP > 0 && i + u * THREADS < KEEP) store(kept + (i + u * THREADS) * N, v[u]);
			float f[N];
			xent_floats(f, v[u]);
			p.add(f);
		}
	}
	const float base = xent_base(block_max<THREADS>(p.top, reduced));
	const float sum = block_sum<THREADS>(p.sum * xent_exp<T>(p.top - base), reduced), l = base + logf(sum);
	if (tid == 0) {
		loss[row] = from_float<L>(w * (l - xt));
		if (lse) lse[row] = from_float<E>(l);
	}
	if (!dlogits) return;

	T* dx = dlogits + row * CLASSES;
	const float scale = w / sum;
	const int hit = int(t) - s.head; // the target's place in the body
	if (s.edge >= 0) dx[s.edge] = from_float<T>(xent_exp<T>(edge[0] - base) * scale - (s.edge == int(t) ? w : 0.0f));
#pragma unroll 2
	for (int i = tid; i < s.vecs; i += THREADS) {
		const vec<T, N> v = i < KEEP ? load<N>(kept + i * N) : load<N>(body + i * N);
		const int at = hit - i * N;
		vec<T, N> g;
		for (int j = 0; j < N; j++) g[j] = from_float<T>(xent_exp<T>(to_float(v[j]) - base) * scale - (j == at ? w : 0.0f));
		store(dx + s.head + i * N, g);
	}
}

// xent_warp computes rows of few classes, each in one warp that keeps it in registers.
template <class T, class W, class L, class E, i64 ROWS, int CLASSES, i64 IGNORE, int THREADS>
GTC_FN void xent_warp(const T* logits, const i64* target, const W* weight, L* loss, E* lse, T* dlogits, i64* status) {
	constexpr int PER = (CLASSES + 31) / 32;
	const int lane = int(threadIdx.x) % 32;
	const i64 row = i64(blockIdx.x) * (THREADS / 32) + int(threadIdx.x) / 32;
	if (row >= ROWS) return;
	const i64 t = target[row];
	const bool bad = t < 0 || t >= CLASSES, skip = bad || t == IGNORE;
	if (bad && t != IGNORE && lane == 0) atomic_min(status, row);
	const T* x = logits + row * CLASSES;
	const float xt = skip ? 0.0f : to_float(x[t]), w = skip ? 0.0f : weight ? to_float(weight[row]) : 1.0f;
	float v[PER];
#pragma unroll
	for (int k = 0; k < PER; k++) v[k] = k * 32 + lane < CLASSES ? to_float(x[k * 32 + lane]) : -inf();
	xent_sum<T> p{-inf(), 0.0f};
	p.add(v);
	const float base = xent_base(warp_max(p.top)), sum = warp_sum(p.sum * xent_exp<T>(p.top - base)), l = base + logf(sum);
	if (lane == 0) {
		loss[row] = from_float<L>(skip ? 0.0f : w * (l - xt));
		if (lse) lse[row] = from_float<E>(skip ? 0.0f : l);
	}
	if (!dlogits) return;
	T* dx = dlogits + row * CLASSES;
	const float scale = w / sum;
#pragma unroll
	for (int k = 0; k < PER; k++) {
		const int c = k * 32 + lane;
		const float g = xent_exp<T>(v[k] - base) * scale - (c == t ? w : 0.0f);
		if (c < CLASSES) dx[c] = from_float<T>(skip ? 0.0f : g);
	}
}

} // namespace gtc
