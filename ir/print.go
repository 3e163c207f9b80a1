package ir

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// String prints the type as in the text form: f32[8,784].
func (t Type) String() string {
	var b strings.Builder
	b.WriteString(t.DType.String() + "[")
	for i, d := range t.Dims {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(d))
	}
	b.WriteByte(']')
	return b.String()
}

// PrintOptions choose what the text form shows beyond the program itself.
type PrintOptions struct {
	Loc bool // a comment with each op's location
}

// String prints the module in the text form, which Parse reads back.
func (m *Module) String() string { return m.Print(PrintOptions{}) }

// Print prints the module; see docs/tour.md for the grammar by example.
func (m *Module) Print(o PrintOptions) string {
	var b strings.Builder
	if len(m.Mesh.Axes) > 0 {
		fmt.Fprintf(&b, "mesh @m = %s\n", m.Mesh)
	}
	for i, f := range m.Funcs {
		if i > 0 || len(m.Mesh.Axes) > 0 {
			b.WriteByte('\n')
		}
		f.print(&b, o)
	}
	return b.String()
}

// String prints one function in the text form.
func (f *Func) String() string {
	var b strings.Builder
	f.print(&b, PrintOptions{})
	return b.String()
}

func (f *Func) print(b *strings.Builder, o PrintOptions) {
	fmt.Fprintf(b, "func @%s(", quoteName(f.Name))
	for i, p := range f.Params {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(b, "%s: %s%s", ref(p), p.Type, p.Sharding)
		if p.Role != Input {
			b.WriteString(" " + p.Role.String())
		}
		printOffset(b, p)
	}
	b.WriteString(") {\n")
	for _, op := range f.Ops {
		b.WriteString("  " + op.String())
		if o.Loc && !op.Loc.IsZero() {
			b.WriteString("  # " + op.Loc.String())
		}
		b.WriteByte('\n')
	}
	b.WriteString("  return")
	for i, r := range f.Results {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte(' ')
		switch {
		case r.Updates != nil:
			fmt.Fprintf(b, "%s <- %s", ref(r.Updates), ref(r.Value))
		case r.Name != "":
			fmt.Fprintf(b, "%s=%s", quoteName(r.Name), ref(r.Value))
		default:
			b.WriteString(ref(r.Value))
		}
	}
	b.WriteString("\n}")
	if f.Calls != nil {
		f.printCalls(b)
	}
	b.WriteByte('\n')
}

// String prints the op on one line, without its location.
func (op *Op) String() string {
	var b strings.Builder
	for i, v := range op.Out {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(ref(v))
	}
	if len(op.Out) > 0 {
		b.WriteString(" = ")
	}
	b.WriteString(op.Def.Name)
	for i, v := range op.In {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(" " + ref(v))
	}
	b.WriteString(printAttrs(op.Attrs))
	for i, v := range op.Out {
		if i == 0 {
			b.WriteString(" : ")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(v.Type.String() + v.Sharding.String())
		printOffset(&b, v)
	}
	if op.Group != 0 {
		fmt.Fprintf(&b, " @%d", op.Group)
	}
	return b.String()
}

func printOffset(b *strings.Builder, v *Value) {
	if v.Offset >= 0 {
		fmt.Fprintf(b, " &%d", v.Offset)
	}
}

func ref(v *Value) string {
	if v == nil {
		return "_"
	}
	return "%" + quoteName(v.Name)
}

// quoteName leaves plain names bare and quotes the rest as Go strings.
func quoteName(s string) string {
	if s == "" || s[len(s)-1] == ':' {
		return strconv.Quote(s)
	}
	for i := 0; i < len(s); i++ {
		if !isNameByte(s[i]) {
			return strconv.Quote(s)
		}
	}
	return s
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '_' || c == '.' || c == '/' || c == ':' || c == '$'
}

// printAttrs prints the fields that are not zero: " {dims=[1], keep=true}".
func printAttrs(attrs any) string {
	if attrs == nil {
		return ""
	}
	v := reflect.ValueOf(attrs)
	var parts []string
	for i := range v.NumField() {
		if f := v.Field(i); !isZeroAttr(f) {
			parts = append(parts, attrName(v.Type().Field(i).Name)+"="+printAttr(f))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " {" + strings.Join(parts, ", ") + "}"
}

// isZeroAttr treats negative zero as a value worth printing, and an empty list as absent.
func isZeroAttr(f reflect.Value) bool {
	if f.Kind() == reflect.Slice {
		return f.Len() == 0
	}
	return f.IsZero()
}

// attrName is the text form of a field name: its first letter in lower case.
func attrName(field string) string { return strings.ToLower(field[:1]) + field[1:] }

func printAttr(f reflect.Value) string {
	switch x := f.Interface().(type) {
	case dtype.DType:
		return x.String()
	case []int:
		return strings.ReplaceAll(fmt.Sprint(x), " ", ",")
	case float64:
		return printFloat(x)
	case string:
		return strconv.Quote(x)
	case *Tensor:
		return printTensor(x)
	case int, bool:
		return fmt.Sprint(x)
	}
	panic("BUG: attribute of type " + f.Type().String())
}

func printFloat(x float64) string {
	s := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(s, ".eIN") {
		s += ".0"
	}
	return s
}

// maxInline is how many elements of a constant the text form shows; larger ones show their hash.
const maxInline = 64

// printTensor prints type and contents: f32[2](1.0 2.0), f32[4,4](all 0.5), or f32[9999]<sha256:…>.
func printTensor(t *Tensor) string {
	if t.Data == nil && t.Type.Bytes() > 0 {
		return fmt.Sprintf("%s<sha256:%s>", t.Type, t.hash)
	}
	elem := func(i int) string {
		if t.Type.DType.IsFloat() {
			return printFloat(t.At(i))
		}
		return strconv.FormatInt(t.Int(i), 10)
	}
	n := t.Type.Elems()
	if _, ok := t.Uniform(); ok && n > 1 {
		return fmt.Sprintf("%s(all %s)", t.Type, elem(0))
	}
	if n > maxInline {
		return fmt.Sprintf("%s<sha256:%s>", t.Type, t.Hash())
	}
	parts := make([]string, n)
	for i := range parts {
		parts[i] = elem(i)
	}
	return fmt.Sprintf("%s(%s)", t.Type, strings.Join(parts, " "))
}
