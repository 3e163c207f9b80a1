package ir

import (
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/printable"
)

// Loc says where an op came from. Every op has one; passes that make ops derive it from the op they
// serve, so that a gradient's kernel still names the model's line.
type Loc struct {
	Node    string // ONNX node name, such as /layers.0/attn/MatMul
	OpType  string // ONNX operator, such as MatMul
	File    string // base name of the user's Python file, "" when unknown
	Line    int    // in File, from 1; 0 when unknown
	Func    string // the user's function, such as Attention.forward
	Derived string // name of the pass that made the op, such as autodiff; "" for an op that the node became at import
}

// Derive is the location of an op that pass made on behalf of the op at l.
func (l Loc) Derive(pass string) Loc {
	l.Derived = pass
	return l
}

// IsZero reports whether nothing is known; the verifier forbids it.
func (l Loc) IsZero() bool { return l == Loc{} }

// String prints as in the text form: "/0/Gemm" model.py:41 (autodiff).
func (l Loc) String() string {
	var parts []string
	if l.Node != "" {
		parts = append(parts, fmt.Sprintf("%q", l.Node))
	}
	if l.File != "" {
		parts = append(parts, fmt.Sprintf("%s:%d", l.File, l.Line))
	}
	if l.Derived != "" {
		parts = append(parts, "("+l.Derived+")")
	}
	return strings.Join(parts, " ")
}

// Error is a fault in the user's input, told with where it is and what would help.
type Error struct {
	File  string   // the ONNX file at fault; "" when there is none, or it is not known yet
	Loc   Loc      // the node at fault; the zero value when it is no single one
	Msg   string   // what is wrong, in one sentence
	Notes []string // what else is known and what would help, one line each
}

// Errorf makes an Error at loc. Messages are lower case, without a full stop, and give values and shapes.
func Errorf(loc Loc, format string, args ...any) *Error {
	return &Error{Loc: loc, Msg: fmt.Sprintf(format, args...)}
}

// Note adds a line of help and returns e.
func (e *Error) Note(format string, args ...any) *Error {
	e.Notes = append(e.Notes, fmt.Sprintf(format, args...))
	return e
}

// Error prints file, node, Python line, message and notes, one a line.
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File + ": ")
	}
	if e.Loc.Node != "" || e.Loc.OpType != "" {
		fmt.Fprintf(&b, "node %q", e.Loc.Node)
		if e.Loc.OpType != "" {
			fmt.Fprintf(&b, " (%s)", e.Loc.OpType)
		}
		b.WriteString("\n")
		if e.Loc.File != "" {
			fmt.Fprintf(&b, "    %s:%d, in %s\n", e.Loc.File, e.Loc.Line, e.Loc.Func)
		}
		b.WriteString("  ")
	}
	b.WriteString(e.Msg)
	for _, n := range e.Notes {
		b.WriteString("\n  note: " + n)
	}
	return printable.Text(b.String())
}

// Recover turns a panic with an *Error into a returned error; any other panic goes on. Use it as
// defer ir.Recover(&err) where ops are built from the user's input.
func Recover(err *error) {
	switch r := recover().(type) {
	case nil:
	case *Error:
		*err = r
	default:
		panic(r)
	}
}
