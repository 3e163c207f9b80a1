package c

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// memType is the C type of a buffer's elements, regType of a value in a register: bools compute as int so that
// comparisons and selects stay in vectors of one width.
func memType(d dtype.DType) string {
	switch d {
	case dtype.F32:
		return "float"
	case dtype.F64:
		return "double"
	case dtype.I8:
		return "int8_t"
	case dtype.I16:
		return "int16_t"
	case dtype.I32:
		return "int32_t"
	case dtype.I64:
		return "int64_t"
	case dtype.U8, dtype.Bool:
		return "uint8_t"
	case dtype.U16:
		return "uint16_t"
	case dtype.U32:
		return "uint32_t"
	case dtype.U64:
		return "uint64_t"
	}
	return ""
}

func regType(d dtype.DType) string {
	if d == dtype.Bool {
		return "int"
	}
	return memType(d)
}

// literal prints a constant of type d exactly.
func literal(d dtype.DType, v float64) string {
	suffix := ""
	switch d {
	case dtype.F32:
		v, suffix = float64(float32(v)), "f"
	case dtype.F64:
	default:
		if v >= math.MaxInt64 {
			return "INT64_MAX"
		}
		if v <= math.MinInt64 {
			return "INT64_MIN"
		}
		return strconv.FormatInt(int64(v), 10)
	}
	switch {
	case math.IsNaN(v):
		return "NAN"
	case math.IsInf(v, 1):
		return "INFINITY"
	case math.IsInf(v, -1):
		return "(-INFINITY)"
	}
	bits := 64
	if d == dtype.F32 {
		bits = 32
	}
	s := strconv.FormatFloat(v, 'g', -1, bits)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	if v < 0 || math.Signbit(v) {
		return "(" + s + suffix + ")"
	}
	return s + suffix
}

// unary functions that math.h or the vector math header has, by kir name: f32 and f64 forms.
var unary = map[string][2]string{
	"exp": {"gtc_expf", "exp"}, "log": {"gtc_logf", "log"}, "log1p": {"gtc_log1pf", "log1p"},
	"expm1": {"gtc_expm1f", "expm1"}, "sqrt": {"gtc_sqrtf", "sqrt"}, "sin": {"gtc_sinf", "sin"},
	"cos": {"gtc_cosf", "cos"}, "tanh": {"gtc_tanhf", "tanh"}, "erf": {"gtc_erff", "erf"}, "ncdf": {"gtc_ncdff", "gtc_ncdf64"},
	"sigmoid": {"gtc_sigmoidf", "gtc_sigmoid64"}, "floor": {"floorf", "floor"}, "ceil": {"ceilf", "ceil"},
	"round": {"rintf", "rint"}, "rsqrt": {"gtc_rsqrtf", "1.0/sqrt"}, "softplus": {"gtc_softplusf", "gtc_softplus64"},
}

// binaryOps prints the binary operations that C has; x and y stand for the operands.
var binaryOps = map[string]string{
	"add": "x + y", "sub": "x - y", "mul": "x * y", "div": "x / y",
	"and": "x & y", "or": "x | y", "xor": "x ^ y",
	"eq": "x == y", "ne": "x != y", "lt": "x < y", "le": "x <= y", "gt": "x > y", "ge": "x >= y",
}

// heavy marks operations worth keeping in a row buffer rather than computing again in a later stage.
func heavy(op string) bool {
	switch op {
	case "exp", "log", "log1p", "expm1", "sin", "cos", "tanh", "erf", "ncdf", "sigmoid", "pow", "softplus", "rand":
		return true
	}
	return false
}

// expr prints the value of a scalar instruction over registers vN.
func expr(k *kir.Kernel, n int) (string, error) {
	in := k.Insts[n]
	arg := func(i int) string { return "v" + strconv.Itoa(in.Args[i]) }
	t := in.DType
	if len(in.Args) > 0 {
		t = k.Insts[in.Args[0]].DType
	}
	switch in.Op {
	case "const":
		return literal(in.DType, in.Value), nil
	case "cast":
		if in.DType == dtype.Bool {
			return arg(0) + " != 0", nil
		}
		return fmt.Sprintf("(%s)%s", regType(in.DType), arg(0)), nil
	case "select":
		return fmt.Sprintf("%s ? %s : %s", arg(0), arg(1), arg(2)), nil
	case "pow":
		return power(k, in, t), nil
	}
	if len(in.Args) == 1 {
		return unaryExpr(in.Op, t, arg(0))
	}
	if len(in.Args) == 2 {
		return binaryExpr(in.Op, t, arg(0), arg(1))
	}
	return "", fmt.Errorf("no C for scalar operation %q", in.Op)
}

