package cpu

/*
#cgo noescape gtc_gemm
#cgo nocallback gtc_gemm
#cgo nocallback gtc_gemm_workspace
#cgo nocallback gtc_amx_set
int gtc_amx_set(int on);
#include <stddef.h>
void gtc_gemm(const float *a, const float *b, const float *bias, float *c, void *ws, long batch, long m, long n, long k, long ta,
	      long tb, long sa, long sb, long sc, long epilogue, long accumulate);
size_t gtc_gemm_workspace(long batch, long m, long n, long k);
*/
import "C"
import "unsafe"

func init() {
	templates["Gemm"] = template{call: Gemm, workspace: GemmWorkspace, half: gemmHalf}
}

// Epilogues of Gemm.
const (
	EpilogueNone     = 0 // C
	EpilogueRelu     = 1 // max(C, 0); NaN stays NaN
	EpilogueGeluTanh = 2 // 0.5 C (1 + tanh(sqrt(2/pi) (C + 0.044715 C^3)))
	EpilogueGeluErf  = 3 // 0.5 C (1 + erf(C / sqrt 2))
)

// Gemm computes C[i] = epilogue(A[i] . B[i] + bias (+ C[i])) for i in [0, batch), all float32.
//
// A[i] is [m,k] at a + i*strideA elements, or [k,m] when transA is 1; B[i] is [k,n] at b + i*strideB, or [n,k] when
// transB is 1; C[i] is [m,n] at c + i*strideC. A stride of 0 shares A or B between batches (strideC must not be 0 when
// batch > 1). bias is [n], added to every row, or nil. accumulate 1 adds to what C holds. Sums run over k in order in
// chains of 384 products, so equal inputs give equal bits whatever the thread count.
func Gemm(a, b, bias, c, ws unsafe.Pointer, batch, m, n, k, transA, transB, strideA, strideB, strideC, epilogue, accumulate int) {
	C.gtc_gemm((*C.float)(a), (*C.float)(b), (*C.float)(bias), (*C.float)(c), ws, C.long(batch), C.long(m), C.long(n), C.long(k),
		C.long(transA), C.long(transB), C.long(strideA), C.long(strideB), C.long(strideC), C.long(epilogue), C.long(accumulate))
}

// GemmWorkspace gives the bytes of workspace that Gemm needs with the same integers.
func GemmWorkspace(batch, m, n, k, transA, transB, strideA, strideB, strideC, epilogue, accumulate int) int {
	return int(C.gtc_gemm_workspace(C.long(batch), C.long(m), C.long(n), C.long(k)))
}

// UseTileUnit makes later products that are large enough run on the CPU's matrix unit (AMX of Intel servers since 2023)
// and reports whether they will: false where there is none. The unit multiplies bfloat16, so every float is split into
// three bfloat16 parts and six partial products are summed in fp32; the result is closer to the true product than a chain of
// fp32 multiply-adds (half its error, measured), but an infinite operand gives NaN, and the bits differ from those of the
// vector unit. Off by default.
func UseTileUnit(on bool) bool {
	want := C.int(0)
	if on {
		want = 1
	}
	return C.gtc_amx_set(want) != 0
}
