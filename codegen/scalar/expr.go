// Package scalar prints the scalar instructions of kernel IR in the words that C and CUDA C++ share: the types of stdint.h,
// gtc_f16 and gtc_bf16, and functions whose names begin with gtc_, which each language defines in a head of its own.
package scalar

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// unary functions that math.h or the vector math header has, by kir name: f32 and f64 forms.
var unary = map[string][2]string{
	"exp": {"gtc_expf", "exp"}, "log": {"gtc_logf", "log"}, "log1p": {"gtc_log1pf", "log1p"},
	"expm1": {"gtc_expm1f", "expm1"}, "sqrt": {"gtc_sqrtf", "sqrt"}, "sin": {"gtc_sinf", "sin"},
	"cos": {"gtc_cosf", "cos"}, "tanh": {"gtc_tanhf", "tanh"}, "erf": {"gtc_erff", "erf"}, "ncdf": {"gtc_ncdff", "gtc_ncdf64"},
	"sigmoid": {"gtc_sigmoidf", "gtc_sigmoid64"}, "floor": {"floorf", "floor"}, "ceil": {"ceilf", "ceil"},
	"round": {"rintf", "rint"}, "rsqrt": {"gtc_rsqrtf", "1.0/sqrt"}, "softplus": {"gtc_softplusf", "gtc_softplus64"},
	"tan": {"tanf", "tan"}, "asin": {"asinf", "asin"}, "acos": {"acosf", "acos"}, "atan": {"atanf", "atan"},
	"sinh": {"sinhf", "sinh"}, "cosh": {"coshf", "cosh"}, "asinh": {"asinhf", "asinh"}, "acosh": {"acoshf", "acosh"},
	"atanh": {"atanhf", "atanh"},
}

// binaryOps prints the binary operations that C has on every type; x and y stand for the operands.
var binaryOps = map[string]string{
	"and": "x & y", "or": "x | y", "xor": "x ^ y",
	"eq": "x == y", "ne": "x != y", "lt": "x < y", "le": "x <= y", "gt": "x > y", "ge": "x >= y",
}

// arithmetic prints those that integers do in an unsigned type, so that they wrap.
var arithmetic = map[string]string{"add": "x + y", "sub": "x - y", "mul": "x * y"}

// Heavy marks operations worth keeping in a row buffer rather than computing again in a later stage.
func Heavy(op string) bool {
	switch op {
	case "exp", "log", "log1p", "expm1", "sin", "cos", "tanh", "erf", "ncdf", "sigmoid", "pow", "softplus", "rand",
		"tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh":
		return true
	}
	return false
}

