// Attention backward in tensor cores, for bf16 and f16, without atomics, so that results are the same in every run. attn_stats
// prepares a number or two for each query; attn_bwd_queries owns queries and makes dq; attn_bwd_keys owns keys and makes dk and dv of
// all the heads that share them. Both compute the probabilities again from the log-sum-exps, 7 products where 5 would do, so that
// nothing is added up in memory. See Dao, "FlashAttention-2" (2023), section 3.1.2, for the formulas.
#pragma once
#include "attn_fwd.cuh"

namespace gtc {

// attn_height is the number of rows of a head in the workspace.
template <class SIZES> constexpr int attn_height = (SIZES::sq + 127) / 128 * 128;

// attn_stats writes for each query of each head, padded to attn_height rows, the log-sum-exp (in powers of two for LOG2), and in a
// second table the sum of dout*out. Rows that see nothing or are padding get an infinite log-sum-exp: every probability is 0 then.
// A warp takes a row.
template <typename T, class SIZES, class O, class G, bool LOG2> GTC_FN void attn_stats(const T* out, const float* lse, const T* dout, float* stats) {
	constexpr int height = attn_height<SIZES>;
	i64 row = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, rows = (i64)gridDim.x * (blockDim.x / 32);
	int i = row % height, h = row / height % SIZES::heads, b = row / height / SIZES::heads, lane = threadIdx.x & 31;
	float sum = 0, l = -inf();
	if (i < SIZES::sq) {
		l = lse[((i64)b * SIZES::heads + h) * SIZES::sq + i];
		out += b * O::batch + h * O::head + i * O::row;
		dout += b * G::batch + h * G::head + i * G::row;
#pragma unroll 4
		for (int e = lane; e < SIZES::dv; e += 32) sum += to_float(out[e]) * to_float(dout[e]);
	}
	sum = warp_sum(sum);
	if (lane == 0) {
		stats[row] = l == -inf() ? inf() : LOG2 ? l * log2e : l;
		stats[rows + row] = sum;
	}
}

// attn_prob is the probability of a score (times c, in powers of two) in a row with that log-sum-exp. A mask that hides a whole
// row by finite numbers has lost the scores in rounding: the minimum keeps the probability finite then.
template <bool FIRST> GTC_FN float attn_prob(float s, float c, float lse) { return fast_exp2(FIRST ? fminf(s - lse, 0) : s * c - lse); }

// attn_bwd_queries makes dq of WARPS*16*MT queries of one head: 2 BN BM (2 d + dv) FLOPs for a tile of keys. Shared memory:
// 2 (BM + STAGES BN) (pitch(d) + pitch(dv)) bytes.
template <typename T, class SIZES, class DROP, class Q, class K, class V, class G, class DQ, class M, int WARPS, int MT, int BN, int STAGES, bool FIRST, typename MASK>
GTC_FN void attn_bwd_queries(const T* q, const T* k, const T* v, const MASK* mask, const T* dout, const float* stats, const i64* counter, const i64* numbers, T* dq) {
	constexpr int D = (SIZES::d + 15) / 16 * 16, DV = (SIZES::dv + 15) / 16 * 16, BM = WARPS * 16 * MT, threads = WARPS * 32, NT = BN / 8;
	constexpr int kSize = BN * tile_pitch<D>, stageSize = kSize + BN * tile_pitch<DV>;
	GTC_DYNAMIC_SHARED(T, shared);
	T *qTile = shared, *gTile = qTile + BM * tile_pitch<D>, *tiles = gTile + BM * tile_pitch<DV>; // of each stage the keys, then the values
	attn_block<SIZES, BM> at;
	k = at.template at<K>(k, at.kv_head()), v = at.template at<V>(v, at.kv_head());
	auto fetch = [&](int n, int stage) {
		load_tile<BN, D, threads, SIZES::sk, SIZES::d, K::row>(tiles + stage * stageSize, k, n * BN);
		load_tile<BN, DV, threads, SIZES::sk, SIZES::dv, V::row>(tiles + stage * stageSize + kSize, v, n * BN);
	};
	int last = at.first + BM < SIZES::sq ? at.first + BM - 1 : SIZES::sq - 1, row = threadIdx.x / 32 * 16 * MT;
	int begin = SIZES::key_begin(at.first) / BN, end = (SIZES::key_end(last) + BN - 1) / BN;
	DROP dice;
	dice.start(counter, numbers, i64(at.batch) * SIZES::heads + at.head, i64(SIZES::sq) * SIZES::sk);
	load_tile<BM, D, threads, SIZES::sq, SIZES::d, Q::row>(qTile, at.template at<Q>(q, at.head), at.first);
	load_tile<BM, DV, threads, SIZES::sq, SIZES::dv, G::row>(gTile, at.template at<G>(dout, at.head), at.first);
	if (begin < end) fetch(begin, 0);
	cp_async_commit();
	float c = SIZES::scale() * log2e, acc[MT][D / 8][4] = {}, lse[MT][2], delta[MT][2];
#pragma unroll
	for (int m = 0; m < MT; m++) {
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int i = at.first + row + 16 * m + 8 * h + (threadIdx.x & 31) / 4;
			i64 place = (i64)(at.batch * SIZES::heads + at.head) * attn_height<SIZES> + i, second = (i64)at.batches * SIZES::heads * attn_height<SIZES>;
			lse[m][h] = stats[place], delta[m][h] = stats[second + place];
		}
	}
#pragma unroll 1
	for (int n = begin; n < end; n++) {
		int stage = (n - begin) % STAGES;
		cp_async_wait<0>();
		sync(); // this tile is there, and nobody reads the one before it any more
		if (n + 1 < end) fetch(n + 1, (stage + 1) % STAGES);
		cp_async_commit();
		const T* tile = tiles + stage * stageSize;
		float s[MT][NT][4] = {}, ds[MT][NT][4] = {};
		multiply_rows<D>(s, qTile, row, tile);
		multiply_rows<DV>(ds, gTile, row, tile + kSize);
		if (FIRST && mask != nullptr) add_mask<SIZES, M::row>(s, c, at.template at<M>(mask, at.head), at.first + row, n * BN);
		if (FIRST && mask == nullptr) scaled(s, c);
		if (SIZES::bounded(at.first, BM, n * BN, BN)) hide<SIZES>(s, at.first + row, n * BN);
		if constexpr (DROP::on) {
			int lane = threadIdx.x & 31, i0 = at.first + row + lane / 4, j0 = n * BN + lane % 4 * 2;
			DROP::thin(ds, dice.template chosen<MT, NT>([&](int m, int t, int e) { return i64(i0 + 16 * m + e / 2 * 8) * SIZES::sk + j0 + 8 * t + e % 2; }));
			scaled(ds, DROP::factor());
		}
#pragma unroll
		for (int m = 0; m < MT; m++) {
#pragma unroll
			for (int t = 0; t < NT; t++) {
#pragma unroll
				for (int e = 0; e < 4; e++) ds[m][t][e] = attn_prob<FIRST>(s[m][t][e], c, lse[m][e / 2]) * (ds[m][t][e] - delta[m][e / 2]);
			}
		}
		multiply_cols<D>(acc, ds, tile);
	}
	cp_async_wait<0>();
	sync();
	float scale[MT][2];
#pragma unroll
	for (int m = 0; m < MT; m++) scale[m][0] = scale[m][1] = SIZES::scale();
	put_rows<D>(qTile, row, acc, scale);
	sync();
	store_tile<BM, D, threads, SIZES::sq, SIZES::d, DQ::row>(at.template at<DQ>(dq, at.head), qTile, at.first);
}

