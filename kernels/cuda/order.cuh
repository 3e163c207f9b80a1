// The k greatest or least elements along a dim, in order, and running sums and products.
#pragma once
#include "wide.cuh"

namespace gtc {

template <class T> constexpr bool is_float = same<T, float>::value || same<T, double>::value || same<T, f16>::value || same<T, bf16>::value;

// float_key maps the bits of a float, shifted to the top, to a number of the same order. Both zeros are one; NaN is the greatest.
GTC_FN u64 float_key(u64 bits, u64 inf) {
	const u64 sign = u64(1) << 63, mag = bits & ~sign;
	if (mag > inf) return ~u64(0);
	if (mag == 0) return sign;
	return bits & sign ? ~bits : bits | sign;
}

// order_key is a number of the order of x.
template <class T> GTC_FN u64 order_key(T x) {
	if constexpr (same<T, double>::value)
		return float_key(u64(__double_as_longlong(x)), u64(0x7ff) << 52);
	else if constexpr (same<T, float>::value)
		return float_key(u64(__float_as_uint(x)) << 32, u64(0x7f8) << 52);
	else if constexpr (same<T, f16>::value)
		return float_key(u64(x.bits) << 48, u64(0x7c0) << 52);
	else if constexpr (same<T, bf16>::value)
		return float_key(u64(x.bits) << 48, u64(0x7f8) << 52);
	else
		return T(-1) < T(0) ? u64(i64(x)) ^ u64(1) << 63 : u64(x);
}

// places are elements that are put in order: the smaller key is the better one, and the earlier position among equals.
struct places {
	u64* key;
	u32* at;

