// What the attention kernels share: sizes as constants, the keys that a query sees, and tiles of 16-bit matrices in shared
// memory.
#pragma once
#include "gtc.cuh"

namespace gtc {

constexpr float log2e = 1.44269504088896341f;
constexpr float ln2 = 0.693147180559945309f;

// attn_strides are the elements between batches, heads and rows of an operand; its columns are contiguous.
template <i64 B, i64 H, i64 S> struct attn_strides {
	static constexpr i64 batch = B, head = H, row = S;
};

// attn_sizes are the sizes of a problem as kernels/cpu documents them. CAUSAL c > 0 lets query i see keys j < i + c, and WINDOW
// w > 0 only the last w of those; 0 is no bound. SCALE has the bits of the float that multiplies products of queries and keys.
template <int HEADS, int KVHEADS, int SQ, int SK, int D, int DV, int CAUSAL, int WINDOW, u32 SCALE> struct attn_sizes {
	static constexpr int heads = HEADS, kv_heads = KVHEADS, sq = SQ, sk = SK, d = D, dv = DV, causal = CAUSAL, window = WINDOW;

	static GTC_FN float scale() { return __uint_as_float(SCALE); }

	// key_end and key_begin bound the keys that query i sees: [key_begin, key_end).
	static GTC_FN int key_end(int i) { return CAUSAL == 0 || i + CAUSAL > SK ? SK : i + CAUSAL; }
	static GTC_FN int key_begin(int i) { return WINDOW == 0 || i + CAUSAL < WINDOW ? 0 : i + CAUSAL - WINDOW; }

	// query_begin and query_end bound the queries that see key j.
	static GTC_FN int query_begin(int j) { return CAUSAL == 0 || j < CAUSAL ? 0 : j - CAUSAL + 1; }
	static GTC_FN int query_end(int j) { return WINDOW == 0 || j - CAUSAL + WINDOW + 1 > SQ ? SQ : j - CAUSAL + WINDOW + 1; }

	// bounded reports whether some pair of queries [i0, i0+m) and keys [k0, k0+n) is hidden by the sizes, the triangle or the window.
	static GTC_FN bool bounded(int i0, int m, int k0, int n) {
		return k0 + n > key_end(i0) || (WINDOW != 0 && k0 < key_begin(i0 + m - 1));
	}
};

// attn_place is a block's place in a grid of one dim: rows of one head from `first` on, then heads, batches and at last chunks of the
// result. Blocks of one head follow one another, so that what they read stays in the cache.
struct attn_place {
	int batch, head, first, chunk, batches;

	// HEIGHT rows of HEADS heads in blocks of ROWS; those with most work, the last ones of queries, come first.
	template <int HEIGHT, int HEADS, int ROWS, int CHUNKS, bool LAST> GTC_FN void find() {
		constexpr int blocks = (HEIGHT + ROWS - 1) / ROWS;
		int n = blockIdx.x % blocks, rest = blockIdx.x / blocks;
		batches = gridDim.x / (blocks * HEADS * CHUNKS);
		first = (LAST ? blocks - 1 - n : n) * ROWS;
		head = rest % HEADS;
		batch = rest / HEADS % batches;
		chunk = CHUNKS == 1 ? 0 : rest / (HEADS * batches);
	}