// add_mask_keys and hide_keys are add_mask and hide where rows are keys, from j0 on, and columns queries, from i0 on. Keys beyond the
// last need no hiding, as nobody reads their gradients, and queries beyond the last have an infinite log-sum-exp.
template <class SIZES, i64 ROW, int MT, int NT, typename MASK> GTC_FN void add_mask_keys(float (&s)[MT][NT][4], float c, const MASK* mask, int j0, int i0) {
	int lane = threadIdx.x & 31, rows = SIZES::sk - j0 - lane / 4, cols = SIZES::sq - i0 - lane % 4 * 2;
	mask += (i0 + lane % 4 * 2) * ROW + j0 + lane / 4;
#pragma unroll
	for (int m = 0; m < MT; m++) {
#pragma unroll
		for (int e = 0; e < 4; e++) {
			int j = 16 * m + e / 2 * 8;
#pragma unroll
			for (int n = 0; n < NT; n++) {
				int i = 8 * n + e % 2;
				s[m][n][e] *= c;
				if (j < rows && i < cols) s[m][n][e] += mask_log2(to_float(mask[i * ROW + j]));
			}
		}
	}
}

template <class SIZES, int MT, int NT> GTC_FN void hide_keys(float (&s)[MT][NT][4], int j0, int i0) {
	int lane = threadIdx.x & 31;
#pragma unroll
	for (int m = 0; m < MT; m++) {
#pragma unroll
		for (int e = 0; e < 4; e++) {
			int j = j0 + 16 * m + 8 * (e / 2) + lane / 4, less = i0 + lane % 4 * 2 + e % 2;
			int begin = SIZES::query_begin(j) - less, end = SIZES::query_end(j) - less;
#pragma unroll
			for (int n = 0; n < NT; n++)
				if (8 * n < begin || (SIZES::window != 0 && 8 * n >= end)) s[m][n][e] = -inf();
		}
	}
}

