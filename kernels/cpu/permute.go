package cpu

/*
#cgo noescape gtc_transpose
#cgo nocallback gtc_transpose
#cgo noescape gtc_fill
#cgo nocallback gtc_fill
#cgo noescape gtc_copy
#cgo nocallback gtc_copy
#include "permute.h"
*/
import "C"
import "unsafe"

func init() {
	templates["Transpose"] = template{call: Transpose, workspace: TransposeWorkspace, half: asTheyAre}
}

// Transpose permutes the n (0 to 6) dims of in, of extents d0…, into out: dim i of out is dim p[i] of in, as in ONNX.
// Dims past n are ignored. elemSize is 1, 2, 4 or 8 bytes. No workspace.
func Transpose(in, out, ws unsafe.Pointer, n, d0, d1, d2, d3, d4, d5, p0, p1, p2, p3, p4, p5, elemSize int) {
	d := C.perm_dims{
		n:    C.long(n),
		d:    [6]C.long{C.long(d0), C.long(d1), C.long(d2), C.long(d3), C.long(d4), C.long(d5)},
		p:    [6]C.long{C.long(p0), C.long(p1), C.long(p2), C.long(p3), C.long(p4), C.long(p5)},
		size: C.long(elemSize),
	}
	C.gtc_transpose(in, out, &d)
}

// TransposeWorkspace gives the bytes of workspace of Transpose: 0.
func TransposeWorkspace(n, d0, d1, d2, d3, d4, d5, p0, p1, p2, p3, p4, p5, elemSize int) int {
	return 0
}

// Fill sets the n float32 elements of out to value. No workspace.
func Fill(out, ws unsafe.Pointer, n int, value float32) {
	C.gtc_fill((*C.float)(out), C.long(n), C.float(value))
}

// FillWorkspace gives the bytes of workspace of Fill: 0.
func FillWorkspace(n int) int { return 0 }

// Copy copies bytes bytes from in to out, which must not overlap. No workspace.
func Copy(in, out, ws unsafe.Pointer, bytes int) { C.gtc_copy(in, out, C.long(bytes)) }

// CopyWorkspace gives the bytes of workspace of Copy: 0.
func CopyWorkspace(bytes int) int { return 0 }
