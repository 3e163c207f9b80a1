package cpu

/*
#cgo noescape gtc_gemm_any
#cgo nocallback gtc_gemm_any
void gtc_gemm_any(const void *a, const void *b, const void *bias, void *c, long batch, long m, long n, long k, long ta, long tb, long sa,
		  long sb, long sc, long elem);
*/
import "C"
import "unsafe"

func init() {
	templates["GemmAny"] = template{call: GemmAny, workspace: GemmAnyWorkspace}
}

// GemmAny computes C[i] = A[i] . B[i] + bias for i in [0, batch) in the element type that elem codes: an integer type,
// whose sums wrap, ElemF64 or ElemF32 (for which Gemm is much faster). Layout, strides and bias are those of Gemm. No
// workspace.
func GemmAny(a, b, bias, c, ws unsafe.Pointer, batch, m, n, k, transA, transB, strideA, strideB, strideC, elem int) {
	C.gtc_gemm_any(a, b, bias, c, C.long(batch), C.long(m), C.long(n), C.long(k), C.long(transA), C.long(transB), C.long(strideA),
		C.long(strideB), C.long(strideC), C.long(elem))
}

// GemmAnyWorkspace gives the bytes of workspace of GemmAny: 0.
func GemmAnyWorkspace(batch, m, n, k, transA, transB, strideA, strideB, strideC, elem int) int {
	return 0
}
