// Matrix products of 16-bit floats: operands are widened or paired as they are packed, sums are in float32, and the result is
// rounded once, when it is written.
//
// With AVX-512 BF16, products of bfloat16 are vdpbf16ps: each lane adds the products of a pair of neighbours in k to its
// sum, so panels hold pairs: word j of row k holds B[2k][j] and B[2k+1][j]. Elsewhere, and for binary16, packing widens to
// float32 and the kernels of gemm.c do the rest.
//
// A piece of C (at most MC x NC) is collected in float32 over the whole of k, GTC_KC at a time in order, by one thread: the
// result depends on neither the number of threads nor the cut into pieces.
#include "elem.h"
#include "gemm.h"
#include "gtc_math.h"
#include "half.h"
#include "threads.h"

enum { MC = 120, NC = 512, KC = GTC_KC, MR = 12, NR = 32 };

static long min_l(long a, long b) { return a < b ? a : b; }
static long ceil_div(long a, long b) { return (a + b - 1) / b; }

// half_mat is a matrix of 16-bit floats: element (i, p) at p[i*rs + p*cs].
typedef struct {
	const uint16_t *p;
	long rs, cs;
} half_mat;

typedef struct {
	half_mat a, b;
	const void *bias;
	void *c;
	long m, n, k;
	int in, out, bias_elem, epilogue, add;
} half_job;

// widen copies rows x cols of src, either of which lies side by side, to float32, dst[rows][ld].
static void widen(float *dst, long ld, half_mat src, long rows, long cols, int elem) {
	if (src.cs == 1) {
		for (long i = 0; i < rows; i++) gtc_half_row(dst + i * ld, src.p + i * src.rs, cols, elem);
		return;
	}
	float column[4][KC] __attribute__((aligned(64))); // columns of src, whose elements lie side by side; rows <= KC
	for (long j = 0; j < cols; j += 4) {
		long nc = min_l(4, cols - j), i = 0;
		for (long q = 0; q < nc; q++) gtc_half_row(column[q], src.p + (j + q) * src.cs, rows, elem);
		if (nc == 4)
			for (; i + 4 <= rows; i += 4) gtc_transpose4(dst + i * ld + j, ld, column[0] + i, KC);
		for (; i < rows; i++)
			for (long q = 0; q < nc; q++) dst[i * ld + j + q] = column[q][i];
	}
}

// widened_piece adds A[mc, kc] . B[kc, nc] to t through float32 copies.
static void widened_piece(float *t, const half_job *g, half_mat a, half_mat b, long mc, long nc, long kc, float *scratch) {
	float *pa = scratch, *pb = scratch + MC * KC;
	widen(pa, KC, a, mc, kc, g->in);
	for (long j = 0; j < nc; j += GTC_NR) {
		long nr = min_l(GTC_NR, nc - j);
		if (nr < GTC_NR) memset(pb, 0, sizeof(float) * (size_t)(kc * GTC_NR));
		widen(pb, GTC_NR, (half_mat){b.p + j * b.cs, b.rs, b.cs}, kc, nr, g->in);
		gtc_panel(t + j, NC, (gtc_mat){pa, KC, 1}, pb, GTC_NR, mc, nr, kc, 1);
	}
}

#if defined(__AVX512BF16__) && defined(__AVX512BW__) && VL == 16

#include "transpose16.h"

// pairs interleaves two rows of 32 bfloat16 to 32 words: lo has columns 0 to 15, hi the others.
INLINE void pairs(__m512i even, __m512i odd, __m512i *lo, __m512i *hi) {
	const __m512i first = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2,
					       33, 1, 32, 0);
	const __m512i second = _mm512_set_epi16(63, 31, 62, 30, 61, 29, 60, 28, 59, 27, 58, 26, 57, 25, 56, 24, 55, 23, 54, 22, 53, 21, 52, 20, 51, 19,
						50, 18, 49, 17, 48, 16);
	*lo = _mm512_permutex2var_epi16(even, first, odd);
	*hi = _mm512_permutex2var_epi16(even, second, odd);
}

// load16 reads n (0..32) bfloat16, the others are zero.
INLINE __m512i load16(const uint16_t *p, long n) {
	return _mm512_maskz_loadu_epi16(n <= 0 ? 0 : n >= 32 ? ~(__mmask32)0 : (__mmask32)((1ull << n) - 1), p);
}

