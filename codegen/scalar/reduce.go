package scalar

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Extreme reports whether in is a max or min over floats: its loop keeps the largest number and, apart from it,
// whether there was a NaN, which the result must then be.
func Extreme(in kir.Inst) bool { return (in.Fn == "max" || in.Fn == "min") && in.DType.IsFloat() }

// Identity is the value that a reduction starts from.
func Identity(in kir.Inst) string {
	switch in.Fn {
	case "prod":
		return Literal(in.DType, 1)
	case "max", "min":
		return extremeOf(in.DType, in.Fn == "min")
	}
	return Literal(in.DType, 0)
}

// Combine prints one step of a reduction.
func Combine(in kir.Inst, acc, x string) string {
	switch in.Fn {
	case "sum":
		return acc + " + " + x
	case "prod":
		return acc + " * " + x
	case "max":
		return fmt.Sprintf("%s < %s || %s != %s ? %s : %s", acc, x, x, x, x, acc)
	}
	return fmt.Sprintf("%s > %s || %s != %s ? %s : %s", acc, x, x, x, x, acc)
}

// Unrounded is the register to store as type d: the operand of a rounding to d, since storing rounds.
func Unrounded(k *kir.Kernel, n int, d dtype.DType) string {
	if in := k.Insts[n]; Narrow(d) && in.Op == "cast" && in.DType == d && Compute(k.Insts[in.Args[0]].DType) == dtype.F32 {
		n = in.Args[0]
	}
	return fmt.Sprintf("v%d", n)
}