	// at moves a pointer to this block's batch and a head.
	template <class STRIDES, typename T> GTC_FN T* at(T* p, int h) const { return p + batch * STRIDES::batch + h * STRIDES::head; }
};

// attn_block is a place among queries, attn_keys one among keys.
template <class SIZES, int QUERIES, int CHUNKS = 1> struct attn_block : attn_place {
	GTC_FN attn_block() { find<SIZES::sq, SIZES::heads, QUERIES, CHUNKS, SIZES::causal != 0>(); }
	GTC_FN int kv_head() const { return head / (SIZES::heads / SIZES::kv_heads); }
};

template <class SIZES, int KEYS, int CHUNKS = 1> struct attn_keys : attn_place {
	GTC_FN attn_keys() { find<SIZES::sk, SIZES::kv_heads, KEYS, CHUNKS, false>(); }
};

// attn_dropout keeps the scores whose 24-bit number is LEAST or more, by the hash of ir/ops (random_rules.go): four rounds, whose
// seeds' words are W0 to W3, of the step's counter and the score's number in a tensor [B,H,Sq,Sk]. FACTOR has the bits of the float
// that kept probabilities are multiplied by. LEAST 0 is no dropout.
template <u32 LEAST, u32 FACTOR, u32 W0, u32 W1, u32 W2, u32 W3> struct attn_dropout {
	static constexpr bool on = LEAST != 0;
	u64 before, after, first; // keys of the counter, and the number of the head's first score

	static GTC_FN float factor() { return __uint_as_float(FACTOR); }
	static GTC_FN u64 reduce(u64 x) {
		x = (x & 0x7fffffffu) + (x >> 31);
		return (x & 0x7fffffffu) + (x >> 31);
	}
	static GTC_FN u64 times(u64 x, u64 y) { return reduce(u64(u32(x)) * u32(y)); }
	static GTC_FN u64 bits(u32 word, u64 x) {
		x = reduce(u64(u32(x)) * 0x5bd1e995u + word);
		u64 square = times(x, x);
		return times(times(square, square), x) & 0x7fffffffu;
	}

	// start is for the head with that place in numbers, the heads' numbers; it has n scores.
	GTC_FN void start(const i64* counter, const i64* numbers, i64 place, i64 n) {
		if (!on) return;
		before = bits(W0, *counter);
		after = bits(W2, before);
		first = numbers[place] * n;
	}

	// kept is of score i of the head.
	GTC_FN bool kept(i64 i) const { return u32(bits(W3, bits(W1, first + i + before) + after) >> 7) >= LEAST; }

	// chosen has a bit for each of a thread's scores, the one of s[m][n][e] at 4 (m NT + n) + e; number gives the number of one.
	template <int MT, int NT, typename F> GTC_FN u32 chosen(F number) const {
		static_assert(MT * NT <= 8, "one word");
		u32 out = 0;
#pragma unroll
		for (int m = 0; m < MT; m++) {
#pragma unroll
			for (int n = 0; n < NT; n++) {
#pragma unroll
				for (int e = 0; e < 4; e++) out |= u32(kept(number(m, n, e))) << (4 * (m * NT + n) + e);
			}
		}
		return out;
	}

	// thin makes 0 of the scores that are not chosen.
	template <int MT, int NT> static GTC_FN void thin(float (&s)[MT][NT][4], u32 chosen) {
#pragma unroll
		for (int m = 0; m < MT; m++) {
#pragma unroll
			for (int n = 0; n < NT; n++) {
#pragma unroll
				for (int e = 0; e < 4; e++) s[m][n][e] = chosen >> (4 * (m * NT + n) + e) & 1 ? s[m][n][e] : 0;
			}
		}
	}
};

// mask_log2 is a mask's number for scores in powers of two. Finite numbers stay finite, so that a row that is hidden by the least
// float everywhere is still a mean of all keys, as without the factor.
GTC_FN float mask_log2(float m) {
	float s = m * log2e;
	return s < -3.4e38f && m >= -3.4028235e38f ? -3.4e38f : s;
}

// A tile is a matrix of 16-bit numbers in shared memory, COLS (a multiple of 16) columns in rows of tile_pitch elements. Its
// 16-byte pieces are permuted within each row so that eight rows' pieces of one column lie in different banks: ldmatrix
// and the copies have no conflicts.
template <int COLS> constexpr int tile_pitch = (COLS + 31) / 32 * 32;

template <int COLS> GTC_FN int tile_at(int row, int piece) {
	int turn = tile_pitch<COLS> % 64 == 0 ? row & 7 : row >> 1 & 3;
	return row * tile_pitch<COLS> + ((piece ^ turn) << 3);
}

// copy_piece is cp_async16 from an address that is not a multiple of 16 bytes.
template <typename T> GTC_FN void copy_piece(T* to, const T* from, bool valid) {
	vec<T, 8> v;
#pragma unroll
	for (int e = 0; e < 8; e++) v[e] = valid ? from[e] : from_float<T>(0);
	store(to, v);
}

GTC_FN bool aligned16(const void* p) { return ((u64)p & 15) == 0; }

// tile_share walks over the pieces of a tile of ROWS rows and COLS columns that are a thread's: f(row, step, piece) is of row
// row+step, where step is a constant, and a multiple of 8 if it is not 0.
template <int ROWS, int COLS, int THREADS, typename F> GTC_FN void tile_share(F f) {
	constexpr int pieces = COLS / 8, rows = THREADS / pieces;
	if constexpr (THREADS % pieces == 0 && ROWS % rows == 0 && rows % 8 == 0) {
#pragma unroll
		for (int r = 0; r < ROWS; r += rows) f(int(threadIdx.x) / pieces, r, int(threadIdx.x) % pieces);
	} else {
#pragma unroll
		for (int i = 0; i < ROWS * pieces; i += THREADS) {
			int n = i + int(threadIdx.x);
			if (i + THREADS <= ROWS * pieces || n < ROWS * pieces) f(n / pieces, 0, n % pieces);
		}
	}
}

// load_tile starts copying rows [first, first+ROWS), first a multiple of ROWS, of a matrix of HEIGHT rows that are ROW elements
// apart, and N columns, to a tile of COLS columns; what is beyond the matrix becomes 0. THREADS threads take part;
// cp_async_wait and sync end the copy.
template <int ROWS, int COLS, int THREADS, int HEIGHT, int N, i64 ROW, typename T> GTC_FN void load_tile(T* tile, const T* from, int first) {
	constexpr bool whole = HEIGHT % ROWS == 0 && N == COLS;
	from += first * ROW;
	if (aligned16(from)) {
		tile_share<ROWS, COLS, THREADS>([&](int r, int step, int piece) {
			bool valid = whole || (first + r + step < HEIGHT && piece * 8 < N);
			const T* p = from + u32(r * int(ROW) + piece * 8) + step * ROW;
			cp_async16(tile + tile_at<COLS>(r, piece) + step * tile_pitch<COLS>, valid ? p : from, valid);
		});
		return;
	}
	constexpr int pieces = COLS / 8;
#pragma unroll 1
	for (int i = threadIdx.x; i < ROWS * pieces; i += THREADS) {
		int r = i / pieces, c = i % pieces;
		copy_piece(tile + tile_at<COLS>(r, c), from + r * ROW + c * 8, first + r < HEIGHT && c * 8 < N);
	}
}

// store_tile writes rows of a tile to a matrix, as load_tile reads them.
template <int ROWS, int COLS, int THREADS, int HEIGHT, int N, i64 ROW, typename T> GTC_FN void store_tile(T* to, const T* tile, int first) {
	to += first * ROW;
	bool whole = aligned16(to);
	tile_share<ROWS, COLS, THREADS>([&](int r, int step, int piece) {
		if (first + r + step >= HEIGHT || piece * 8 >= N) return;
		vec<T, 8> v = load<8>(tile + tile_at<COLS>(r, piece) + step * tile_pitch<COLS>);
		T* p = to + r * int(ROW) + piece * 8 + step * ROW;
		if (whole) {
			store(p, v);
			return;
		}
#pragma unroll
		for (int e = 0; e < 8; e++) p[e] = v[e];
	});
}

// tile_move is where a place of tile_at is moved to by col columns, a multiple of 16, when its piece was 0 or 1. Only a few of
// these differ by more than a constant, so that few registers hold the addresses of a loop.
template <int COLS> GTC_FN int tile_move(int at, int col) {
	constexpr int turned = tile_pitch<COLS> % 64 == 0 ? 64 : 32;
	return (at ^ col % turned) + col / turned * turned;
}

// The operands of mma_16816, read from tiles. a_rows reads A from 16 rows at `row` and 16 columns at `col`; b_rows two B whose k
// is the tile's columns, for 16 rows at `row`; b_cols two B whose k is the tile's 16 rows at `row`, for 16 columns at `col`.
// For b_rows and b_cols, r[0..1] belongs to the first 8 of n, r[2..3] to the second.
template <int COLS, typename T> GTC_FN void a_rows(u32 (&r)[4], const T* tile, int row, int col) {
	int lane = threadIdx.x & 31;
	ldmatrix_x4(r, tile + row * tile_pitch<COLS> + tile_move<COLS>(tile_at<COLS>(lane & 15, lane >> 4), col));
}

template <int COLS, typename T> GTC_FN void b_rows(u32 (&r)[4], const T* tile, int row, int col) {
	int lane = threadIdx.x & 31;
	ldmatrix_x4(r, tile + row * tile_pitch<COLS> + tile_move<COLS>(tile_at<COLS>((lane & 7) + (lane >> 4) * 8, lane >> 3 & 1), col));
}

template <int COLS, typename T> GTC_FN void b_cols(u32 (&r)[4], const T* tile, int row, int col) {
	int lane = threadIdx.x & 31;
	ldmatrix_x4_trans(r, tile + row * tile_pitch<COLS> + tile_move<COLS>(tile_at<COLS>(lane & 15, lane >> 4), col));
}

// mma_pair multiplies A with the two B of b_rows or b_cols into two accumulators.
template <typename T> GTC_FN void mma_pair(float (&c0)[4], float (&c1)[4], const u32 (&a)[4], const u32 (&b)[4]) {
	u32 lo[2] = {b[0], b[1]}, hi[2] = {b[2], b[3]};
	mma_16816(c0, a, lo, T{});
	mma_16816(c1, a, hi, T{});
}

// multiply_rows adds A B' to c, for A rows [row, row+16 MT) of tile a and B the 8 NT rows of tile b, COLS columns each.
template <int COLS, int MT, int NT, typename T>
GTC_FN void multiply_rows(float (&c)[MT][NT][4], const T* a, int row, const T* b) {
#pragma unroll
	for (int k = 0; k < COLS; k += 16) {
		u32 left[MT][4];
#pragma unroll
		for (int m = 0; m < MT; m++) a_rows<COLS>(left[m], a, row + 16 * m, k);
#pragma unroll
		for (int n = 0; n < NT; n += 2) {
			u32 right[4];
			b_rows<COLS>(right, b, 8 * n, k);
#pragma unroll
			for (int m = 0; m < MT; m++) mma_pair<T>(c[m][n], c[m][n + 1], left[m], right);
		}
	}
}

// multiply_cols adds P B to c, where P are accumulators of 8 KT columns, rounded to T, and B the 8 KT rows of tile b.
template <int COLS, int MT, int KT, typename T>
GTC_FN void multiply_cols(float (&c)[MT][COLS / 8][4], const float (&p)[MT][KT][4], const T* b) {
#pragma unroll
	for (int k = 0; k < KT; k += 2) {
		u32 left[MT][4];
#pragma unroll
		for (int m = 0; m < MT; m++) {
#pragma unroll
			for (int e = 0; e < 4; e++) left[m][e] = pack2<T>(p[m][k + e / 2][e % 2 * 2], p[m][k + e / 2][e % 2 * 2 + 1]);
		}
#pragma unroll
		for (int n = 0; n < COLS / 8; n += 2) {
			sync_warp(); // bounds how far ahead the compiler reads: registers are all in use
			u32 right[4];
			b_cols<COLS>(right, b, 8 * k, 8 * n);
#pragma unroll
			for (int m = 0; m < MT; m++) mma_pair<T>(c[m][n], c[m][n + 1], left[m], right);
		}
	}
}

// put_rows rounds accumulators, times `scale`, into rows [row, row+16 MT) of a tile.
template <int COLS, int MT, typename T>
GTC_FN void put_rows(T* tile, int row, const float (&c)[MT][COLS / 8][4], const float (&scale)[MT][2]) {
	int lane = threadIdx.x & 31;
#pragma unroll
	for (int m = 0; m < MT; m++) {
#pragma unroll
		for (int n = 0; n < COLS / 8; n++) {
#pragma unroll
			for (int h = 0; h < 2; h++) {
				T* to = tile + tile_at<COLS>(row + 16 * m + 8 * h + lane / 4, n) + lane % 4 * 2;
				*(u32*)to = pack2<T>(c[m][n][2 * h] * scale[m][h], c[m][n][2 * h + 1] * scale[m][h]);
			}
		}
	}
}

}
