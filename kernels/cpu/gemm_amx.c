// Single-precision products from the tile unit's bfloat16 multiplier.
//
// A float has 24 significant bits and a bfloat16 has 8, so x = x0 + x1 + x2 exactly, each part the nearest bfloat16 to what
// the parts before leave. Of the nine products of parts, the six with an order of 2 or less are kept: what is dropped is
// below 2^-24 of |x y|, less than the rounding of one fp32 multiply-add. Sums are in fp32 as always. (Henry, Tang and
// Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", 2019.)
// Six bfloat16 products on the tile unit take about 0.4 of the time of one on the vector unit.
//
// An infinite operand gives NaN where plain arithmetic might give an infinity, and parts below 2^-126 count as zero.
#include "gemm_amx.h"

#ifdef GTC_AMX

#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "transpose16.h"

enum { TILE = 1024, PARTS = 3, KSTEP = 32, UNKNOWN = -1 };

static _Atomic int granted = UNKNOWN; // the kernel's answer
static _Atomic int wanted = 0;

int gtc_amx_on(void) {
	if (!wanted) return 0;
	if (granted == UNKNOWN) {
		enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
		granted = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
	}
	return granted;
}

int gtc_amx_set(int on) {
	wanted = on;
	return gtc_amx_on();
}

static long min_l(long a, long b) { return a < b ? a : b; }

// config sets all eight tiles to 16 rows of 64 bytes.
static void config(void) {
	struct {
		uint8_t palette, start, reserved[14];
		uint16_t bytes[16];
		uint8_t rows[16];
	} __attribute__((aligned(64))) c = {.palette = 1};
	for (int i = 0; i < 8; i++) c.bytes[i] = 64, c.rows[i] = 16;
	_tile_loadconfig(&c);
}

// split gives the three bfloat16 parts of 16 floats, each as a float whose low half is zero.
INLINE void split(__m512 x, __m512i part[PARTS]) {
	const __m512i half = _mm512_set1_epi32(0x8000), high = _mm512_set1_epi32((int)0xffff0000);
#pragma GCC unroll 3
	for (int i = 0; i < PARTS; i++) {
		part[i] = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), high);
		x = _mm512_sub_ps(x, _mm512_castsi512_ps(part[i]));
	}
}

// pair packs the parts of x (even k) and y (odd k) into the low and high halves of 16 words.
INLINE __m512i pair(__m512i x, __m512i y) { return _mm512_or_si512(_mm512_srli_epi32(x, 16), y); }

// load reads n (0..16) floats.
INLINE __m512 load(const float *p, long n) { return _mm512_maskz_loadu_ps(n <= 0 ? 0 : (__mmask16)((1u << min_l(n, 16)) - 1u), p); }

// A block is a 16 x 32 piece of an operand: 16 rows of A, or 16 columns of B, by 32 k. As a tile of A, word w of row i
// holds k = 2w and 2w+1 of row i; as a tile of B, word i of row w does. Source vectors along k give the first form and
// vectors across k the second, and gtc_transpose16 turns one into the other. p points at the block's first element, k
// advances by ks elements and the other index by os, one of which is 1; kn and on are how many of each exist.
INLINE void pack_block(char *dst, const float *p, long ks, long os, long kn, long on, int as_b) {
	__m512i u[PARTS][16];
	if (ks == 1) {
		// Along k: split two vectors of 16 and narrow each pair of them to one row of 32 bfloat16.
		const __m512i odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19, 17,
						     15, 13, 11, 9, 7, 5, 3, 1);
		for (int i = 0; i < 16; i++) {
			__m512i lo[PARTS], hi[PARTS];
			split(i < on ? load(p + i * os, kn) : _mm512_setzero_ps(), lo);
			split(i < on ? load(p + i * os + 16, kn - 16) : _mm512_setzero_ps(), hi);
#pragma GCC unroll 3
			for (int q = 0; q < PARTS; q++) {
				__m512i row = _mm512_permutex2var_epi16(lo[q], odd, hi[q]);
				if (as_b)
					u[q][i] = row;
				else
					_mm512_store_si512(dst + q * TILE + i * 64, row);
			}
		}
		if (!as_b) return;
	} else {
		for (int w = 0; w < 16; w++) {
			__m512i x[PARTS], y[PARTS];
			split(2 * w < kn ? load(p + 2 * w * ks, on) : _mm512_setzero_ps(), x);
			split(2 * w + 1 < kn ? load(p + (2 * w + 1) * ks, on) : _mm512_setzero_ps(), y);
#pragma GCC unroll 3
			for (int q = 0; q < PARTS; q++) {
				if (as_b)
					_mm512_store_si512(dst + q * TILE + w * 64, pair(x[q], y[q]));
				else
					u[q][w] = pair(x[q], y[q]);
			}
		}
		if (as_b) return;
	}
	for (int q = 0; q < PARTS; q++) {
		gtc_transpose16(u[q]);
#pragma GCC unroll 16
		for (int i = 0; i < 16; i++) _mm512_store_si512(dst + q * TILE + i * 64, u[q][i]);
	}
}

// pack lays out count rows of A (or columns of B) by kc: strips of 16, each all its k steps, each step its three parts.
static void pack(char *dst, const float *p, long ks, long os, long kc, long count, int as_b) {
	for (long i = 0; i < count; i += 16)
		for (long k = 0; k < kc; k += KSTEP, dst += PARTS * TILE) {
			const float *s = p + i * os + k * ks;
			if (as_b)
				pack_block(dst, s, ks, os, min_l(KSTEP, kc - k), min_l(16, count - i), 1);
			else
				pack_block(dst, s, ks, os, min_l(KSTEP, kc - k), min_l(16, count - i), 0);
		}
}

