package cpu

/*
#cgo noescape gtc_maxpool_fwd
#cgo nocallback gtc_maxpool_fwd
#cgo noescape gtc_maxpool_bwd
#cgo nocallback gtc_maxpool_bwd
#cgo noescape gtc_avgpool_fwd
#cgo nocallback gtc_avgpool_fwd
#cgo noescape gtc_avgpool_bwd
#cgo nocallback gtc_avgpool_bwd
#include "pool.h"
*/
import "C"
import "unsafe"

func init() {
	templates["MaxPoolFwd"] = template{call: MaxPoolFwd, workspace: MaxPoolFwdWorkspace}
	templates["MaxPoolBwd"] = template{call: MaxPoolBwd, workspace: MaxPoolBwdWorkspace}
	templates["AvgPoolFwd"] = template{call: AvgPoolFwd, workspace: AvgPoolFwdWorkspace}
	templates["AvgPoolBwd"] = template{call: AvgPoolBwd, workspace: AvgPoolBwdWorkspace}
}

func poolDims(n, c, h, w, kh, kw, oh, ow, padT, padL, padB, padR, strideH, strideW, dilH, dilW, includePad int) C.pool_dims {
	return C.pool_dims{N: C.long(n), C: C.long(c), H: C.long(h), W: C.long(w), KH: C.long(kh), KW: C.long(kw), OH: C.long(oh),
		OW: C.long(ow), padT: C.long(padT), padL: C.long(padL), padB: C.long(padB), padR: C.long(padR), strideH: C.long(strideH),
		strideW: C.long(strideW), dilH: C.long(dilH), dilW: C.long(dilW), includePad: C.long(includePad)}
}

// MaxPoolFwd computes the maxima y [N,C,OH,OW] of x [N,C,H,W] over KHxKW windows and where they lie: idx int32 [N,C,OH,OW]
// is the flat position in the HxW plane. Padding never wins; among equals the first in row-major order does, and NaN wins
// over all, as in PyTorch. Ceiling mode is in the caller's choice of OH and OW; every window must touch the image.
// 1-D pooling is H = KH = 1. No workspace.
func MaxPoolFwd(x, y, idx, ws unsafe.Pointer, n, c, h, w, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW int) {
	d := poolDims(n, c, h, w, kh, kw, oh, ow, padT, padL, padT, padL, strideH, strideW, dilH, dilW, 0)
	C.gtc_maxpool_fwd((*C.float)(x), (*C.float)(y), (*C.int32_t)(idx), &d)
}

// MaxPoolFwdWorkspace gives the bytes of workspace of MaxPoolFwd: 0.
func MaxPoolFwdWorkspace(n, c, h, w, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW int) int {
	return 0
}

// MaxPoolBwd computes dx [N,C,H,W]: each dy [N,C,OH,OW] is added at the position that idx gives. The integers are those of
// MaxPoolFwd. No workspace.
func MaxPoolBwd(dy, idx, dx, ws unsafe.Pointer, n, c, h, w, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW int) {
	d := poolDims(n, c, h, w, kh, kw, oh, ow, padT, padL, padT, padL, strideH, strideW, dilH, dilW, 0)
	C.gtc_maxpool_bwd((*C.float)(dy), (*C.int32_t)(idx), (*C.float)(dx), &d)
}

// MaxPoolBwdWorkspace gives the bytes of workspace of MaxPoolBwd: 0.
func MaxPoolBwdWorkspace(n, c, h, w, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW int) int {
	return 0
}

// AvgPoolFwd computes the means y [N,C,OH,OW] of x [N,C,H,W] over KHxKW windows. With countIncludePad 1 a window is
// divided by its taps before the padded end (H+padB, W+padR), zeros counted, as PyTorch does; with 0 by its taps inside
// the image; with 2 it stays a sum. No workspace.
func AvgPoolFwd(x, y, ws unsafe.Pointer,
	n, c, h, w, kh, kw, oh, ow, padT, padL, padB, padR, strideH, strideW, dilH, dilW, countIncludePad int) {
	d := poolDims(n, c, h, w, kh, kw, oh, ow, padT, padL, padB, padR, strideH, strideW, dilH, dilW, countIncludePad)
	C.gtc_avgpool_fwd((*C.float)(x), (*C.float)(y), &d)
}

// AvgPoolFwdWorkspace gives the bytes of workspace of AvgPoolFwd: 0.
func AvgPoolFwdWorkspace(n, c, h, w, kh, kw, oh, ow, padT, padL, padB, padR, strideH, strideW, dilH, dilW, countIncludePad int) int {
	return 0
}

// AvgPoolBwd computes dx [N,C,H,W] from dy [N,C,OH,OW], the transpose of AvgPoolFwd with the same integers. No workspace.
func AvgPoolBwd(dy, dx, ws unsafe.Pointer,
	n, c, h, w, kh, kw, oh, ow, padT, padL, padB, padR, strideH, strideW, dilH, dilW, countIncludePad int) {
	d := poolDims(n, c, h, w, kh, kw, oh, ow, padT, padL, padB, padR, strideH, strideW, dilH, dilW, countIncludePad)
	C.gtc_avgpool_bwd((*C.float)(dy), (*C.float)(dx), &d)
}

// AvgPoolBwdWorkspace gives the bytes of workspace of AvgPoolBwd: 0.
func AvgPoolBwdWorkspace(n, c, h, w, kh, kw, oh, ow, padT, padL, padB, padR, strideH, strideW, dilH, dilW, countIncludePad int) int {
	return 0
}
