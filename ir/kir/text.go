package kir

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// String prints the kernel as Parse reads it: the dims, with the word row before those of a row, its buffers, and an
// instruction a line. What an access adds up is written out, i0 being the index along the first dim; a value says its type,
// over what it varies, and after @ how many row reductions come before it.
//
//	kernel [4, row 768] chunks=1 work=0
//	  p0: f32[3072] align=64
//	  p1: f32[4] out align=64
//	  v0 = load p0[768*i0 + i1] : f32 elem
//	  v1 = exp v0 : f32 elem
//	  v2 = reduce.sum v1 : f32 row @1
//	  v3 = store p1[i0], v2 : f32 row @1
func (k *Kernel) String() string {
	var b strings.Builder
	b.WriteString("kernel [")
	for d, n := range k.Dims {
		if d > 0 {
			b.WriteString(", ")
		}
		if k.Row[d] {
			b.WriteString("row ")
		}
		b.WriteString(strconv.Itoa(n))
	}
	fmt.Fprintf(&b, "] chunks=%d work=%d\n", k.Chunks, k.Work)
	for i, p := range k.Params {
		out := ""
		if p.Out {
			out = " out"
		}
		fmt.Fprintf(&b, "  p%d: %s[%d]%s align=%d\n", i, p.DType, p.Elems, out, p.Align)
	}
	for i, in := range k.Insts {
		fmt.Fprintf(&b, "  v%d = %s : %s %s", i, in.words(), in.DType, in.Level)
		if in.Stage != 0 {
			fmt.Fprintf(&b, " @%d", in.Stage)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

var levelNames = [...]string{"uniform", "row", "elem"}

// String is uniform, row or elem.
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// words is the instruction without its number and type.
func (in Inst) words() string {
	op := in.Op
	if in.Fn != "" {
		op += "." + in.Fn
	}
	var parts []string
	switch in.Op {
	case "load", "store", "acc":
		parts = append(parts, fmt.Sprintf("p%d[%s]", in.Param, in.Access.sum()))
	case "index":
		parts = append(parts, "["+in.Access.sum()+"]")
	case "const":
		parts = append(parts, number(in.DType, in.Value))
	}
	for _, a := range in.Args {
		parts = append(parts, "v"+strconv.Itoa(a))
	}
	return op + " " + strings.Join(parts, ", ")
}

// number prints a literal of type d.
func number(d dtype.DType, v float64) string {
	if d.IsInt() || d == dtype.Bool {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// sum prints the access as a sum over indices.
func (a Access) sum() string {
	var parts []string
	if a.Offset != 0 {
		parts = append(parts, strconv.Itoa(a.Offset))
	}
	for d, s := range a.Strides {
		switch s {
		case 0:
		case 1:
			parts = append(parts, fmt.Sprintf("i%d", d))
		default:
			parts = append(parts, fmt.Sprintf("%d*i%d", s, d))
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, " + ")
}

// Bounds of what is parsed: dims of a kernel, its buffers and instructions, and elements.
const (
	mostDims  = 64
	mostParts = 1 << 16
	mostElems = 1 << 48
)

// Parse reads the text form of one kernel; # begins a comment. That it makes sense is for Verify.
func Parse(text string) (k *Kernel, err error) {
	p := &parser{k: &Kernel{}}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case parseError:
			k, err = nil, fmt.Errorf("line %d: %s", p.line, string(r))
		default:
			panic(r)
		}
	}()
	for i, line := range strings.Split(text, "\n") {
		p.line = i + 1
		line, _, _ = strings.Cut(line, "#")
		if p.rest = strings.TrimSpace(line); p.rest != "" {
			p.statement()
		}
	}
	if p.k.Row == nil {
		p.fail("there is no kernel")
	}
	return p.k, nil
}

type parseError string

type parser struct {
	k    *Kernel
	line int
	rest string // of the line
}

func (p *parser) fail(format string, args ...any) { panic(parseError(fmt.Sprintf(format, args...))) }

// statement reads a line.
func (p *parser) statement() {
	switch {
	case p.try("kernel "):
		p.head()
	case p.k.Row == nil:
		p.fail("\"kernel\" is expected before %q", p.rest)
	case strings.HasPrefix(p.rest, "p"):
		p.param()
	default:
		p.inst()
	}
	if p.rest != "" {
		p.fail("%q is not expected", p.rest)
	}
}

// try consumes s, with the blanks after it, if it comes next.
func (p *parser) try(s string) bool {
	if !strings.HasPrefix(p.rest, s) {
		return false
	}
	p.rest = strings.TrimLeft(p.rest[len(s):], " \t\r")
	return true
}

func (p *parser) want(s string) {
	if !p.try(s) {
		p.fail("%q is expected before %q", s, p.rest)
	}
}

// word reads up to the next byte of stop, or to the end of the line.
func (p *parser) word(stop string) string {
	i := strings.IndexAny(p.rest, stop)
	if i < 0 {
		i = len(p.rest)
	}
	w := p.rest[:i]
	p.rest = strings.TrimLeft(p.rest[i:], " \t\r")
	return w
}

// int reads a number from lo to hi.
func (p *parser) int(lo, hi int) int {
	w := p.word(" \t\r,[]*:")
	n, err := strconv.Atoi(w)
	if err != nil || n < lo || n > hi {
		p.fail("%q is not a number from %d to %d", w, lo, hi)
	}
	return n
}

// name reads the name of an instruction.
func (p *parser) name() string {
	letter := func(r rune) bool { return r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' }
	n := strings.IndexFunc(p.rest, func(r rune) bool { return !letter(r) })
	if n <= 0 {
		p.fail("the name of an instruction is expected before %q", p.rest)
	}
	w := p.rest[:n]
	p.try(w)
	return w
}

func (p *parser) dtype(stop string) dtype.DType {
	d, err := dtype.Parse(p.word(stop))
	if err != nil {
		p.fail("%v", err)
	}
	return d
}

func (p *parser) head() {
	if p.k.Row != nil {
		p.fail("there is a second kernel")
	}
	p.k.Row, p.k.Dims = []bool{}, []int{}
	p.want("[")
	for !p.try("]") {
		if len(p.k.Dims) > 0 {
			p.want(",")
		}
		p.k.Row = append(p.k.Row, p.try("row "))
		p.k.Dims = append(p.k.Dims, p.int(0, mostElems))
		if len(p.k.Dims) > mostDims {
			p.fail("there are more than %d dims", mostDims)
		}
	}
	p.want("chunks=")
	p.k.Chunks = p.int(0, mostElems)
	p.want("work=")
	p.k.Work = p.int(0, mostElems)
}

func (p *parser) param() {
	p.want("p")
	if n := p.int(0, mostParts); n != len(p.k.Params) {
		p.fail("p%d is the name of buffer %d", n, len(p.k.Params))
	}
	p.want(":")
	par := Param{DType: p.dtype("[")}
	p.want("[")
	par.Elems = p.int(0, mostElems)
	p.want("]")
	par.Out = p.try("out ")
	p.want("align=")
	par.Align = p.int(0, mostElems)
	p.k.Params = append(p.k.Params, par)
}

func (p *parser) inst() {
	p.want("v")
	if n := p.int(0, mostParts); n != len(p.k.Insts) {
		p.fail("v%d is the name of instruction %d", n, len(p.k.Insts))
	}
	p.want("=")
	in := Inst{Op: p.name()}
	if p.try(".") {
		in.Fn = p.name()
	}
	literal := "" // of a const, whose type comes later
	more := true  // operands come
	switch in.Op {
	case "load", "store", "acc":
		p.want("p")
		in.Param = p.int(0, mostParts)
		in.Access = p.access()
		more = p.try(",")
	case "index":
		in.Access = p.access()
		more = false
	case "const":
		literal, more = p.word(" \t\r"), false
	}
	for ; more; more = p.try(",") {
		p.want("v")
		in.Args = append(in.Args, p.int(0, mostParts))
	}
	p.want(":")
	in.DType = p.dtype(" \t\r")
	level := p.word(" \t\r")
	l := slices.Index(levelNames[:], level)
	if l < 0 {
		p.fail("level %q must be uniform, row or elem", level)
	}
	if in.Level = Level(l); p.try("@") {
		in.Stage = p.int(0, mostParts)
	}
	if in.Op == "const" {
		v, err := strconv.ParseFloat(literal, 64)
		if err != nil && !math.IsInf(v, 0) {
			p.fail("%q is not a number", literal)
		}
		in.Value = v
	}
	p.k.Insts = append(p.k.Insts, in)
}

// access reads a sum over indices in brackets.
func (p *parser) access() Access {
	a := Access{Strides: make([]int, len(p.k.Dims))}
	p.want("[")
	for first := true; !p.try("]"); first = false {
		if !first {
			p.want("+")
		}
		n := 1
		if !strings.HasPrefix(p.rest, "i") {
			if n = p.int(-mostElems, mostElems); !p.try("*") {
				a.Offset += n
				continue
			}
		}
		p.want("i")
		d := p.int(0, mostDims)
		if d >= len(a.Strides) {
			p.fail("there is no dim %d", d)
		}
		a.Strides[d] += n
	}
	return a
}
