// Products in tensor cores: bf16 and f16, and f32 rounded to tf32, with sums in f32. Slabs of both operands travel to a ring of
// buffers in shared memory while earlier ones are multiplied; 16-byte chunks of a buffer's lines are exchanged (swizzled) so
// that eight lines are read at once without two of them in one bank.
#pragma once
#include "gemm.cuh"

namespace gtc {

// MmaTile: WM x WN warps make BM x BN of C, BK of K at a time, STAGES buffers deep. SPLITS blocks share a tile.
template <int BM_, int BN_, int BK_, int WM_, int WN_, int STAGES_, int SPLITS_> struct MmaTile {
	static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_, STAGES = STAGES_, SPLITS = SPLITS_;
	static constexpr int THREADS = 32 * WM * WN, MI = BM / WM / 16, NI = BN / WN / 8;
	static constexpr int PITCH = BN / WN + 8; // floats of a line where sums change places before they are stored
};

// MmaOperand brings ROWS x BK of an operand of R rows to shared memory: lines of BK where K is contiguous (KC), of ROWS
// otherwise. Rows whose length is no multiple of 16 bytes come in smaller copies, those of no multiple of 4 through registers.
template <typename T, int ROWS, int BK, int THREADS, bool KC, int R, int K, i64 STRIDE> struct MmaOperand {
	static constexpr int CHUNK = 16 / sizeof(T), LINE = KC ? BK : ROWS, CHUNKS = LINE / CHUNK;
	static constexpr int ALL = ROWS * BK / CHUNK, COUNT = ceil_div(ALL, THREADS), SIZE = ROWS * BK; // SIZE in elements
	static constexpr int W = gemm_width(CHUNK, KC ? K : R, STRIDE);
	static constexpr bool ASYNC = W * sizeof(T) >= 4;
	static_assert(CHUNKS >= 4 && (CHUNKS & (CHUNKS - 1)) == 0, "lines of 64 bytes at least");
	vec<T, CHUNK> reg[ASYNC ? 1 : COUNT];

	// spot is where chunk number chunk of a line lies. Words of f32 that are read down the lines meet four lines at once, others
	// eight.
	static GTC_FN int spot(int line, int chunk)
	{
		const int turn = CHUNKS == 4 ? line / 2 % 4 : !KC && sizeof(T) == 4 ? line % 4 * 2 : line % 8;
		return line * LINE + (chunk ^ turn) * CHUNK;
	}

	// start begins to bring the slab at row0, k0 to s; finish ends that where it goes through registers.
	GTC_FN void start(T *s, const T *g, int row0, int k0)
	{
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			const int n = i * THREADS + (int)threadIdx.x, line = n / CHUNKS, chunk = n % CHUNKS;
			if (ALL % THREADS != 0 && n >= ALL)
				break;
			const int row = row0 + (KC ? line : chunk * CHUNK), k = k0 + (KC ? chunk * CHUNK : line);
			const T *from = g + (KC ? (i64)row * K + k : (i64)k * R + row);
			if constexpr (ASYNC) {
				T *to = s + spot(line, chunk);
#pragma unroll
				for (int j = 0; j < CHUNK; j += W) {
					const bool in = row + (KC ? 0 : j) < R && k + (KC ? j : 0) < K;
					if constexpr (W == CHUNK)
						cp_async16(to, in ? from : g, in);
					else if constexpr (W * sizeof(T) == 8)
						cp_async8(to + j, in ? from + j : g, in);
					else
						cp_async4(to + j, in ? from + j : g, in);
				}
			} else {
				vec<T, CHUNK> x;
#pragma unroll
				for (int j = 0; j < CHUNK; j += W) {
					const bool in = row + (KC ? 0 : j) < R && k + (KC ? j : 0) < K;
					vec<T, W> part;
#pragma unroll
					for (int l = 0; l < W; l++)
						part[l] = from_float<T>(0.f);
					if (in)
						part = load<W>(from + j);
#pragma unroll
					for (int l = 0; l < W; l++)
						x[j + l] = part[l];
				}
				reg[i] = x;
			}
		}
	}

