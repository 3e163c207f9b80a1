package ref

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/target"
)

// template is a hand-made kernel: a C function of pointers, in which the numbers of a call are constants: long ints and float
// floats. T is the type of the first pointer's elements, S that of sums of them. Everything else is as kernels/cpu documents it.
type template struct {
	pointers, ints, floats, body string
	status                       bool // bad is the first row that is refused, or -1
	moves                        bool // elements are moved, whatever they are
}

// Types of elements and of sums in the text of a template.
var elemType, sumType = regexp.MustCompile(`\bT\b`), regexp.MustCompile(`\bS\b`)

// function is the C function NAME of a call.
func (t template) function(c target.Call) (string, error) {
	pointers, ints, floats := strings.Split(t.pointers, ", "), strings.Fields(t.ints), strings.Fields(t.floats)
	if len(ints) != len(c.Ints) || len(floats) != len(c.Floats) || len(pointers) != len(c.Types) {
		return "", fmt.Errorf("BUG: template %s of the reference target takes (%s; %s; %s), not %d pointers, %v and %v", c.Name, t.pointers, t.ints, t.floats,
			len(c.Types), c.Ints, c.Floats)
	}
	var b strings.Builder
	result := "void"
	if t.status {
		result = "long"
	}
	fmt.Fprintf(&b, "%s NAME(", result)
	for i := range pointers {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "void *a%d", i)
	}
	b.WriteString(") {\n")
	for i, p := range pointers {
		value := fmt.Sprintf("a%d", i)
		if c.Types[i] == dtype.Invalid {
			value = "0"
		}
		fmt.Fprintf(&b, "\t%s = %s;\n", p, value)
	}
	for i, name := range ints {
		fmt.Fprintf(&b, "\tconst long %s = %d;\n", name, c.Ints[i])
	}
	for i, name := range floats {
		fmt.Fprintf(&b, "\tconst float %s = %s;\n", name, strconv.FormatFloat(float64(float32(c.Floats[i])), 'x', -1, 32))
	}
	if t.status {
		b.WriteString("\tlong bad = -1;\n")
	}
	b.WriteString(strings.TrimPrefix(t.body, "\n"))
	if t.status {
		b.WriteString("\treturn bad;\n")
	}
	b.WriteString("}\n")
	elem, sum := scalar.MemType(c.Types[0]), "double"
	if !c.Types[0].IsFloat() {
		sum = "uint64_t" // sums wrap
	}
	return sumType.ReplaceAllString(elemType.ReplaceAllString(b.String(), elem), sum), nil
}

// templates are those that the target has; each file of them adds its own in an init function.
var templates = map[string]template{}
