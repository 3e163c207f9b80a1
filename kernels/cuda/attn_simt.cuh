// Attention without tensor cores, forward and backward: for float32, and for shapes that the tiles of attn.cuh do not fit. It is
// the algorithm of attn_fwd.cuh and attn_bwd.cuh in float32: 256 threads in 16 rows of 16 share a tile of 64 x 64 scores, 4 x 4 to
// a thread, and then a chunk of up to 128 columns of the result, 4 x 8 to a thread. A chunk is a block's; each computes the scores
// again, so a depth above 128 costs them once more for each 128.
#pragma once
#include "attn_bwd.cuh"

namespace gtc {

constexpr int simt_tile = 64, simt_pitch = simt_tile + 4, simt_depth = 32, simt_chunk = 128, simt_threads = 256;

// Shared memory in floats: two operands of products of depth 32, the scores' tile, and 64 rows of a chunk.
constexpr int simt_left = 0, simt_right = simt_depth * simt_pitch, simt_scores = 2 * simt_right, simt_rows = simt_scores + simt_tile * simt_pitch,
	      simt_shared = simt_rows + simt_tile * (simt_chunk + 4);

// simt_matrix is `rows` rows of cols numbers, ROW elements apart.
template <typename T, i64 ROW, int HEIGHT, int COLS> struct simt_matrix {
	const T* p;
	GTC_FN float at(int i, int j) const { return i < HEIGHT && j < COLS ? to_float(p[i * ROW + j]) : 0; }
};

// simt_dots adds A B' to s, for 64 rows of A from i0 and of B from j0: s[r][c] is of rows i0+4y+r and j0+4x+c.
template <typename T, i64 RA, i64 RB, int HA, int HB, int DEPTH>
GTC_FN void simt_dots(float (&s)[4][4], simt_matrix<T, RA, HA, DEPTH> a, int i0, simt_matrix<T, RB, HB, DEPTH> b, int j0, float* shared) {
	float *left = shared + simt_left, *right = shared + simt_right;
	int t = threadIdx.x, x = t % 16, y = t / 16;
#pragma unroll 1
	for (int k0 = 0; k0 < DEPTH; k0 += simt_depth) {
		sync();
#pragma unroll
		for (int i = t; i < simt_tile * simt_depth; i += simt_threads) {
			int k = i % simt_depth, r = i / simt_depth;
			left[k * simt_pitch + r] = a.at(i0 + r, k0 + k);
			right[k * simt_pitch + r] = b.at(j0 + r, k0 + k);
		}
		sync();
#pragma unroll 8
		for (int k = 0; k < simt_depth; k++) {
			vec<float, 4> u = load<4>(left + k * simt_pitch + 4 * y), v = load<4>(right + k * simt_pitch + 4 * x);
#pragma unroll
			for (int r = 0; r < 4; r++) {
#pragma unroll
				for (int c = 0; c < 4; c++) s[r][c] += u[r] * v[c];
			}
		}
	}
}

// simt_put leaves a tile of scores for simt_add.
GTC_FN void simt_put(const float (&s)[4][4], float* shared) {
	int x = threadIdx.x % 16, y = threadIdx.x / 16;
	sync(); // simt_add may still read the tile before
#pragma unroll
	for (int r = 0; r < 4; r++) store(shared + simt_scores + (4 * y + r) * simt_pitch + 4 * x, vec<float, 4>{{s[r][0], s[r][1], s[r][2], s[r][3]}});
}

// simt_add adds P B to o, P the tile that simt_put left and B 64 rows of b from k0 and columns from c0: o[r][4h+c] is of row 4y+r
// and column c0+64h+4x+c.
template <typename T, i64 ROW, int HEIGHT, int COLS>
GTC_FN void simt_add(float (&o)[4][8], simt_matrix<T, ROW, HEIGHT, COLS> b, int k0, int c0, float* shared) {
	constexpr int pitch = simt_chunk + 4;
	float *p = shared + simt_scores, *rows = shared + simt_rows;
	int t = threadIdx.x, x = t % 16, y = t / 16;
	sync();
#pragma unroll 4
	for (int i = t; i < simt_tile * simt_chunk; i += simt_threads) {
		int k = i / simt_chunk, c = i % simt_chunk;
		rows[k * pitch + c] = b.at(k0 + k, c0 + c);
	}
	sync();
#pragma unroll 1
	for (int k = 0; k < simt_tile; k += 4) {
		vec<float, 4> u[4];
#pragma unroll
		for (int r = 0; r < 4; r++) u[r] = load<4>(p + (4 * y + r) * simt_pitch + k);
#pragma unroll
		for (int e = 0; e < 4; e++) {
#pragma unroll
			for (int h = 0; h < 2; h++) {
				if (h > 0 && COLS <= simt_chunk / 2) continue;
				vec<float, 4> v = load<4>(rows + (k + e) * pitch + 64 * h + 4 * x);
#pragma unroll
				for (int r = 0; r < 4; r++) {
#pragma unroll
					for (int c = 0; c < 4; c++) o[r][4 * h + c] += u[r][e] * v[c];
				}
			}
		}
	}
}

// simt_write rounds rows from i0 and columns from c0 of a result, times `scale` by row.
template <i64 ROW, int HEIGHT, int COLS, typename T> GTC_FN void simt_write(T* to, const float (&o)[4][8], int i0, int c0, const float (&scale)[4]) {
	int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
	for (int r = 0; r < 4; r++) {
		int i = i0 + 4 * y + r;
#pragma unroll
		for (int n = 0; n < 8; n++) {
			int c = c0 + n / 4 * 64 + 4 * x + n % 4;
			if (i < HEIGHT && c < COLS) to[i * ROW + c] = from_float<T>(o[r][n] * scale[r]);
		}
	}
}

// simt_score is the score of query i and key j, whose product is s.
template <class SIZES, class M, typename MASK> GTC_FN float simt_score(float s, const MASK* mask, int i, int j) {
	if (i >= SIZES::sq || j >= SIZES::key_end(i) || j < SIZES::key_begin(i)) return -inf();
	s *= SIZES::scale();
	return mask == nullptr ? s : s + to_float(mask[i * M::row + j]);
}

// simt_softmax turns scores into exponentials under the new maximum, as attn_rows::update does.
GTC_FN void simt_softmax(float (&s)[4][4], float (&o)[4][8], float (&top)[4], float (&sum)[4]) {
#pragma unroll
	for (int r = 0; r < 4; r++) {
		float best = top[r], add = 0;
#pragma unroll
		for (int c = 0; c < 4; c++) best = fmaxf(best, s[r][c]);
#pragma unroll
		for (int m = 1; m < 16; m *= 2) best = fmaxf(best, shfl_xor(best, m));
		float base = best == -inf() ? 0 : best, less = expf(top[r] - base);
#pragma unroll
		for (int c = 0; c < 4; c++) {
			s[r][c] = expf(s[r][c] - base);
			add += s[r][c];
		}
		sum[r] = sum[r] * less + add;
		top[r] = best;
#pragma unroll
		for (int n = 0; n < 8; n++) o[r][n] *= less;
	}
}

// simt_thin multiplies probabilities by what dropout does; number gives the number of one.
template <class DROP, typename F> GTC_FN void simt_thin(float (&s)[4][4], DROP dice, F number) {
	if constexpr (DROP::on) {
#pragma unroll
		for (int r = 0; r < 4; r++) {
#pragma unroll
			for (int c = 0; c < 4; c++) s[r][c] = dice.kept(number(r, c)) ? s[r][c] * DROP::factor() : 0;
		}
	}
}

// attn_simt_fwd is attn_fwd; its grid has a block for each chunk of columns of out, which varies slowest.
template <typename T, class SIZES, class DROP, class Q, class K, class V, class O, class M, typename MASK>
GTC_FN void attn_simt_fwd(const T* q, const T* k, const T* v, const MASK* mask, T* out, float* lse, const i64* counter, const i64* numbers) {
	constexpr int chunks = (SIZES::dv + simt_chunk - 1) / simt_chunk;
	GTC_DYNAMIC_SHARED(float, shared);
	attn_block<SIZES, simt_tile, chunks> at;
	simt_matrix<T, Q::row, SIZES::sq, SIZES::d> queries{at.template at<Q>(q, at.head)};
	simt_matrix<T, K::row, SIZES::sk, SIZES::d> keys{at.template at<K>(k, at.kv_head())};
	simt_matrix<T, V::row, SIZES::sk, SIZES::dv> values{at.template at<V>(v, at.kv_head())};
	if (mask != nullptr) mask = at.template at<M>(mask, at.head);
	int last = at.first + simt_tile < SIZES::sq ? at.first + simt_tile - 1 : SIZES::sq - 1, x = threadIdx.x % 16, i = at.first + threadIdx.x / 16 * 4;
	int end = SIZES::key_end(last), c0 = at.chunk * simt_chunk;
	DROP dice;
	dice.start(counter, numbers, i64(at.batch) * SIZES::heads + at.head, i64(SIZES::sq) * SIZES::sk);
	float o[4][8] = {}, top[4], sum[4] = {};
	top[0] = top[1] = top[2] = top[3] = -inf();
#pragma unroll 1
	for (int j0 = SIZES::key_begin(at.first) / simt_tile * simt_tile; j0 < end; j0 += simt_tile) {
		float s[4][4] = {};
		simt_dots(s, queries, at.first, keys, j0, shared);
#pragma unroll
		for (int r = 0; r < 4; r++) {
#pragma unroll
			for (int c = 0; c < 4; c++) s[r][c] = simt_score<SIZES, M>(s[r][c], mask, i + r, j0 + 4 * x + c);
		}
		simt_softmax(s, o, top, sum);
		simt_thin(s, dice, [&](int r, int c) { return i64(i + r) * SIZES::sk + j0 + 4 * x + c; });
		simt_put(s, shared);
		simt_add(o, values, j0, c0, shared);
	}
	float inverse[4];
#pragma unroll
	for (int r = 0; r < 4; r++) {
		float all = sum[r];
#pragma unroll
		for (int m = 1; m < 16; m *= 2) all += shfl_xor(all, m);
		inverse[r] = all == 0 ? 0 : 1 / all;
		if (lse != nullptr && x == 0 && c0 == 0 && i + r < SIZES::sq)
			lse[((i64)at.batch * SIZES::heads + at.head) * SIZES::sq + i + r] = all == 0 ? -inf() : top[r] + logf(all);
	}
	simt_write<O::row, SIZES::sq, SIZES::dv>(at.template at<O>(out, at.head), o, at.first, c0, inverse);
}

// simt_gradient turns products p of queries and keys, and ds of dout and values, into probabilities and gradients of scores. at(r, c)
// gives the query and the key of an element; stats are the log-sum-exps of the queries' head and, `second` further on, the sums.
template <class SIZES, class M, typename MASK, typename AT>
GTC_FN void simt_gradient(float (&p)[4][4], float (&ds)[4][4], const MASK* mask, const float* stats, i64 second, AT at) {
#pragma unroll
	for (int r = 0; r < 4; r++) {
#pragma unroll
		for (int c = 0; c < 4; c++) {
			int i, j;
			at(r, c, i, j);
			bool real = i < SIZES::sq;
			p[r][c] = expf(simt_score<SIZES, M>(p[r][c], mask, i, j) - (real ? stats[i] : inf()));
			ds[r][c] = p[r][c] * (ds[r][c] - (real ? stats[second + i] : 0));
		}
	}
}

// attn_simt_bwd_queries is attn_bwd_queries, in chunks of dq's columns.
template <typename T, class SIZES, class DROP, class Q, class K, class V, class G, class DQ, class M, typename MASK>
GTC_FN void attn_simt_bwd_queries(const T* q, const T* k, const T* v, const MASK* mask, const T* dout, const float* stats, const i64* counter, const i64* numbers, T* dq) {
	GTC_DYNAMIC_SHARED(float, shared);
	attn_block<SIZES, simt_tile, (SIZES::d + simt_chunk - 1) / simt_chunk> at;
	simt_matrix<T, Q::row, SIZES::sq, SIZES::d> queries{at.template at<Q>(q, at.head)};
	simt_matrix<T, K::row, SIZES::sk, SIZES::d> keys{at.template at<K>(k, at.kv_head())};
	simt_matrix<T, V::row, SIZES::sk, SIZES::dv> values{at.template at<V>(v, at.kv_head())};
	simt_matrix<T, G::row, SIZES::sq, SIZES::dv> grads{at.template at<G>(dout, at.head)};
	if (mask != nullptr) mask = at.template at<M>(mask, at.head);
	stats += (i64)(at.batch * SIZES::heads + at.head) * attn_height<SIZES>;
	i64 second = (i64)at.batches * SIZES::heads * attn_height<SIZES>;
	int last = at.first + simt_tile < SIZES::sq ? at.first + simt_tile - 1 : SIZES::sq - 1;
	int x = threadIdx.x % 16, y = threadIdx.x / 16, end = SIZES::key_end(last);
	DROP dice;
	dice.start(counter, numbers, i64(at.batch) * SIZES::heads + at.head, i64(SIZES::sq) * SIZES::sk);
	float acc[4][8] = {};
#pragma unroll 1
	for (int j0 = SIZES::key_begin(at.first) / simt_tile * simt_tile; j0 < end; j0 += simt_tile) {
		float s[4][4] = {}, ds[4][4] = {};
		simt_dots(s, queries, at.first, keys, j0, shared);
		simt_dots(ds, grads, at.first, values, j0, shared);
		simt_thin(ds, dice, [&](int r, int c) { return i64(at.first + 4 * y + r) * SIZES::sk + j0 + 4 * x + c; });
		simt_gradient<SIZES, M>(s, ds, mask, stats, second, [&](int r, int c, int& i, int& j) { i = at.first + 4 * y + r, j = j0 + 4 * x + c; });
		simt_put(ds, shared);
		simt_add(acc, keys, j0, at.chunk * simt_chunk, shared);
	}
	float scale[4] = {SIZES::scale(), SIZES::scale(), SIZES::scale(), SIZES::scale()};
	simt_write<DQ::row, SIZES::sq, SIZES::d>(at.template at<DQ>(dq, at.head), acc, at.first, at.chunk * simt_chunk, scale);
}

// attn_simt_bwd_keys is attn_bwd_keys, in chunks of the columns of dk and dv.
template <typename T, class SIZES, class DROP, class Q, class K, class V, class G, class GK, class GV, class M, typename MASK>
GTC_FN void attn_simt_bwd_keys(const T* q, const T* k, const T* v, const MASK* mask, const T* dout, const float* stats, const i64* counter, const i64* numbers, T* dk, T* dv) {
	constexpr int group = SIZES::heads / SIZES::kv_heads, wide = SIZES::d > SIZES::dv ? SIZES::d : SIZES::dv;
	GTC_DYNAMIC_SHARED(float, shared);
	attn_keys<SIZES, simt_tile, (wide + simt_chunk - 1) / simt_chunk> at;
	simt_matrix<T, K::row, SIZES::sk, SIZES::d> keys{at.template at<K>(k, at.head)};
	simt_matrix<T, V::row, SIZES::sk, SIZES::dv> values{at.template at<V>(v, at.head)};
	i64 second = (i64)at.batches * SIZES::heads * attn_height<SIZES>;
	int x = threadIdx.x % 16, y = threadIdx.x / 16, c0 = at.chunk * simt_chunk, final = at.first + simt_tile < SIZES::sk ? at.first + simt_tile - 1 : SIZES::sk - 1;
	int begin = SIZES::query_begin(at.first) / simt_tile * simt_tile, end = SIZES::query_end(final);
	float accK[4][8] = {}, accV[4][8] = {};
#pragma unroll 1
	for (int h = at.head * group; h < (at.head + 1) * group; h++) {
		simt_matrix<T, Q::row, SIZES::sq, SIZES::d> queries{at.template at<Q>(q, h)};
		simt_matrix<T, G::row, SIZES::sq, SIZES::dv> grads{at.template at<G>(dout, h)};
		const MASK* own = mask == nullptr ? mask : at.template at<M>(mask, h);
		DROP dice;
		dice.start(counter, numbers, i64(at.batch) * SIZES::heads + h, i64(SIZES::sq) * SIZES::sk);
		const float* sums = stats + (i64)(at.batch * SIZES::heads + h) * attn_height<SIZES>;
#pragma unroll 1
		for (int i0 = begin; i0 < end; i0 += simt_tile) {
			float p[4][4] = {}, ds[4][4] = {};
			simt_dots(p, keys, at.first, queries, i0, shared);
			simt_dots(ds, values, at.first, grads, i0, shared);
			auto number = [&](int r, int c) { return i64(i0 + 4 * x + c) * SIZES::sk + at.first + 4 * y + r; };
			simt_thin(ds, dice, number);
			simt_gradient<SIZES, M>(p, ds, own, sums, second, [&](int r, int c, int& i, int& j) { i = i0 + 4 * x + c, j = at.first + 4 * y + r; });
			simt_thin(p, dice, number);
			simt_put(p, shared);
			simt_add(accV, grads, i0, c0, shared);
			simt_put(ds, shared);
			simt_add(accK, queries, i0, c0, shared);
		}
	}
	float scale[4] = {SIZES::scale(), SIZES::scale(), SIZES::scale(), SIZES::scale()}, one[4] = {1, 1, 1, 1};
	simt_write<GK::row, SIZES::sk, SIZES::d>(at.template at<GK>(dk, at.head), accK, at.first, c0, scale);
	simt_write<GV::row, SIZES::sk, SIZES::dv>(at.template at<GV>(dv, at.head), accV, at.first, c0, one);
}

}
