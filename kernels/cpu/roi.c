// RoiAlign (He et al., "Mask R-CNN", 2017), averages: forward, and the adjoint for the image's gradient.
#include <stdint.h>
#include <string.h>

#include "roi_dims.h"
#include "threads.h"

#define ROI_PIECE 64
#define ROI_MOST 1000000000L // samples of a bin and direction: more than any image has

#define T float
#include "roi.h"
#undef T
#define T double
#include "roi.h"
#undef T

static int64_t run(const roi_dims *s, void *image, const void *rois, const int64_t *batch, void *pooled, int back) {
	for (long r = 0; r < s->regions; r++)
		if (batch[r] < -s->batch || batch[r] >= s->batch) return r;
	if (s->bytes == 8)
		roi_run_double(s, image, rois, batch, pooled, back);
	else
		roi_run_float(s, image, rois, batch, pooled, back);
	return -1;
}

int64_t gtc_roi_align_fwd(const void *x, const void *rois, const int64_t *batch, void *y, const roi_dims *s) {
	return run(s, (void *)x, rois, batch, y, 0);
}

int64_t gtc_roi_align_bwd(const void *dy, const void *rois, const int64_t *batch, void *dx, const roi_dims *s) {
	return run(s, dx, rois, batch, (void *)dy, 1);
}
