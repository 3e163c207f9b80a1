// RoiAlign (He et al., "Mask R-CNN", 2017), averages: forward, and the adjoint for the image's gradient.
#pragma once
#include "take.cuh"

namespace gtc {

// roi_axis is one direction of a region: the first place, the size of a bin and the samples in it.
template <class T> struct roi_axis {
	T start, step;
	i64 samples;
};

template <class T, int BINS, int SAMPLES, bool HALF> GTC_FN roi_axis<T> roi_axis_of(T lo, T hi) {
	constexpr i64 most = 1000000000; // samples of a bin and direction: more than any image has
	T length = hi - lo;
	if (HALF)
		lo -= T(0.5);
	else if (!(length > 1))
		length = 1;
	const T c = length / T(BINS);
	i64 n = SAMPLES;
	if (n == 0) {
		n = c > 0 ? (c < T(most) ? i64(c) : most) : 0;
		if (T(n) < c) n++;
	}
	return roi_axis<T>{lo, c, n};
}

// roi_place gives the neighbours and the fraction of sample i of bin p; false when it is outside, where it counts as zero.
template <class T> GTC_FN bool roi_place(const roi_axis<T>& a, int p, i64 i, int size, int& at, int& next, T& frac) {
	T y = a.start + T(p) * a.step + (T(i) + T(0.5)) * a.step / T(a.samples);
	if (!(y >= -1 && y <= T(size))) return false;
	y = y < 0 ? T(0) : y > T(size - 1) ? T(size - 1) : y;
	at = int(y);
	next = at + 1 < size ? at + 1 : size - 1;
	frac = y - T(at);
	return true;
}

// roi_range bounds the samples of bin p that may be inside, so that a box far larger than the image costs no more than it.
template <class T> GTC_FN void roi_range(const roi_axis<T>& a, int p, int size, i64& from, i64& to) {
	const T unit = a.step / T(a.samples), base = a.start + T(p) * a.step, n = T(a.samples);
	from = 0, to = a.samples;
	if (!(unit > 0)) return;
	const T lo = (-1 - base) / unit - 2, hi = (T(size) - base) / unit + 2;
	if (lo > 0) from = lo < n ? i64(lo) : a.samples;
	if (hi < n) to = hi > 0 ? i64(hi) : 0;
}

// roi_dims are the sizes of a call; SCALE is a float's bits.
template <class T, i64 BATCH, i64 CHANNELS, int HEIGHT, int WIDTH, i64 REGIONS, int ROWS, int COLUMNS, int SAMPLES, bool HALF, u32 SCALE>
struct roi_dims {
	using type = T;
	static constexpr i64 batch = BATCH, channels = CHANNELS, regions = REGIONS;
	static constexpr int height = HEIGHT, width = WIDTH, rows = ROWS, columns = COLUMNS;

	GTC_FN static roi_axis<T> down(const T* roi) {
		const T k = T(__uint_as_float(SCALE));
		return roi_axis_of<T, ROWS, SAMPLES, HALF>(roi[1] * k, roi[3] * k);
	}
	GTC_FN static roi_axis<T> across(const T* roi) {
		const T k = T(__uint_as_float(SCALE));
		return roi_axis_of<T, COLUMNS, SAMPLES, HALF>(roi[0] * k, roi[2] * k);
	}