// tiles computes a 16 MB x 16 NB piece of C over steps k steps. strip is the bytes from one strip of A or B to the next.
#define GTC_TILES(MB, NB)                                                                                                     \
	static NOINLINE void tiles_##MB##_##NB(long steps, const char *a, const char *b, size_t strip, float *c, size_t ldc, int add) { \
		if (add) {                                                                                                    \
			_tile_loadd(0, c, ldc);                                                                               \
			if (NB == 2) _tile_loadd(1, c + 16, ldc);                                                             \
			if (MB == 2) _tile_loadd(2, (char *)c + 16 * ldc, ldc);                                               \
			if (MB == 2 && NB == 2) _tile_loadd(3, (char *)(c + 16) + 16 * ldc, ldc);                             \
		} else {                                                                                                      \
			_tile_zero(0);                                                                                        \
			if (NB == 2) _tile_zero(1);                                                                           \
			if (MB == 2) _tile_zero(2);                                                                           \
			if (MB == 2 && NB == 2) _tile_zero(3);                                                                \
		}                                                                                                             \
		for (long s = 0; s < steps; s++, a += PARTS * TILE, b += PARTS * TILE)                                        \
			for (int p = 0; p < PARTS; p++) {                                                                     \
				_tile_loadd(4, a + p * TILE, 64);                                                             \
				if (MB == 2) _tile_loadd(5, a + strip + p * TILE, 64);                                        \
				for (int q = 0; p + q < PARTS; q++) {                                                         \
					_tile_loadd(6, b + q * TILE, 64);                                                     \
					if (NB == 2) _tile_loadd(7, b + strip + q * TILE, 64);                                \
					_tile_dpbf16ps(0, 4, 6);                                                              \
					if (NB == 2) _tile_dpbf16ps(1, 4, 7);                                                 \
					if (MB == 2) _tile_dpbf16ps(2, 5, 6);                                                 \
					if (MB == 2 && NB == 2) _tile_dpbf16ps(3, 5, 7);                                      \
				}                                                                                             \
			}                                                                                                     \
		_tile_stored(0, c, ldc);                                                                                      \
		if (NB == 2) _tile_stored(1, c + 16, ldc);                                                                    \
		if (MB == 2) _tile_stored(2, (char *)c + 16 * ldc, ldc);                                                      \
		if (MB == 2 && NB == 2) _tile_stored(3, (char *)(c + 16) + 16 * ldc, ldc);                                    \
	}
GTC_TILES(1, 1) GTC_TILES(1, 2) GTC_TILES(2, 1) GTC_TILES(2, 2)
typedef void (*tiles_fn)(long, const char *, const char *, size_t, float *, size_t, int);
static const tiles_fn tiles_table[2][2] = {{tiles_1_1, tiles_1_2}, {tiles_2_1, tiles_2_2}};

// piece computes one piece of C of at most 32 x 32; t is a buffer of 32 x 32 floats for pieces that fill no whole tiles.
static void piece(long steps, const char *a, const char *b, size_t strip, float *c, long ldc, long mr, long nr, int add, float *t) {
	tiles_fn fn = tiles_table[mr > 16][nr > 16];
	if (mr % 16 == 0 && nr % 16 == 0) {
		fn(steps, a, b, strip, c, (size_t)ldc * sizeof(float), add);
		return;
	}
	fn(steps, a, b, strip, t, 32 * sizeof(float), 0);
	for (long i = 0; i < mr; i++)
		for (long j = 0; j < nr; j += VL) {
			long w = min_l(VL, nr - j);
			vf v = vload(t + i * 32 + j);
			if (add) v += vload_n(c + i * ldc + j, w, 0);
			vstore_n(c + i * ldc + j, v, w);
		}
}

void gtc_amx_block(float *c, long ldc, gtc_mat a, gtc_mat b, long m, long n, long k, long j0, long j1, int add, char *scratch) {
	char *bp = scratch, *ap = bp + 32 * GTC_AMX_KC * 6, *t = ap + GTC_AMX_MC * GTC_AMX_KC * 6;
	config();
	for (long k0 = 0; k0 < k; k0 += GTC_AMX_KC) {
		long kc = min_l(GTC_AMX_KC, k - k0), steps = (kc + KSTEP - 1) / KSTEP;
		size_t strip = (size_t)steps * PARTS * TILE;
		for (long i0 = 0; i0 < m; i0 += GTC_AMX_MC) {
			long mc = min_l(GTC_AMX_MC, m - i0);
			pack(ap, a.p + i0 * a.rs + k0 * a.cs, a.cs, a.rs, kc, mc, 0);
			for (long j = j0 * 32; j < min_l(n, j1 * 32); j += 32) {
				long nr = min_l(32, n - j);
				pack(bp, b.p + k0 * b.rs + j * b.cs, b.rs, b.cs, kc, nr, 1);
				for (long i = 0; i < mc; i += 32)
					piece(steps, ap + (size_t)(i / 16) * strip, bp, strip, c + (i0 + i) * ldc + j, ldc, min_l(32, mc - i), nr,
					      add || k0 > 0, (float *)t);
			}
		}
	}
	_tile_release();
}

#else

int gtc_amx_on(void) { return 0; }
int gtc_amx_set(int on) {
	(void)on;
	return 0;
}
void gtc_amx_block(float *c, long ldc, gtc_mat a, gtc_mat b, long m, long n, long k, long j0, long j1, int add, char *scratch) {
	(void)c, (void)ldc, (void)a, (void)b, (void)m, (void)n, (void)k, (void)j0, (void)j1, (void)add, (void)scratch;
}

#endif
