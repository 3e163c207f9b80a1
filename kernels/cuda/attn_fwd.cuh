// Attention forward in tensor cores, for bf16 and f16, after Dao, "FlashAttention-2" (2023): a block owns queries of one head,
// walks over tiles of keys, and keeps for each query the maximum, the sum and the weighted values so far.
#pragma once
#include "attn.cuh"

namespace gtc {

// attn_rows is what a warp keeps of its 16 MT queries: their outputs before division, and the maximum score and sum of
// exponentials by row (of this thread's columns only, until finish). Scores are in powers of two.
template <class SIZES, int MT, int NT, int VT> struct attn_rows {
	float out[MT][VT][4], top[MT][2], sum[MT][2];

	GTC_FN attn_rows() {
#pragma unroll
		for (int m = 0; m < MT; m++) {
#pragma unroll
			for (int n = 0; n < VT; n++) out[m][n][0] = out[m][n][1] = out[m][n][2] = out[m][n][3] = 0;
			top[m][0] = top[m][1] = -inf();
			sum[m][0] = sum[m][1] = 0;
		}
	}

	// update turns scores, of which c is the power of two, into exponentials under the new maximum.
	GTC_FN void update(float (&s)[MT][NT][4], float c) {
#pragma unroll
		for (int m = 0; m < MT; m++) {
#pragma unroll
			for (int h = 0; h < 2; h++) {
				float best = top[m][h];
#pragma unroll
				for (int n = 0; n < NT; n++) best = fmaxf(best, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
				best = fmaxf(best, shfl_xor(best, 1));
				best = fmaxf(best, shfl_xor(best, 2));
				float base = best == -inf() ? 0 : best * c; // no key was seen yet: exponentials are 0
				float less = fast_exp2(top[m][h] * c - base), add = 0;
#pragma unroll
				for (int n = 0; n < NT; n++) {
					s[m][n][2 * h] = fast_exp2(s[m][n][2 * h] * c - base);
					s[m][n][2 * h + 1] = fast_exp2(s[m][n][2 * h + 1] * c - base);
					add += s[m][n][2 * h] + s[m][n][2 * h + 1];
				}
				sum[m][h] = sum[m][h] * less + add;
				top[m][h] = best;
if (less == 1) continue; // seldom not so after the first tiles
#pragma unroll
				for (int n = 0; n < VT; n++) out[m][n][2 * h] *= less, out[m][n][2 * h + 1] *= less;
			}
		}
	}

	// finish gives the factor of each row's output, `times` included, and writes lse (of the queries from row on) where there is one.
	GTC_FN void finish(float (&scale)[MT][2], float times, float c, float* lse, int row) {
		int lane = threadIdx.x & 31;
#pragma unroll
		for (int m = 0; m < MT; m++) {
#pragma unroll
			for (int h = 0; h < 2; h++) {
				float all = sum[m][h];
				all += shfl_xor(all, 1);
				all += shfl_xor(all, 2);
				scale[m][h] = all == 0 ? 0 : times / all;
				int i = row + 16 * m + 8 * h + lane / 4;
				if (lse != nullptr && lane % 4 == 0 && i < SIZES::sq)
					lse[i] = all == 0 ? -inf() : top[m][h] * c * ln2 + logf(all);
			}
		}
	}
};

// add_mask turns products into scores in powers of two: times c, plus the mask's rows from query i0 and columns from key k0 on. scaled
// is that without a mask.
template <class SIZES, i64 ROW, int MT, int NT, typename MASK>
GTC_FN void add_mask(float (&s)[MT][NT][4], float c, const MASK* mask, int i0, int k0) {
	int lane = threadIdx.x & 31, rows = SIZES::sq - i0 - lane / 4, cols = SIZES::sk - k0 - lane % 4 * 2;
	mask += (i0 + lane / 4) * ROW + k0 + lane % 4 * 2;
#pragma unroll
	for (int m = 0; m < MT; m++) {
#pragma unroll
		for (int e = 0; e < 4; e++) {
			int i = 16 * m + e / 2 * 8;
#pragma unroll
			for (int n = 0; n < NT; n++) {
				int j = 8 * n + e % 2;
				s[m][n][e] *= c;
				if (i < rows && j < cols) s[m][n][e] += mask_log2(to_float(mask[i * ROW + j]));
			}
		}
	}
}

template <int MT, int NT> GTC_FN void scaled(float (&s)[MT][NT][4], float c) {
#pragma unroll
	for (int m = 0; m < MT; m++) {
#pragma unroll
		for (int n = 0; n < NT; n++) {
#pragma unroll
			for (int e = 0; e < 4; e++) s[m][n][e] *= c;
		}
	}
}

// hide makes minus infinity of the scores of keys that queries from i0 on do not see; the tile's keys begin at k0.
template <class SIZES, int MT, int NT> GTC_FN void hide(float (&s)[MT][NT][4], int i0, int k0) {
	constexpr bool triangle = SIZES::causal != 0 && SIZES::sk % (8 * NT) == 0; // and no tile goes beyond the last key
	int lane = threadIdx.x & 31;
#pragma unroll
	for (int m = 0; m < MT; m++) {
#pragma unroll
		for (int e = 0; e < 4; e++) {
			int i = i0 + 16 * m + 8 * (e / 2) + lane / 4;
			int less = k0 + lane % 4 * 2 + e % 2, end = (triangle ? i + SIZES::causal : SIZES::key_end(i)) - less, begin = SIZES::key_begin(i) - less;
#pragma unroll
			for (int n = 0; n < NT; n++)
				if (8 * n >= end || (SIZES::window != 0 && 8 * n < begin)) s[m][n][e] = -inf();
		}
	}
}

// attn_fwd computes WARPS*16*MT queries of one head in WARPS warps, keys in tiles of BN, STAGES tiles of keys and values in
// shared memory: 2 (BM pitch(d) + STAGES BN (pitch(d) + pitch(dv))) bytes. For a tile of keys it does 2 BM BN (d + dv) FLOPs and
// copies 2 BN (d + dv) bytes, so that BM = 128 is 128 FLOPs a byte from the L2 cache. FIRST multiplies scores by c before
// the maximum is taken: where there is a mask, or scale is not above 0.
template <typename T, class SIZES, class DROP, class Q, class K, class V, class O, class M, int WARPS, int MT, int BN, int STAGES, bool FIRST, typename MASK>
GTC_FN void attn_fwd(const T* q, const T* k, const T* v, const MASK* mask, T* out, float* lse, const i64* counter, const i64* numbers) {
	constexpr int D = (SIZES::d + 15) / 16 * 16, DV = (SIZES::dv + 15) / 16 * 16, BM = WARPS * 16 * MT, threads = WARPS * 32, NT = BN / 8;
	constexpr int qSize = BM * (tile_pitch<D> > tile_pitch<DV> ? tile_pitch<D> : tile_pitch<DV>), kSize = BN * tile_pitch<D>, vSize = BN * tile_pitch<DV>;
	GTC_DYNAMIC_SHARED(T, shared);
	T *qTile = shared, *tiles = shared + qSize; // of each stage the keys, then the values
	attn_block<SIZES, BM> at;
	k = at.template at<K>(k, at.kv_head()), v = at.template at<V>(v, at.kv_head());
	auto keys = [&](int n, int stage) { load_tile<BN, D, threads, SIZES::sk, SIZES::d, K::row>(tiles + stage * (kSize + vSize), k, n * BN); };
	auto values = [&](int n, int stage) { load_tile<BN, DV, threads, SIZES::sk, SIZES::dv, V::row>(tiles + stage * (kSize + vSize) + kSize, v, n * BN); };
	int last = at.first + BM < SIZES::sq ? at.first + BM - 1 : SIZES::sq - 1, row = threadIdx.x / 32 * 16 * MT;
	int begin = SIZES::key_begin(at.first) / BN, end = (SIZES::key_end(last) + BN - 1) / BN;
	float c = SIZES::scale() * log2e;
	attn_rows<SIZES, MT, NT, DV / 8> rows;
	DROP dice;
	dice.start(counter, numbers, i64(at.batch) * SIZES::heads + at.head, i64(SIZES::sq) * SIZES::sk);
	load_tile<BM, D, threads, SIZES::sq, SIZES::d, Q::row>(qTile, at.template at<Q>(q, at.head), at.first);
	if (begin < end) {
		keys(begin, 0);
		if (STAGES > 1) values(begin, 0);
	}
	cp_async_commit();
#pragma unroll 1
	for (int n = begin; n < end; n++) {
		int stage = STAGES > 1 ? (n - begin) % STAGES : 0;
		cp_async_wait<0>();
		sync(); // this tile is there, and nobody reads the one before it any more
		if (STAGES == 1) {
			values(n, 0);
		} else if (n + 1 < end) {
			keys(n + 1, (stage + 1) % STAGES);
			values(n + 1, (stage + 1) % STAGES);
		}
		cp_async_commit();
		float s[MT][NT][4] = {};
		const T* tile = tiles + stage * (kSize + vSize);
		multiply_rows<D>(s, qTile, row, tile);
		if (STAGES == 1) {
			cp_async_wait<0>();
			sync(); // the values are there, and nobody reads the keys any more
			if (n + 1 < end) keys(n + 1, 0);
			cp_async_commit();
		}
		if (FIRST && mask != nullptr) add_mask<SIZES, M::row>(s, c, at.template at<M>(mask, at.head), at.first + row, n * BN);
		if (FIRST && mask == nullptr) scaled(s, c);
		if (SIZES::bounded(at.first, BM, n * BN, BN)) hide<SIZES>(s, at.first + row, n * BN);
		rows.update(s, FIRST ? 1 : c);
		if constexpr (DROP::on) {
			int lane = threadIdx.x & 31, i0 = at.first + row + lane / 4, j0 = n * BN + lane % 4 * 2;
			DROP::thin(s, dice.template chosen<MT, NT>([&](int m, int t, int e) { return i64(i0 + 16 * m + e / 2 * 8) * SIZES::sk + j0 + 8 * t + e % 2; }));
		}
		multiply_cols<DV>(rows.out, s, tile + kSize);
	}
	cp_async_wait<0>();
	sync();
	float inverse[MT][2];
	rows.finish(inverse, DROP::on ? DROP::factor() : 1, FIRST ? 1 : c, lse == nullptr ? lse : lse + (i64)(at.batch * SIZES::heads + at.head) * SIZES::sq, at.first + row);
	put_rows<DV>(qTile, row, rows.out, inverse);
	sync();
	store_tile<BM, DV, threads, SIZES::sq, SIZES::dv, O::row>(at.template at<O>(out, at.head), qTile, at.first);
}

}
