package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"
)

// ptr gives the address of a slice's first element, nil for an empty one.
func ptr[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

// workspace makes a buffer of exactly n bytes (nil for 0) that starts with NaNs, so that a read of what was never
// written shows.
func workspace(n int) []float32 {
	if n%64 != 0 {
		panic(fmt.Sprintf("workspace of %d bytes is not a multiple of 64", n))
	}
	return filled(n/4, float32(math.NaN()))
}

func filled(n int, v float32) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = v
	}
	return s
}

func randn(r *rand.Rand, n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(r.NormFloat64())
	}
	return s
}

// relErr is |got-want| / |want| in the Euclidean norm (absolute when want is zero); NaN anywhere gives NaN.
func relErr[T float32 | float64](got []float32, want []T) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var d, w float64
	for i := range got {
		e := float64(got[i]) - float64(want[i])
		d += e * e
		w += float64(want[i]) * float64(want[i])
	}
	if w == 0 {
		return math.Sqrt(d)
	}
	return math.Sqrt(d / w)
}

// near fails unless got is within tol of want in the norm. fp32 sums of k products of unit normals err by about
// sqrt(k) 2^-24 against a norm of sqrt(k): 1e-6 leaves a factor of ten.
func near[T float32 | float64](t *testing.T, what string, got []float32, want []T, tol float64) {
	t.Helper()
	if e := relErr(got, want); !(e <= tol) {
		t.Errorf("%s: relative error %.3g, want <= %.3g", what, e, tol)
	}
}

// onThreads runs f with one and with two threads, as subtests.
func onThreads(t *testing.T, f func(t *testing.T)) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprintf("threads=%d", n), func(t *testing.T) {
			SetThreads(n)
			defer SetThreads(1)
			f(t)
		})
	}
}

type gemmCase struct {
	batch, m, n, k, ta, tb int
	shareA, shareB, bias   bool
	epilogue, accumulate   int
}

func (g gemmCase) strides() (sa, sb, sc int) {
	sa, sb, sc = g.m*g.k, g.k*g.n, g.m*g.n
	if g.shareA {
		sa = 0
	}
	if g.shareB {
		sb = 0
	}
	return sa, sb, sc
}

func epilogue64(v float64, kind int) float64 {
	switch kind {
	case EpilogueRelu:
		return max(v, 0)
	case EpilogueGeluTanh:
		return 0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
	case EpilogueGeluErf:
		return 0.5 * v * (1 + math.Erf(v/math.Sqrt2))
	}
	return v
}

func (g gemmCase) reference(a, b, bias, c []float32) []float64 {
	sa, sb, sc := g.strides()
	out := make([]float64, len(c))
	for x := range g.batch {
		for i := range g.m {
			for j := range g.n {
				var s float64
				for p := range g.k {
					ai, bi := x*sa+i*g.k+p, x*sb+p*g.n+j
					if g.ta == 1 {
						ai = x*sa + p*g.m + i
					}
					if g.tb == 1 {
						bi = x*sb + j*g.k + p
					}
					s += float64(a[ai]) * float64(b[bi])
				}
				if g.bias {
					s += float64(bias[j])
				}
				o := x*sc + i*g.n + j
				if g.accumulate == 1 {
					s += float64(c[o])
				}
				out[o] = epilogue64(s, g.epilogue)
			}
		}
	}
	return out
}

func (g gemmCase) run(t *testing.T) []float32 {
	r := rand.New(rand.NewPCG(1, 2))
	a, b, bias, c := randn(r, g.batch*g.m*g.k), randn(r, g.batch*g.k*g.n), randn(r, g.n), randn(r, g.batch*g.m*g.n)
	want := g.reference(a, b, bias, c)
	sa, sb, sc := g.strides()
	ws := workspace(GemmWorkspace(g.batch, g.m, g.n, g.k, g.ta, g.tb, sa, sb, sc, g.epilogue, g.accumulate))
	bp := ptr(bias)
	if !g.bias {
		bp = nil
	}
	Gemm(ptr(a), ptr(b), bp, ptr(c), ptr(ws), g.batch, g.m, g.n, g.k, g.ta, g.tb, sa, sb, sc, g.epilogue, g.accumulate)
	near(t, fmt.Sprintf("%+v", g), c, want, 1e-6)
	return c
}

