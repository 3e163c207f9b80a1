package cpu

import (
	"math"
	"testing"
)

// ulpErr is the distance of got from want in units of want's last place as a float32 (denormals included).
func ulpErr(got float32, want float64) float64 {
	w := float32(want)
	if math.IsNaN(want) || math.IsNaN(float64(got)) {
		if math.IsNaN(want) && math.IsNaN(float64(got)) {
			return 0
		}
		return math.Inf(1)
	}
	if math.IsInf(float64(w), 0) || math.IsInf(float64(got), 0) {
		if w == got || math.Abs(want) > 3.402823e38 && math.Abs(float64(got)) > 3.40282e38 {
			return 0
		}
		return math.Inf(1)
	}
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e-24, -149))
}

func rsqrt(x float64) float64    { return 1 / math.Sqrt(x) }
func sigmoid(x float64) float64  { return 1 / (1 + math.Exp(-x)) }
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// everyFloat gives about n floats spread evenly over all bit patterns, and the neighbourhoods of special values.
func everyFloat(n int) []float32 {
	var xs []float32
	step := uint32(math.MaxUint32/n) | 1
	for i := range n {
		xs = append(xs, math.Float32frombits(uint32(i)*step))
	}
	for _, s := range []float32{0, 1, 0.5, 0.625, 0.975, 88.72284, -87.33655, -103.97, 9.01, 4.1, math.MaxFloat32, 1.17549435e-38, 1e-30, 1.6e7} {
		b := math.Float32bits(s)
		for d := range uint32(200) {
			for _, v := range []float32{math.Float32frombits(b + d), math.Float32frombits(b - d)} {
				xs = append(xs, v, -v)
			}
		}
	}
	inf := float32(math.Inf(1))
	return append(xs, inf, -inf, float32(math.NaN()), 0, float32(math.Copysign(0, -1)))
}

func TestMathHeaderAgainstLibm(t *testing.T) {
	xs := everyFloat(400_000)
	for i := range 200_000 { // and evenly over the range where things happen
		xs = append(xs, float32(i-100_000)*2e-4)
	}
	out := make([]float32, len(xs))
	for _, c := range []struct {
		name  string
		fn    MathFunc
		want  func(float64) float64
		limit float64 // |x| beyond this is not promised
		ulp   float64
	}{
		{"exp", MathExp, math.Exp, math.Inf(1), 2}, {"log", MathLog, math.Log, math.Inf(1), 2},
		{"log1p", MathLog1p, math.Log1p, math.Inf(1), 3}, {"expm1", MathExpm1, math.Expm1, math.Inf(1), 3},
		{"tanh", MathTanh, math.Tanh, math.Inf(1), 2}, {"sigmoid", MathSigmoid, sigmoid, math.Inf(1), 3},
		{"softplus", MathSoftplus, softplus, math.Inf(1), 3}, {"erf", MathErf, math.Erf, math.Inf(1), 2},
		{"sqrt", MathSqrt, math.Sqrt, math.Inf(1), 1}, {"rsqrt", MathRsqrt, rsqrt, math.Inf(1), 2},
		{"sin", MathSin, math.Sin, 1 << 28, 2}, {"cos", MathCos, math.Cos, 1 << 28, 2},
	} {
		MapMath(ptr(xs), nil, ptr(out), c.fn, len(xs))
		worst, at := 0.0, float32(0)
		for i, x := range xs {
			if a := math.Abs(float64(x)); a > c.limit && a <= math.MaxFloat32 {
				continue
			}
			if e := ulpErr(out[i], c.want(float64(x))); e > worst || math.IsNaN(e) {
				worst, at = e, x
			}
		}
		t.Logf("%-9s %.2f ulp at %g", c.name, worst, at)
		if worst > c.ulp {
			t.Errorf("%s: %.3g ulp at %g, want <= %g", c.name, worst, at, c.ulp)
		}
	}
}

// The normal distribution function is exact to an absolute error near 1/2 and 1 and to a relative one where it is small.
func TestNormalCDFAgainstErfc(t *testing.T) {
	xs := append(everyFloat(100_000), float32(math.NaN()))
	for i := range 200_000 {
		xs = append(xs, float32(i-100_000)*1.3e-4)
	}
	out := make([]float32, len(xs))
	MapMath(ptr(xs), nil, ptr(out), MathNormalCDF, len(xs))
	worst, tail := 0.0, 0.0
	for i, x := range xs {
		want, got := math.Erfc(-float64(x)/math.Sqrt2)/2, float64(out[i])
		if math.IsNaN(float64(x)) {
			if !math.IsNaN(got) {
				t.Errorf("of NaN: %v", got)
			}
			continue
		}
		if e := math.Abs(got - want); !(e <= worst) {
			worst = e
		}
		if x > -12.5 && x < 0 {
			tail = max(tail, math.Abs(got-want)/want)
		}
	}
	t.Logf("error %.3g, relative in the left tail %.3g", worst, tail)
	if !(worst <= 2e-7) || tail > 1e-5 {
		t.Errorf("error %.3g, want 2e-7; relative error %.3g in the left tail, want 1e-5", worst, tail)
	}
}

func TestMathHeaderKeepsSignedZero(t *testing.T) {
	x, out := []float32{float32(math.Copysign(0, -1))}, []float32{1}
	for _, fn := range []MathFunc{MathTanh, MathErf, MathSin, MathSqrt, MathExpm1, MathLog1p} {
		MapMath(ptr(x), nil, ptr(out), fn, 1)
		if out[0] != 0 || !math.Signbit(float64(out[0])) {
			t.Errorf("function %d of -0 is %v, want -0", fn, out[0])
		}
	}
}

func TestPowAgainstLibm(t *testing.T) {
	base := everyFloat(3000)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	worst := 0.0
	for _, y := range []float32{0, 1, -1, 2, 3, -3, 0.5, -0.5, 1.5, 0.1, 10, 25, -7.25, 1e-3, 300, 1e10, -1e10, inf, -inf, nan, 16777216, 8388607} {
		ys, out := filled(len(base), y), make([]float32, len(base))
		MapMath(ptr(base), ptr(ys), ptr(out), MathPow, len(base))
		for i, x := range base {
			want := math.Pow(float64(x), float64(y))
			if x == -1 && math.IsInf(float64(y), 0) || x == 0 && math.IsInf(float64(y), 0) {
				continue
			}
			e := ulpErr(out[i], want)
			if worst = max(worst, e); e > 3 {
				t.Errorf("pow(%g, %g) = %g, want %g (%.3g ulp)", x, y, out[i], want, e)
			}
		}
	}
	t.Logf("pow %.2f ulp", worst)
}

func TestMaxAndMinPropagateNaN(t *testing.T) {
	nan := float32(math.NaN())
	x, y, out := []float32{1, nan, 2, nan, -1}, []float32{2, 1, nan, nan, -3}, make([]float32, 5)
	for _, fn := range []MathFunc{MathMax, MathMin} {
		MapMath(ptr(x), ptr(y), ptr(out), fn, 5)
		for i := range x {
			want := max(x[i], y[i])
			if fn == MathMin {
				want = min(x[i], y[i])
			}
			if out[i] != want && (out[i] == out[i] || want == want) {
				t.Errorf("function %d of (%v, %v) is %v, want %v", fn, x[i], y[i], out[i], want)
			}
		}
	}
}
