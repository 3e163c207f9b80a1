// Rows joined at run-time indices, in the order of the indices: sums do not depend on the order in which blocks run.
#pragma once
#include "sort.cuh"
#include "take.cuh"
#include "wide.cuh"

namespace gtc {

enum : int { scatter_set = 0, scatter_add = 1, scatter_mul = 2, scatter_max = 3, scatter_min = 4 };

template <class A> constexpr bool is_integer = A(0.5) == A(0);

// joined is one update: NaN wins over numbers in maxima and minima, as in PyTorch; integers wrap.
template <int HOW, class A> GTC_FN A joined(A x, A u) {
	if constexpr (HOW == scatter_set)
		return u;
	else if constexpr (HOW == scatter_max)
		return u > x || u != u ? u : x;
	else if constexpr (HOW == scatter_min)
		return u < x || u != u ? u : x;
	else if constexpr (is_integer<A>)
		return A(HOW == scatter_add ? u64(x) + u64(u) : u64(x) * u64(u));
	else
		return HOW == scatter_add ? x + u : x * u;
}

// scatter_run is the number of sorted positions that one block joins ahead where all belong to one row.
constexpr int scatter_run = 128;

// scatter_ahead joins full runs: parts [N / scatter_run, WIDTH], only set where a run belongs to one row.
template <class T, i64 ROWS, i64 WIDTH, i64 N, int HOW, int THREADS>
GTC_FN void scatter_ahead(const T* upd, const u32* sorted, const u32* at, wide<T>* parts) {
	constexpr i64 CHUNKS = (WIDTH + THREADS - 1) / THREADS;
	const i64 run = blockIdx.x / CHUNKS, c = blockIdx.x % CHUNKS * THREADS + threadIdx.x, p = run * scatter_run;
	if (sorted[p] != sorted[p + scatter_run - 1] || c >= WIDTH) return;
	wide<T> x = widen(upd[i64(at[p]) * WIDTH + c]);
#pragma unroll 8
	for (int k = 1; k < scatter_run; k++) x = joined<HOW>(x, widen(upd[i64(at[p + k]) * WIDTH + c]));
	parts[run * WIDTH + c] = x;
}

// scatter_start is what updates of element i of out join: 0 where data is null.
template <class O, int V> GTC_FN void scatter_start(wide<O> (&x)[V], const O* data, i64 i) {
	if (data) {
		const vec<O, V> v = load<V>(data + i);
		for (int j = 0; j < V; j++) x[j] = widen(v[j]);
	} else {
		for (int j = 0; j < V; j++) x[j] = wide<O>(0);
	}
}

template <class O, int V> GTC_FN void scatter_end(const wide<O> (&x)[V], O* out, i64 i) {
	vec<O, V> v;
	for (int j = 0; j < V; j++) v[j] = narrow<O>(x[j]);
	store(out + i, v);
}

// scatter_join joins update number p, V elements at i, to x.
template <int HOW, class T, class A, int V> GTC_FN void scatter_join(A (&x)[V], const T* upd, i64 i) {
	const vec<T, V> v = load<V>(upd + i);
	for (int j = 0; j < V; j++) x[j] = joined<HOW>(x[j], A(widen(v[j])));
}

// scatter_rows makes out [ROWS, WIDTH] of data (zeros when it is null; it may be out) and the updates of each row, by
// threads that own V elements. starts, at and parts come from sort.cuh and scatter_ahead.
template <class T, class O, i64 ROWS, i64 WIDTH, i64 N, int HOW, int V, int THREADS>
GTC_FN void scatter_rows(const O* data, const T* upd, const u32* starts, const u32* at, const wide<T>* parts, O* out) {
	using F = flat<ROWS * WIDTH>;
	const F e = thread_at<F, THREADS>() * V;
	if (e >= F(ROWS * WIDTH)) return;
	const F r = e / F(WIDTH), c = e % F(WIDTH);
	i64 p = starts[r], end = starts[r + 1];
	if (p == end && out == data) return;
	if (HOW == scatter_set && p < end) p = end - 1;
	wide<O> x[V];
	scatter_start<O>(x, data, e);
	while (p < end) {
		if (HOW != scatter_set && p % scatter_run == 0 && p + scatter_run <= end) {
			scatter_join<HOW>(x, parts, p / scatter_run * WIDTH + c);
			p += scatter_run;
			continue;
		}
		const i64 whole = (p / scatter_run + 1) * scatter_run, stop = whole < end ? whole : end;
#pragma unroll 4
		for (; p < stop; p++) scatter_join<HOW>(x, upd, i64(at[p]) * WIDTH + c);
	}
	scatter_end<O>(x, out, e);
}

// scatter_few is scatter_rows where there are so few updates that every thread looks at all indices.
template <class T, class O, i64 ROWS, i64 WIDTH, i64 N, int HOW, int V, int THREADS>
GTC_FN void scatter_few(const O* data, const i64* idx, const T* upd, O* out, i64* status) {
	using F = flat<ROWS * WIDTH>;
	const F e = thread_at<F, THREADS>() * V;
	if (e == 0)
		for (i64 i = 0; i < N; i++)
			if (idx[i] < -ROWS || idx[i] >= ROWS) atomic_min(status, i);
	if (e >= F(ROWS * WIDTH)) return;
	const F r = e / F(WIDTH), c = e % F(WIDTH);
	wide<O> x[V];
	scatter_start<O>(x, data, e);
	bool hit = false;
	for (i64 i = 0; i < N; i++) {
		if (idx[i] != i64(r) && idx[i] != i64(r) - ROWS) continue;
		scatter_join<HOW>(x, upd, i * WIDTH + c);
		hit = true;
	}
	if (hit || out != data) scatter_end<O>(x, out, e);
}

// scatter_copy copies data [ELEMS] to out, V elements at a time, unless they are one.
template <class O, i64 ELEMS, int V, int THREADS> GTC_FN void scatter_copy(const O* data, O* out) {
	if (data == out) return;
	for (i64 e = (i64(blockIdx.x) * THREADS + threadIdx.x) * V; e < ELEMS; e += i64(gridDim.x) * THREADS * V) store(out + e, load<V>(data + e));
}

// scatter_same sets the rows of out [ROWS, WIDTH] that idx names to upd [N, WIDTH]. Updates of one row are equal, so that it does
// not matter which thread comes last; of neighbours, as sorted indices have them, only the first writes.
template <class O, i64 ROWS, i64 WIDTH, i64 N, int V, int THREADS>
GTC_FN void scatter_same(const i64* idx, const O* upd, O* out, i64* status) {
	const i64 e = (i64(blockIdx.x) * THREADS + threadIdx.x) * V;
	if (e >= N * WIDTH) return;
	const i64 i = e / WIDTH, c = e % WIDTH, r = idx[i] < 0 ? idx[i] + ROWS : idx[i];
	if (r < 0 || r >= ROWS) {
		atomic_min(status, i);
		return;
	}
	if (i == 0 || idx[i] != idx[i - 1]) store(out + r * WIDTH + c, load<V>(upd + e));
}

} // namespace gtc