func unaryExpr(op string, t dtype.DType, x string) (string, error) {
	if f, ok := unary[op]; ok && t.IsFloat() {
		if t == dtype.F32 {
			return fmt.Sprintf("%s(%s)", f[0], x), nil
		}
		return fmt.Sprintf("%s(%s)", f[1], x), nil
	}
	zero, one := literal(t, 0), literal(t, 1)
	switch op {
	case "neg":
		return "-" + x, nil
	case "recip":
		return one + " / " + x, nil
	case "relu":
		return fmt.Sprintf("%s < %s ? %s : %s", x, zero, zero, x), nil // NaN stays NaN
	case "abs":
		if t == dtype.F32 {
			return fmt.Sprintf("gtc_absf(%s)", x), nil
		}
		if t == dtype.F64 {
			return fmt.Sprintf("fabs(%s)", x), nil
		}
		return fmt.Sprintf("%s < 0 ? -%s : %s", x, x, x), nil
	case "sign":
		return fmt.Sprintf("(%s)((%s > %s) - (%s < %s))", regType(t), x, zero, x, zero), nil
	case "not":
		return "!" + x, nil
	case "isnan":
		return x + " != " + x, nil
	case "isinf":
		return fmt.Sprintf("(%s == INFINITY) | (%s == -INFINITY)", x, x), nil
	}
	return "", fmt.Errorf("no C for %q of %s", op, t)
}

func binaryExpr(op string, t dtype.DType, x, y string) (string, error) {
	if f, ok := binaryOps[op]; ok {
		return strings.NewReplacer("x", x, "y", y).Replace(f), nil
	}
	switch op {
	case "max":
		if t.IsFloat() {
			return fmt.Sprintf("(%s > %s) | (%s != %s) ? %s : %s", x, y, x, x, x, y), nil
		}
		return fmt.Sprintf("%s > %s ? %s : %s", x, y, x, y), nil
	case "min":
		if t.IsFloat() {
			return fmt.Sprintf("(%s < %s) | (%s != %s) ? %s : %s", x, y, x, x, x, y), nil
		}
		return fmt.Sprintf("%s < %s ? %s : %s", x, y, x, y), nil
	case "mod": // the sign of the dividend
		if t.IsFloat() {
			return fmt.Sprintf("fmod(%s, %s)", x, y), nil
		}
		return fmt.Sprintf("gtc_rem(%s, %s)", x, y), nil
	}
	return "", fmt.Errorf("no C for %q of %s", op, t)
}

// power writes the common constant exponents as products and roots.
func power(k *kir.Kernel, in kir.Inst, t dtype.DType) string {
	x, y := fmt.Sprintf("v%d", in.Args[0]), fmt.Sprintf("v%d", in.Args[1])
	sqrt := "gtc_sqrtf"
	f := "gtc_powf"
	if t != dtype.F32 {
		sqrt, f = "sqrt", "pow"
	}
	if e := k.Insts[in.Args[1]]; e.Op == "const" && t.IsFloat() {
		switch e.Value {
		case 1:
			return x
		case 2:
			return fmt.Sprintf("%s * %s", x, x)
		case 3:
			return fmt.Sprintf("%s * %s * %s", x, x, x)
		case 0.5:
			return fmt.Sprintf("%s(%s)", sqrt, x)
		case -1:
			return fmt.Sprintf("%s / %s", literal(t, 1), x)
		}
	}
	if !t.IsFloat() {
		return fmt.Sprintf("(%s)pow((double)%s, (double)%s)", regType(t), x, y)
	}
	return fmt.Sprintf("%s(%s, %s)", f, x, y)
}
