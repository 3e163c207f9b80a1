// Matrix products: what the kernels of gemm_simt.cuh, gemm_mma.cuh and gemm_skinny.cuh share. Row-major:
// C[i] = epilogue(alpha A[i] . B[i] + bias + add[i]) for each i of a batch.
#pragma once
#include "gtc.cuh"

namespace gtc {

// GemmShape: A is [M,K], or [K,M] stored when TA; B is [K,N], or [N,K] stored when TB; C is [M,N]. SA, SB and SC are the
// elements between the matrices of a batch, 0 where all share one.
template <int M_, int N_, int K_, bool TA_, bool TB_, i64 SA_, i64 SB_, i64 SC_> struct GemmShape {
	static constexpr int M = M_, N = N_, K = K_;
	static constexpr bool TA = TA_, TB = TB_;
	static constexpr i64 SA = SA_, SB = SB_, SC = SC_;
};

// What becomes of a sum before it is stored. The D forms multiply by the derivative at aux, the value before the activation.
enum { GEMM_NONE = 0, GEMM_RELU = 1, GEMM_GELU_TANH = 2, GEMM_GELU_ERF = 3, GEMM_DRELU = 5, GEMM_DGELU_TANH = 6, GEMM_DGELU_ERF = 7 };

// GemmEpilogue: BIAS adds bias[n], ADD adds add[m,n], which may be C itself, ACT is one of the above, AUX stores the value before ACT
// in aux. SUMS, besides, stores in sums the sum over K of A's rows (1) or of B's columns (2).
template <int ACT_, bool BIAS_, bool ADD_, bool AUX_, int SUMS_> struct GemmEpilogue {
	static constexpr int ACT = ACT_, SUMS = SUMS_;
	static constexpr bool BIAS = BIAS_, ADD = ADD_, AUX = AUX_, READS_AUX = ACT_ >= GEMM_DRELU;
};

// GemmPointers are a kernel's parameters. Where a product is split along K, partial holds unfinished tiles, and count a
// number for each tile that is 0 between launches.
template <typename T, typename TBIAS, typename TC> struct GemmPointers {
	const T *a, *b;
	const TBIAS *bias;
	const TC *add;
	TC *c, *aux, *sums;
	float *partial;
	u32 *count;
	float alpha;
};

// gemm_width is the largest power of two, at most w, that divides the rows' length and the matrices' distance.
__host__ __device__ constexpr int gemm_width(int w, i64 line, i64 stride)
{
	while (w > 1 && (line % w != 0 || stride % w != 0))
		w /= 2;
	return w;
}

// gemm_act is the activation of x, or x times the derivative at aux. The tanh form is written with the logistic function.
template <int ACT> GTC_FN float gemm_act(float x, float aux)
{
	constexpr float SQRT_HALF = 0.70710678118654752f, DENSITY = 0.39894228040143268f;
	constexpr float A = 1.5957691216057308f, B = 0.071354816272600245f; // 2 sqrt(2/pi), and 0.044715 of it
	if constexpr (ACT == GEMM_RELU)
		return x < 0.f ? 0.f : x; // NaN stays
	if constexpr (ACT == GEMM_GELU_TANH)
		return x / (1.f + expf(-x * (A + B * x * x)));
	if constexpr (ACT == GEMM_GELU_ERF)
		return 0.5f * x * (1.f + erff(x * SQRT_HALF));
	if constexpr (ACT == GEMM_DRELU)
		return aux > 0.f ? x : 0.f;
	if constexpr (ACT == GEMM_DGELU_TANH) {
		const float s = 1.f / (1.f + expf(-aux * (A + B * aux * aux)));
		return x * (s + aux * s * (1.f - s) * (A + 3.f * B * aux * aux));
	}
	if constexpr (ACT == GEMM_DGELU_ERF)
		return x * (0.5f * (1.f + erff(aux * SQRT_HALF)) + aux * DENSITY * expf(-0.5f * aux * aux));
	return x;
}

// gemm_read and gemm_write move W values at p, aligned to all of them, in accesses of at most 16 bytes.
template <int W, typename T> GTC_FN void gemm_read(float *out, const T *p)
{
	constexpr int U = W * (int)sizeof(T) > 16 ? 16 / (int)sizeof(T) : W;
#pragma unroll
	for (int i = 0; i < W; i += U) {
		const vec<T, U> x = load<U>(p + i);
#pragma unroll
		for (int j = 0; j < U; j++)
			out[i + j] = to_float(x[j]);
	}
}

template <int W, typename T> GTC_FN void gemm_write(T *p, const float *in)
{
	constexpr int U = W * (int)sizeof(T) > 16 ? 16 / (int)sizeof(T) : W;
#pragma unroll
	for (int i = 0; i < W; i += U) {
		vec<T, U> x;
#pragma unroll
		for (int j = 0; j < U; j++)
			x[j] = from_float<T>(in[i + j]);
		store(p + i, x);
	}
}

// gemm_put ends V sums of a row, from column col on, and stores those within the matrix. V is a multiple of col's granularity.
template <class S, class E, int V, class P> GTC_FN void gemm_put(const P &p, int batch, int row, int col, const float *sums)
{
	constexpr int W = gemm_width(V, S::N, S::SC);
	const i64 at = batch * S::SC + (i64)row * S::N + col;
#pragma unroll
	for (int j = 0; j < V; j += W) {
		if (row >= S::M || col + j >= S::N)
			return;
		float v[W], more[W];
#pragma unroll
		for (int i = 0; i < W; i++)
			v[i] = p.alpha * sums[j + i];
		if constexpr (E::BIAS) {
			gemm_read<W>(more, p.bias + col + j);
#pragma unroll
			for (int i = 0; i < W; i++)
				v[i] += more[i];
		}
		if constexpr (E::ADD) {
			gemm_read<W>(more, p.add + at + j);
#pragma unroll
			for (int i = 0; i < W; i++)
				v[i] += more[i];
		}
		if constexpr (E::AUX)
			gemm_write<W>(p.aux + at + j, v);
		if constexpr (E::READS_AUX)
			gemm_read<W>(more, p.aux + at + j);
#pragma unroll
		for (int i = 0; i < W; i++)
			v[i] = gemm_act<E::ACT>(v[i], E::READS_AUX ? more[i] : 0.f);
		gemm_write<W>(p.c + at + j, v);
	}
}

// GemmPlace is which tile, slice of K and matrix a block works on. Neighbouring blocks share 8 rows of tiles, so that what
// they read stays in the second-level cache.
struct GemmPlace {
	int row, col, slice, batch, tile;
};

template <class S, int BM, int BN, int SPLITS> GTC_FN GemmPlace gemm_place(int block)
{
	constexpr int ROWS = ceil_div(S::M, BM), COLS = ceil_div(S::N, BN), BAND = ROWS < 8 ? ROWS : 8;
	GemmPlace at;
	int t = block % (ROWS * COLS);
	block /= ROWS * COLS;
	at.slice = block % SPLITS;
	at.batch = block / SPLITS;
	at.tile = at.batch * (ROWS * COLS) + t;
	const int band = t / (BAND * COLS), high = ROWS - band * BAND < BAND ? ROWS - band * BAND : BAND;
	t %= BAND * COLS;
	at.row = (band * BAND + t % high) * BM;
	at.col = t / high * BN;
	return at;
}

// gemm_gather leaves in the last block that comes here for a tile the sum over all slices of K, always in the same order,
// and reports whether this is that block.
template <int SPLITS, int THREADS, int N> GTC_FN bool gemm_gather(float (&acc)[N], float *partial, u32 *count, const GemmPlace &at)
{
	static_assert(N % 4 == 0, "sums are stored four by four");
	if constexpr (SPLITS == 1)
		return true;
	GTC_SHARED(u32, before, [1]);
	float *tile = partial + (i64)at.tile * SPLITS * (N * THREADS) + 4 * threadIdx.x;
#pragma unroll
	for (int i = 0; i < N; i += 4)
		gemm_write<4>(tile + at.slice * (N * THREADS) + i * THREADS, acc + i);
	fence();
	sync();
	if (threadIdx.x == 0)
		before[0] = atomic_inc(count + at.tile);
	sync();
	if (before[0] != SPLITS - 1)
		return false;
	fence();
	if (threadIdx.x == 0)
		count[at.tile] = 0; // as the next launch expects it
#pragma unroll
	for (int i = 0; i < N; i++)
		acc[i] = 0;
	for (int s = 0; s < SPLITS; s++) {
#pragma unroll
		for (int i = 0; i < N; i += 4) {
			float x[4];
			gemm_read<4>(x, tile + s * (N * THREADS) + i * THREADS);
#pragma unroll
			for (int j = 0; j < 4; j++)
				acc[i + j] += x[j];
		}
	}
	return true;
}

// GemmEdge stores the sums of rows or columns that a block at the edge of C makes besides. own points to those of its B rows or
// columns, which lie in shared memory as the GROUPS parts of each. part is called by all threads, before gemm_gather, which
// lets the last of SPLITS blocks see all parts; end by that block, after.
template <class S, class E, int BM, int BN, int SPLITS, int THREADS> struct GemmEdge {
	static constexpr int B = E::SUMS == 1 ? BM : BN, LENGTH = E::SUMS == 1 ? S::M : S::N;
	static constexpr i64 TILES = (i64)ceil_div(S::M, BM) * ceil_div(S::N, BN) * BM * BN * SPLITS; // floats before the edges'

	static GTC_FN bool here(const GemmPlace &at) { return E::SUMS == 1 ? at.col == 0 : at.row == 0; }
	static GTC_FN int first(const GemmPlace &at) { return E::SUMS == 1 ? at.row : at.col; }

	template <class P> static GTC_FN void part(const P &p, const GemmPlace &at, const float *own, int groups)
	{
		for (int n = threadIdx.x; n < B; n += THREADS) {
			float sum = 0;
			for (int g = 0; g < groups; g++)
				sum += own[g * B + n];
			if constexpr (SPLITS > 1)
				p.partial[TILES + (i64)at.slice * (LENGTH + B) + first(at) + n] = sum;
			else if (first(at) + n < LENGTH)
				gemm_write<1>(p.sums + first(at) + n, &sum);
		}
	}

	template <class P> static GTC_FN void end(const P &p, const GemmPlace &at)
	{
		for (int n = threadIdx.x; SPLITS > 1 && n < B && first(at) + n < LENGTH; n += THREADS) {
			float sum = 0;
			for (int s = 0; s < SPLITS; s++)
				sum += p.partial[TILES + (i64)s * (LENGTH + B) + first(at) + n];
			gemm_write<1>(p.sums + first(at) + n, &sum);
		}
	}
};

} // namespace gtc
