// Single-precision matrix product: packing, blocking and threads. The register tile is in gemm_ukr.h.
//
// Blocking after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008), with a panel of B in
// the first-level cache; A is read in place when its rows are contiguous in k and near one another, and packed into
// tiles otherwise. Every element of C is one chain of multiply-adds over k in order, cut only at multiples
// of GTC_KC, so the result depends neither on the number of threads nor on where a tile's edge falls.
#include "gemm_amx.h"
#include "gemm_ukr.h"
#include "gtc_math.h"
#include "threads.h"

#define GTC_DEF(MR, NV)                                                                                              \
	static NOINLINE void ukr_##MR##_##NV(long kc, const float *a, long ars, long acs, const float *b, long ldb,  \
					     float *c, long ldc, int add, const float *bias) {                       \
		gtc_ukr_body(MR, NV, kc, a, ars, acs, b, ldb, c, ldc, add, bias);                                    \
	}
#define GTC_DEF2(MR) GTC_DEF(MR, 1) GTC_DEF(MR, 2)
#if VL == 8
GTC_DEF2(6) GTC_DEF2(4) GTC_DEF2(2)
static const gtc_ukr_fn ukr_table[3][2] = {{ukr_2_1, ukr_2_2}, {ukr_4_1, ukr_4_2}, {ukr_6_1, ukr_6_2}};
#else
GTC_DEF2(12) GTC_DEF2(8) GTC_DEF2(4)
static const gtc_ukr_fn ukr_table[3][2] = {{ukr_4_1, ukr_4_2}, {ukr_8_1, ukr_8_2}, {ukr_12_1, ukr_12_2}};
#endif

static long min_l(long a, long b) { return a < b ? a : b; }
static long ceil_div(long a, long b) { return (a + b - 1) / b; }

// tile_rows gives the index in ukr_table of the smallest kernel that holds mr rows.
static int tile_class(long mr) { return mr > GTC_MR2 ? 2 : mr > GTC_MR1 ? 1 : 0; }
static const int tile_rows[3] = {GTC_MR1, GTC_MR2, GTC_MR};

// transpose_in copies B columns [j, j+nr) x rows [k, k+kc) stored column by column (rs == 1 over k) into dst[kc][GTC_NR].
static void transpose_in(float *dst, long ld, const float *src, long cs, long kc, long nr) {
	long j = 0;
	for (; j + 4 <= nr; j += 4) {
		const float *s = src + j * cs;
		long k = 0;
		for (; k + 4 <= kc; k += 4) gtc_transpose4(dst + k * ld + j, ld, s + k, cs);
		for (; k < kc; k++)
			for (int q = 0; q < 4; q++) dst[k * ld + j + q] = s[q * cs + k];
	}
	for (; j < nr; j++)
		for (long k = 0; k < kc; k++) dst[k * ld + j] = src[j * cs + k];
}

// pack_a_tile copies mr rows x kc of A into k-major order, rows padded with zeros to the kernel's height.
static void pack_a_tile(float *dst, gtc_mat a, long mr, long rows, long kc) {
	if (a.rs == 1 && mr == rows) {
		for (long k = 0; k < kc; k++)
#if VL == 16
			vstore_n(dst + k * rows, vload_n(a.p + k * a.cs, rows, 0), rows);
#else
			for (long i = 0; i < rows; i++) dst[k * rows + i] = a.p[k * a.cs + i];
#endif
		return;
	}
	if (a.cs == 1)
		transpose_in(dst, rows, a.p, a.rs, kc, mr);
	else
		for (long i = 0; i < mr; i++)
			for (long k = 0; k < kc; k++) dst[k * rows + i] = a.p[i * a.rs + k * a.cs];
	for (long i = mr; i < rows; i++)
		for (long k = 0; k < kc; k++) dst[k * rows + i] = 0;
}