func gemmCases() []gemmCase {
	var cases []gemmCase
	sizes := [][4]int{{1, 1, 1, 1}, {1, 3, 5, 7}, {1, 12, 32, 8}, {1, 13, 33, 257}, {1, 64, 10, 300}, {1, 37, 65, 128}, {1, 1, 65, 40},
		{1, 128, 96, 96}, {2, 17, 19, 23}, {5, 16, 16, 32}, {1, 10, 20, 2500}, {1, 65, 4, 2100}, {3, 1, 1, 9}, {1, 4, 8, 0}, {6, 2, 3, 0}}
	for _, s := range sizes {
		for _, t := range [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
			cases = append(cases, gemmCase{batch: s[0], m: s[1], n: s[2], k: s[3], ta: t[0], tb: t[1]},
				gemmCase{batch: s[0], m: s[1], n: s[2], k: s[3], ta: t[0], tb: t[1], bias: true, accumulate: 1, epilogue: EpilogueRelu})
		}
	}
	return append(cases,
		gemmCase{batch: 6, m: 20, n: 24, k: 31, shareB: true, bias: true},
		gemmCase{batch: 3, m: 20, n: 24, k: 31, shareB: true, ta: 1},
		gemmCase{batch: 6, m: 20, n: 24, k: 31, shareA: true},
		gemmCase{batch: 1, m: 40, n: 50, k: 60, bias: true, epilogue: EpilogueGeluTanh},
		gemmCase{batch: 4, m: 40, n: 50, k: 60, bias: true, epilogue: EpilogueGeluErf})
}

func TestGemmAgainstLoops(t *testing.T) {
	onThreads(t, func(t *testing.T) {
		for _, g := range gemmCases() {
			g.run(t)
		}
	})
}

func TestGemmBitsDoNotDependOnThreads(t *testing.T) {
	for _, g := range []gemmCase{{batch: 1, m: 100, n: 70, k: 600}, {batch: 1, m: 10, n: 20, k: 2500}, {batch: 5, m: 30, n: 40, k: 50, ta: 1}} {
		SetThreads(1)
		one := g.run(t)
		SetThreads(2)
		two := g.run(t)
		SetThreads(1)
		for i := range one {
			if one[i] != two[i] {
				t.Fatalf("%+v: element %d is %v on one thread, %v on two", g, i, one[i], two[i])
			}
		}
	}
}

func TestGemmOnTileUnit(t *testing.T) {
	if !UseTileUnit(true) {
		t.Skip("this machine has no tile unit (AMX)")
	}
	defer UseTileUnit(false)
	onThreads(t, func(t *testing.T) {
		for _, s := range [][3]int{{128, 96, 128}, {100, 130, 141}, {33, 300, 257}, {800, 40, 33}, {65, 65, 400}} {
			for _, tr := range [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 1}} {
				gemmCase{batch: 1, m: s[0], n: s[1], k: s[2], ta: tr[0], tb: tr[1]}.run(t)
				gemmCase{batch: 1, m: s[0], n: s[1], k: s[2], ta: tr[0], tb: tr[1], bias: true, accumulate: 1, epilogue: EpilogueGeluErf}.run(t)
			}
		}
		gemmCase{batch: 5, m: 70, n: 130, k: 150, tb: 1}.run(t)
	})
}

// TestGemmFromManyGoroutines calls kernels at once from several threads: all but one find the team busy and run alone.
func TestGemmFromManyGoroutines(t *testing.T) {
	SetThreads(2)
	defer SetThreads(1)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 20 {
				gemmCase{batch: 1, m: 50, n: 70, k: 90, bias: true}.run(t)
				gemmCase{batch: 7, m: 20, n: 30, k: 40, ta: 1}.run(t)
			}
		})
	}
	wg.Wait()
}
