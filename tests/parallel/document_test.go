package parallel

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/parallel.md")

const page = "../../docs/parallel.md"

// document holds a table of docs/parallel.md, between two lines that name it, to what was measured.
func document(t *testing.T, name, table string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	from := strings.Index(string(text), begin)
	to := strings.Index(string(text), end)
	if from < 0 || to < from {
		t.Fatalf("%s has no lines %q and %q", page, begin, end)
	}
	from += len(begin)
	if string(text[from:to]) == table {
		return
	}
	if !*update {
		t.Errorf("%s: the table of %s is not what was measured (go test ./tests/parallel -update):\n%s", page, name, table)
		return
	}
	if err := os.WriteFile(page, []byte(string(text[:from])+table+string(text[to:])), 0o644); err != nil {
		t.Fatal(err)
	}
}