// run_tile computes one mr x nr tile; a and b are ready for the kernel (a whole number of kernel rows and vectors).
static void run_tile(long mr, long nr, long kc, const float *a, long ars, long acs, const float *b, long ldb, float *c, long ldc,
		     int add, const float *bias) {
	int mc = tile_class(mr), nv = nr > VL ? 1 : 0;
	long rows = tile_rows[mc], cols = (nv + 1) * VL;
	if (mr == rows && nr == cols) {
		ukr_table[mc][nv](kc, a, ars, acs, b, ldb, c, ldc, add, bias);
		return;
	}
	float t[GTC_MR * GTC_NR] __attribute__((aligned(64)));
	ukr_table[mc][nv](kc, a, ars, acs, b, ldb, t, GTC_NR, 0, NULL);
	for (long i = 0; i < mr; i++)
		for (long j = 0; j < nr; j += VL) {
			long w = min_l(VL, nr - j);
			vf v = vload(t + i * GTC_NR + j);
			if (bias) v += vload_n(bias + j, w, 0);
			if (add) v += vload_n(c + i * ldc + j, w, 0);
			vstore_n(c + i * ldc + j, v, w);
		}
}

void gtc_transpose_panel(float *dst, const float *src, long ld, long depth, long nr) {
	if (nr < GTC_NR) memset(dst, 0, (size_t)(depth * GTC_NR) * sizeof(float));
	transpose_in(dst, GTC_NR, src, ld, depth, nr);
}

// pack_a_block packs mc rows of A into tiles of kc columns each. A transposed operand is taken a few k at a time, so that
// each cache line it touches serves all its tiles while it is near.
static void pack_a_block(float *dst, gtc_mat a, long mc, long kc) {
	enum { STEP = 8 };
	long full = a.rs == 1 ? mc / GTC_MR * GTC_MR : 0;
	for (long k0 = 0; full && k0 < kc; k0 += STEP) {
		long nk = min_l(STEP, kc - k0);
		for (long i = 0; i < full; i += GTC_MR)
			pack_a_tile(dst + i * kc + k0 * GTC_MR, (gtc_mat){a.p + i + k0 * a.cs, 1, a.cs}, GTC_MR, GTC_MR, nk);
	}
	for (long i = full; i < mc; i += GTC_MR) {
		long mr = min_l(GTC_MR, mc - i);
		pack_a_tile(dst + i * kc, (gtc_mat){a.p + i * a.rs, a.rs, a.cs}, mr, tile_rows[tile_class(mr)], kc);
	}
}

// pack_panel copies kc rows of nr columns of B into dst[kc][GTC_NR], missing columns as zeros.
static void pack_panel(float *dst, gtc_mat b, long kc, long nr) {
	if (b.cs == 1) {
		long w0 = min_l(VL, nr), w1 = nr - w0;
		if (nr == GTC_NR)
			for (long p = 0; p < kc; p++)
				for (int q = 0; q < GTC_NR; q += VL) vstore(dst + p * GTC_NR + q, vload(b.p + p * b.rs + q));
		else
			for (long p = 0; p < kc; p++) {
				vstore(dst + p * GTC_NR, vload_n(b.p + p * b.rs, w0, 0));
				vstore(dst + p * GTC_NR + VL, vload_n(b.p + p * b.rs + w0, w1, 0));
			}
		return;
	}
	if (nr < GTC_NR) memset(dst, 0, (size_t)(kc * GTC_NR) * sizeof(float));
	if (b.rs == 1)
		transpose_in(dst, GTC_NR, b.p, b.cs, kc, nr);
	else
		for (long p = 0; p < kc; p++)
			for (long q = 0; q < nr; q++) dst[p * GTC_NR + q] = b.p[p * b.rs + q * b.cs];
}

// panel_rows multiplies rows [0, m) by one packed panel. apack: packed tiles of A, or NULL to read A in place, with the
// last, partial tile in edge.
static void panel_rows(float *c, long ldc, gtc_mat a, const float *apack, const float *edge, const float *b, long m, long nr, long kc,
		       int add, const float *bias) {
	for (long i = 0; i < m; i += GTC_MR) {
		long mr = min_l(GTC_MR, m - i);
		int rows = tile_rows[tile_class(mr)];
		if (apack)
			run_tile(mr, nr, kc, apack + i * kc, 1, rows, b, GTC_NR, c + i * ldc, ldc, add, bias);
		else if (mr == rows)
			run_tile(mr, nr, kc, a.p + i * a.rs, a.rs, a.cs, b, GTC_NR, c + i * ldc, ldc, add, bias);
		else
			run_tile(mr, nr, kc, edge, 1, rows, b, GTC_NR, c + i * ldc, ldc, add, bias);
	}
}

