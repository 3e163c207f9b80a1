package ops

import (
	"math"
	"math/bits"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// The numbers must look independent along the index, along the counter and between seeds: uniform histograms and
// correlations of the size that chance allows (4 standard deviations).
func TestUniformLooksRandom(t *testing.T) {
	const n = 1 << 13
	streams := map[string]func(i int64) float64{
		"index":       func(i int64) float64 { return uniform(1, 5, i) },
		"counter":     func(i int64) float64 { return uniform(1, i, 5) },
		"seed":        func(i int64) float64 { return uniform(int(i), 5, 5) },
		"far index":   func(i int64) float64 { return uniform(1, 5, i*1024) },
		"both":        func(i int64) float64 { return uniform(1, i, i) },
		"index+count": func(i int64) float64 { return uniform(1, n-i, i) },
	}
	for name, f := range streams {
		var buckets [64]float64
		var sum, square float64
		lags := map[int64]float64{1: 0, 2: 0, 16: 0, 256: 0, 768: 0}
		for i := range int64(n) {
			u := f(i)
			if u < 0 || u >= 1 {
				t.Fatalf("%s: %g", name, u)
			}
			buckets[int(u*64)]++
			sum, square = sum+u, square+u*u
			for lag := range lags {
				lags[lag] += (u - 0.5) * (f(i+lag) - 0.5)
			}
		}
		chi := 0.0
		for _, b := range buckets {
			chi += (b - n/64) * (b - n/64) / (n / 64)
		}
		if math.Abs(chi-63) > 4*math.Sqrt(2*63) {
			t.Errorf("%s: chi square %g of 63", name, chi)
		}
		if mean := sum / n; math.Abs(mean-0.5) > 4/math.Sqrt(12*n) {
			t.Errorf("%s: mean %g", name, mean)
		}
		for lag, c := range lags {
			if c = 12 * c / n; math.Abs(c) > 4/math.Sqrt(n) {
				t.Errorf("%s: correlation %g at distance %d", name, c, lag)
			}
		}
	}
	same := 0.0
	for i := range int64(n) {
		same += 12 / float64(n) * (uniform(1, 7, i) - 0.5) * (uniform(2, 7, i) - 0.5)
		same += 12 / float64(n) * (uniform(1, 7, i) - 0.5) * (uniform(1, 8, i) - 0.5)
	}
	if math.Abs(same) > 6/math.Sqrt(n) {
		t.Errorf("correlation %g between streams", same)
	}
}

// The kernel expression and the definition must give the same bits, and nothing may overflow.
func TestRandBitsExprIsRandBits(t *testing.T) {
	for _, x := range []int64{0, 1, 1<<31 - 1, 1<<32 - 1, 1 << 45, 7654321} {
		got := integer(t, randBitsExpr(9), []int64{x}, map[*kir.Expr]int64{})
		if want := randBits(9, x); got != want {
			t.Errorf("%d: %d, want %d", x, got, want)
		}
	}
}

func integer(t *testing.T, e *kir.Expr, args []int64, done map[*kir.Expr]int64) (v int64) {
	if v, ok := done[e]; ok {
		return v
	}
	defer func() { done[e] = v }()
	switch e.Op {
	case "arg":
		return args[e.Index]
	case "const":
		return int64(e.Value)
	}
	x, y := integer(t, e.Args[0], args, done), integer(t, e.Args[1], args, done)
	switch e.Op {
	case "add":
		v = x + y
	case "mul":
		if hi, _ := bits.Mul64(uint64(x), uint64(y)); hi != 0 {
			t.Fatalf("%d * %d overflows", x, y)
		}
		v = x * y
	case "div":
		v = x / y
	case "mod":
		v = x % y
	}
	if v < 0 {
		t.Fatalf("%s of %d and %d overflows", e.Op, x, y)
	}
	return v
}

func TestDropoutKeepsTheMean(t *testing.T) {
	_, op := build(DropoutDef, DropoutAttrs{0.3, 1}, ir.T(f32, 100, 100), ir.T(dtype.I64))
	x := ramp(op.In[0].Type, 1, 0)
	out := DropoutDef.Rules.Eval(op, []*ir.Array{x, {Type: ir.T(dtype.I64), I: []int64{3}}})[0].F
	sum, zeros := 0.0, 0
	for _, v := range out {
		sum += v
		if v == 0 {
			zeros++
		} else if math.Abs(v-1/0.7) > 1e-12 {
			t.Fatalf("kept element is %g", v)
		}
	}
	if math.Abs(sum/1e4-1) > 0.03 || math.Abs(float64(zeros)/1e4-0.3) > 0.02 {
		t.Errorf("mean %g, %d zeros of 10000", sum/1e4, zeros)
	}
}
