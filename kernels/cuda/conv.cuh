// Convolutions of NCHW tensors, element by element: for groups of few channels, which fill no tile of a matrix product.
#pragma once
#include "take.cuh"
#include "wide.cuh"

namespace gtc {

// conv_shape are the sizes of a convolution: y [N,O,OH,OW] of x [N,C,H,W] and w [O,C/G,KH,KW].
template <int N_, int C_, int H_, int W_, int O_, int KH_, int KW_, int OH_, int OW_, int PT_, int PL_, int SH_, int SW_, int DH_, int DW_, int G_>
struct conv_shape {
	static constexpr int N = N_, C = C_, H = H_, W = W_, O = O_, KH = KH_, KW = KW_, OH = OH_, OW = OW_, PT = PT_, PL = PL_, SH = SH_, SW = SW_,
			     DH = DH_, DW = DW_, G = G_, CG = C_ / G_, OG = O_ / G_;
};

// conv_forward makes one element of y in each thread. bias may be null.
template <class S, class T, class B, class O, int THREADS> __device__ void conv_forward(const T* x, const T* w, const B* bias, O* y) {
	constexpr i64 TOTAL = i64(S::N) * S::O * S::OH * S::OW;
	using F = flat<TOTAL>;
	const F at = thread_at<F, THREADS>();
	if (at >= F(TOTAL)) return;
	const int j = int(at % F(S::OW)), i = int(at / F(S::OW) % F(S::OH)), o = int(at / F(S::OH * S::OW) % F(S::O));
	const i64 n = at / F(S::OH * S::OW) / F(S::O);
	const T* plane = x + (n * S::C + o / S::OG * S::CG) * (i64(S::H) * S::W);
	w += i64(o) * (S::CG * S::KH * S::KW);
	float sum = 0;
	for (int c = 0; c < S::CG; c++, plane += i64(S::H) * S::W)
		for (int p = 0; p < S::KH; p++) {
			const int h = i * S::SH - S::PT + p * S::DH;
			if (h < 0 || h >= S::H) continue;
			for (int q = 0; q < S::KW; q++) {
				const int v = j * S::SW - S::PL + q * S::DW;
				if (v >= 0 && v < S::W) sum += to_float(plane[h * S::W + v]) * to_float(w[(c * S::KH + p) * S::KW + q]);
			}
		}
	if (bias) sum += to_float(bias[o]);
	y[at] = from_float<O>(sum);
}

// conv_data makes one element of dx [N,C,H,W] in each thread, from all elements of dy that it went into.
template <class S, class T, class O, int THREADS> __device__ void conv_data(const T* dy, const T* w, O* dx) {
	constexpr i64 TOTAL = i64(S::N) * S::C * S::H * S::W;
	using F = flat<TOTAL>;
	const F at = thread_at<F, THREADS>();
	if (at >= F(TOTAL)) return;
	const int v = int(at % F(S::W)), h = int(at / F(S::W) % F(S::H)), c = int(at / F(S::H * S::W) % F(S::C));
	const i64 n = at / F(S::H * S::W) / F(S::C);
	const int o0 = c / S::CG * S::OG;
	const T* plane = dy + (n * S::O + o0) * (i64(S::OH) * S::OW);
	w += (i64(o0) * S::CG + c % S::CG) * (S::KH * S::KW);
	float sum = 0;
	for (int o = 0; o < S::OG; o++, plane += i64(S::OH) * S::OW)
		for (int p = 0; p < S::KH; p++) {
			const int i = h + S::PT - p * S::DH;
			if (i < 0 || i % S::SH != 0 || i / S::SH >= S::OH) continue;
			for (int q = 0; q < S::KW; q++) {
				const int j = v + S::PL - q * S::DW;
				if (j >= 0 && j % S::SW == 0 && j / S::SW < S::OW)
					sum += to_float(plane[i / S::SH * S::OW + j / S::SW]) * to_float(w[(i64(o) * S::CG * S::KH + p) * S::KW + q]);
			}
		}
	dx[at] = from_float<O>(sum);
}

// conv_weight makes one element of dw [O,C/G,KH,KW] in each block.
template <class S, class T, class O, int THREADS> __device__ void conv_weight(const T* x, const T* dy, O* dw) {
	GTC_SHARED(float, reduced, [32]);
	const i64 at = blockIdx.x;
	const int q = int(at % S::KW), p = int(at / S::KW % S::KH), c = int(at / (S::KW * S::KH) % S::CG), o = int(at / (i64(S::KW) * S::KH * S::CG));
	x += i64(o / S::OG * S::CG + c) * S::H * S::W, dy += i64(o) * S::OH * S::OW;
	float sum = 0;
	for (int n = 0; n < S::N; n++, x += i64(S::C) * S::H * S::W, dy += i64(S::O) * S::OH * S::OW)
		for (int e = int(threadIdx.x); e < S::OH * S::OW; e += THREADS) {
			const int h = e / S::OW * S::SH - S::PT + p * S::DH, v = e % S::OW * S::SW - S::PL + q * S::DW;
			if (h >= 0 && h < S::H && v >= 0 && v < S::W) sum += to_float(x[h * S::W + v]) * to_float(dy[e]);
		}
	sum = block_sum<THREADS>(sum, reduced);
	if (threadIdx.x == 0) dw[at] = from_float<O>(sum);
}

} // namespace gtc
