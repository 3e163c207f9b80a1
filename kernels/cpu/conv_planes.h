// Phase planes: the layout of an image that convolution kernels read. See conv.c for the idea.
#ifndef GTC_CONV_PLANES_H
#define GTC_CONV_PLANES_H

#include "conv.h"
#include "gemm.h"
#include "threads.h"

static inline long min_l(long a, long b) { return a < b ? a : b; }
static inline long max_l(long a, long b) { return a > b ? a : b; }
static inline long ceil_div(long a, long b) { return (a + b - 1) / b; }
static inline long round_up(long a, long b) { return ceil_div(a, b) * b; }
static inline size_t align64(size_t x) { return (x + 63) / 64 * 64; }

// geometry is one problem: source planes [N, C, H, W], padded and cut by phase, and outputs [N, O, OH, OW].
typedef struct {
	long N, C, H, W, O, OH, OW, padT, padL, sH, sW, groups;
	long CG, OG;	       // channels and outputs per group
	long Hv, Wv, plane, Q; // extents of a phase plane, floats of one channel's planes, virtual outputs
} geometry;

enum { SLACK = 2 * GTC_NR }; // floats readable past the last plane, for the vectors of its last virtual outputs

static inline geometry forward_geometry(const conv_dims *d) {
	geometry g = {.N = d->N, .C = d->C, .H = d->H, .W = d->W, .O = d->O, .OH = d->OH, .OW = d->OW, .padT = d->padT, .padL = d->padL,
		      .sH = d->strideH, .sW = d->strideW, .groups = d->groups, .CG = d->C / d->groups, .OG = d->O / d->groups};
	g.Hv = g.OH + (d->KH - 1) * d->dilH / g.sH;
	g.Wv = g.OW + (d->KW - 1) * d->dilW / g.sW;
	g.plane = g.sH * g.sW * g.Hv * g.Wv;
	g.Q = (g.OH - 1) * g.Wv + g.OW;
	return g;
}

// forward_tap is the distance of tap (kh, kw) of channel c from the first one.
static inline long forward_tap(const geometry *g, const conv_dims *d, long c, long kh, long kw) {
	long h = kh * d->dilH, w = kw * d->dilW, phase = (c * g->sH + h % g->sH) * g->sW + w % g->sW;
	return (phase * g->Hv + h / g->sH) * g->Wv + w / g->sW;
}

static inline size_t image_floats(const geometry *g, long channels) { return (size_t)round_up(channels * g->plane + SLACK, 16); }

// pointwise says that a convolution is a matrix product per image.
static inline int pointwise(const conv_dims *d) {
	return d->KH == 1 && d->KW == 1 && d->strideH == 1 && d->strideW == 1 && d->padT == 0 && d->padL == 0 && d->OH == d->H && d->OW == d->W;
}

// gtc_copy_planes lays out channels of one image; src points at the first of them.
void gtc_copy_planes(float *dst, const float *src, const geometry *g, long channels);

#endif
