package scalar

import (
	"fmt"
	"strings"
)

// Text collects lines of C or of a language like it, each behind as many tabs as blocks are open.
type Text struct {
	strings.Builder
	Indent int
}

// Line adds a line.
func (t *Text) Line(format string, args ...any) {
	t.WriteString(strings.Repeat("\t", t.Indent))
	fmt.Fprintf(t, format, args...)
	t.WriteByte('\n')
}

// Open adds a line, which may be empty, that opens a block.
func (t *Text) Open(format string, args ...any) {
	t.Line(strings.TrimSpace(format+" {"), args...)
	t.Indent++
}

// Close ends the innermost block.
func (t *Text) Close() {
	t.Indent--
	t.Line("}")
}
