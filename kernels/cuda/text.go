package cuda

import (
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// typeNames are gtc.cuh's names of element types.
var typeNames = map[dtype.DType]string{dtype.F32: "float", dtype.F64: "double", dtype.F16: "gtc::f16", dtype.BF16: "gtc::bf16",
	dtype.I8: "gtc::i8", dtype.I16: "gtc::i16", dtype.I32: "gtc::i32", dtype.I64: "gtc::i64", dtype.U8: "gtc::u8", dtype.U16: "gtc::u16",
	dtype.U32: "gtc::u32", dtype.U64: "gtc::u64", dtype.Bool: "gtc::u8"}

// elemTypes lists the types by their code in kernels/cpu (ElemF32 and so on), less one.
var elemTypes = []dtype.DType{dtype.F32, dtype.F64, dtype.F16, dtype.BF16, dtype.I8, dtype.I16, dtype.I32, dtype.I64, dtype.U8, dtype.U16,
	dtype.U32, dtype.U64, dtype.Bool}

// elemType is the type that a code of kernels/cpu stands for.
func elemType(code int) dtype.DType {
	if code < 1 || code > len(elemTypes) {
		return dtype.Invalid
	}
	return elemTypes[code-1]
}

// isFloat reports whether d is a type of floats that tensors of a training step are kept in.
func isFloat(d dtype.DType) bool { return d == dtype.F32 || d == dtype.F16 || d == dtype.BF16 }

// cType is the type name of operand types[i]; float where there is none, whose pointer is then null.
func cType(types []dtype.DType, i int) string {
	if types[i] == dtype.Invalid {
		return "float"
	}
	return typeNames[types[i]]
}

// param is one pointer parameter of a kernel.
type param struct {
	typ  string // of the elements, with const where they are only read
	name string
	ref  Ref
}

// kernelOf writes a kernel that calls the device function body with its parameters: gtc::body<args...>(params...).
func kernelOf(name, family, body string, threads int, params []param, args ...any) Kernel {
	k := Kernel{Name: name, Family: family, Block: [3]int{threads, 1, 1}}
	var decl, pass, values []string
	for _, p := range params {
		decl = append(decl, p.typ+"* "+p.name)
		pass = append(pass, p.name)
		k.Args = append(k.Args, p.ref)
	}
	for _, a := range args {
		values = append(values, fmt.Sprint(a))
	}
	call := "gtc::" + body
	if len(values) > 0 {
		call += "<" + strings.Join(values, ", ") + ">"
	}
	k.Text = fmt.Sprintf("extern \"C\" __global__ void __launch_bounds__(%d) NAME(%s) {\n\t%s(%s);\n}\n", threads, strings.Join(decl, ", "),
		call, strings.Join(pass, ", "))
	return k
}

// operands makes parameters of the call's pointers in their order: those before first written are const.
func operands(types []dtype.DType, written int, names ...string) []param {
	var out []param
	for i, n := range names {
		typ := cType(types, i)
		if i < written {
			typ = "const " + typ
		}
		p := param{typ, n, Ref{Arg: i}}
		if types[i] == dtype.Invalid {
			p.ref = Ref{Arg: Nil}
		}
		out = append(out, p)
	}
	return out
}

// status is the parameter that refused rows are told by.
var status = param{"gtc::i64", "status", Ref{Arg: Status}}

func divUp(a, b int) int { return (a + b - 1) / b }
