package cpu

/*
#cgo noescape gtc_maxpool3_fwd
#cgo nocallback gtc_maxpool3_fwd
#cgo noescape gtc_maxpool3_bwd
#cgo nocallback gtc_maxpool3_bwd
#cgo noescape gtc_avgpool3_fwd
#cgo nocallback gtc_avgpool3_fwd
#cgo noescape gtc_avgpool3_bwd
#cgo nocallback gtc_avgpool3_bwd
#include "pool3.h"
*/
import "C"
import "unsafe"

func init() {
	templates["MaxPool3Fwd"] = template{call: MaxPool3Fwd, workspace: MaxPool3FwdWorkspace}
	templates["MaxPool3Bwd"] = template{call: MaxPool3Bwd, workspace: MaxPool3BwdWorkspace}
	templates["AvgPool3Fwd"] = template{call: AvgPool3Fwd, workspace: AvgPool3FwdWorkspace}
	templates["AvgPool3Bwd"] = template{call: AvgPool3Bwd, workspace: AvgPool3BwdWorkspace}
}

// three converts a list of depth, height, width.
func three(d, h, w int) [3]C.long { return [3]C.long{C.long(d), C.long(h), C.long(w)} }

func pool3Dims(planes, d, h, w, kd, kh, kw, od, oh, ow, lowD, lowH, lowW, highD, highH, highW, strideD, strideH, strideW, dilD, dilH, dilW, mode, elem int) C.pool3_dims {
	return C.pool3_dims{planes: C.long(planes), in: three(d, h, w), k: three(kd, kh, kw), out: three(od, oh, ow),
		low: three(lowD, lowH, lowW), high: three(highD, highH, highW), stride: three(strideD, strideH, strideW),
		dil: three(dilD, dilH, dilW), mode: C.long(mode), elem: C.long(elem)}
}

// MaxPool3Fwd computes the maxima y [planes,OD,OH,OW] of x [planes,D,H,W] over KDxKHxKW windows and where they lie: idx
// int32, flat in the DxHxW volume. Padding never wins; among equals the first in row-major order does, and NaN wins over
// all, as in PyTorch; a window that is padding alone gives 0 at -1. elem codes an integer type, ElemF32 or ElemF64.
// Pooling over fewer dims has leading sizes and kernels of 1. mode is unused. No workspace.
func MaxPool3Fwd(x, y, idx, ws unsafe.Pointer,
	planes, d, h, w, kd, kh, kw, od, oh, ow, lowD, lowH, lowW, highD, highH, highW, strideD, strideH, strideW, dilD, dilH, dilW, mode, elem int) {
	dims := pool3Dims(planes, d, h, w, kd, kh, kw, od, oh, ow, lowD, lowH, lowW, highD, highH, highW, strideD, strideH, strideW, dilD, dilH, dilW, mode, elem)
	C.gtc_maxpool3_fwd(x, y, (*C.int32_t)(idx), &dims)
}

// MaxPool3FwdWorkspace gives the bytes of workspace of MaxPool3Fwd: 0.
func MaxPool3FwdWorkspace(planes, d, h, w, kd, kh, kw, od, oh, ow, lowD, lowH, lowW, highD, highH, highW, strideD, strideH, strideW, dilD, dilH, dilW, mode, elem int) int {
	return 0
}

// MaxPool3Bwd computes dx [planes,D,H,W], ElemF32 or ElemF64: each dy [planes,OD,OH,OW] is added at the position that
// idx gives. The integers are those of MaxPool3Fwd. No workspace.
func MaxPool3Bwd(dy, idx, dx, ws unsafe.Pointer,
	planes, d, h, w, kd, kh, kw, od, oh, ow, lowD, lowH, lowW, highD, highH, highW, strideD, strideH, strideW, dilD, dilH, dilW, mode, elem int) {
	dims := pool3Dims(planes, d, h, w, kd, kh, kw, od, oh, ow, lowD, lowH, lowW, highD, highH, highW, strideD, strideH, strideW, dilD, dilH, dilW, mode, elem)
	C.gtc_maxpool3_bwd(dy, (*C.int32_t)(idx), dx, &dims)
}

// MaxPool3BwdWorkspace gives the bytes of workspace of MaxPool3Bwd: 0.
func MaxPool3BwdWorkspace(planes, d, h, w, kd, kh, kw, od, oh, ow, lowD, lowH, lowW, highD, highH, highW, strideD, strideH, strideW, dilD, dilH, dilW, mode, elem int) int {
	return 0
}

// AvgPool3Fwd computes the means y [planes,OD,OH,OW] of x [planes,D,H,W] over KDxKHxKW windows, ElemF32 or ElemF64. A
// window's sum is divided, in mode 0, by its taps inside the image; in mode 1 by those before the padded end, zeros
// counted, as PyTorch does; in mode 2 not at all. No workspace.
func AvgPool3Fwd(x, y, ws unsafe.Pointer,
	planes, d, h, w, kd, kh, kw, od, oh, ow, lowD, lowH, lowW, highD, highH, highW, strideD, strideH, strideW, dilD, dilH, dilW, mode, elem int) {
	dims := pool3Dims(planes, d, h, w, kd, kh, kw, od, oh, ow, lowD, lowH, lowW, highD, highH, highW, strideD, strideH, strideW, dilD, dilH, dilW, mode, elem)
	C.gtc_avgpool3_fwd(x, y, &dims)
}

// AvgPool3FwdWorkspace gives the bytes of workspace of AvgPool3Fwd: 0.
func AvgPool3FwdWorkspace(planes, d, h, w, kd, kh, kw, od, oh, ow, lowD, lowH, lowW, highD, highH, highW, strideD, strideH, strideW, dilD, dilH, dilW, mode, elem int) int {
	return 0
}

// AvgPool3Bwd computes dx [planes,D,H,W] from dy [planes,OD,OH,OW], the transpose of AvgPool3Fwd with the same integers.
// No workspace.
func AvgPool3Bwd(dy, dx, ws unsafe.Pointer,
	planes, d, h, w, kd, kh, kw, od, oh, ow, lowD, lowH, lowW, highD, highH, highW, strideD, strideH, strideW, dilD, dilH, dilW, mode, elem int) {
	dims := pool3Dims(planes, d, h, w, kd, kh, kw, od, oh, ow, lowD, lowH, lowW, highD, highH, highW, strideD, strideH, strideW, dilD, dilH, dilW, mode, elem)
	C.gtc_avgpool3_bwd(dy, dx, &dims)
}

// AvgPool3BwdWorkspace gives the bytes of workspace of AvgPool3Bwd: 0.
func AvgPool3BwdWorkspace(planes, d, h, w, kd, kh, kw, od, oh, ow, lowD, lowH, lowW, highD, highH, highW, strideD, strideH, strideW, dilD, dilH, dilW, mode, elem int) int {
	return 0
}
