// Products of f32 in plain fp32: blocks of a tile of C, threads of TM x TN of it in registers, operands in shared memory with
// their rows next to one another, the next slab of K on its way in registers while one is multiplied.
#pragma once
#include "gemm.cuh"

namespace gtc {

// SimtTile: a block makes BM x BN, BK of K at a time. GROUPS teams of threads make the same tile, each from its own part of
// every slab, so that small tiles still have many threads. SPLITS blocks share a tile.
template <int BM_, int BN_, int BK_, int TM_, int TN_, int GROUPS_, int SPLITS_> struct SimtTile {
	static constexpr int BM = BM_, BN = BN_, BK = BK_, TM = TM_, TN = TN_, GROUPS = GROUPS_, SPLITS = SPLITS_;
	static constexpr int TEAM = (BM / TM) * (BN / TN), THREADS = TEAM * GROUPS;
	static constexpr int PA = BM + 4, PB = BN + 4;				 // words of a line in shared memory
	static constexpr int SLAB = BK * (PA + PB);				 // floats of a buffer; there are two
	static constexpr int SUMS = GROUPS > 1 ? BM * BN * GROUPS : 0;		 // floats
	static constexpr int SHARED = 4 * (2 * SLAB > SUMS ? 2 * SLAB : SUMS); // bytes
};

// SimtOperand brings ROWS x BK of an operand of R rows to shared memory, [BK][PITCH]. KC: K is what lies contiguous.
template <int ROWS, int BK, int PITCH, int THREADS, bool KC, int R, int K, i64 STRIDE> struct SimtOperand {
	static constexpr int W = gemm_width(4, KC ? K : R, STRIDE), ALL = ROWS * BK / 4, COUNT = ceil_div(ALL, THREADS);
	float reg[COUNT][4];

	// place gives the row and k within the slab of a thread's chunk. Where K is contiguous, two neighbours read 32 bytes of a
	// row, and the sixteen pairs of a warp then store to sixteen rows: no bank is met twice.
	static GTC_FN void place(int n, int &row, int &k)
	{
		if constexpr (KC) {
			row = n / 2 % ROWS;
			k = 4 * (n % 2 + 2 * (n / 2 / ROWS));
		} else {
			row = n % (ROWS / 4) * 4;
			k = n / (ROWS / 4);
		}
	}

	GTC_FN void fetch(const float *g, int row0, int k0)
	{
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			const int n = i * THREADS + (int)threadIdx.x;
			int row, k;
			place(n, row, k);
			row += row0;
			k += k0;
#pragma unroll
			for (int j = 0; j < 4; j += W) {
				const bool in = (ALL % THREADS == 0 || n < ALL) && row + (KC ? 0 : j) < R && k + (KC ? j : 0) < K;
#pragma unroll
				for (int l = 0; l < W; l++)
					reg[i][j + l] = 0;
				if (in)
					gemm_read<W>(&reg[i][j], g + (KC ? (i64)row * K + k : (i64)k * R + row) + j);
			}
		}
	}

	GTC_FN void put(float *s)
	{
#pragma unroll
		for (int i = 0; i < COUNT; i++) {
			const int n = i * THREADS + (int)threadIdx.x;
			if (ALL % THREADS != 0 && n >= ALL)
				break;
			int row, k;
			place(n, row, k);
			if constexpr (KC) {
#pragma unroll
				for (int j = 0; j < 4; j++)
					s[(k + j) * PITCH + row] = reg[i][j];
			} else {
				gemm_write<4>(s + k * PITCH + row, reg[i]);
			}
		}
	}
};

// SimtThread is a thread's place in its team: rows y*4 + 4*YS*i and columns x*4 + 4*XS*i of the tile. A warp covers 8 x 4 of
// them, so that it reads 128 contiguous bytes of B.
template <class T> struct SimtThread {
	static constexpr int XS = T::BN / T::TN, YS = T::BM / T::TM, LX = XS < 8 ? XS : 8, LY = 32 / LX;
	static_assert(XS % LX == 0 && YS % LY == 0, "whole warps");
	int group, x, y;
	GTC_FN SimtThread()
	{
		const int t = threadIdx.x % T::TEAM, warp = t / 32, lane = t % 32;
		group = threadIdx.x / T::TEAM;
		x = warp % (XS / LX) * LX + lane % LX;
		y = warp / (XS / LX) * LY + lane / LX;
	}
};

// simt_multiply adds the group's part of a slab to acc, and, where edge is, the thread's rows of A or columns of B to sums.
template <class T, int SUMS, int N>
GTC_FN void simt_multiply(float (&acc)[T::TM * T::TN], float (&sums)[N], bool edge, const float *a, const float *b, const SimtThread<T> &at)
{
#pragma unroll
	for (int k0 = 0; k0 < T::BK; k0 += T::GROUPS) {
		const int k = k0 + at.group;
		float x[T::TM], y[T::TN];
#pragma unroll
		for (int i = 0; i < T::TM; i += 4)
			gemm_read<4>(x + i, a + k * T::PA + at.y * 4 + i * SimtThread<T>::YS);
#pragma unroll
		for (int j = 0; j < T::TN; j += 4)
			gemm_read<4>(y + j, b + k * T::PB + at.x * 4 + j * SimtThread<T>::XS);
		if constexpr (SUMS != 0) {
			if (edge) {
#pragma unroll
				for (int i = 0; i < N; i++)
					sums[i] += SUMS == 1 ? x[i] : y[i];
			}
		}
#pragma unroll
		for (int i = 0; i < T::TM; i++)
#pragma unroll
			for (int j = 0; j < T::TN; j++)
				acc[i * T::TN + j] = fmaf(x[i], y[j], acc[i * T::TN + j]);
	}
}

