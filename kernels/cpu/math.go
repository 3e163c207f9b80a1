package cpu

/*
#cgo noescape gtc_map
#cgo nocallback gtc_map
void gtc_map(const float *x, const float *y, float *out, long fn, long n);
*/
import "C"
import (
	_ "embed"
	"unsafe"
)

// MathHeader is the text of gtc_math.h: static inline, branch-free float functions (gtc_expf, gtc_logf, gtc_log1pf,
// gtc_expm1f, gtc_tanhf, gtc_sigmoidf, gtc_softplusf, gtc_erff, gtc_sqrtf, gtc_rsqrtf, gtc_sinf, gtc_cosf, gtc_powf, gtc_ncdff,
// gtc_maxf, gtc_minf, gtc_absf, gtc_copysignf) for generated C. It also sets the compiler options that let loops over
// them vectorise, so a generated file should include it before its own functions.
//
//go:embed gtc_math.h
var MathHeader string

// MathFunc names a function of MathHeader for MapMath.
type MathFunc int

// The functions of MathHeader; Pow, Max and Min take two arguments.
const (
	MathExp MathFunc = iota
	MathLog
	MathLog1p
	MathExpm1
	MathTanh
	MathSigmoid
	MathSoftplus
	MathErf
	MathSqrt
	MathRsqrt
	MathSin
	MathCos
	MathPow
	MathMax
	MathMin
	MathNormalCDF
)

// MapMath computes out[i] = fn(x[i], y[i]) for i in [0, n) on one thread; y may be nil for functions of one argument.
// An unknown fn leaves out as it was.
func MapMath(x, y, out unsafe.Pointer, fn MathFunc, n int) {
	C.gtc_map((*C.float)(x), (*C.float)(y), (*C.float)(out), C.long(fn), C.long(n))
}