	GTC_FN void finish(T *s)
	{
		if constexpr (!ASYNC) {
#pragma unroll
			for (int i = 0; i < COUNT; i++) {
				const int n = i * THREADS + (int)threadIdx.x;
				if (ALL % THREADS != 0 && n >= ALL)
					break;
				store(s + spot(n / CHUNKS, n % CHUNKS), reg[i]);
			}
		}
	}
};

// mma_left reads the 16 x 16 of A (16 x 8 of f32) at row, k of a buffer as the tensor core wants them; mma_right reads 16
// columns of B.
template <class O, typename T, bool KC> GTC_FN void mma_left(u32 (&r)[4], const T *s, int row, int k)
{
	const int lane = threadIdx.x % 32, part = lane / 8;
	if constexpr (sizeof(T) == 2 && KC)
		ldmatrix_x4(r, s + O::spot(row + lane % 16, k / 8 + lane / 16));
	else if constexpr (sizeof(T) == 2)
		ldmatrix_x4_trans(r, s + O::spot(k + lane % 8 + part / 2 * 8, row / 8 + part % 2));
	else {
		if constexpr (KC)
			ldmatrix_x4(r, s + O::spot(row + lane % 16, k / 4 + lane / 16));
#pragma unroll
		for (int i = 0; i < 4; i++) {
			if constexpr (KC) {
				r[i] = to_tf32(__uint_as_float(r[i]));
			} else {
				const int m = row + lane / 4 + i % 2 * 8;
				r[i] = to_tf32(s[O::spot(k + lane % 4 + i / 2 * 4, m / 4) + m % 4]);
			}
		}
	}
}

template <class O, typename T, bool KC> GTC_FN void mma_right(u32 (&r)[4], const T *s, int col, int k)
{
	const int lane = threadIdx.x % 32, part = lane / 8;
	if constexpr (sizeof(T) == 2 && KC)
		ldmatrix_x4(r, s + O::spot(col + lane % 8 + part / 2 * 8, k / 8 + part % 2));
	else if constexpr (sizeof(T) == 2)
		ldmatrix_x4_trans(r, s + O::spot(k + lane % 8 + part % 2 * 8, col / 8 + part / 2));
	else {
		if constexpr (KC)
			ldmatrix_x4(r, s + O::spot(col + lane % 8 + part / 2 * 8, k / 4 + part % 2));
#pragma unroll
		for (int i = 0; i < 4; i++) {
			if constexpr (KC) {
				r[i] = to_tf32(__uint_as_float(r[i]));
			} else {
				const int n = col + lane / 4 + i / 2 * 8;
				r[i] = to_tf32(s[O::spot(k + lane % 4 + i % 2 * 4, n / 4) + n % 4]);
			}
		}
	}
}

template <typename T> GTC_FN void mma_step(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
	if constexpr (sizeof(T) == 2)
		mma_16816(d, a, b, T{});
	else
		mma_1688_tf32(d, a, b);
}

// MmaSums shares the sums of rows (SUMS is 1) or columns (2) out among the warps that read the same of them: of their ALL pieces,
// one has every PARTS-th.
template <class T, int SUMS> struct MmaSums {
	static constexpr int ALL = SUMS == 2 ? T::NI : T::MI, PARTS = SUMS == 2 ? T::WM : T::WN, COUNT = ceil_div(ALL, PARTS);

	static GTC_FN int part()
	{
		const int warp = threadIdx.x / 32;
		return SUMS == 2 ? warp / T::WN : warp % T::WN;
	}
};

