package kir

import (
	"cmp"
	"math"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// funcs is the table of scalar functions: a new one is a row here. Functions whose names begin with gtc_ are those of
// kernels/cpu/gtc_math.h, kernels/cuda/scalar.cuh and the head of generated C files; the others are C's math.h.
// Comparisons and NaN: min and max pass NaN on as PyTorch does, and so do relu and sign.
var funcs = []Func{
	{Name: "add", Args: 2, Takes: Numbers, C: arithmetic("+"), Cost: Cheap, Steady: true,
		Float: f2(func(x, y float64) float64 { return x + y }), Int: i2(func(x, y int64) int64 { return x + y })},
	{Name: "sub", Args: 2, Takes: Numbers, C: arithmetic("-"), Cost: Cheap, Steady: true,
		Float: f2(func(x, y float64) float64 { return x - y }), Int: i2(func(x, y int64) int64 { return x - y })},
	{Name: "mul", Args: 2, Takes: Numbers, C: arithmetic("*"), Cost: Cheap, Steady: true,
		Float: f2(func(x, y float64) float64 { return x * y }), Int: i2(func(x, y int64) int64 { return x * y })},
	{Name: "div", Args: 2, Takes: Numbers, C: numbers("$x / $y", "$w{gtc_div_$s($x, $y)}"), Cost: Plain, Steady: true, // of integers by 0: 0
		Float: f2(func(x, y float64) float64 { return x / y }), Int: byZero(func(x, y int64) int64 { return x / y }, func(x, y uint64) uint64 { return x / y })},
	{Name: "mod", Args: 2, Takes: Numbers, C: numbers("fmod($x, $y)", "$w{gtc_rem_$s($x, $y)}"), Cost: Plain, // the sign of the dividend, as C's
		Float: f2(math.Mod), Int: byZero(func(x, y int64) int64 { return x % y }, func(x, y uint64) uint64 { return x % y })},
	{Name: "pow", Args: 2, Takes: Numbers, C: Forms{F32: "gtc_powf($x, $y)", F64: "pow($x, $y)", Int: "$w{gtc_pow_$s($x, $y)}", Uint: "$w{gtc_pow_$s($x, $y)}"},
		Cost: Dear, Wide: true, Float: f2(math.Pow), Int: power},
	{Name: "max", Args: 2, Takes: Numbers, C: numbers("($x > $y) | ($x != $x) ? $x : $y", "$x > $y ? $x : $y"), Cost: Cheap, Exact: true, Steady: true,
		Float: f2(func(x, y float64) float64 { return max(x, y) }), Int: ordered(func(x, y int64) int64 { return max(x, y) }, func(x, y uint64) uint64 { return max(x, y) })},
	{Name: "min", Args: 2, Takes: Numbers, C: numbers("($x < $y) | ($x != $x) ? $x : $y", "$x < $y ? $x : $y"), Cost: Cheap, Exact: true, Steady: true,
		Float: f2(func(x, y float64) float64 { return min(x, y) }), Int: ordered(func(x, y int64) int64 { return min(x, y) }, func(x, y uint64) uint64 { return min(x, y) })},

	{Name: "and", Args: 2, Takes: Ints | Bools, C: all("$x & $y"), Cost: Cheap, Int: i2(func(x, y int64) int64 { return x & y })},
	{Name: "or", Args: 2, Takes: Ints | Bools, C: all("$x | $y"), Cost: Cheap, Int: i2(func(x, y int64) int64 { return x | y })},
	{Name: "xor", Args: 2, Takes: Ints | Bools, C: all("$x ^ $y"), Cost: Plain, Int: i2(func(x, y int64) int64 { return x ^ y })},
	{Name: "not", Args: 1, Takes: Bools, C: all("!$x"), Cost: Cheap, Int: i1(func(x int64) int64 { return 1 - x })},
	{Name: "shift_left", Args: 2, Takes: Ints, C: numbers("", "$w{gtc_shl((uint64_t)$x, (uint64_t)$y, $bits)}"), Cost: Plain, Int: shiftLeft},
	{Name: "shift_right", Args: 2, Takes: Ints, C: numbers("", "$w{gtc_shr_$s($x, (uint64_t)$y, $bits)}"), Cost: Plain, Int: shiftRight},

	comparison("eq", "$x == $y", AnyTypes, func(c int, nan bool) bool { return c == 0 && !nan }),
	comparison("ne", "$x != $y", AnyTypes, func(c int, nan bool) bool { return c != 0 || nan }),
	comparison("lt", "$x < $y", Numbers, func(c int, nan bool) bool { return c < 0 && !nan }),
	comparison("le", "$x <= $y", Numbers, func(c int, nan bool) bool { return c <= 0 && !nan }),
	comparison("gt", "$x > $y", Numbers, func(c int, nan bool) bool { return c > 0 && !nan }),
	comparison("ge", "$x >= $y", Numbers, func(c int, nan bool) bool { return c >= 0 && !nan }),
	{Name: "isnan", Args: 1, Takes: Floats, Rule: Test, C: all("$x != $x"), Cost: Plain, Float: test(math.IsNaN)},
	{Name: "isinf", Args: 1, Takes: Floats, Rule: Test, C: all("($x == INFINITY) | ($x == -INFINITY)"), Cost: Plain,
		Float: test(func(x float64) bool { return math.IsInf(x, 0) })},

	{Name: "select", Args: 3, Rule: Choose, C: all("$x ? $y : $z"), Cost: Cheap, Exact: true, Steady: true}, // y where x, else z
	{Name: "cast", Args: 1, Rule: Convert, Cost: Free},                                                      // as dtype.Truncate and dtype.Round say; anything to Bool is != 0
	{Name: "bitcast", Args: 1, Rule: Convert, Cost: Plain},                                                  // to a type of the same size

	{Name: "neg", Args: 1, Takes: Numbers, C: numbers("-$x", "$w{0 - $u$x}"), Cost: Cheap, Exact: true, Steady: true,
		Float: f1(func(x float64) float64 { return -x }), Int: i1(func(x int64) int64 { return -x })},
	{Name: "abs", Args: 1, Takes: Numbers, C: Forms{F32: "gtc_absf($x)", F64: "fabs($x)", Int: "$x < 0 ? $w{0 - $u$x} : $x", Uint: "$x"}, Cost: Cheap, Exact: true, Steady: true,
		Float: f1(math.Abs), Int: signed(func(x int64) int64 { return max(x, -x) }, func(x uint64) uint64 { return x })},
	{Name: "sign", Args: 1, Takes: Numbers, C: numbers("$x != $x ? $x : ($t)(($x > $0) - ($x < $0))", "($t)(($x > $0) - ($x < $0))"), Cost: Cheap, Exact: true,
		Float: f1(sign), Int: signed(func(x int64) int64 { return int64(cmp.Compare(x, 0)) }, func(x uint64) uint64 { return min(x, 1) })},
	{Name: "relu", Args: 1, Takes: Numbers, C: numbers("$x < $0 ? $0 : $x", "$x < $0 ? $0 : $x"), Cost: Cheap, Exact: true, Steady: true,
		Float: f1(func(x float64) float64 { return max(x, 0) }), Int: signed(func(x int64) int64 { return max(x, 0) }, func(x uint64) uint64 { return x })},
	{Name: "floor", Args: 1, Takes: Floats, C: floats("floorf($x)", "floor($x)"), Cost: Plain, Exact: true, Float: f1(math.Floor)},
	{Name: "ceil", Args: 1, Takes: Floats, C: floats("ceilf($x)", "ceil($x)"), Cost: Plain, Exact: true, Float: f1(math.Ceil)},
	{Name: "round", Args: 1, Takes: Floats, C: floats("rintf($x)", "rint($x)"), Cost: Plain, Exact: true, Float: f1(math.RoundToEven)}, // ties to even
	{Name: "recip", Args: 1, Takes: Floats, C: floats("$1 / $x", "$1 / $x"), Cost: Plain, Wide: true, Float: f1(func(x float64) float64 { return 1 / x })},
	{Name: "sqrt", Args: 1, Takes: Floats, C: floats("gtc_sqrtf($x)", "sqrt($x)"), Cost: Plain, Float: f1(math.Sqrt)},
	{Name: "rsqrt", Args: 1, Takes: Floats, C: floats("gtc_rsqrtf($x)", "1.0/sqrt($x)"), Cost: Plain, Wide: true,
		Float: f1(func(x float64) float64 { return 1 / math.Sqrt(x) })},

	{Name: "exp", Args: 1, Takes: Floats, C: floats("gtc_expf($x)", "exp($x)"), FastMath: "gtc_fast_expf($x)", Cost: Dear, Wide: true, Float: f1(math.Exp)},
	{Name: "expm1", Args: 1, Takes: Floats, C: floats("gtc_expm1f($x)", "expm1($x)"), Cost: Dear, Float: f1(math.Expm1)},
	{Name: "log", Args: 1, Takes: Floats, C: floats("gtc_logf($x)", "log($x)"), Cost: Dear, Wide: true, Float: f1(math.Log)},
	{Name: "log1p", Args: 1, Takes: Floats, C: floats("gtc_log1pf($x)", "log1p($x)"), Cost: Dear, Wide: true, Float: f1(math.Log1p)},
	{Name: "sigmoid", Args: 1, Takes: Floats, C: floats("gtc_sigmoidf($x)", "gtc_sigmoid64($x)"), FastMath: "gtc_fast_sigmoidf($x)", Cost: Dear, Float: f1(sigmoid)},
	{Name: "softplus", Args: 1, Takes: Floats, C: floats("gtc_softplusf($x)", "gtc_softplus64($x)"), FastMath: "gtc_fast_softplusf($x)", Cost: Dear, Wide: true, Float: f1(softplus)},
	{Name: "erf", Args: 1, Takes: Floats, C: floats("gtc_erff($x)", "erf($x)"), Cost: Dear, Float: f1(math.Erf)},
	// The normal distribution function.
	{Name: "ncdf", Args: 1, Takes: Floats, C: floats("gtc_ncdff($x)", "gtc_ncdf64($x)"), FastMath: "gtc_fast_ncdff($x)", Cost: Dear,
		Float: f1(func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 })},

	{Name: "sin", Args: 1, Takes: Floats, C: floats("gtc_sinf($x)", "sin($x)"), Cost: Dear, Float: f1(math.Sin)},
	{Name: "cos", Args: 1, Takes: Floats, C: floats("gtc_cosf($x)", "cos($x)"), Cost: Dear, Float: f1(math.Cos)},
	{Name: "tan", Args: 1, Takes: Floats, C: floats("tanf($x)", "tan($x)"), Cost: Dear, Wide: true, Float: f1(math.Tan)},
	{Name: "asin", Args: 1, Takes: Floats, C: floats("asinf($x)", "asin($x)"), Cost: Dear, Wide: true, Float: f1(math.Asin)},
	{Name: "acos", Args: 1, Takes: Floats, C: floats("acosf($x)", "acos($x)"), Cost: Dear, Wide: true, Float: f1(math.Acos)},
	{Name: "atan", Args: 1, Takes: Floats, C: floats("atanf($x)", "atan($x)"), Cost: Dear, Float: f1(math.Atan)},
	{Name: "sinh", Args: 1, Takes: Floats, C: floats("sinhf($x)", "sinh($x)"), Cost: Dear, Wide: true, Float: f1(math.Sinh)},
	{Name: "cosh", Args: 1, Takes: Floats, C: floats("coshf($x)", "cosh($x)"), Cost: Dear, Wide: true, Float: f1(math.Cosh)},
	{Name: "tanh", Args: 1, Takes: Floats, C: floats("gtc_tanhf($x)", "tanh($x)"), FastMath: "gtc_fast_tanhf($x)", Cost: Dear, Float: f1(math.Tanh)},
	{Name: "asinh", Args: 1, Takes: Floats, C: floats("asinhf($x)", "asinh($x)"), Cost: Dear, Float: f1(math.Asinh)},
	{Name: "acosh", Args: 1, Takes: Floats, C: floats("acoshf($x)", "acosh($x)"), Cost: Dear, Float: f1(math.Acosh)},
	{Name: "atanh", Args: 1, Takes: Floats, C: floats("atanhf($x)", "atanh($x)"), Cost: Dear, Float: f1(math.Atanh)},
}