// attn_bwd_keys makes dk (for DK) and dv (for DV) of WARPS*16*MT keys of one key head from all queries, BM at a time, of every head
// that reads it, in order. Scores are computed transposed, rows being keys, so that probabilities and their gradients are operands
// of the next products as they are in registers: 2 BN BM (2 d + 2 dv) FLOPs for a tile of queries, and 2 BM (d + dv) bytes of
// copies. Shared memory: 2 (BN + STAGES BM) (pitch(d) + pitch(dv)) + 8 STAGES BM bytes. Where registers do not hold the sums of both
// gradients, it is run once for each.
template <typename T, class SIZES, class DROP, class Q, class K, class V, class G, class GK, class GV, class M, int WARPS, int MT, int BM, bool DK, bool DV, bool FIRST,
	  typename MASK>
GTC_FN void attn_bwd_keys(const T* q, const T* k, const T* v, const MASK* mask, const T* dout, const float* stats, const i64* counter, const i64* numbers, T* dk, T* dv) {
	constexpr int D = (SIZES::d + 15) / 16 * 16, E = (SIZES::dv + 15) / 16 * 16, BN = WARPS * 16 * MT, threads = WARPS * 32, NT = BM / 8;
	constexpr int kSize = BN * tile_pitch<D>, vSize = BN * tile_pitch<E>, qSize = BM * tile_pitch<D>, stageSize = qSize + BM * tile_pitch<E>;
	constexpr int group = SIZES::heads / SIZES::kv_heads, height = attn_height<SIZES>;
	GTC_DYNAMIC_SHARED(T, shared);
	T *kTile = shared, *vTile = kTile + kSize, *tiles = vTile + vSize; // of each of 2 stages the queries, then dout
	float* sums = reinterpret_cast<float*>(tiles + 2 * stageSize);     // of each stage the log-sum-exps, then those of attn_stats
	attn_keys<SIZES, BN> at;
	int row = threadIdx.x / 32 * 16 * MT, final = at.first + BN < SIZES::sk ? at.first + BN - 1 : SIZES::sk - 1;
	int begin = SIZES::query_begin(at.first) / BM, end = (SIZES::query_end(final) + BM - 1) / BM, count = end > begin ? end - begin : 0;
	auto fetch = [&](int n, int stage) {
		int turn = group == 1 ? 0 : n / count, h = at.head * group + turn, i0 = (begin + n - turn * count) * BM, t = threadIdx.x;
		load_tile<BM, D, threads, SIZES::sq, SIZES::d, Q::row>(tiles + stage * stageSize, at.template at<Q>(q, h), i0);
		load_tile<BM, E, threads, SIZES::sq, SIZES::dv, G::row>(tiles + stage * stageSize + qSize, at.template at<G>(dout, h), i0);
		const float* from = stats + ((i64)at.batch * SIZES::heads + h) * height + i0;
		if (t < BM / 4) cp_async16(sums + stage * 2 * BM + 4 * t, from + 4 * t, true);
		else if (t < BM / 2) cp_async16(sums + stage * 2 * BM + 4 * t, from + (i64)at.batches * SIZES::heads * height + 4 * (t - BM / 4), true);
	};
	load_tile<BN, D, threads, SIZES::sk, SIZES::d, K::row>(kTile, at.template at<K>(k, at.head), at.first);
	if (DK) load_tile<BN, E, threads, SIZES::sk, SIZES::dv, V::row>(vTile, at.template at<V>(v, at.head), at.first);
	if (count > 0) fetch(0, 0);
	cp_async_commit();
	float c = SIZES::scale() * log2e, accK[DK ? MT : 1][D / 8][4] = {}, accV[DV ? MT : 1][E / 8][4] = {};
#pragma unroll 1
	for (int n = 0; n < count * group; n++) {
		int turn = group == 1 ? 0 : n / count, stage = n & 1, i0 = (begin + n - turn * count) * BM, lane = threadIdx.x & 31;
		cp_async_wait<0>();
		sync(); // this tile is there, and nobody reads the one before it any more
		if (n + 1 < count * group) fetch(n + 1, stage ^ 1);
		cp_async_commit();
		const T *qTile = tiles + stage * stageSize, *gTile = qTile + qSize;
		const float* own = sums + stage * 2 * BM + lane % 4 * 2; // of the columns of this thread
		float p[MT][NT][4] = {};
		multiply_rows<D>(p, kTile, row, qTile);
		if (FIRST && mask != nullptr) add_mask_keys<SIZES, M::row>(p, c, at.template at<M>(mask, at.head * group + turn), at.first + row, i0);
		if (FIRST && mask == nullptr) scaled(p, c);
		if (SIZES::causal != 0 && SIZES::bounded(i0, BM, at.first, BN)) hide_keys<SIZES>(p, at.first + row, i0);
#pragma unroll
		for (int t = 0; t < NT; t++) {
			vec<float, 2> lse = load<2>(own + 8 * t);
#pragma unroll
			for (int m = 0; m < MT; m++) {
#pragma unroll
				for (int e = 0; e < 4; e++) p[m][t][e] = attn_prob<FIRST>(p[m][t][e], c, lse[e % 2]);
			}
		}
		u32 chosen = 0;
		if constexpr (DROP::on) {
			DROP dice;
			dice.start(counter, numbers, i64(at.batch) * SIZES::heads + at.head * group + turn, i64(SIZES::sq) * SIZES::sk);
			int first = i0 + lane % 4 * 2, j0 = at.first + row + lane / 4;
			chosen = dice.template chosen<MT, NT>([&](int m, int t, int e) { return i64(first + 8 * t + e % 2) * SIZES::sk + j0 + 16 * m + e / 2 * 8; });
		}
		if constexpr (DV && DROP::on) {
			float thinned[MT][NT][4];
#pragma unroll
			for (int m = 0; m < MT; m++) {
#pragma unroll
				for (int t = 0; t < NT; t++) {
#pragma unroll
					for (int e = 0; e < 4; e++) thinned[m][t][e] = p[m][t][e];
				}
			}
			DROP::thin(thinned, chosen);
			multiply_cols<E>(accV, thinned, gTile);
		} else if constexpr (DV) {
			multiply_cols<E>(accV, p, gTile);
		}
		if constexpr (DK) {
			float ds[MT][NT][4] = {};
			multiply_rows<E>(ds, vTile, row, gTile);
			if constexpr (DROP::on) {
				DROP::thin(ds, chosen);
				scaled(ds, DROP::factor());
			}
#pragma unroll
			for (int t = 0; t < NT; t++) {
				vec<float, 2> delta = load<2>(own + BM + 8 * t);
#pragma unroll
				for (int m = 0; m < MT; m++) {
#pragma unroll
					for (int e = 0; e < 4; e++) ds[m][t][e] = p[m][t][e] * (ds[m][t][e] - delta[e % 2]);
				}
			}
			multiply_cols<D>(accK, ds, qTile);
		}
	}
	cp_async_wait<0>();
	sync();
	float scale[MT][2], one[MT][2];
#pragma unroll
	for (int m = 0; m < MT; m++) scale[m][0] = scale[m][1] = SIZES::scale(), one[m][0] = one[m][1] = DROP::on ? DROP::factor() : 1;
	if constexpr (DK) put_rows<D>(kTile, row, accK, scale);
	if constexpr (DV) put_rows<E>(vTile, row, accV, one);
	sync();
	if constexpr (DK) store_tile<BN, D, threads, SIZES::sk, SIZES::d, GK::row>(at.template at<GK>(dk, at.head), kTile, at.first);
	if constexpr (DV) store_tile<BN, E, threads, SIZES::sk, SIZES::dv, GV::row>(at.template at<GV>(dv, at.head), vTile, at.first);
}

}
