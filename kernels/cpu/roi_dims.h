// The sizes of a RoiAlign and its entry points.
#ifndef GTC_ROI_DIMS_H
#define GTC_ROI_DIMS_H

#include <stdint.h>

typedef struct {
	long bytes, batch, channels, height, width, regions, rows, columns, samples, half;
	double scale;
} roi_dims;

int64_t gtc_roi_align_fwd(const void *x, const void *rois, const int64_t *batch, void *y, const roi_dims *s);
int64_t gtc_roi_align_bwd(const void *dy, const void *rois, const int64_t *batch, void *dx, const roi_dims *s);

#endif
