// Stable sort of positions by the row that their index names, least significant byte first: each pass counts the bytes of
// every block's tile, sums the counts up and places the tile. Equal rows keep their order, which makes what is summed by
// row the same on every run.
#pragma once
#include "gtc.cuh"

namespace gtc {

constexpr int sort_threads = 256, sort_items = 8, sort_tile = sort_threads * sort_items;

constexpr __device__ i64 sort_blocks(i64 n) { return (n + sort_tile - 1) / sort_tile; }

// sort_key is the row that index r of ROWS names; ROWS, behind the last, when it is out of range.
template <i64 ROWS> GTC_FN u32 sort_key(i64 r) {
	if (r < 0) r += ROWS;
	return r < 0 || r >= ROWS ? u32(ROWS) : u32(r);
}

// warp_scan is the sum of v over this lane and those before it.
GTC_FN u32 warp_scan(u32 v) {
	const int lane = int(threadIdx.x) % 32;
#pragma unroll
	for (int d = 1; d < 32; d *= 2) {
		const u32 o = shfl_up(v, d);
		if (lane >= d) v += o;
	}
	return v;
}

// sort_count counts the bytes at SHIFT of each block's tile: counts [256, blocks]. The FIRST pass takes keys from idx and
// refuses indices out of range.
template <i64 ROWS, i64 N, int SHIFT, bool FIRST> GTC_FN void sort_count(const i64* idx, const u32* keys, u32* counts, i64* status) {
	GTC_SHARED(u32, seen, [256]);
	const int tid = int(threadIdx.x);
	seen[tid] = 0;
	sync();
	for (int k = 0; k < sort_items; k++) {
		const i64 i = i64(blockIdx.x) * sort_tile + k * sort_threads + tid;
		if (i >= N) break;
		const u32 key = FIRST ? sort_key<ROWS>(idx[i]) : keys[i];
		if (FIRST && key == u32(ROWS)) atomic_min(status, i);
		atomic_inc(&seen[key >> SHIFT & 255]);
	}
	sync();
	counts[tid * sort_blocks(N) + blockIdx.x] = seen[tid];
}

// sort_scan replaces the N counts by the sums of those before each, in one block of 1,024 threads.
template <i64 N> GTC_FN void sort_scan(u32* counts) {
	constexpr int PER = 4;
	GTC_SHARED(u32, sums, [32]);
	const int tid = int(threadIdx.x), lane = tid % 32, warp = tid / 32;
	u32 before = 0;
	for (i64 base = 0; base < N; base += PER * 1024) {
		u32 c[PER], all = 0;
		for (int k = 0; k < PER; k++) {
			const i64 i = base + tid * PER + k;
			c[k] = i < N ? counts[i] : 0;
			all += c[k];
		}
		const u32 upto = warp_scan(all);
		if (lane == 31) sums[warp] = upto;
		sync();
		const u32 warps = warp_scan(sums[lane]), total = shfl(warps, 31);
		u32 at = before + upto - all + shfl(warps, warp) - sums[warp];
		for (int k = 0; k < PER; k++) {
			const i64 i = base + tid * PER + k;
			if (i < N) counts[i] = at;
			at += c[k];
		}
		before += total;
		sync();
	}
}

// sort_place moves the keys of each block's tile, and the positions that belong to them, to where sort_scan says.
template <i64 ROWS, i64 N, int SHIFT, bool FIRST>
GTC_FN void sort_place(const i64* idx, const u32* keys, const u32* from, const u32* counts, u32* sorted, u32* to) {
	GTC_SHARED(u32, seen, [8 * 256]); // by warp and byte: so many before
	const int tid = int(threadIdx.x), lane = tid % 32;
	u32* const mine = seen + tid / 32 * 256;
	for (int w = 0; w < 8; w++) seen[w * 256 + tid] = 0;
	sync();
	const i64 first = i64(blockIdx.x) * sort_tile + tid / 32 * (sort_tile / 8) + lane;
	u32 key[sort_items], rank[sort_items];
#pragma unroll
	for (int k = 0; k < sort_items; k++) {
		const i64 i = first + k * 32;
		key[k] = i >= N ? 0 : FIRST ? sort_key<ROWS>(idx[i]) : keys[i];
		const u32 byte = key[k] >> SHIFT & 255;
		u32 peers = warp_ballot(i < N); // lanes with this lane's byte
#pragma unroll
		for (int b = 0; b < 8; b++) {
			const u32 ones = warp_ballot(byte >> b & 1);
			peers &= byte >> b & 1 ? ones : ~ones;
		}
		const int ahead = __popc(peers & ((u32(1) << lane) - 1));
		rank[k] = mine[byte] + ahead;
		sync_warp();
		if (i < N && ahead == 0) mine[byte] += __popc(peers);
		sync_warp();
	}
	sync();
	u32 at = counts[tid * sort_blocks(N) + blockIdx.x];
	for (int w = 0; w < 8; w++) {
		const u32 n = seen[w * 256 + tid];
		seen[w * 256 + tid] = at;
		at += n;
	}
	sync();
#pragma unroll
	for (int k = 0; k < sort_items; k++) {
		const i64 i = first + k * 32;
		if (i >= N) continue;
		const u32 p = mine[key[k] >> SHIFT & 255] + rank[k];
		sorted[p] = key[k];
		to[p] = FIRST ? u32(i) : from[i];
	}
}

// sort_starts finds where the positions of each row begin among the sorted ones: starts [ROWS + 1].
template <i64 ROWS, i64 N, int THREADS> GTC_FN void sort_starts(const u32* sorted, u32* starts) {
	const i64 r = i64(blockIdx.x) * THREADS + threadIdx.x;
	if (r > ROWS) return;
	i64 lo = 0, hi = N; // the first key that is not below r is in [lo, hi]
	while (lo < hi) {
		const i64 mid = (lo + hi) / 2;
		if (sorted[mid] < u32(r))
			lo = mid + 1;
		else
			hi = mid;
	}
	starts[r] = u32(lo);
}

} // namespace gtc
