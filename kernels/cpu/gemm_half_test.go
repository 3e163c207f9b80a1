package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// halves rounds x to type d: the codes, and what they stand for.
func halves(d dtype.DType, x []float32) (codes []byte, values []float64) {
	codes, values = make([]byte, 2*len(x)), make([]float64, len(x))
	for i, v := range x {
		values[i] = d.Round(float64(v))
		put(d, codes[2*i:], values[i])
	}
	return codes, values
}

// put and get are one element of an array.
func put(d dtype.DType, b []byte, v float64) {
	switch d {
	case dtype.F32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(float32(v)))
	case dtype.F16:
		binary.LittleEndian.PutUint16(b, dtype.F32ToF16(float32(v)))
	default:
		binary.LittleEndian.PutUint16(b, dtype.F32ToBF16(float32(v)))
	}
}

func get(d dtype.DType, b []byte) float64 {
	switch d {
	case dtype.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case dtype.F16:
		return float64(dtype.F16ToF32(binary.LittleEndian.Uint16(b)))
	}
	return float64(dtype.BF16ToF32(binary.LittleEndian.Uint16(b)))
}

// productOf is one product: sums in float64 over the rounded operands.
func productOf(a, b []float64, c gemmCase) []float64 {
	out := make([]float64, c.m*c.n)
	for i := range c.m {
		for j := range c.n {
			sum := 0.0
			for p := range c.k {
				x, y := i*c.k+p, p*c.n+j
				if c.ta == 1 {
					x = p*c.m + i
				}
				if c.tb == 1 {
					y = j*c.k + p
				}
				sum += a[x] * b[y]
			}
			out[i*c.n+j] = sum
		}
	}
	return out
}

// Products of 16-bit floats against float64 over the same rounded operands: in float32 up to the rounding of sums, in 16 bits
// up to that of the result.
func TestGemmHalf(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	shapes := [][3]int{{1, 1, 1}, {3, 5, 2}, {12, 32, 384}, {13, 33, 385}, {37, 70, 129}, {130, 40, 31}, {5, 520, 17}, {121, 513, 64}, {8, 16, 1000}}
	onThreads(t, func(t *testing.T) {
		for _, s := range shapes {
			for mode := range 16 {
				c := gemmCase{m: s[0], n: s[1], k: s[2], ta: mode & 1, tb: mode >> 1 & 1, bias: mode&4 != 0, accumulate: mode >> 3}
				for _, d := range []dtype.DType{dtype.BF16, dtype.F16} {
					for _, out := range []dtype.DType{dtype.F32, d} {
						checkHalf(t, r, c, d, out)
					}
				}
			}
		}
	})
}

func checkHalf(t *testing.T, r *rand.Rand, c gemmCase, d, out dtype.DType) {
	t.Helper()
	a, av := halves(d, randn(r, c.m*c.k))
	b, bv := halves(d, randn(r, c.k*c.n))
	bias, biasV := halves(d, randn(r, c.n))
	_, startV := halves(d, randn(r, c.m*c.n))
	want := productOf(av, bv, c)
	got := make([]byte, c.m*c.n*out.Size())
	for i := range want {
		if c.bias {
			want[i] += biasV[i%c.n]
		}
		if c.accumulate == 1 {
			want[i] += startV[i]
			put(out, got[i*out.Size():], startV[i])
		}
	}
	elem := map[dtype.DType]int{dtype.F32: ElemF32, dtype.F16: ElemF16, dtype.BF16: ElemBF16}
	biasAt := ptr(bias)
	if !c.bias {
		biasAt = nil
	}
	GemmHalf(ptr(a), ptr(b), biasAt, ptr(got), nil, 1, c.m, c.n, c.k, c.ta, c.tb, 0, 0, 0, 0, c.accumulate, elem[d], elem[out], elem[d])
	result := make([]float32, len(want))
	for i := range result {
		result[i] = float32(get(out, got[i*out.Size():]))
	}
	tol := 2e-6
	if out != dtype.F32 {
		tol = map[dtype.DType]float64{dtype.F16: 6e-4, dtype.BF16: 5e-3}[out] // half a unit in the last place of 11 and of 8 bits
	}
	near(t, fmt.Sprintf("%+v %s to %s", c, d, out), result, want, tol)
}

// Batches: operands of their own and shared ones, results apart.
func TestGemmHalfBatch(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	const batch, m, n, k = 5, 9, 21, 33
	for _, shared := range []int{0, 1} {
		a, av := halves(dtype.BF16, randn(r, batch*m*k))
		b, bv := halves(dtype.BF16, randn(r, batch*k*n))
		got := make([]float32, batch*m*n)
		strideB := k * n * (1 - shared)
		GemmHalf(ptr(a), ptr(b), nil, ptr(got), nil, batch, m, n, k, 0, 0, m*k, strideB, m*n, 0, 0, ElemBF16, ElemF32, ElemF32)
		for i := range batch {
			want := productOf(av[i*m*k:][:m*k], bv[i*strideB:][:k*n], gemmCase{m: m, n: n, k: k})
			near(t, fmt.Sprintf("batch %d, shared %d", i, shared), got[i*m*n:][:m*n], want, 2e-6)
		}
	}
}

// Every 16-bit code survives the trip through float32, on whichever path this processor takes.
func TestHalfBytes(t *testing.T) {
	one := make([]byte, 2)
	for _, d := range []dtype.DType{dtype.BF16, dtype.F16} {
		elem := map[dtype.DType]int{dtype.F16: ElemF16, dtype.BF16: ElemBF16}[d]
		put(d, one, 1)
		for code := range 1 << 16 {
			var x, y [2]byte
			binary.LittleEndian.PutUint16(x[:], uint16(code))
			v := get(d, x[:])
			if v != v || v != 0 && (v < 1.2e-38 && v > -1.2e-38) || v > 3.4e38 || v < -3.4e38 {
				continue // NaNs keep no code; pairs take subnormals for zero; infinities times the zeros of padding are NaN
			}
			GemmHalf(ptr(x[:]), ptr(one), nil, ptr(y[:]), nil, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, elem, elem, elem)
			if get(d, y[:]) != v {
				t.Fatalf("%s %#04x: %g times 1 is %g", d, code, v, get(d, y[:]))
			}
		}
	}
}
