package ir

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Parse reads the text form. Types after the colon are checked by Verify, not here, except that the
// number of results must agree with the op's rules. Constants printed by hash come back without data.
func Parse(text string) (m *Module, err error) {
	p := &parser{text: text, line: 1}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case parseError:
			m, err = nil, fmt.Errorf("line %d: %s", p.line, string(r))
		default:
			panic(r)
		}
	}()
	return p.module(), nil
}

// MustParse is Parse for tests and literals in the code; it panics on an error.
func MustParse(text string) *Module {
	m, err := Parse(text)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return m
}

type parseError string

// maxDims bounds the dimensions a parsed type may have, maxElems its element count.
const (
	maxDims  = 64
	maxElems = 1 << 48
)

type parser struct {
	text   string
	pos    int
	line   int
	values map[string]*Value
}

func (p *parser) fail(format string, args ...any) { panic(parseError(fmt.Sprintf(format, args...))) }

// space skips blanks, newlines and comments.
func (p *parser) space() {
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '\n':
			p.line++
		case c == '#':
			for p.pos < len(p.text) && p.text[p.pos] != '\n' {
				p.pos++
			}
			continue
		case c != ' ' && c != '\t' && c != '\r':
			return
		}
		p.pos++
	}
}

// try consumes s if it comes next.
func (p *parser) try(s string) bool {
	p.space()
	if strings.HasPrefix(p.text[p.pos:], s) {
		p.pos += len(s)
		return true
	}
	return false
}

func (p *parser) want(s string) {
	if !p.try(s) {
		rest := p.text[p.pos:]
		p.fail("%q is expected before %q", s, rest[:min(len(rest), 20)])
	}
}

// word reads a maximal run of name bytes.
func (p *parser) word() string {
	p.space()
	start := p.pos
	for p.pos < len(p.text) && isNameByte(p.text[p.pos]) {
		p.pos++
	}
	return p.text[start:p.pos]
}

// name reads a bare or quoted name.
func (p *parser) name() string {
	p.space()
	if p.pos < len(p.text) && p.text[p.pos] == '"' {
		return p.quoted()
	}
	w := p.word()
	for strings.HasSuffix(w, ":") { // "%x: f32[2]": the colon before a type is not part of the name
		w = w[:len(w)-1]
		p.pos--
	}
	if w == "" {
		p.fail("a name is expected")
	}
	return w
}

func (p *parser) quoted() string {
	p.space()
	q, err := strconv.QuotedPrefix(p.text[p.pos:])
	if err != nil || q[0] != '"' {
		p.fail("a string in quotes is malformed")
	}
	p.pos += len(q)
	s, err := strconv.Unquote(q)
	if err != nil {
		p.fail("a string in quotes is malformed")
	}
	return s
}

// number reads the characters of an int or a float.
func (p *parser) number() string {
	p.space()
	start := p.pos
	for p.pos < len(p.text) && strings.IndexByte("+-0123456789.eEINaFnfx", p.text[p.pos]) >= 0 {
		p.pos++
	}
	return p.text[start:p.pos]
}

func (p *parser) integer() int {
	w := p.number()
	n, err := strconv.Atoi(w)
	if err != nil {
		p.fail("%q is not an integer", w)
	}
	return n
}

func (p *parser) float() float64 {
	w := p.number()
	f, err := strconv.ParseFloat(w, 64)
	if err != nil && !math.IsInf(f, 0) {
		p.fail("%q is not a number", w)
	}
	return f
}

func (p *parser) dtype() dtype.DType {
	w := p.word()
	d, err := dtype.Parse(w)
	if err != nil {
		p.fail("%v", err)
	}
	return d
}

func (p *parser) typ() Type {
	t := Type{DType: p.dtype()}
	t.Dims = p.ints()
	n := 1
	for _, d := range t.Dims {
		if d < 0 || d > maxElems || (d > 0 && n > maxElems/d) || len(t.Dims) > maxDims {
			p.fail("type %s is too large", t)
		}
		n *= d
	}
	return t
}

func (p *parser) ints() []int {
	p.want("[")
	var out []int
	for !p.try("]") {
		if len(out) > 0 {
			p.want(",")
		}
		out = append(out, p.integer())
	}
	return out
}