// Panels of B are packed when they are needed, by the thread that needs them, and stay in the first-level cache while all
// rows of A pass: with a hundred rows or more this costs 1 or 2 % and needs neither memory nor barriers.
void gtc_block(float *c, long ldc, gtc_mat a, gtc_mat b, long m, long n, long k, long j0, long j1, int add, const float *bias,
	       float *scratch) {
	float edge[GTC_MR * GTC_KC] __attribute__((aligned(64))), *abuf = scratch + GTC_NR * GTC_KC;
	// Rows far apart are a page each and fall into the same cache sets: worth packing when many panels read them.
	int direct = a.cs == 1 && (a.rs < 512 || j1 - j0 < 6);
	for (long k0 = 0; k0 < k; k0 += GTC_KC) {
		long kc = min_l(GTC_KC, k - k0), step = direct ? GTC_MC_DIRECT : GTC_MC;
		int acc = add || k0 > 0;
		for (long i0 = 0; i0 < m; i0 += step) {
			long mc = min_l(step, m - i0);
			gtc_mat ab = {a.p + i0 * a.rs + k0 * a.cs, a.rs, a.cs};
			long full = direct ? mc / GTC_MR * GTC_MR : 0;
			if (full < mc) pack_a_block(direct ? edge : abuf, (gtc_mat){ab.p + full * a.rs, a.rs, a.cs}, mc - full, kc);
			for (long j = j0 * GTC_NR; j < min_l(n, j1 * GTC_NR); j += GTC_NR) {
				long nr = min_l(GTC_NR, n - j);
				pack_panel(scratch, (gtc_mat){b.p + k0 * b.rs + j * b.cs, b.rs, b.cs}, kc, nr);
				panel_rows(c + i0 * ldc + j, ldc, ab, direct ? NULL : abuf, edge, scratch, mc, nr, kc, acc,
					   bias && k0 == 0 ? bias + j : NULL);
			}
		}
	}
}

void gtc_panel(float *c, long ldc, gtc_mat a, const float *b, long ldb, long m, long nr, long kc, int add) {
	for (long i = 0; i < m; i += GTC_MR) {
		long mr = min_l(GTC_MR, m - i);
		int rows = tile_rows[tile_class(mr)];
		gtc_mat t = {a.p + i * a.rs, a.rs, a.cs};
		if (mr == rows) {
			run_tile(mr, nr, kc, t.p, t.rs, t.cs, b, ldb, c + i * ldc, ldc, add, NULL);
			continue;
		}
		float edge[GTC_MR * GTC_KC] __attribute__((aligned(64)));
		pack_a_tile(edge, t, mr, rows, kc);
		run_tile(mr, nr, kc, edge, 1, rows, b, ldb, c + i * ldc, ldc, add, NULL);
	}
}

void gtc_rows(float *c, long ldc, gtc_mat a, const float *b, long ldb, long m, long n, long kc, int add, float *bbuf) {
	for (long j = 0; j < n; j += GTC_NR) {
		long nr = min_l(GTC_NR, n - j);
		if (nr % VL == 0) {
			gtc_panel(c + j, ldc, a, b + j, ldb, m, nr, kc, add);
			continue;
		}
		for (long p = 0; p < kc; p++)
			for (long q = 0; q < GTC_NR; q += VL)
				vstore(bbuf + p * GTC_NR + q, vload_n(b + p * ldb + j + q, nr - q < 0 ? 0 : min_l(VL, nr - q), 0));
		gtc_panel(c + j, ldc, a, bbuf, GTC_NR, m, nr, kc, add);
	}
}