// Reduction is a way in which many values become one, in a row ("reduce") or over rows ("acc"). Where they start is Identity.
type Reduction struct {
	Name   string
	By     string // the function that combines two values
	Step   string // C: the value $x so far with $y, NaN passed on
	OpenMP string // what OpenMP calls it in a reduction clause
	Beats  string // of max and min, C's operator: $x Beats $y when $y is taken; "" of sums
}

var reductions = []Reduction{
	{Name: "sum", By: "add", Step: "$x + $y", OpenMP: "+"},
	{Name: "prod", By: "mul", Step: "$x * $y", OpenMP: "*"},
	{Name: "max", By: "max", Step: "$x < $y || $y != $y ? $y : $x", OpenMP: "max", Beats: "<"},
	{Name: "min", By: "min", Step: "$x > $y || $y != $y ? $y : $x", OpenMP: "min", Beats: ">"},
}

// ReductionOf finds a reduction by name; nil if there is none.
func ReductionOf(name string) *Reduction {
	for i := range reductions {
		if reductions[i].Name == name {
			return &reductions[i]
		}
	}
	return nil
}

// Func is the function that combines two values.
func (r *Reduction) Func() *Func { return Lookup(r.By) }

// floats, numbers and all are forms that some types share.
func floats(f32, f64 string) Forms    { return Forms{F32: f32, F64: f64} }
func numbers(float, int string) Forms { return Forms{F32: float, F64: float, Int: int, Uint: int} }
func all(s string) Forms              { return Forms{s, s, s, s, s} }