// mma_multiply adds a slab's products to acc, and to sums those of the warp's part, if that is not negative, with ones in place of B
// (SUMS is 1) or A (2).
template <class T, class L, class R, typename X, bool LC, bool RC, int SUMS, int N>
GTC_FN void mma_multiply(float (&acc)[T::MI * T::NI][4], float (&sums)[N][4], int part, const X *a, const X *b)
{
	constexpr u32 ONE = same<X, bf16>::value ? 0x3f803f80u : same<X, f16>::value ? 0x3c003c00u : 0x3f800000u;
	constexpr int STEP = sizeof(X) == 2 ? 16 : 8;
	const int warp = threadIdx.x / 32, row = warp / T::WN * (T::BM / T::WM), col = warp % T::WN * (T::BN / T::WN);
#pragma unroll
	for (int k = 0; k < T::BK; k += STEP) {
		u32 x[T::MI][4], y[T::NI / 2][4];
#pragma unroll
		for (int i = 0; i < T::MI; i++)
			mma_left<L, X, LC>(x[i], a, row + 16 * i, k);
#pragma unroll
		for (int j = 0; j < T::NI / 2; j++)
			mma_right<R, X, RC>(y[j], b, col + 16 * j, k);
#pragma unroll
		for (int i = 0; i < T::MI; i++)
#pragma unroll
			for (int j = 0; j < T::NI; j++) {
				const u32 z[2] = {y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]};
				mma_step<X>(acc[i * T::NI + j], x[i], z);
			}
		if constexpr (SUMS != 0) {
			if (part >= 0) {
				const u32 ones[4] = {ONE, ONE, ONE, ONE}, few[2] = {ONE, ONE};
#pragma unroll
				for (int i = 0; i < MmaSums<T, SUMS>::ALL; i++) {
					if (i % MmaSums<T, SUMS>::PARTS != part)
						continue;
					if constexpr (SUMS == 1) {
						mma_step<X>(sums[i / T::WN], x[i], few);
					} else {
						const u32 z[2] = {y[i / 2][i % 2 * 2], y[i / 2][i % 2 * 2 + 1]};
						mma_step<X>(sums[i / T::WM], ones, z);
					}
				}
			}
		}
	}
}

// mma_edge brings the sums of a block at the edge to shared memory, and their parts on. All columns of sums (rows, where SUMS is
// 2) are equal.
template <class T, class E, class Edge, int N, class P> GTC_FN void mma_edge(const P &p, const float (&sums)[N][4], const GemmPlace &at, float *shared)
{
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	sync();
#pragma unroll
	for (int i = 0; i < MmaSums<T, E::SUMS>::ALL; i++) {
		if (i % MmaSums<T, E::SUMS>::PARTS != MmaSums<T, E::SUMS>::part())
			continue;
		if (E::SUMS == 1 && lane % 4 == 0) {
			float *s = shared + warp / T::WN * (T::BM / T::WM) + 16 * i + lane / 4;
			s[0] = sums[i / T::WN][0];
			s[8] = sums[i / T::WN][2];
		}
		if (E::SUMS == 2 && lane / 4 == 0) {
			float *s = shared + warp % T::WN * (T::BN / T::WN) + 8 * i + lane % 4 * 2;
			s[0] = sums[i / T::WM][0];
			s[1] = sums[i / T::WM][1];
		}
	}
	sync();
	Edge::part(p, at, shared, 1);
}

// mma_end turns 16 rows of a warp's sums at a time round in shared memory, so that its threads store 16 bytes of a row each.
template <class S, class T, class E, class P>
GTC_FN void mma_end(const P &p, float (&acc)[T::MI * T::NI][4], const GemmPlace &at, float *shared)
{
	constexpr int V = sizeof(*p.c) == 2 ? 8 : 4, COLS = T::BN / T::WN, LANES = COLS / V, ROWS = 32 / LANES;
	static_assert(LANES <= 32 && 16 % ROWS == 0, "a pass covers whole rows");
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int row = at.row + warp / T::WN * (T::BM / T::WM), col = at.col + warp % T::WN * COLS;
	float *s = shared + warp * 16 * T::PITCH;
#pragma unroll
	for (int i = 0; i < T::MI; i++) {
#pragma unroll
		for (int j = 0; j < T::NI; j++) {
			gemm_write<2>(s + lane / 4 * T::PITCH + 8 * j + lane % 4 * 2, acc[i * T::NI + j]);
			gemm_write<2>(s + (lane / 4 + 8) * T::PITCH + 8 * j + lane % 4 * 2, acc[i * T::NI + j] + 2);
		}
		sync_warp();
#pragma unroll
		for (int r = 0; r < 16; r += ROWS) {
			float x[V];
			gemm_read<V>(x, s + (r + lane / LANES) * T::PITCH + lane % LANES * V);
			gemm_put<S, E, V>(p, at.batch, row + 16 * i + r + lane / LANES, col + lane % LANES * V, x);
		}
		sync_warp();
	}
}