	// sample is the number of the image that region r is of; -1 when it is out of range.
	GTC_FN static i64 sample(const i64* idx, i64 r) {
		const i64 b = idx[r] < 0 ? idx[r] + BATCH : idx[r];
		return b >= 0 && b < BATCH ? b : -1;
	}
};

template <class T> GTC_FN T roi_count(const roi_axis<T>& v, const roi_axis<T>& h) {
	return T(v.samples > 1 ? v.samples : 1) * T(h.samples > 1 ? h.samples : 1);
}

// roi_align pools: a thread makes one element of y[regions, channels, rows, columns].
template <class S, int THREADS> __device__ void roi_align(const typename S::type* x, const typename S::type* rois, const i64* idx, typename S::type* y, i64* status) {
	using T = typename S::type;
	constexpr i64 BINS = i64(S::rows) * S::columns, TOTAL = S::regions * S::channels * BINS;
	const i64 e = thread_at<i64, THREADS>();
	if (e >= TOTAL) return;
	const i64 r = e / BINS / S::channels, c = e / BINS % S::channels, b = S::sample(idx, r);
	if (b < 0) {
		if (e % (BINS * S::channels) == 0) atomic_min(status, r);
		return;
	}
	const int p = int(e % BINS / S::columns), q = int(e % S::columns);
	const roi_axis<T> v = S::down(rois + 4 * r), h = S::across(rois + 4 * r);
	const T* plane = x + (b * S::channels + c) * S::height * S::width;
	i64 i0, i1, j0, j1;
	roi_range(v, p, S::height, i0, i1);
	roi_range(h, q, S::width, j0, j1);
	T sum = 0;
	for (i64 i = i0; i < i1; i++) {
		int y0, y1, x0, x1;
		T fy, fx;
		if (!roi_place(v, p, i, S::height, y0, y1, fy)) continue;
		const T *upper = plane + y0 * S::width, *lower = plane + y1 * S::width;
		for (i64 j = j0; j < j1; j++) {
			if (!roi_place(h, q, j, S::width, x0, x1, fx)) continue;
			sum += (1 - fy) * ((1 - fx) * upper[x0] + fx * upper[x1]) + fy * ((1 - fx) * lower[x0] + fx * lower[x1]);
		}
	}
	y[e] = sum / roi_count(v, h);
}

// roi_weights sums the weights with which the samples of each bin fall on each row (or column) of the image: the weight of an
// element in a bin is the product of the two. down [regions, rows, height] and across [regions, columns, width].
template <class T> GTC_FN T roi_weight(const roi_axis<T>& a, int p, int size, int want) {
	i64 from, to;
	roi_range(a, p, size, from, to);
	T sum = 0;
	for (i64 i = from; i < to; i++) {
		int at, next;
		T frac;
		if (!roi_place(a, p, i, size, at, next, frac)) continue;
		if (at == want) sum += 1 - frac;
		if (next == want) sum += frac;
	}
	return sum;
}
template <class S, int THREADS> __device__ void roi_weights(const typename S::type* rois, const i64* idx, typename S::type* down, typename S::type* across, i64* status) {
	constexpr i64 DOWN = i64(S::rows) * S::height, ALL = DOWN + i64(S::columns) * S::width;
	const i64 e = thread_at<i64, THREADS>();
	if (e >= S::regions * ALL) return;
	const i64 r = e / ALL, k = e % ALL;
	if (k == 0 && S::sample(idx, r) < 0) atomic_min(status, r);
	if (k < DOWN)
		down[r * DOWN + k] = roi_weight(S::down(rois + 4 * r), int(k / S::height), S::height, int(k % S::height));
	else
		across[r * (ALL - DOWN) + k - DOWN] = roi_weight(S::across(rois + 4 * r), int((k - DOWN) / S::width), S::width, int((k - DOWN) % S::width));
}

// roi_align_back gathers dx[batch, channels, height, width] from all regions of a sample, in their order.
template <class S, int THREADS>
__device__ void roi_align_back(const typename S::type* dy, const typename S::type* rois, const i64* idx, const typename S::type* down, const typename S::type* across, typename S::type* dx) {
	using T = typename S::type;
	const i64 e = thread_at<i64, THREADS>();
	if (e >= S::batch * S::channels * S::height * S::width) return;
	const int x = int(e % S::width), y = int(e / S::width % S::height);
	const i64 c = e / S::width / S::height % S::channels, b = e / S::width / S::height / S::channels;
	T sum = 0;
	for (i64 r = 0; r < S::regions; r++) {
		if (S::sample(idx, r) != b) continue;
		const T* g = dy + (r * S::channels + c) * S::rows * S::columns;
		T part = 0;
		for (int p = 0; p < S::rows; p++) {
			const T v = down[(r * S::rows + p) * S::height + y];
			if (v == 0) continue;
			T row = 0;
			for (int q = 0; q < S::columns; q++) row += across[(r * S::columns + q) * S::width + x] * g[p * S::columns + q];
			part += v * row;
		}
		if (part != 0) sum += part / roi_count(S::down(rois + 4 * r), S::across(rois + 4 * r));
	}
	dx[e] = sum;
}

} // namespace gtc