// arithmetic is done by integers in an unsigned type, so that it wraps.
func arithmetic(op string) Forms {
	return numbers("$x "+op+" $y", "$w{$u$x "+op+" $u$y}")
}

// comparison is a row from what it makes of the order of its operands.
func comparison(name, form string, takes Types, holds func(c int, nan bool) bool) Func {
	return Func{Name: name, Args: 2, Takes: takes, Rule: Test, C: all(form), Cost: Cheap,
		Float: f2(func(x, y float64) float64 { return truth(holds(cmp.Compare(x, y), math.IsNaN(x) || math.IsNaN(y))) }),
		Int: func(d dtype.DType, x []int64) int64 {
			c := cmp.Compare(x[0], x[1])
			if d == dtype.U64 {
				c = cmp.Compare(uint64(x[0]), uint64(x[1]))
			}
			return int64(truth(holds(c, false)))
		}}
}

func f1(f func(float64) float64) func([]float64) float64 {
	return func(x []float64) float64 { return f(x[0]) }
}

func f2(f func(x, y float64) float64) func([]float64) float64 {
	return func(x []float64) float64 { return f(x[0], x[1]) }
}

func test(f func(float64) bool) func([]float64) float64 {
	return func(x []float64) float64 { return truth(f(x[0])) }
}

