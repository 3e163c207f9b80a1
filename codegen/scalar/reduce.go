package scalar

import (
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Extreme reports whether in is a max or min over floats: its loop keeps the largest number and, apart from it,
// whether there was a NaN, which the result must then be.
func Extreme(in kir.Inst) bool {
	r := kir.ReductionOf(in.Fn)
	return r != nil && r.Beats != "" && in.DType.IsFloat()
}

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
	return strings.NewReplacer("$x", acc, "$y", x).Replace(kir.ReductionOf(in.Fn).Step)
}

// Unrounded is the register to store as type d: the operand of a rounding to d, since storing rounds.
func Unrounded(k *kir.Kernel, n int, d dtype.DType) string {
	if in := k.Insts[n]; Narrow(d) && in.Op == "cast" && in.DType == d && Compute(k.Insts[in.Args[0]].DType) == dtype.F32 {
		n = in.Args[0]
	}
	return fmt.Sprintf("v%d", n)
}
