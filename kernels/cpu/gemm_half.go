package cpu

/*
#cgo noescape gtc_gemm_half
#cgo nocallback gtc_gemm_half
void gtc_gemm_half(const void *a, const void *b, const void *bias, void *c, long batch, long m, long n, long k, long ta, long tb, long sa,
	      long sb, long sc, long epilogue, long accumulate, long in, long out, long bias_elem);
*/
import "C"
import "unsafe"

func init() {
	templates["GemmHalf"] = template{call: GemmHalf, workspace: GemmHalfWorkspace}
}

// GemmHalf is Gemm for A and B of 16-bit floats: in is ElemBF16 or ElemF16. C is of that type or float32 (out), as is the bias
// (biasElem; any when bias is nil). Sums and what follows them are in float32; C is rounded once. With AVX-512 BF16, products
// of bfloat16 are summed in pairs (VDPBF16PS, which takes subnormal numbers for zero).
func GemmHalf(a, b, bias, c, ws unsafe.Pointer, batch, m, n, k, transA, transB, strideA, strideB, strideC, epilogue, accumulate, in, out, biasElem int) {
	C.gtc_gemm_half(a, b, bias, c, C.long(batch), C.long(m), C.long(n), C.long(k), C.long(transA), C.long(transB), C.long(strideA),
		C.long(strideB), C.long(strideC), C.long(epilogue), C.long(accumulate), C.long(in), C.long(out), C.long(biasElem))
}

// GemmHalfWorkspace gives the bytes of workspace that GemmHalf needs: none.
func GemmHalfWorkspace(batch, m, n, k, transA, transB, strideA, strideB, strideC, epilogue, accumulate, in, out, biasElem int) int {
	return 0
}

// gemmHalf is GemmHalf for a Gemm whose A and B are of 16 bits, and its C and bias of the same type or float32.
func gemmHalf(_ string, types []string) (form string, more []int, ok bool) {
	if len(types) != 4 || types[0] != types[1] || halfCodes[types[0]] == 0 {
		return "", nil, false
	}
	codes := []int{halfCodes[types[0]], ElemF32, ElemF32}
	for i, t := range []string{types[3], types[2]} { // C, bias
		if t == types[0] {
			codes[1+i] = codes[0]
		} else if t != "f32" && !(i == 1 && halfCodes[t] == 0) {
			return "", nil, false
		}
	}
	return "GemmHalf", codes, true
}
