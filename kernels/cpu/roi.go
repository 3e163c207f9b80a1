package cpu

/*
#cgo noescape gtc_roi_align_fwd
#cgo nocallback gtc_roi_align_fwd
#cgo noescape gtc_roi_align_bwd
#cgo nocallback gtc_roi_align_bwd
#include "roi_dims.h"
*/
import "C"
import "unsafe"

func init() {
	templates["RoiAlignFwd"] = template{call: RoiAlignFwd, workspace: RoiAlignFwdWorkspace}
	templates["RoiAlignBwd"] = template{call: RoiAlignBwd, workspace: RoiAlignBwdWorkspace}
}

// RoiAlignFwd pools x[batch,channels,height,width] over regions: y[regions,channels,rows,columns] is in each bin the
// average of samples by samples places between its elements (as many as the bin has elements, rounded up, when samples is
// 0), interpolated linearly; places more than one element outside count as 0. rois is [regions,4] of x1, y1, x2, y2,
// multiplied by scale; idx int64 [regions] names the sample, negative ones counting from the end. half 1 shifts regions by
// half an element, half 0 makes them at least one element long. Elements are float32 or float64, as bytes says: 4 or 8.
// The result is the first region whose idx is out of range, or -1; then y is left as it was. No workspace.
func RoiAlignFwd(x, rois, idx, y, ws unsafe.Pointer, bytes, batch, channels, height, width, regions, rows, columns, samples,
	half int, scale float32) int64 {
	s := roiDims(bytes, batch, channels, height, width, regions, rows, columns, samples, half, scale)
	return int64(C.gtc_roi_align_fwd(x, rois, (*C.int64_t)(idx), y, &s))
}

// RoiAlignFwdWorkspace gives the bytes of workspace of RoiAlignFwd: 0.
func RoiAlignFwdWorkspace(bytes, batch, channels, height, width, regions, rows, columns, samples, half int) int {
	return 0
}

// RoiAlignBwd is the adjoint of RoiAlignFwd: dx[batch,channels,height,width] from dy[regions,channels,rows,columns], with
// every sum in the order of the regions, so that results are the same for every number of threads. No workspace.
func RoiAlignBwd(dy, rois, idx, dx, ws unsafe.Pointer, bytes, batch, channels, height, width, regions, rows, columns, samples,
	half int, scale float32) int64 {
	s := roiDims(bytes, batch, channels, height, width, regions, rows, columns, samples, half, scale)
	return int64(C.gtc_roi_align_bwd(dy, rois, (*C.int64_t)(idx), dx, &s))
}

// RoiAlignBwdWorkspace gives the bytes of workspace of RoiAlignBwd: 0.
func RoiAlignBwdWorkspace(bytes, batch, channels, height, width, regions, rows, columns, samples, half int) int {
	return 0
}

func roiDims(bytes, batch, channels, height, width, regions, rows, columns, samples, half int, scale float32) C.roi_dims {
	return C.roi_dims{bytes: C.long(bytes), batch: C.long(batch), channels: C.long(channels), height: C.long(height),
		width: C.long(width), regions: C.long(regions), rows: C.long(rows), columns: C.long(columns), samples: C.long(samples),
		half: C.long(half), scale: C.double(scale)}
}