func (p *parser) module() *Module {
	m := &Module{}
	if p.try("mesh") {
		p.want("@")
		p.name()
		p.want("=")
		p.want("[")
		for !p.try("]") {
			if len(m.Mesh.Axes) > 0 {
				p.want(",")
			}
			a := mesh.Axis{Name: p.name()}
			p.want("=")
			if a.Size = p.integer(); a.Size < 1 || a.Size > 1<<20 {
				p.fail("axis %s has size %d", a.Name, a.Size)
			}
			if !plain(a.Name) || m.Mesh.Size(a.Name) != 1 {
				p.fail("axis name %q is malformed or repeated", a.Name)
			}
			m.Mesh.Axes = append(m.Mesh.Axes, a)
		}
	}
	for {
		p.space()
		if p.pos == len(p.text) {
			return m
		}
		p.want("func")
		f := p.function()
		if m.Func(f.Name) != nil {
			p.fail("function @%s is defined twice", f.Name)
		}
		m.Funcs = append(m.Funcs, f)
	}
}

func plain(s string) bool { return s != "" && s != "_" && quoteName(s) == s }

func (p *parser) function() *Func {
	p.want("@")
	f := &Func{Name: p.name()}
	p.values = map[string]*Value{}
	p.want("(")
	for !p.try(")") {
		if len(f.Params) > 0 {
			p.want(",")
		}
		v := p.define()
		v.Index = len(f.Params)
		p.want(":")
		p.annotated(v)
		f.Params = append(f.Params, v)
	}
	p.want("{")
	for !p.try("return") {
		f.Ops = append(f.Ops, p.op())
	}
	for !p.try("}") {
		if len(f.Results) > 0 {
			p.want(",")
		}
		f.Results = append(f.Results, p.result())
	}
	if p.try("calls") {
		f.Calls = p.calls()
	}
	return f
}

// annotated reads what follows a value's colon: type, sharding, role, offset.
func (p *parser) annotated(v *Value) {
	v.Type = p.typ()
	if p.try("{") {
		v.Sharding = p.sharding(len(v.Type.Dims))
	}
	if v.Op == nil {
		for r, n := range roleNames {
			save := p.pos
			if r > 0 && p.word() == string(n) {
				v.Role = Role(r)
				break
			}
			p.pos = save
		}
	}
	if p.try("&") {
		if v.Offset = p.integer(); v.Offset < 0 {
			p.fail("an offset is negative")
		}
	}
}

func (p *parser) sharding(dims int) mesh.Sharding {
	s := mesh.Sharding{Dims: make([][]string, dims)}
	axes := func() (out []string) {
		for {
			a := p.word()
			if a == "" {
				p.fail("an axis name is expected")
			}
			if a == "_" {
				return nil
			}
			out = append(out, a)
			if !p.try("+") {
				return out
			}
		}
	}
	only := dims > 0 && p.try(";") // a partial sum that is split along no dim
	for d := range s.Dims {
		if only {
			s.Dims = nil
			break
		}
		if d > 0 {
			p.want(",")
		}
		s.Dims[d] = axes()
	}
	if only || p.try(";") {
		p.want("partial=")
		s.Partial = axes()
	}
	p.want("}")
	return s
}

func (p *parser) define() *Value {
	p.want("%")
	n := p.name()
	if p.values[n] != nil {
		p.fail("%%%s is defined twice", n)
	}
	v := &Value{Name: n, Offset: NoOffset}
	p.values[n] = v
	return v
}

func (p *parser) use() *Value {
	p.want("%")
	n := p.name()
	v := p.values[n]
	if v == nil {
		p.fail("%%%s is used before it is defined", n)
	}
	return v
}

