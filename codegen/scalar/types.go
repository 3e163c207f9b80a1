package scalar

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// MemType is the C type of a buffer's elements. Small floats are codes in memory; the types of half precision have names
// of their own, since not every compiler knows them.
func MemType(d dtype.DType) string {
	switch d {
	case dtype.F32:
		return "float"
	case dtype.F64:
		return "double"
	case dtype.F16:
		return "gtc_f16"
	case dtype.BF16:
		return "gtc_bf16"
	case dtype.Invalid:
		return ""
	}
	u := ""
	if !d.Signed() {
		u = "u"
	}
	return fmt.Sprintf("%sint%d_t", u, 8*d.Size())
}

// Compute is the type in which values of type d are computed: floats below f32 in f32.
func Compute(d dtype.DType) dtype.DType {
	if Narrow(d) {
		return dtype.F32
	}
	return d
}

// Narrow reports whether d is a float type that is stored, but not computed in.
func Narrow(d dtype.DType) bool { return d.IsFloat() && d != dtype.F32 && d != dtype.F64 }

// RegType is the C type of a value in a register: bools compute as int, so that comparisons and selects stay in vectors
// of one width.
func RegType(d dtype.DType) string {
	if d == dtype.Bool {
		return "int"
	}
	return MemType(Compute(d))
}

// AccType is the C type of a partial accumulator. Scalars collect many rows and use double.
func AccType(d dtype.DType, scalar bool) string {
	if scalar && Compute(d) == dtype.F32 {
		return "double"
	}
	return MemType(Compute(d))
}

// Load reads a register from memory, store writes one.
func Load(d dtype.DType, at string) string {
	if Narrow(d) {
		return fmt.Sprintf("gtc_%s_get(%s)", d, at)
	}
	return at
}

// Store is the value v as it is stored in an element of type d.
func Store(d dtype.DType, v string) string {
	if Narrow(d) {
		return fmt.Sprintf("gtc_%s_put(%s)", d, v)
	}
	return v
}

// Literal prints a constant of type d exactly; integers are whole.
func Literal(d dtype.DType, v float64) string {
	d = Compute(d)
	switch {
	case d == dtype.Bool && v != 0:
		return "1"
	case !d.IsFloat():
		return intLiteral(d, v)
	}
	suffix, bits := "", 64
	if d == dtype.F32 {
		v, suffix, bits = float64(float32(v)), "f", 32
	}
	switch {
	case math.IsNaN(v):
		return "NAN"
	case math.IsInf(v, 1):
		return "INFINITY"
	case math.IsInf(v, -1):
		return "(-INFINITY)"
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

// intLiteral clips to 64 bits, since the ends of ranges are given as floats that are one beyond them.
func intLiteral(d dtype.DType, v float64) string {
	switch {
	case d == dtype.U64 && v >= math.MaxUint64:
		return "UINT64_MAX"
	case d == dtype.U64 && v >= math.MaxInt64:
		return strconv.FormatUint(uint64(v), 10) + "u"
	case v >= math.MaxInt64:
		return "INT64_MAX"
	case v <= math.MinInt64:
		return "INT64_MIN"
	case d == dtype.U64:
		return fmt.Sprintf("(uint64_t)%d", int64(v))
	case v < math.MinInt32 || v > math.MaxInt32:
		return fmt.Sprintf("INT64_C(%d)", int64(v))
	}
	return strconv.FormatInt(int64(v), 10)
}

// extremeOf is the least (or the largest) value of type d, from which a maximum (or minimum) starts.
func extremeOf(d dtype.DType, largest bool) string {
	lo, hi := "(-INFINITY)", "INFINITY"
	switch {
	case d == dtype.Bool:
		lo, hi = "0", "1"
	case d == dtype.I64:
		lo, hi = "INT64_MIN", "INT64_MAX"
	case d == dtype.U64:
		lo, hi = "0", "UINT64_MAX"
	case d.IsInt():
		least, most := d.Range()
		lo, hi = Literal(d, least), Literal(d, most)
		if d == dtype.I32 {
			lo = "INT32_MIN"
		}
	}
	if largest {
		return hi
	}
	return lo
}

// unsigned is the type in which integers of type d are added and multiplied: wide enough that nothing is promoted to a
// signed type, whose overflow is undefined.
func unsigned(d dtype.DType) string {
	if d.Size() == 8 {
		return "uint64_t"
	}
	return "uint32_t"
}

// wrap prints v, computed in another type, as a value of integer type d: of its bits those that d has.
func wrap(d dtype.DType, v string) string {
	n := 8*d.Size() - d.Bits()
	switch {
	case n == 0:
		return fmt.Sprintf("(%s)(%s)", MemType(d), v)
	case d.Signed():
		return fmt.Sprintf("(%s)((%s)((uint32_t)(%s) << %d) >> %d)", MemType(d), MemType(d), v, n, n)
	}
	return fmt.Sprintf("(%s)((%s) & %d)", MemType(d), v, 1<<d.Bits()-1)
}

// cast prints v, of type from, converted to type to.
func cast(to, from dtype.DType, v string) string {
	switch {
	case to == dtype.Bool:
		return v + " != 0"
	case Narrow(to):
		return fmt.Sprintf("gtc_%s_get(gtc_%s_put((float)%s))", to, to, v)
	case to.IsFloat():
		return fmt.Sprintf("(%s)%s", MemType(to), v)
	case !from.IsFloat():
		return wrap(to, v)
	case to == dtype.U64:
		return fmt.Sprintf("gtc_to_u64(%s)", v)
	case to == dtype.I64 || to == dtype.U32:
		return wrap(to, fmt.Sprintf("gtc_to_i64(%s)", v))
	case Compute(from) == dtype.F32:
		return wrap(to, fmt.Sprintf("gtc_to_i32f(%s)", v))
	}
	return wrap(to, fmt.Sprintf("gtc_to_i32(%s)", v))
}

// bitcast prints the bits of v taken for another type of the same size.
func bitcast(to, from dtype.DType, v string) string {
	return Load(to, fmt.Sprintf("GTC_BITCAST(%s, %s, %s)", MemType(to), MemType(from), Store(from, v)))
}