// apply_epilogue maps a finished block of C in place: bias (may be NULL) is added, then 1 relu, 2 gelu (tanh form), 3 gelu
// (erf form).
static void apply_epilogue(float *c, long ldc, long m, long n, const float *bias, int kind) {
	for (long i = 0; i < m && (bias || kind); i++) {
		float *p = c + i * ldc;
		if (bias)
			for (long j = 0; j < n; j++) p[j] += bias[j];
		if (kind == 1) {
			for (long j = 0; j < n; j++) p[j] = p[j] > 0 || p[j] != p[j] ? p[j] : 0;
		} else if (kind == 2) {
#pragma omp simd
			for (long j = 0; j < n; j++) {
				float x = p[j];
				p[j] = 0.5f * x * (1 + gtc_tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
			}
		} else if (kind == 3) {
#pragma omp simd
			for (long j = 0; j < n; j++) p[j] = 0.5f * p[j] * (1 + gtc_erff(0.7071067811865476f * p[j]));
		}
	}
}

static size_t align64(size_t x) { return (x + 63) / 64 * 64; }

// split_count is the number of chunks into which k is cut, each summed on its own: more than 1 only for one tall product
// with a small result. A function of the shape alone, so that results do not depend on the number of threads.
static long split_count(long batch, long m, long n, long k) {
	enum { MAX_SPLITS = 16 };
	if (batch != 1 || k < 2048 || ceil_div(m, GTC_MR) * ceil_div(n, GTC_NR) > 16) return 1;
	return min_l(MAX_SPLITS, k / 512);
}

size_t gtc_gemm_workspace(long batch, long m, long n, long k) {
	long splits = split_count(batch, m, n, k);
	return splits > 1 ? (size_t)splits * align64((size_t)(m * n) * sizeof(float)) : 0;
}

typedef struct {
	gtc_mat a, b;
	const float *bias;
	float *c;
	long m, n, k;
	int epilogue, add;
} gemm_job;

// on_tiles says whether a product goes to the tile unit: a function of the shape, never of the threads.
static int on_tiles(const gemm_job *g) {
	return gtc_amx_on() && g->m >= 32 && g->n >= 32 && g->k >= 32 && (double)g->m * (double)g->n * (double)g->k >= 1 << 20;
}

// run_part computes rows [i0, i1) and panels [j0, j1) of a product on the calling thread.
static void run_part(const gemm_job *g, long i0, long i1, long j0, long j1) {
	if (i1 <= i0 || j1 <= j0) return;
	float *c = g->c + i0 * g->n;
	gtc_mat a = {g->a.p + i0 * g->a.rs, g->a.rs, g->a.cs};
	const float *late = NULL; // bias that the block routine does not add itself
	if (on_tiles(g)) {
		gtc_amx_block(c, g->n, a, g->b, i1 - i0, g->n, g->k, j0, j1, g->add, gtc_scratch(GTC_AMX_BYTES));
		late = g->bias;
	} else {
		gtc_block(c, g->n, a, g->b, i1 - i0, g->n, g->k, j0, j1, g->add, g->bias, gtc_scratch(GTC_BLOCK_FLOATS * sizeof(float)));
	}
	long col = j0 * GTC_NR, cols = min_l(g->n, j1 * GTC_NR) - col;
	apply_epilogue(c + col, g->n, i1 - i0, cols, late ? late + col : NULL, g->epilogue);
}

static void run_serial(const gemm_job *g) { run_part(g, 0, g->m, 0, ceil_div(g->n, GTC_NR)); }

// split_grid picks how many parts of rows (in units of GTC_MR1) and of panels the threads form together: the least work
// for the busiest thread, counting the packing of its panels as PACK rows.
static void split_grid(long m, long n, int threads, int *pm, int *pn) {
	enum { PACK = 6 };
	double best = 1e300;
	for (int a = threads; a >= 1; a--) {
		if (threads % a) continue;
		long rows = ceil_div(ceil_div(m, GTC_MR1), a) * GTC_MR1;
		long cols = min_l(ceil_div(ceil_div(n, GTC_NR), threads / a) * GTC_NR, ceil_div(n, VL) * VL);
		double cost = (double)(rows + PACK) * (double)cols;
		if (cost < best * 0.99) best = cost, *pm = a, *pn = threads / a;
	}
}

static void run_parallel(const gemm_job *g) {
	long panels = ceil_div(g->n, GTC_NR), units = ceil_div(g->m, GTC_MR1);
	int want = (double)g->m * (double)g->n * (double)g->k < 64 * 1024 ? 1 : gtc_threads_n;
#pragma omp parallel num_threads(want) if (want > 1)
	{
		long t = gtc_tid();
		int pm = 1, pn = 1;
		split_grid(g->m, g->n, gtc_team(), &pm, &pn);
		long ti = t / pn, tj = t % pn;
		long i0 = min_l(g->m, units * ti / pm * GTC_MR1), i1 = min_l(g->m, units * (ti + 1) / pm * GTC_MR1);
		long j0 = panels * tj / pn, j1 = panels * (tj + 1) / pn;
		run_part(g, i0, i1, j0, j1);
	}
}

// run_split sums over chunks of k: partial products in parallel, then one pass that adds them in order.
static void run_split(const gemm_job *g, char *ws, long splits) {
	size_t part = align64((size_t)(g->m * g->n) * sizeof(float));
	long kc = ceil_div(g->k, splits), mn = g->m * g->n;
	int nt = gtc_threads_n;
#pragma omp parallel num_threads(nt) if (nt > 1)
	{
#pragma omp for schedule(static, 1)
		for (long s = 0; s < splits; s++) {
			long k0 = min_l(g->k, s * kc), k1 = min_l(g->k, k0 + kc);
			gemm_job j = *g;
			j.a.p += k0 * j.a.cs, j.b.p += k0 * j.b.rs;
			j.k = k1 - k0, j.c = (float *)(ws + (size_t)s * part), j.bias = NULL, j.epilogue = 0, j.add = 0;
			if (j.k > 0)
				run_serial(&j);
			else
				memset(j.c, 0, (size_t)mn * sizeof(float));
		}
#pragma omp for schedule(static)
		for (long i = 0; i < g->m; i++) {
			float *c = g->c + i * g->n;
			if (!g->add) memset(c, 0, (size_t)g->n * sizeof(float));
			for (long s = 0; s < splits; s++) {
				const float *q = (const float *)(ws + (size_t)s * part) + i * g->n;
				for (long j = 0; j < g->n; j++) c[j] += q[j];
			}
			apply_epilogue(c, g->n, 1, g->n, g->bias, g->epilogue);
		}
	}
}

// empty_k handles k == 0, for which the product is zero.
static void empty_k(const gemm_job *g) {
	if (!g->add) memset(g->c, 0, (size_t)(g->m * g->n) * sizeof(float));
	apply_epilogue(g->c, g->n, g->m, g->n, g->bias, g->epilogue);
}

void gtc_gemm(const float *a, const float *b, const float *bias, float *c, void *ws, long batch, long m, long n, long k, long ta, long tb,
	      long sa, long sb, long sc, long epilogue, long accumulate) {
	if (batch <= 0 || m <= 0 || n <= 0) return;
	long splits = k > 0 ? split_count(batch, m, n, k) : 1;
	if (batch > 1 && sb == 0 && !ta && sa == m * k && sc == m * n) m *= batch, batch = 1; // B shared: one tall product
	gemm_job g = {{a, ta ? 1 : k, ta ? m : 1}, {b, tb ? 1 : n, tb ? k : 1}, bias, c, m, n, k, (int)epilogue, (int)accumulate};
	if (splits > 1) {
		run_split(&g, ws, splits);
		return;
	}
	// Many products: one thread each. Few: all threads on one after the other.
	int each = batch >= 4 || k == 0, want = 1;
	if (each && (double)batch * (double)m * (double)n * (double)k >= 64 * 1024) want = gtc_threads_n;
#pragma omp parallel for schedule(static) num_threads(want) if (want > 1)
	for (long i = 0; i < batch; i++) {
		gemm_job j = g;
		j.a.p += i * sa, j.b.p += i * sb, j.c += i * sc;
		if (k == 0)
			empty_k(&j);
		else if (each)
			run_serial(&j);
		else
			run_parallel(&j);
	}
}