// pack_pairs lays out count (at most 32) rows of A or columns of B, ks elements apart along k and os across, as
// dst[pairs of k][width] words; width is 12 or 32, what is not there is zero.
INLINE void pack_pairs(uint32_t *dst, long width, const uint16_t *p, long ks, long os, long kc, long count) {
	if (os == 1) {
		for (long k = 0; k < kc; k += 2, dst += width) {
			__m512i lo, hi;
			pairs(load16(p + k * ks, count), k + 1 < kc ? load16(p + (k + 1) * ks, count) : _mm512_setzero_si512(), &lo, &hi);
			_mm512_mask_storeu_epi32(dst, (__mmask16)(width >= 16 ? 0xffff : 0xfff), lo);
			if (width > 16) _mm512_storeu_si512(dst + 16, hi);
		}
		return;
	}
	if (ks == 1) {
		for (long k = 0; k < kc; k += 32, dst += 16 * width)
			for (long c = 0; c < width; c += 16) {
				__m512i r[16];
#pragma GCC unroll 16
				for (int i = 0; i < 16; i++) r[i] = c + i < count ? load16(p + (c + i) * os + k, kc - k) : _mm512_setzero_si512();
				gtc_transpose16(r);
				for (int w = 0; w < 16 && k + 2 * w < kc; w++)
					_mm512_mask_storeu_epi32(dst + w * width + c, (__mmask16)(width >= 16 ? 0xffff : 0xfff), r[w]);
			}
		return;
	}
	for (long k = 0; k < kc; k += 2, dst += width)
		for (long i = 0; i < width; i++) {
			uint32_t x = i < count ? p[k * ks + i * os] : 0, y = i < count && k + 1 < kc ? p[(k + 1) * ks + i * os] : 0;
			dst[i] = x | y << 16;
		}
}

// pair_tile adds a tile of rows x 32 to c: a holds pairs[k2][12], b pairs[k2][32].
#define GTC_PAIR_TILE(ROWS)                                                                                                   \
	static NOINLINE void pair_tile_##ROWS(long k2, const uint32_t *a, const uint32_t *b, float *c, long ldc) {            \
		__m512 s[ROWS][2];                                                                                            \
		_Pragma("GCC unroll 12") for (int i = 0; i < ROWS; i++) s[i][0] = _mm512_loadu_ps(c + i * ldc),               \
								        s[i][1] = _mm512_loadu_ps(c + i * ldc + 16);          \
		for (long k = 0; k < k2; k++, a += MR, b += NR) {                                                             \
			__m512bh y0 = (__m512bh)_mm512_loadu_si512(b), y1 = (__m512bh)_mm512_loadu_si512(b + 16);             \
			_Pragma("GCC unroll 12") for (int i = 0; i < ROWS; i++) {                                             \
				__m512bh x = (__m512bh)_mm512_set1_epi32((int)a[i]);                                          \
				s[i][0] = _mm512_dpbf16_ps(s[i][0], x, y0);                                                   \
				s[i][1] = _mm512_dpbf16_ps(s[i][1], x, y1);                                                   \
			}                                                                                                     \
		}                                                                                                             \
		_Pragma("GCC unroll 12") for (int i = 0; i < ROWS; i++) _mm512_storeu_ps(c + i * ldc, s[i][0]),               \
		    _mm512_storeu_ps(c + i * ldc + 16, s[i][1]);                                                              \
	}
GTC_PAIR_TILE(12) GTC_PAIR_TILE(4)

// paired_piece is widened_piece in pairs. t has whole tiles: MC is a multiple of 12, NC of 32.
static void paired_piece(float *t, half_mat a, half_mat b, long mc, long nc, long kc, float *scratch) {
	uint32_t *pa = (uint32_t *)scratch, *pb = pa + MC * (KC / 2);
	long k2 = (kc + 1) / 2;
	for (long i = 0; i < mc; i += MR)
		pack_pairs(pa + i * k2, MR, a.p + i * a.rs, a.cs, a.rs, kc, min_l(MR, mc - i));
	for (long j = 0; j < nc; j += NR) {
		pack_pairs(pb, NR, b.p + j * b.cs, b.rs, b.cs, kc, min_l(NR, nc - j));
		for (long i = 0; i < mc; i += MR) {
			if (mc - i > 4)
				pair_tile_12(k2, pa + i * k2, pb, t + i * NC + j, NC);
			else
				pair_tile_4(k2, pa + i * k2, pb, t + i * NC + j, NC);
		}
	}
}
#else
#define paired_piece(t, a, b, mc, nc, kc, scratch) (void)0
#define GTC_NO_PAIRS 1
#endif

static int in_pairs(int elem) {
#ifdef GTC_NO_PAIRS
	return 0;
#else
	return elem == GTC_BF16;
#endif
}

// activate is one element of an epilogue: 1 relu, 2 gelu (tanh form), 3 gelu (erf form).
static void activate(float *p, long n, int kind) {
	if (kind == 1) {
		for (long j = 0; j < n; j++) p[j] = p[j] > 0 || p[j] != p[j] ? p[j] : 0;
	} else if (kind == 2) {
#pragma omp simd
		for (long j = 0; j < n; j++) p[j] = 0.5f * p[j] * (1 + gtc_tanhf(0.7978845608028654f * (p[j] + 0.044715f * p[j] * p[j] * p[j])));
	} else if (kind == 3) {
#pragma omp simd
		for (long j = 0; j < n; j++) p[j] = 0.5f * p[j] * (1 + gtc_erff(0.7071067811865476f * p[j]));
	}
}