	GTC_FN bool before(int i, int j) const { return key[i] < key[j] || (key[i] == key[j] && at[i] < at[j]); }
	GTC_FN void put(int i, u64 k, u32 position) { key[i] = k, at[i] = position; }
	GTC_FN void swap(int i, int j) {
		const u64 k = key[i];
		const u32 a = at[i];
		put(i, key[j], at[j]);
		put(j, k, a);
	}
};

// sort_places sorts N places, a power of two, by a bitonic network (Batcher, 1968). All threads of the block call.
template <int N, int THREADS> GTC_FN void sort_places(places p) {
	for (int size = 2; size <= N; size *= 2)
		for (int stride = size / 2; stride > 0; stride /= 2) {
			sync();
			for (int i = int(threadIdx.x); i < N / 2; i += THREADS) {
				const int a = 2 * i - (i & (stride - 1)), b = a + stride;
				if (((a & size) == 0) == p.before(b, a)) p.swap(a, b);
			}
		}
	sync();
}

// lane_of is one lane of n elements of a tensor seen as [outer, n, INNER]: its element i is x[i * INNER].
template <class T, i64 INNER> GTC_FN T* lane_of(T* x, i64 lane, i64 n) { return x + lane / INNER * n * INNER + lane % INNER; }

template <class T, i64 INNER, int K, int THREADS> GTC_FN void write_places(const T* x, places p, T* values, i64* at, i64 lane) {
	T* v = lane_of<T, INNER>(values, lane, K);
	i64* a = lane_of<i64, INNER>(at, lane, K);
	for (int j = int(threadIdx.x); j < K; j += THREADS) {
		v[j * INNER] = x[i64(p.at[j]) * INNER];
		a[j * INNER] = i64(p.at[j]);
	}
}

// topk_sort sorts each lane, one in a block: N elements, padded to PAD, in shared memory or, where work is given, there.
template <class T, int N, i64 INNER, int K, bool LARGEST, int PAD, bool SHARED, int THREADS>
__device__ void topk_sort(const T* x, T* values, i64* at, u64* work) {
	GTC_DYNAMIC_SHARED(u64, shared);
	const i64 lane = blockIdx.x;
	places p;
	p.key = SHARED ? shared : work + lane * (PAD + PAD / 2);
	p.at = reinterpret_cast<u32*>(p.key + PAD);
	const T* e = lane_of<const T, INNER>(x, lane, N);
	for (int i = int(threadIdx.x); i < PAD; i += THREADS)
		p.put(i, i >= N ? ~u64(0) : LARGEST ? ~order_key(e[i * INNER]) : order_key(e[i * INNER]), u32(i));
	sort_places<PAD, THREADS>(p);
	write_places<T, INNER, K, THREADS>(e, p, values, at, lane);
}

// topk_filter finds few of many: it keeps the K best so far and what has beaten the last of them since, up to ROOM places.
template <class T, int N, i64 INNER, int K, bool LARGEST, int ROOM, int THREADS>
__device__ void topk_filter(const T* x, T* values, i64* at) {
	constexpr int STEP = ROOM / 2; // elements between two looks at the room that is left
	static_assert(K <= ROOM / 2, "what is kept and a step fit");
	GTC_DYNAMIC_SHARED(u64, shared);
	GTC_SHARED(u32, filled, [1]);
	const i64 lane = blockIdx.x;
	const int tid = int(threadIdx.x);
	const T* e = lane_of<const T, INNER>(x, lane, N);
	places p;
	p.key = shared, p.at = reinterpret_cast<u32*>(shared + ROOM);
	if (tid == 0) filled[0] = 0;
	u64 limit = ~u64(0);
	bool full = false;
	sync();
	for (int base = 0; base < N; base += STEP) {
		for (int i = base + tid; i < base + STEP && i < N; i += THREADS) {
			const u64 key = LARGEST ? ~order_key(e[i * INNER]) : order_key(e[i * INNER]);
			if (!full || key < limit) p.put(int(atomic_inc(filled)), key, u32(i));
		}
		sync();
		const int n = int(filled[0]);
		sync();
		if (n + STEP <= ROOM && base + STEP < N) continue; // all threads alike
		for (int i = n + tid; i < ROOM; i += THREADS) p.put(i, ~u64(0), ~u32(0));
		sort_places<ROOM, THREADS>(p);
		if (n >= K) full = true, limit = p.key[K - 1];
		if (tid == 0) filled[0] = u32(n < K ? n : K);
		sync();
	}
	write_places<T, INNER, K, THREADS>(e, p, values, at, lane);
}

// sum_of is the type of running totals: double for floats, as in kernels/cpu; integers wrap.
template <class T, bool FLOAT> struct sum_of_type { using type = u64; };
template <class T> struct sum_of_type<T, true> { using type = double; };
template <class T> using sum_of = typename sum_of_type<T, is_float<T>>::type;

template <bool PRODUCT, class A> GTC_FN A scan_join(A x, A y) { return PRODUCT ? x * y : x + y; }

// scan_lanes makes the running sums of each lane in one thread: for tensors whose lanes lie side by side.
template <class T, i64 OUTER, i64 N, i64 INNER, bool PRODUCT, bool EXCLUSIVE, bool REVERSE, int THREADS>
__device__ void scan_lanes(const T* x, T* y) {
	const i64 lane = i64(blockIdx.x) * THREADS + threadIdx.x;
	if (lane >= OUTER * INNER) return;
	const T* e = lane_of<const T, INNER>(x, lane, N);
	T* o = lane_of<T, INNER>(y, lane, N);
	sum_of<T> sum = PRODUCT;
	for (i64 i = 0; i < N; i++) {
		const i64 at = (REVERSE ? N - 1 - i : i) * INNER;
		const sum_of<T> next = scan_join<PRODUCT>(sum, sum_of<T>(e[at]));
		o[at] = T(EXCLUSIVE ? sum : next);
		sum = next;
	}
}

// scan_block makes the running sums of one lane in a block, ITEMS elements of a thread at a time.
template <class T, i64 N, i64 INNER, bool PRODUCT, bool EXCLUSIVE, bool REVERSE, int THREADS> __device__ void scan_block(const T* x, T* y) {
	using A = sum_of<T>;
	constexpr int ITEMS = 4;
	GTC_SHARED(A, sums, [32]);
	const T* e = lane_of<const T, INNER>(x, blockIdx.x, N);
	T* o = lane_of<T, INNER>(y, blockIdx.x, N);
	const int lane = lane_id(), warp = warp_id();
	A before = PRODUCT; // all elements of earlier rounds
	for (i64 base = 0; base < N; base += THREADS * ITEMS) {
		const i64 first = base + i64(threadIdx.x) * ITEMS;
		A v[ITEMS], all = PRODUCT;
		for (int k = 0; k < ITEMS; k++) {
			const i64 i = first + k;
			v[k] = i < N ? A(e[(REVERSE ? N - 1 - i : i) * INNER]) : A(PRODUCT);
			all = scan_join<PRODUCT>(all, v[k]);
		}
		A upto = all;
#pragma unroll
		for (int d = 1; d < 32; d *= 2) {
			const A left = shfl_up(upto, d);
			if (lane >= d) upto = scan_join<PRODUCT>(left, upto);
		}
		if (lane == 31) sums[warp] = upto;
		sync();
		A sum = before;
		for (int w = 0; w < THREADS / 32; w++) {
			if (w < warp) sum = scan_join<PRODUCT>(sum, sums[w]);
			before = scan_join<PRODUCT>(before, sums[w]);
		}
		const A left = shfl_up(upto, 1);
		if (lane > 0) sum = scan_join<PRODUCT>(sum, left);
		for (int k = 0; k < ITEMS; k++) {
			const i64 i = first + k;
			const A next = scan_join<PRODUCT>(sum, v[k]);
			if (i < N) o[(REVERSE ? N - 1 - i : i) * INNER] = T(EXCLUSIVE ? sum : next);
			sum = next;
		}
		sync();
	}
}

} // namespace gtc
