// Rows at run-time indices, copied.
#pragma once
#include "gtc.cuh"

namespace gtc {

// unit is BYTES bytes that one access moves.
template <int BYTES> struct unit;
template <> struct unit<1> { using type = u8; };
template <> struct unit<2> { using type = u16; };
template <> struct unit<4> { using type = u32; };
template <> struct unit<8> { using type = u64; };
template <> struct unit<16> { using type = vec<u32, 4>; };

// flat is the type that counts to N.
template <bool SMALL> struct flat_type { using type = u32; };
template <> struct flat_type<false> { using type = u64; };
template <i64 N> using flat = typename flat_type<(N < (i64(1) << 31))>::type;

// thread_at is the number of this thread in the launch, whose blocks have THREADS.
template <class F, int THREADS> GTC_FN F thread_at() { return F(blockIdx.x) * THREADS + threadIdx.x; }

// take copies out[o,i] = table[o,idx[i]], rows of UNITS units of BYTES bytes: table [OUTER, SIZE], idx [N], out [OUTER, N].
// Negative indices count from the end. A row whose index is out of range becomes zero, and status its i.
template <class I, i64 OUTER, i64 SIZE, i64 UNITS, i64 N, int BYTES, int THREADS>
GTC_FN void take(const void* table, const I* idx, void* out, i64* status) {
	using U = typename unit<BYTES>::type;
	using F = flat<OUTER * N * UNITS>;
	const F at = thread_at<F, THREADS>();
	if (at >= F(OUTER * N * UNITS)) return;
	const F row = at / F(UNITS), u = at % F(UNITS), i = row % F(N);
	i64 r = idx[i];
	if (r < 0) r += SIZE;
	U v{};
	if (r >= 0 && r < SIZE)
		v = static_cast<const U*>(table)[(i64(row / F(N)) * SIZE + r) * UNITS + u];
	else if (u == 0)
		atomic_min(status, i64(i));
	static_cast<U*>(out)[at] = v;
}

} // namespace gtc
