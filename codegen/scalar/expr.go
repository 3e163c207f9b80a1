// Package scalar prints the scalar instructions of kernel IR in the words that C and CUDA C++ share: the types of stdint.h,
// gtc_f16 and gtc_bf16, and functions whose names begin with gtc_, which each language defines in a head of its own. What
// there is for a function says its row in ir/kir.
package scalar

import (
	"fmt"
	"strconv"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Expr prints the value of a scalar instruction over registers vN, by a faster function where fastMath is set and there is one.
func Expr(k *kir.Kernel, n int, fastMath bool) (string, error) {
	in := k.Insts[n]
	if in.Op == "const" {
		return Literal(in.DType, in.Value), nil
	}
	f := kir.Lookup(in.Op)
	if f == nil || len(in.Args) != f.Args {
		return "", fmt.Errorf("BUG: there is no C for scalar operation %q", in.Op)
	}
	var args []string
	for _, a := range in.Args {
		args = append(args, "v"+strconv.Itoa(a))
	}
	from := k.Insts[in.Args[0]].DType
	switch in.Op {
	case "cast":
		return cast(in.DType, from, args[0]), nil
	case "bitcast":
		return bitcast(in.DType, from, args[0]), nil
	}
	t := Compute(from)
	if s := constantPower(k, in, t, args[0]); s != "" {
		return s, nil
	}
	s := function(f, t, fastMath, args)
	if s == "" {
		return "", fmt.Errorf("BUG: there is no C for %q of %s", in.Op, t)
	}
	return s, nil
}

// function prints f of registers of type t, which is computed in.
func function(f *kir.Func, t dtype.DType, fastMath bool, args []string) string {
	return f.Text(t, fastMath, kir.Words{Args: args, Zero: Literal(t, 0), One: Literal(t, 1), Type: RegType(t), Unsigned: unsigned(t),
		Wrap: func(v string) string { return wrap(t, v) }})
}

// constantPower writes the common constant exponents as products and roots; "" for other instructions.
func constantPower(k *kir.Kernel, in kir.Inst, t dtype.DType, x string) string {
	if in.Op != "pow" || !t.IsFloat() {
		return ""
	}
	e := k.Insts[in.Args[1]]
	if e.Op != "const" {
		return ""
	}
	switch e.Value {
	case 1:
		return x
	case 2:
		return fmt.Sprintf("%s * %s", x, x)
	case 3:
		return fmt.Sprintf("%s * %s * %s", x, x, x)
	case 0.5:
		return function(kir.Lookup("sqrt"), t, false, []string{x})
	case -1:
		return function(kir.Lookup("recip"), t, false, []string{x})
	}
	return ""
}
