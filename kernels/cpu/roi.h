// RoiAlign's sums of interpolated samples, forward and backward, for one element type T.
//
// Samples of a bin are listed in pieces of up to ROI_PIECE, places and weights once for all channels.
#define ROI_GLUE2(a, b) a##_##b
#define ROI_GLUE(a, b) ROI_GLUE2(a, b)
#define ROI_FN(name) ROI_GLUE(name, T)

// axis of one region: the first place, the size of a bin and the samples in it.
typedef struct {
	T start, step;
	long samples;
} ROI_FN(roi_axis);

static ROI_FN(roi_axis) ROI_FN(roi_axis_of)(T lo, T hi, long bins, const roi_dims *s) {
	T length = hi - lo;
	if (s->half)
		lo -= (T)0.5;
	else if (!(length > 1))
		length = 1;
	T step = length / (T)bins;
	long n = s->samples;
	if (n == 0) {
		T c = step;
		n = c > 0 ? (c < (T)ROI_MOST ? (long)c : ROI_MOST) : 0;
		if ((T)n < c) n++;
	}
	ROI_FN(roi_axis) a = {lo, step, n};
	return a;
}

// place gives the neighbours and the fraction of sample i of bin p; 0 when it is outside, where it counts as zero.
static inline int ROI_FN(roi_place)(const ROI_FN(roi_axis) * a, long p, long i, long size, long *at, long *next, T *frac) {
	T y = a->start + (T)p * a->step + ((T)i + (T)0.5) * a->step / (T)a->samples;
	if (!(y >= -1 && y <= (T)size)) return 0;
	y = y < 0 ? 0 : y > (T)(size - 1) ? (T)(size - 1) : y;
	*at = (long)y;
	*next = *at + 1 < size ? *at + 1 : size - 1;
	*frac = y - (T)*at;
	return 1;
}

// range bounds the samples of bin p that may be inside, so that a box far larger than the image costs no more than it.
static inline void ROI_FN(roi_range)(const ROI_FN(roi_axis) * a, long p, long size, long *from, long *to) {
	T unit = a->step / (T)a->samples, base = a->start + (T)p * a->step, n = (T)a->samples;
	*from = 0, *to = a->samples;
	if (!(unit > 0)) return;
	T lo = (-1 - base) / unit - 2, hi = ((T)size - base) / unit + 2;
	if (lo > 0) *from = lo < n ? (long)lo : a->samples;
	if (hi < n) *to = hi > 0 ? (long)hi : 0;
}

typedef struct {
	long at[ROI_PIECE][4];
	T weight[ROI_PIECE][4];
	long n;
} ROI_FN(roi_list);

// sum and spread go over a piece in one channel's plane: its weighted sum, and v added to each place by its weight.
static inline T ROI_FN(roi_sum)(const ROI_FN(roi_list) * l, const T *plane) {
	T sum = 0;
	for (long k = 0; k < l->n; k++)
		for (int j = 0; j < 4; j++) sum += l->weight[k][j] * plane[l->at[k][j]];
	return sum;
}
static inline void ROI_FN(roi_spread)(const ROI_FN(roi_list) * l, T *plane, T v) {
	for (long k = 0; k < l->n; k++)
		for (int j = 0; j < 4; j++) plane[l->at[k][j]] += l->weight[k][j] * v;
}

// flush adds a piece to the bin's element o of each channel, or spreads that over the image (back), and empties it.
static void ROI_FN(roi_flush)(ROI_FN(roi_list) * l, T *o, T *image, long c0, long c1, long bins, long plane, int back) {
	for (long c = c0; c < c1; c++)
		if (back)
			ROI_FN(roi_spread)(l, image + c * plane, o[c * bins]);
		else
			o[c * bins] += ROI_FN(roi_sum)(l, image + c * plane);
	l->n = 0;
}

// bin visits the samples of bin (p, q) of region r for channels [c0, c1).
static void ROI_FN(roi_bin)(const roi_dims *s, const ROI_FN(roi_axis) * v, const ROI_FN(roi_axis) * h, long p, long q, T *pooled, T *image, long c0,
                            long c1, int back) {
	ROI_FN(roi_list) l;
	long plane = s->height * s->width, bins = s->rows * s->columns, i0, i1, j0, j1;
	T count = (T)(v->samples > 1 ? v->samples : 1) * (T)(h->samples > 1 ? h->samples : 1), *o = pooled + p * s->columns + q;
	ROI_FN(roi_range)(v, p, s->height, &i0, &i1);
	ROI_FN(roi_range)(h, q, s->width, &j0, &j1);
	l.n = 0;
	for (long i = i0; i < i1; i++) {
		long y0, y1, x0, x1;
		T fy, fx;
		if (!ROI_FN(roi_place)(v, p, i, s->height, &y0, &y1, &fy)) continue;
		for (long j = j0; j < j1; j++) {
			if (!ROI_FN(roi_place)(h, q, j, s->width, &x0, &x1, &fx)) continue;
			long at[4] = {y0 * s->width + x0, y0 * s->width + x1, y1 * s->width + x0, y1 * s->width + x1};
			T weight[4] = {(1 - fy) * (1 - fx) / count, (1 - fy) * fx / count, fy * (1 - fx) / count, fy * fx / count};
			memcpy(l.at[l.n], at, sizeof at);
			memcpy(l.weight[l.n++], weight, sizeof weight);
			if (l.n == ROI_PIECE) ROI_FN(roi_flush)(&l, o, image, c0, c1, bins, plane, back);
		}
	}
	if (l.n > 0) ROI_FN(roi_flush)(&l, o, image, c0, c1, bins, plane, back);
}

// region visits all bins of region r.
static void ROI_FN(roi_region)(const roi_dims *s, T *pooled, const T *roi, T *image, long c0, long c1, int back) {
	T k = (T)s->scale;
	ROI_FN(roi_axis) v = ROI_FN(roi_axis_of)(roi[1] * k, roi[3] * k, s->rows, s), h = ROI_FN(roi_axis_of)(roi[0] * k, roi[2] * k, s->columns, s);
	for (long p = 0; p < s->rows; p++)
		for (long q = 0; q < s->columns; q++) ROI_FN(roi_bin)(s, &v, &h, p, q, pooled, image, c0, c1, back);
}

// run goes over regions; threads take regions forward, channels backward, so that every sum has one order.
static void ROI_FN(roi_run)(const roi_dims *s, T *image, const T *rois, const int64_t *batch, T *pooled, int back) {
	long plane = s->height * s->width, bins = s->rows * s->columns, all = s->channels;
	int nt = gtc_for_threads((double)s->regions * (double)(all * bins) * 8);
	if (back) memset(image, 0, (size_t)(s->batch * all * plane) * sizeof(T));
	else memset(pooled, 0, (size_t)(s->regions * all * bins) * sizeof(T));
#pragma omp parallel num_threads(nt) if (nt > 1)
	{
		long t = gtc_tid(), n = gtc_team();
		long r0 = back ? 0 : s->regions * t / n, r1 = back ? s->regions : s->regions * (t + 1) / n;
		long c0 = back ? all * t / n : 0, c1 = back ? all * (t + 1) / n : all;
		for (long r = r0; r < r1; r++) {
			long b = batch[r] < 0 ? batch[r] + s->batch : batch[r];
			ROI_FN(roi_region)(s, pooled + r * all * bins, rois + 4 * r, image + b * all * plane, c0, c1, back);
		}
	}
}

#undef ROI_GLUE2
#undef ROI_GLUE
#undef ROI_FN