// Expr prints the value of a scalar instruction over registers vN.
func Expr(k *kir.Kernel, n int) (string, error) {
	in := k.Insts[n]
	arg := func(i int) string { return "v" + strconv.Itoa(in.Args[i]) }
	t := in.DType
	if len(in.Args) > 0 {
		t = k.Insts[in.Args[0]].DType
	}
	switch in.Op {
	case "const":
		return Literal(in.DType, in.Value), nil
	case "cast":
		return cast(in.DType, t, arg(0)), nil
	case "bitcast":
		return bitcast(in.DType, t, arg(0)), nil
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
	t = Compute(t)
	if f, ok := unary[op]; ok && t.IsFloat() {
		if t == dtype.F32 {
			return fmt.Sprintf("%s(%s)", f[0], x), nil
		}
		return fmt.Sprintf("%s(%s)", f[1], x), nil
	}
	if t == dtype.Bool && op != "not" {
		return "", fmt.Errorf("no C for %q of %s", op, t)
	}
	zero, one := Literal(t, 0), Literal(t, 1)
	switch op {
	case "neg":
		if t.IsInt() {
			return wrap(t, fmt.Sprintf("0 - (%s)%s", unsigned(t), x)), nil
		}
		return "-" + x, nil
	case "recip":
		if t.IsInt() {
			return binaryExpr("div", t, one, x)
		}
		return one + " / " + x, nil
	case "relu":
		return fmt.Sprintf("%s < %s ? %s : %s", x, zero, zero, x), nil // NaN stays NaN
	case "abs":
		return absExpr(t, x), nil
	case "sign":
		s := fmt.Sprintf("(%s)((%s > %s) - (%s < %s))", RegType(t), x, zero, x, zero)
		if t.IsFloat() {
			return fmt.Sprintf("%s != %s ? %s : %s", x, x, x, s), nil
		}
		return s, nil
	case "not":
		if t.IsInt() {
			return wrap(t, "~"+x), nil
		}
		return "!" + x, nil
	case "isnan":
		return x + " != " + x, nil
	case "isinf":
		return fmt.Sprintf("(%s == INFINITY) | (%s == -INFINITY)", x, x), nil
	case "floor", "ceil", "round":
		return x, nil // of integers
	}
	return "", fmt.Errorf("no C for %q of %s", op, t)
}

func absExpr(t dtype.DType, x string) string {
	switch {
	case t == dtype.F32:
		return fmt.Sprintf("gtc_absf(%s)", x)
	case t == dtype.F64:
		return fmt.Sprintf("fabs(%s)", x)
	case !t.Signed():
		return x
	}
	return fmt.Sprintf("%s < 0 ? %s : %s", x, wrap(t, fmt.Sprintf("0 - (%s)%s", unsigned(t), x)), x)
}

func binaryExpr(op string, t dtype.DType, x, y string) (string, error) {
	t = Compute(t)
	fill := func(form string) string { return strings.NewReplacer("x", x, "y", y).Replace(form) }
	if f, ok := binaryOps[op]; ok {
		return fill(f), nil
	}
	f, plain := arithmetic[op]
	less := map[string]string{"max": ">", "min": "<"}[op]
	switch {
	case plain && t.IsFloat():
		return fill(f), nil
	case plain && t.IsInt():
		u := "(" + unsigned(t) + ")"
		return wrap(t, strings.NewReplacer("x", u+x, "y", u+y).Replace(f)), nil
	case less != "" && t.IsFloat():
		return fmt.Sprintf("(%s %s %s) | (%s != %s) ? %s : %s", x, less, y, x, x, x, y), nil
	case less != "":
		return fmt.Sprintf("%s %s %s ? %s : %s", x, less, y, x, y), nil
	case op == "div" && t.IsFloat():
		return fill("x / y"), nil
	case op == "mod" && t.IsFloat(): // the sign of the dividend
		return fmt.Sprintf("fmod(%s, %s)", x, y), nil
	case t.IsInt():
		return intExpr(op, t, x, y)
	}
	return "", fmt.Errorf("no C for %q of %s", op, t)
}

// intExpr prints the operations of integers that are functions, which compute in 64 bits.
func intExpr(op string, t dtype.DType, x, y string) (string, error) {
	sign := "u"
	if t.Signed() {
		sign = "s"
	}
	switch op {
	case "div", "pow":
		return wrap(t, fmt.Sprintf("gtc_%s_%s(%s, %s)", op, sign, x, y)), nil
	case "mod": // the sign of the dividend
		return wrap(t, fmt.Sprintf("gtc_rem_%s(%s, %s)", sign, x, y)), nil
	case "shift_left":
		return wrap(t, fmt.Sprintf("gtc_shl((uint64_t)%s, (uint64_t)%s, %d)", x, y, t.Bits())), nil
	case "shift_right":
		return wrap(t, fmt.Sprintf("gtc_shr_%s(%s, (uint64_t)%s, %d)", sign, x, y, t.Bits())), nil
	}
	return "", fmt.Errorf("no C for %q of %s", op, t)
}

// power writes the common constant exponents as products and roots.
func power(k *kir.Kernel, in kir.Inst, t dtype.DType) string {
	t = Compute(t)
	x, y := fmt.Sprintf("v%d", in.Args[0]), fmt.Sprintf("v%d", in.Args[1])
	if !t.IsFloat() {
		s, _ := intExpr("pow", t, x, y)
		return s
	}
	sqrt := "gtc_sqrtf"
	f := "gtc_powf"
	if t != dtype.F32 {
		sqrt, f = "sqrt", "pow"
	}
	if e := k.Insts[in.Args[1]]; e.Op == "const" {
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
			return fmt.Sprintf("%s / %s", Literal(t, 1), x)
		}
	}
	return fmt.Sprintf("%s(%s, %s)", f, x, y)
}
