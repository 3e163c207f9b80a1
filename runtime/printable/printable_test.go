package printable

import (
	"bytes"
	"fmt"
	"testing"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain × · …\tµ\n":      "plain × · …\tµ\n",
		"\x1b[31mred\a\x00":     `\x1b[31mred\a\x00`,
		"right\u202eto left":    `right\u202eto left`,
		"zero\u200bwidth":       `zero\u200bwidth`,
		"\x9b broken \xff":      `\x9b broken \xff`,
		"\u009b8;5;1m":          `\u009b8;5;1m`,
		"non\u00a0breaking \r.": "non\u00a0breaking \r.",
	} {
		if got := Text(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
	if got := Line("a\nb\tc\x1b"); got != `a\nb\tc\x1b` {
		t.Errorf("a line is %q", got)
	}
}

func TestWriter(t *testing.T) {
	var b bytes.Buffer
	w := Writer{&b}
	if n, err := fmt.Fprintf(w, "x%s", "\x1b[2J"); n != 5 || err != nil || b.String() != `x\x1b[2J` {
		t.Errorf("%d, %v, %q", n, err, b.String())
	}
	if Under(w) != &b || Under(&b) != &b {
		t.Error("what is under a writer")
	}
}