// mma_flat sees the sums as one array.
template <int N> GTC_FN float (&mma_flat(float (&acc)[N][4]))[4 * N] { return reinterpret_cast<float (&)[4 * N]>(acc); }

// gemm_mma makes a tile of C.
template <class S, class T, class E, typename X, class P> GTC_FN void gemm_mma(const P &p)
{
	constexpr int SLABS = ceil_div(S::K, T::BK), PART = ceil_div(SLABS, T::SPLITS);
	using Left = MmaOperand<X, T::BM, T::BK, T::THREADS, !S::TA, S::M, S::K, S::SA>;
	using Right = MmaOperand<X, T::BN, T::BK, T::THREADS, S::TB, S::N, S::K, S::SB>;
	constexpr int BUFFER = Left::SIZE + Right::SIZE;
	GTC_DYNAMIC_SHARED(X, shared);
	const GemmPlace from = gemm_place<S, T::BM, T::BN, T::SPLITS>(blockIdx.x);
	const X *a = p.a + from.batch * S::SA, *b = p.b + from.batch * S::SB;
	Left left;
	Right right;
	using Edge = GemmEdge<S, E, T::BM, T::BN, T::SPLITS, T::THREADS>;
	constexpr int SUMS = MmaSums<T, E::SUMS>::COUNT;
	const int part = E::SUMS != 0 && Edge::here(from) ? MmaSums<T, E::SUMS>::part() : -1;
	float acc[T::MI * T::NI][4], sums[SUMS][4];
#pragma unroll
	for (int j = 0; j < 4; j++) {
#pragma unroll
		for (int i = 0; i < T::MI * T::NI; i++)
			acc[i][j] = 0;
#pragma unroll
		for (int i = 0; i < SUMS; i++)
			sums[i][j] = 0;
	}
	const int first = from.slice * PART, end = first + PART < SLABS ? first + PART : SLABS;
	for (int n = 0; n < T::STAGES - 1; n++) {
		X *s = shared + n * BUFFER;
		if (first + n < end) {
			left.start(s, a, from.row, (first + n) * T::BK);
			right.start(s + Left::SIZE, b, from.col, (first + n) * T::BK);
			left.finish(s);
			right.finish(s + Left::SIZE);
		}
		cp_async_commit();
	}
	int turn = 0; // the buffer that is multiplied; the one before it is free
#pragma unroll 1
	for (int n = first; n < end; n++) {
		cp_async_wait<T::STAGES - 2>();
		sync();
		const int later = n + T::STAGES - 1;
		const X *now = shared + turn * BUFFER;
		X *then = shared + (turn == 0 ? T::STAGES - 1 : turn - 1) * BUFFER;
		turn = turn == T::STAGES - 1 ? 0 : turn + 1;
		if (later < end) {
			left.start(then, a, from.row, later * T::BK);
			right.start(then + Left::SIZE, b, from.col, later * T::BK);
		}
		cp_async_commit();
		mma_multiply<T, Left, Right, X, !S::TA, S::TB, E::SUMS>(acc, sums, part, now, now + Left::SIZE);
		if (later < end) {
			left.finish(then);
			right.finish(then + Left::SIZE);
		}
	}
	cp_async_wait<0>();
	const GemmPlace at = gemm_place<S, T::BM, T::BN, T::SPLITS>(block_again()); // not kept: registers are short above
	if constexpr (E::SUMS != 0) {
		if (Edge::here(at))
			mma_edge<T, E, Edge>(p, sums, at, reinterpret_cast<float *>(shared));
	}
	if (!gemm_gather<T::SPLITS, T::THREADS>(mma_flat(acc), p.partial, p.count, at))
		return;
	if constexpr (E::SUMS != 0) {
		if (Edge::here(at))
			Edge::end(p, at);
	}
	sync();
	mma_end<S, T, E>(p, acc, at, reinterpret_cast<float *>(shared));
}

} // namespace gtc
