package cpu

/*
#cgo noescape gtc_conv_fwd
#cgo nocallback gtc_conv_fwd
#cgo noescape gtc_conv_bwd_data
#cgo nocallback gtc_conv_bwd_data
#cgo noescape gtc_conv_bwd_weight
#cgo nocallback gtc_conv_bwd_weight
#include "conv.h"
*/
import "C"
import "unsafe"

func init() {
	templates["ConvFwd"] = template{call: ConvFwd, workspace: ConvFwdWorkspace}
	templates["ConvBwdData"] = template{call: ConvBwdData, workspace: ConvBwdDataWorkspace}
	templates["ConvBwdWeight"] = template{call: ConvBwdWeight, workspace: ConvBwdWeightWorkspace}
}

func convDims(n, c, h, w, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups int) C.conv_dims {
	return C.conv_dims{N: C.long(n), C: C.long(c), H: C.long(h), W: C.long(w), O: C.long(o), KH: C.long(kh), KW: C.long(kw), OH: C.long(oh),
		OW: C.long(ow), padT: C.long(padT), padL: C.long(padL), strideH: C.long(strideH), strideW: C.long(strideW), dilH: C.long(dilH),
		dilW: C.long(dilW), groups: C.long(groups)}
}

// ConvFwd computes the convolution (correlation, as in ONNX and PyTorch) y [N,O,OH,OW] of x [N,C,H,W] with
// w [O,C/groups,KH,KW], plus bias [O] when it is not nil. Padding after the image is implied by OH and OW: taps beyond the
// image read zeros. 1-D convolution is H = KH = 1.
func ConvFwd(x, w, bias, y, ws unsafe.Pointer, n, c, h, wd, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups int) {
	d := convDims(n, c, h, wd, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups)
	C.gtc_conv_fwd((*C.float)(x), (*C.float)(w), (*C.float)(bias), (*C.float)(y), ws, &d)
}

// ConvFwdWorkspace gives the bytes of workspace that ConvFwd needs with the same integers.
func ConvFwdWorkspace(n, c, h, wd, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups int) int {
	d := convDims(n, c, h, wd, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups)
	return int(C.gtc_conv_fwd_workspace(&d))
}

// ConvBwdData computes dx [N,C,H,W], the gradient of ConvFwd's x, from dy [N,O,OH,OW] and w; the integers are those of
// ConvFwd. It is also the forward pass of a transposed convolution, with the roles of x and y swapped.
func ConvBwdData(dy, w, dx, ws unsafe.Pointer, n, c, h, wd, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups int) {
	d := convDims(n, c, h, wd, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups)
	C.gtc_conv_bwd_data((*C.float)(dy), (*C.float)(w), (*C.float)(dx), ws, &d)
}

// ConvBwdDataWorkspace gives the bytes of workspace that ConvBwdData needs with the same integers.
func ConvBwdDataWorkspace(n, c, h, wd, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups int) int {
	d := convDims(n, c, h, wd, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups)
	return int(C.gtc_conv_bwd_data_workspace(&d))
}

// ConvBwdWeight computes dw [O,C/groups,KH,KW], the gradient of ConvFwd's w, from x and dy; the integers are those of
// ConvFwd. Sums run over images in order, whatever the thread count. The bias gradient is a plain sum of dy and not
// computed here.
func ConvBwdWeight(x, dy, dw, ws unsafe.Pointer, n, c, h, wd, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups int) {
	d := convDims(n, c, h, wd, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups)
	C.gtc_conv_bwd_weight((*C.float)(x), (*C.float)(dy), (*C.float)(dw), ws, &d)
}

// ConvBwdWeightWorkspace gives the bytes of workspace that ConvBwdWeight needs with the same integers.
func ConvBwdWeightWorkspace(n, c, h, wd, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups int) int {
	d := convDims(n, c, h, wd, o, kh, kw, oh, ow, padT, padL, strideH, strideW, dilH, dilW, groups)
	return int(C.gtc_conv_bwd_weight_workspace(&d))
}
