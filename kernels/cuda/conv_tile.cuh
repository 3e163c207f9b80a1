// Convolutions as matrix products whose operands are found where they are needed ("implicit GEMM": Chetlur et al., "cuDNN", 2014).
// Tensors are first packed with their channels next to one another, CP of them for each group (zeros behind the last), so
// that 16 bytes are neighbours in the product's K; results are written as NCHW.
//
// Rows of the product are channels of the result; columns are its pixels, in a forward pass or a gradient by the input, or
// places in the window times channels, in a gradient by the weight.
#pragma once
#include "take.cuh"
#include "wide.cuh"

namespace gtc {

// conv_pack makes to [IMAGES, PIXELS, G, CP] of from [IMAGES, G * CHANNELS, PIXELS]. A block of 256 threads moves one tile.
template <class T, int IMAGES, int PIXELS, int G, int CHANNELS, int CP> __device__ void conv_pack(const T* from, T* to) {
	constexpr int TILE = sizeof(T) == 2 ? 64 : 32, SIDE = 256 / TILE, PITCH = G * CP;
	constexpr int CT = (PITCH + TILE - 1) / TILE, PT = (PIXELS + TILE - 1) / TILE;
	GTC_SHARED(T, tile, [TILE][TILE + 1]);
	const int p0 = int(blockIdx.x / CT % PT) * TILE, c0 = int(blockIdx.x % CT) * TILE, a = int(threadIdx.x) % TILE, b = int(threadIdx.x) / TILE;
	const i64 n = blockIdx.x / (CT * PT);
#pragma unroll
	for (int k = 0; k < TILE; k += SIDE) {
		const int at = c0 + b + k, c = at % CP;
		const bool in = at < PITCH && c < CHANNELS && p0 + a < PIXELS;
		tile[b + k][a] = in ? from[(n * G + at / CP) * (i64(CHANNELS) * PIXELS) + i64(c) * PIXELS + p0 + a] : T{};
	}
	sync();
#pragma unroll
	for (int k = 0; k < TILE; k += SIDE)
		if (p0 + b + k < PIXELS && c0 + a < PITCH) to[(n * PIXELS + p0 + b + k) * PITCH + c0 + a] = tile[a][b + k];
}

// conv_taps are the places in a window that count, TH x TW of them: K0 + t * STEP in each direction of a kernel KH x KW.
template <int KH_, int KW_, int TH_, int TW_, int H0_, int W0_, int SH_, int SW_> struct conv_taps {
	static constexpr int KH = KH_, KW = KW_, TH = TH_, TW = TW_, H0 = H0_, W0 = W0_, SH = SH_, SW = SW_;
};

// conv_pack_weight makes to [G, ROWS, taps, CP] of w, in which rows lie SR, channels SC and groups SG elements apart.
template <class T, int G, int ROWS, int CHANNELS, int CP, class K, i64 SR, i64 SC, i64 SG, int THREADS> __device__ void conv_pack_weight(const T* w, T* to) {
	const i64 at = thread_at<i64, THREADS>();
	constexpr int TAPS = K::TH * K::TW;
	if (at >= i64(G) * ROWS * TAPS * CP) return;
	const int c = int(at % CP), t = int(at / CP % TAPS), r = int(at / CP / TAPS % ROWS), g = int(at / CP / TAPS / ROWS);
	const int p = K::H0 + t / K::TW * K::SH, q = K::W0 + t % K::TW * K::SW;
	to[at] = c < CHANNELS ? w[g * SG + r * SR + c * SC + p * K::KW + q] : T{};
}

// conv_rows is an operand whose rows lie PITCH elements apart, K next to one another.
template <class T, int ROWS, int K, i64 PITCH> struct conv_rows {
	static constexpr bool KC = true;
	const T* p;
	GTC_FN const T* at(int row, int k, bool& in) const {
		in = row < ROWS && k < K;
		return p + row * PITCH + k;
	}
};

// conv_columns is an operand whose K lie PITCH elements apart, rows next to one another.
template <class T, int ROWS, int K, i64 PITCH> struct conv_columns {
	static constexpr bool KC = false;
	const T* p;
	GTC_FN const T* at(int row, int k, bool& in) const {
		in = row < ROWS && k < K;
		return p + k * PITCH + row;
	}
};

// conv_planes is an operand of an NCHW tensor as it is: rows are channels, of ALL, and K the pixels of all images.
template <class T, int ROWS, int ALL, int IMAGES, int PIXELS> struct conv_planes {
	static constexpr bool KC = true;
	const T* p;
	GTC_FN const T* at(int row, int k, bool& in) const {
		in = row < ROWS && k < IMAGES * PIXELS;
		return p + (i64(k / PIXELS) * ALL + row) * PIXELS + k % PIXELS;
	}
};

// conv_view finds what a packed tensor [IMAGES, H, W, PITCH] has for pixel (a, b) of a grid of A x B at tap (t, u): the channels at
// (a * SH + H0 + t * DH, b * SW + W0 + u * DW).
template <int IMAGES_, int A_, int B_, int H_, int W_, int SH, int SW, int H0, int W0, int TH, int TW, int DH, int DW, int CP, i64 PITCH> struct conv_view {
	static constexpr int IMAGES = IMAGES_, A = A_, B = B_, PIXELS = IMAGES_ * A_ * B_, K = TH * TW * CP;

	// find gives CP channels' offset for a pixel and the place k in [TH, TW, CP].
	GTC_FN static i64 find(int pixel, int k, bool& in) {
		const int n = pixel / (A * B), tap = k / CP, h = pixel / B % A * SH + H0 + tap / TW * DH, w = pixel % B * SW + W0 + tap % TW * DW;
		in = pixel < PIXELS && k < K && h >= 0 && h < H_ && w >= 0 && w < W_;
		return (i64(n) * (H_ * W_) + h * W_ + w) * PITCH + k % CP;
	}
};

// conv_pixels is a view with a row for each pixel; conv_patches one whose K are the pixels.
template <class T, class V> struct conv_pixels {
	static constexpr bool KC = true;
	const T* p;
	GTC_FN const T* at(int row, int k, bool& in) const { return p + V::find(row, k, in); }
};
template <class T, class V> struct conv_patches {
	static constexpr bool KC = false;
	const T* p;
	GTC_FN const T* at(int row, int k, bool& in) const { return p + V::find(k, row, in); }
};

// conv_image stores sums at pixels of an NCHW result: row m, pixel (a, b) of image n at [n, m, a * SH + H0, b * SW + W0] of
// [IMAGES, CHANNELS, H, W]; out is where the group's channels begin. bias, by rows, may be null.
template <class O, class B, class V, int ROWS_, int CHANNELS, int H, int W, int SH, int SW, int H0, int W0> struct conv_image {
	static constexpr int ROWS = ROWS_, COLS = V::PIXELS;
	static constexpr bool DENSE = SH == 1 && SW == 1 && H == V::A && W == V::B;
	static constexpr bool WIDE = DENSE && (V::A * V::B) % (16 / sizeof(O)) == 0; // stores of 16 bytes
	O* out;
	const B* bias;

	// put stores N neighbours of a row, from a multiple of N on.
	template <int N> GTC_FN void put(int row, int col, const float* sums) const {
		if (row >= ROWS) return;
		const float more = bias ? to_float(bias[row]) : 0.0f;
		constexpr int P = N * sizeof(O) <= 16 ? N : 16 / sizeof(O); // elements of a store
		if constexpr (DENSE && (V::A * V::B) % P == 0) {
#pragma unroll
			for (int k = 0; k < N; k += P) {
				if (col + k >= COLS) return;
				vec<O, P> v;
				for (int j = 0; j < P; j++) v[j] = from_float<O>(sums[k + j] + more);
				store(out + place(row, col + k), v);
			}
		} else {
#pragma unroll
			for (int j = 0; j < N; j++)
				if (col + j < COLS) out[place(row, col + j)] = from_float<O>(sums[j] + more);
		}
	}
	GTC_FN static i64 place(int row, int col) {
		const int n = col / (V::A * V::B), a = col / V::B % V::A, b = col % V::B;
		return (i64(n) * CHANNELS + row) * (H * W) + (a * SH + H0) * W + b * SW + W0;
	}
};

// conv_part stores sums of a part of K, [ROWS, COLS] of f32.
template <int ROWS_, int COLS_> struct conv_part {
	static constexpr int ROWS = ROWS_, COLS = COLS_;
	static constexpr bool WIDE = true;
	static_assert(COLS % 4 == 0, "rows of 16 bytes");
	float* out;

	template <int N> GTC_FN void put(int row, int col, const float* sums) const {
		if (row >= ROWS) return;
#pragma unroll
		for (int j = 0; j < N; j += 4) {
			if (col + j >= COLS) return;
			store(out + i64(row) * COLS + col + j, vec<float, 4>{{sums[j], sums[j + 1], sums[j + 2], sums[j + 3]}});
		}
	}
};

// conv_sum adds up PARTS parts [G, ROWS, taps, CP], always in one order, and makes dw [G, ROWS, CHANNELS, taps] of them.
template <class O, int PARTS, int G, int ROWS, int TAPS, int CHANNELS, int CP, int THREADS> __device__ void conv_sum(const float* parts, O* dw) {
	constexpr i64 ALL = i64(G) * ROWS * TAPS * CP;
	const i64 at = thread_at<i64, THREADS>();
	if (at >= ALL) return;
	const int c = int(at % CP), t = int(at / CP % TAPS);
	if (c >= CHANNELS) return;
	float sum = 0;
#pragma unroll 8
	for (int k = 0; k < PARTS; k++) sum += parts[k * ALL + at];
	dw[(at / CP / TAPS * CHANNELS + c) * TAPS + t] = from_float<O>(sum);
}

// conv_block is the tile that a block makes: columns of tiles follow one another, so that blocks that run together share
// pixels.
struct conv_block {
	int row, col, group, slice;
};
template <int ROWS, int COLS, int BM, int BN, int SPLITS> GTC_FN conv_block conv_block_of(u32 block) {
	constexpr u32 DOWN = (ROWS + BM - 1) / BM, ACROSS = (COLS + BN - 1) / BN;
	return conv_block{int(block % DOWN) * BM, int(block / DOWN % ACROSS) * BN, int(block / (DOWN * ACROSS * SPLITS)), int(block / (DOWN * ACROSS) % SPLITS)};
}

} // namespace gtc