func i1(f func(int64) int64) func(dtype.DType, []int64) int64 {
	return func(_ dtype.DType, x []int64) int64 { return f(x[0]) }
}

func i2(f func(x, y int64) int64) func(dtype.DType, []int64) int64 {
	return func(_ dtype.DType, x []int64) int64 { return f(x[0], x[1]) }
}

// signed and ordered have a form of their own for U64, of which the sign bit is a digit.
func signed(i func(int64) int64, u func(uint64) uint64) func(dtype.DType, []int64) int64 {
	return func(d dtype.DType, x []int64) int64 {
		if d == dtype.U64 {
			return int64(u(uint64(x[0])))
		}
		return i(x[0])
	}
}

func ordered(i func(x, y int64) int64, u func(x, y uint64) uint64) func(dtype.DType, []int64) int64 {
	return func(d dtype.DType, x []int64) int64 {
		if d == dtype.U64 {
			return int64(u(uint64(x[0]), uint64(x[1])))
		}
		return i(x[0], x[1])
	}
}

// byZero makes quotients and remainders by 0 0.
func byZero(i func(x, y int64) int64, u func(x, y uint64) uint64) func(dtype.DType, []int64) int64 {
	f := ordered(i, u)
	return func(d dtype.DType, x []int64) int64 {
		if x[1] == 0 {
			return 0
		}
		return f(d, x)
	}
}

// power of integers wraps; those to negative exponents are 0 but for bases 1 and -1.
func power(d dtype.DType, x []int64) int64 {
	base, n, r := x[0], uint64(x[1]), int64(1)
	if d.Signed() && x[1] < 0 {
		switch {
		case base == 1 || base == -1 && n&1 == 0:
			return 1
		case base == -1:
			return -1
		}
		return 0
	}
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			r *= base
		}
		base *= base
	}
	return r
}

// beyond reports a shift by all the bits of a type or more. Negative counts are as large ones.
func beyond(y int64, d dtype.DType) bool { return uint64(y) >= uint64(d.Bits()) }

func shiftLeft(d dtype.DType, x []int64) int64 {
	if beyond(x[1], d) {
		return 0
	}
	return x[0] << x[1]
}

// shiftRight leaves the sign, or 0, of shifts by all bits.
func shiftRight(d dtype.DType, x []int64) int64 {
	switch far := beyond(x[1], d); {
	case d.Signed() && far:
		return x[0] >> 63
	case d.Signed():
		return x[0] >> x[1]
	case far:
		return 0
	}
	return int64(uint64(x[0]) >> x[1])
}

func sign(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x // zero or NaN
}

func sigmoid(x float64) float64  { return 1 / (1 + math.Exp(-x)) }
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func truth(v bool) float64 {
	if v {
		return 1
	}
	return 0
}
