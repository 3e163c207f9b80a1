// Package printable makes text from files safe to show, and puts numbers before nouns. Names in a model are data: on a terminal they may not move the
// cursor, change colours, ring, or turn the direction of the text around.
package printable

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is s with everything that has no glyph written as in a Go string (\x1b, \u202e): control and format characters,
// bytes that are not UTF-8. Line feed, carriage return and tab stay, as does the rest.
func Text(s string) string {
	if strings.IndexFunc(s, hidden) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || hidden(r) {
			q := strconv.Quote(s[:n])
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// Line is Text on one line: line feeds, carriage returns and tabs are written out too.
func Line(s string) string {
	return strings.NewReplacer("\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(Text(s))
}

func hidden(r rune) bool { return !unicode.IsGraphic(r) && r != '\n' && r != '\r' && r != '\t' }

// Count is a number with its noun, in a plural that takes an s, or es behind ch: 1 rank, 2 ranks, 2 batches.
func Count[N int | int64 | uint64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") {
		noun += "e"
	}
	return fmt.Sprint(n, " "+noun+"s")
}

// Writer passes Text of what it is given on to W.
type Writer struct{ W io.Writer }

// Write takes whole characters: text is never split within one.
func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.W, Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Under is what w writes to in the end: W of a Writer, else w.
func Under(w io.Writer) io.Writer {
	if p, ok := w.(Writer); ok {
		return p.W
	}
	return w
}