func (p *parser) op() *Op {
	op := &Op{}
	var names []string
	p.space()
	if strings.HasPrefix(p.text[p.pos:], "%") {
		for {
			p.want("%")
			names = append(names, p.name())
			if !p.try(",") {
				break
			}
		}
		p.want("=")
	}
	w := p.word()
	if op.Def = LookupDef(w); op.Def == nil {
		p.fail("unknown op %q", w)
	}
	op.Loc = Loc{Node: w, Derived: "text"}
	for {
		p.space()
		if p.try("_") {
			op.In = append(op.In, nil)
		} else if strings.HasPrefix(p.text[p.pos:], "%") {
			op.In = append(op.In, p.use())
		} else {
			break
		}
		if !p.try(",") {
			break
		}
	}
	p.attrs(op)
	for i, n := range names {
		if p.values[n] != nil {
			p.fail("%%%s is defined twice", n)
		}
		v := &Value{Name: n, Op: op, Index: i, Offset: NoOffset}
		op.Out = append(op.Out, v)
		p.values[n] = v
		p.want([]string{":", ","}[min(i, 1)])
		p.annotated(v)
	}
	if p.try("@") {
		if op.Group = p.integer(); op.Group < 1 {
			p.fail("group numbers must be at least 1")
		}
	}
	return op
}

func (p *parser) result() Result {
	p.space()
	if !strings.HasPrefix(p.text[p.pos:], "%") {
		n := p.name()
		if n == "" {
			p.fail("the name of a result is empty")
		}
		p.want("=")
		return Result{Name: n, Value: p.use()}
	}
	v := p.use()
	if !p.try("<-") {
		return Result{Value: v}
	}
	if v.Op != nil {
		p.fail("%%%s is not a parameter, so it cannot be updated", v.Name)
	}
	return Result{Value: p.use(), Updates: v}
}

// attrs reads {field=value, …} into a fresh copy of the Def's attribute struct.
func (p *parser) attrs(op *Op) {
	if op.Def.Rules.Attrs == nil {
		return
	}
	s := reflect.New(reflect.TypeOf(op.Def.Rules.Attrs)).Elem()
	if p.try("{") {
		for first := true; !p.try("}"); first = false {
			if !first {
				p.want(",")
			}
			n := p.word()
			f := fieldNamed(s, n)
			if !f.IsValid() {
				p.fail("%s has no attribute %q", op.Def.Name, n)
			}
			p.want("=")
			f.Set(reflect.ValueOf(p.attr(f.Interface())))
		}
	}
	op.Attrs = s.Interface()
}

func fieldNamed(s reflect.Value, name string) reflect.Value {
	for i := range s.NumField() {
		if attrName(s.Type().Field(i).Name) == name {
			return s.Field(i)
		}
	}
	return reflect.Value{}
}

// attr reads one attribute value of the same type as like.
func (p *parser) attr(like any) any {
	switch like.(type) {
	case dtype.DType:
		return p.dtype()
	case int:
		return p.integer()
	case float64:
		return p.float()
	case bool:
		switch w := p.word(); w {
		case "true", "false":
			return w == "true"
		default:
			p.fail("true or false is expected, not %q", w)
		}
	case string:
		return p.quoted()
	case []int:
		return p.ints()
	case *Tensor:
		return p.tensor()
	}
	panic(fmt.Sprintf("BUG: attribute of type %T", like))
}

// maxSplat bounds the bytes that "(all x)" in a text may ask for.
const maxSplat = 64 << 20

func (p *parser) tensor() *Tensor {
	t := p.typ()
	if p.try("<sha256:") {
		h := p.word()
		p.want(">")
		if len(h) != 12 || strings.Trim(h, "0123456789abcdef") != "" || t.Bytes() == 0 {
			p.fail("%q is not a hash", h)
		}
		return &Tensor{Type: t, hash: h}
	}
	p.want("(")
	elem := func(out []byte) []byte {
		if t.DType.IsFloat() {
			return appendElem(out, t.DType, p.float(), 0)
		}
		w := p.number()
		i, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			p.fail("%q is not an integer", w)
		}
		return appendElem(out, t.DType, 0, i)
	}
	out := &Tensor{Type: t, Data: []byte{}}
	if p.try("all") {
		one := elem(nil)
		if t.Bytes() > maxSplat {
			p.fail("constant %s is too large", t)
		}
		for range t.Elems() {
			out.Data = append(out.Data, one...)
		}
		p.want(")")
		return out
	}
	for !p.try(")") {
		out.Data = elem(out.Data)
	}
	if len(out.Data) != t.Bytes() {
		p.fail("constant %s has %d bytes", t, len(out.Data))
	}
	out.Data = slices.Clip(out.Data)
	return out
}