// finish writes a piece of C at (i0, j0) from its sums.
static void finish(const half_job *g, float *t, long i0, long j0, long mc, long nc) {
	float row[NC];
	for (long i = 0; i < mc; i++) {
		float *p = t + i * NC;
		long at = (i0 + i) * g->n + j0;
		if (g->bias && g->bias_elem == GTC_F32)
			for (long j = 0; j < nc; j++) p[j] += ((const float *)g->bias)[j0 + j];
		if (g->bias && g->bias_elem != GTC_F32) {
			gtc_half_row(row, (const uint16_t *)g->bias + j0, nc, g->bias_elem);
			for (long j = 0; j < nc; j++) p[j] += row[j];
		}
		if (g->add && g->out == GTC_F32)
			for (long j = 0; j < nc; j++) p[j] += ((float *)g->c)[at + j];
		if (g->add && g->out != GTC_F32) {
			gtc_half_row(row, (const uint16_t *)g->c + at, nc, g->out);
			for (long j = 0; j < nc; j++) p[j] += row[j];
		}
		activate(p, nc, g->epilogue);
		if (g->out == GTC_F32)
			memcpy((float *)g->c + at, p, sizeof(float) * (size_t)nc);
		else
			gtc_half_round((uint16_t *)g->c + at, p, nc, g->out);
	}
}

enum { SCRATCH_FLOATS = MC * NC + MC * KC + NR * KC };

// piece computes the piece of C whose corner is (i0, j0).
static void piece(const half_job *g, long i0, long j0, long mc, long nc) {
	float *t = gtc_scratch(SCRATCH_FLOATS * sizeof(float)), *scratch = t + MC * NC;
	for (long i = 0; i < ceil_div(mc, MR) * MR; i++) memset(t + i * NC, 0, sizeof(float) * (size_t)(ceil_div(nc, NR) * NR));
	for (long k0 = 0; k0 < g->k; k0 += KC) {
		long kc = min_l(KC, g->k - k0);
		half_mat a = {g->a.p + i0 * g->a.rs + k0 * g->a.cs, g->a.rs, g->a.cs};
		half_mat b = {g->b.p + k0 * g->b.rs + j0 * g->b.cs, g->b.rs, g->b.cs};
		if (in_pairs(g->in))
			paired_piece(t, a, b, mc, nc, kc, scratch);
		else
			widened_piece(t, g, a, b, mc, nc, kc, scratch);
	}
	finish(g, t, i0, j0, mc, nc);
}

// cut chooses the sizes of pieces: large ones, unless some threads would have nothing to do.
static void cut(long batch, long m, long n, int threads, long *mc, long *nc) {
	static const long rows[] = {MC, 60, 24, MR}, cols[] = {NC, 256, 128, 64};
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 2; j++) {
			*mc = rows[i], *nc = cols[min_l(i + j, 3)];
			if (batch * ceil_div(m, *mc) * ceil_div(n, *nc) >= 3 * threads) return;
		}
}

void gtc_gemm_half(const void *a, const void *b, const void *bias, void *c, long batch, long m, long n, long k, long ta, long tb, long sa, long sb,
		   long sc, long epilogue, long accumulate, long in, long out, long bias_elem) {
	if (batch <= 0 || m <= 0 || n <= 0) return;
	if (batch > 1 && sb == 0 && !ta && sa == m * k && sc == m * n) m *= batch, batch = 1; // B shared: one tall product
	half_job g = {{a, ta ? 1 : k, ta ? m : 1}, {b, tb ? 1 : n, tb ? k : 1}, bias, c, m, n, k, (int)in, (int)out, (int)bias_elem, (int)epilogue,
		      (int)accumulate};
	int want = (double)batch * (double)m * (double)n * (double)(k + 1) < 64 * 1024 ? 1 : gtc_threads_n;
	long mc, nc;
	cut(batch, m, n, want, &mc, &nc);
	long mp = ceil_div(m, mc), np = ceil_div(n, nc), size = out == GTC_F32 ? 4 : 2;
#pragma omp parallel for schedule(static) num_threads(want) if (want > 1)
	for (long x = 0; x < batch * mp * np; x++) {
		long i0 = x / np % mp * mc, j0 = x % np * nc, q = x / (mp * np);
		half_job j = g;
		j.a.p += q * sa, j.b.p += q * sb, j.c = (char *)c + q * sc * size;
		piece(&j, i0, j0, min_l(mc, m - i0), min_l(nc, n - j0));
	}
}
