package kir

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Types is a set of element types that a function takes.
type Types uint8

// The sets. Floats of 8 bits and fewer are in none: they are stored, and cast from and to.
const (
	Floats Types = 1 << iota
	Ints
	Bools
	Numbers  = Floats | Ints
	AnyTypes = Numbers | Bools
)

// Has reports whether d is in the set.
func (s Types) Has(d dtype.DType) bool {
	return s&Floats != 0 && d.IsFloat() && !d.IsSmallFloat() || s&Ints != 0 && d.IsInt() || s&Bools != 0 && d == dtype.Bool
}

// String names the set as error messages do: "a float type", "integers or bool".
func (s Types) String() string {
	switch s {
	case Floats:
		return "a float type"
	case Numbers:
		return "numbers"
	case Bools:
		return "bool"
	case Ints:
		return "integers"
	case Ints | Bools:
		return "integers or bool"
	}
	return "any type"
}

// Rule is how the type of a function's result follows from those of its operands.
type Rule uint8

// The rules.
const (
	Same    Rule = iota // operands of one type, which is the result's
	Test                // operands of one type; the result is a Bool
	Choose              // a Bool, then operands of one type of any kind, which is the result's
	Convert             // one operand of any type; the instruction says what the result is
)

// Cost is what it takes to compute a function, as far as passes and printers choose by it.
type Cost uint8

// The costs.
const (
	Free  Cost = iota // no arithmetic
	Cheap             // less than storing and loading a value: computed again where it is read
	Plain             // some instructions
	Dear              // a polynomial or worse: kept for a later pass over the row
)

// Forms is the text of a function in C and CUDA C++, which share their words (codegen/scalar), by the type that it is
// computed in. $x, $y and $z are the operands, $0 and $1 numbers of the type, $t is the type, $u a cast to the unsigned type
// that integers are added in, $s the letter s or u of a signed or an unsigned one, $bits its bits; $w{…} keeps of what is
// inside the bits that the type has. "" where there is none.
type Forms struct{ F32, F64, Int, Uint, Bool string }

// of gives the form for operands of type d.
func (f Forms) of(d dtype.DType) string {
	switch {
	case d == dtype.F64:
		return f.F64
	case d.IsFloat():
		return f.F32
	case d.Signed():
		return f.Int
	case d.IsInt():
		return f.Uint
	}
	return f.Bool
}

// Func is a scalar function of kernels: the one place that knows it. Every part of the compiler that has to know something of
// a function asks its row in funcs (table.go).
type Func struct {
	Name  string
	Args  int   // operands
	Takes Types // element types of operands, but for those of Choose and Convert
	Rule  Rule

	C        Forms
	FastMath string // CUDA: form of f32 where an error of 1e-6 is lost in a rounding to half precision; "": C's

	Float func(x []float64) float64            // what it is, of floats; a Test gives 0 or 1
	Int   func(d dtype.DType, x []int64) int64 // of integers of type d, U64 as its bits, and of bools; the result is cut to d's bits

	Cost   Cost
	Exact  bool // of numbers that half precision has it makes others that it has
	Steady bool // operands that are off by some 1e-6 of themselves, or of 1, make a result that is off by about as much
	Wide   bool // autocast keeps it in f32: steep somewhere, or soon out of range
}

var byName = map[string]*Func{}

func init() {
	for i := range funcs {
		f := &funcs[i]
		if byName[f.Name] != nil {
			panic("BUG: scalar function " + f.Name + " is defined twice")
		}
		byName[f.Name] = f
	}
}

// Lookup finds a function by name; nil if there is none.
func Lookup(name string) *Func { return byName[name] }

// All lists the functions in the order of the table.
func All() []*Func {
	list := make([]*Func, len(funcs))
	for i := range funcs {
		list[i] = &funcs[i]
	}
	return list
}

// Result is the type of the result for operands of those types. Convert is to says what to, which is Invalid for the others.
func (f *Func) Result(to dtype.DType, args ...dtype.DType) (dtype.DType, error) {
	if len(args) != f.Args {
		return dtype.Invalid, fmt.Errorf("%s takes %d operands, not %d", f.Name, f.Args, len(args))
	}
	same := args
	switch f.Rule {
	case Convert:
		if to == dtype.Invalid || f.Name == "bitcast" && to.Bits() != args[0].Bits() {
			return dtype.Invalid, fmt.Errorf("%s cannot make a %s from a %s", f.Name, to, args[0])
		}
		return to, nil
	case Choose:
		if same = args[1:]; args[0] != dtype.Bool {
			return dtype.Invalid, fmt.Errorf("operand 0 of %s is %s, but must be bool", f.Name, args[0])
		}
	default:
		if !f.Takes.Has(args[0]) {
			return dtype.Invalid, fmt.Errorf("operands of %s are %s, but must be %s", f.Name, args[0], f.Takes)
		}
	}
	for _, d := range same {
		if d != same[0] {
			return dtype.Invalid, fmt.Errorf("operands of %s are %s and %s, but must be of one type", f.Name, same[0], d)
		}
	}
	if f.Rule == Test {
		return dtype.Bool, nil
	}
	return same[0], nil
}

// Words are what a language puts into a form: the operands and, for the type d that is computed in, what codegen/scalar has.
type Words struct {
	Args           []string
	Zero, One      string
	Type, Unsigned string
	Wrap           func(v string) string // keeps the bits that the type has
}

// Text prints the function of operands of type d, by its fast-math form where fastMath is set and there is one; "" if it has no form for d.
func (f *Func) Text(d dtype.DType, fastMath bool, w Words) string {
	form := f.C.of(d)
	if fastMath && f.FastMath != "" && d == dtype.F32 {
		form = f.FastMath
	}
	sign := "u"
	if d.Signed() {
		sign = "s"
	}
	pairs := []string{"$0", w.Zero, "$1", w.One, "$t", w.Type, "$u", "(" + w.Unsigned + ")", "$s", sign, "$bits", strconv.Itoa(d.Bits())}
	for i, a := range w.Args {
		pairs = append(pairs, []string{"$x", "$y", "$z"}[i], a)
	}
	text := strings.NewReplacer(pairs...).Replace(form)
	for {
		before, rest, ok := strings.Cut(text, "$w{")
		if !ok {
			return text
		}
		inside, after, _ := strings.Cut(rest, "}")
		text = before + w.Wrap(inside) + after
	}
}