// simt_edge brings the sums of a block at the edge to shared memory, and their parts on.
template <class T, class E, class Edge, int N, class P>
GTC_FN void simt_edge(const P &p, const float (&sums)[N], const GemmPlace &at, const SimtThread<T> &me, float *shared)
{
	constexpr int STEP = 4 * (E::SUMS == 1 ? SimtThread<T>::YS : SimtThread<T>::XS);
	const int mine = 4 * (E::SUMS == 1 ? me.y : me.x), other = E::SUMS == 1 ? me.x : me.y;
	sync();
	if (other == 0) {
#pragma unroll
		for (int i = 0; i < N; i++)
			shared[me.group * Edge::B + i / 4 * STEP + mine + i % 4] = sums[i];
	}
	sync();
	Edge::part(p, at, shared, T::GROUPS);
}

// simt_end joins the groups' sums, so that each holds a part of the tile's quads of four columns, then those of other blocks,
// and stores.
template <class S, class T, class E, class Edge, class P>
GTC_FN void simt_end(const P &p, float (&acc)[T::TM * T::TN], const GemmPlace &at, const SimtThread<T> &me, float *shared)
{
	constexpr int QUADS = T::TM * T::TN / 4, MINE = QUADS / T::GROUPS;
	static_assert(QUADS % T::GROUPS == 0, "quads are shared out evenly");
	float sum[4 * MINE];
	const int t = threadIdx.x % T::TEAM;
	if constexpr (T::GROUPS > 1) {
		sync();
#pragma unroll
		for (int q = 0; q < QUADS; q++)
			gemm_write<4>(shared + ((me.group * QUADS + q) * T::TEAM + t) * 4, acc + 4 * q);
		sync();
#pragma unroll
		for (int q = 0; q < MINE; q++) {
#pragma unroll
			for (int j = 0; j < 4; j++)
				sum[4 * q + j] = 0;
#pragma unroll
			for (int g = 0; g < T::GROUPS; g++) {
				float x[4];
				gemm_read<4>(x, shared + ((g * QUADS + q * T::GROUPS + me.group) * T::TEAM + t) * 4);
#pragma unroll
				for (int j = 0; j < 4; j++)
					sum[4 * q + j] += x[j];
			}
		}
	} else {
#pragma unroll
		for (int q = 0; q < 4 * MINE; q++)
			sum[q] = acc[q];
	}
	if (!gemm_gather<T::SPLITS, T::THREADS>(sum, p.partial, p.count, at))
		return;
	if constexpr (E::SUMS != 0) {
		if (Edge::here(at))
			Edge::end(p, at);
	}
#pragma unroll
	for (int n = 0; n < MINE; n++) {
		const int q = n * T::GROUPS + me.group, i = q / (T::TN / 4), j = q % (T::TN / 4);
		gemm_put<S, E, 4>(p, at.batch, at.row + i / 4 * 4 * SimtThread<T>::YS + me.y * 4 + i % 4, at.col + (me.x + j * SimtThread<T>::XS) * 4, sum + 4 * n);
	}
}

// gemm_simt makes a tile of C.
template <class S, class T, class E, class P> GTC_FN void gemm_simt(const P &p)
{
	constexpr int SLABS = ceil_div(S::K, T::BK), PART = ceil_div(SLABS, T::SPLITS);
	GTC_DYNAMIC_SHARED(float, shared);
	const GemmPlace at = gemm_place<S, T::BM, T::BN, T::SPLITS>(blockIdx.x);
	const SimtThread<T> me;
	const float *a = p.a + at.batch * S::SA, *b = p.b + at.batch * S::SB;
	SimtOperand<T::BM, T::BK, T::PA, T::THREADS, !S::TA, S::M, S::K, S::SA> left;
	SimtOperand<T::BN, T::BK, T::PB, T::THREADS, S::TB, S::N, S::K, S::SB> right;
	using Edge = GemmEdge<S, E, T::BM, T::BN, T::SPLITS, T::THREADS>;
	const bool edge = E::SUMS != 0 && Edge::here(at);
	float acc[T::TM * T::TN], sums[E::SUMS == 2 ? T::TN : T::TM];
#pragma unroll
	for (int i = 0; i < T::TM * T::TN; i++)
		acc[i] = 0;
#pragma unroll
	for (int i = 0; i < (E::SUMS == 2 ? T::TN : T::TM); i++)
		sums[i] = 0;
	const int first = at.slice * PART, end = first + PART < SLABS ? first + PART : SLABS;
	left.fetch(a, at.row, first * T::BK);
	right.fetch(b, at.col, first * T::BK);
	left.put(shared);
	right.put(shared + T::BK * T::PA);
	sync();
	for (int n = first; n < end; n++) {
		float *now = shared + (n - first) % 2 * T::SLAB, *next = shared + (n - first + 1) % 2 * T::SLAB;
		if (n + 1 < end) {
			left.fetch(a, at.row, (n + 1) * T::BK);
			right.fetch(b, at.col, (n + 1) * T::BK);
		}
		simt_multiply<T, E::SUMS>(acc, sums, edge, now, now + T::BK * T::PA, me);
		if (n + 1 < end) {
			left.put(next);
			right.put(next + T::BK * T::PA);
			sync();
		}
	}
	if constexpr (E::SUMS != 0) {
		if (edge)
			simt_edge<T, E, Edge>(p, sums, at, me, shared);
	}
	simt_end<S, T, E, Edge>(p, acc, at, me, shared);
}

} // namespace gtc
