package faults

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Rows about forms of files.
var (
	fileComparisons = []comparison{
		{file: "unsorted", says: []string{"are not sorted"}},
		{file: "layernorm_opset14"},
		{file: "sparse_weight", flags: []string{"--train", "w"}, says: []string{`"w" is a sparse initializer`}},
		{file: "declared_otherwise", reference: "unsorted", layouts: []string{""}, refused: `"w" has dims [6 5] and is declared as an input of dims [6 7]`},
		{file: "two_payloads", reference: "unsorted", layouts: []string{""}, refused: "more than one payload"},
		{file: "group_zero", reference: "unsorted", layouts: []string{""}, refused: `attribute "group" is 0`},
		{file: "baked_dropout", says: []string{`the random numbers of "u" make a dropout: training draws it, evaluation leaves it out`}, processes: []string{"--dp 2"}},
		{file: "tied_named_transpose", flags: []string{"--tie", "wT=w"}, processes: []string{"--dp 2"}},
	}
	fileTrainings []training
)

// TestHints: what is not decided for the user is said, by every command that imports, with the flag that decides it, and no longer
// once it is given.
func TestHints(t *testing.T) {
	for _, c := range []struct{ file, flag, says string }{
		{"tied_named_transpose", "--tie wT=w", `"wT" holds exactly the values of "w", transposed, and is trained separately: give --tie wT=w if they are one parameter`},
		{"tied_named_copy", "--tie lm_head.weight=wte.weight", `"lm_head.weight" holds exactly the values of "wte.weight" and is trained separately: give --tie lm_head.weight=wte.weight if they are one parameter`},
		{"zero_row_embedding", "--padding-idx e=0", `row 0 of the table "e" is its only row of zeros, as a padding row is: --padding-idx e=0 keeps it as it is`},
	} {
		if !chosen(c.file) {
			continue
		}
		model := input(t, c.file+".onnx")
		commands := [][]string{{"inspect", model}, {"compile", model, "--no-build", "-o", filepath.Join(t.TempDir(), "out"), "--batch", "4", "--loss", "cross_entropy"}}
		if c.file == "tied_named_transpose" {
			commands = append(commands, []string{"check", model, "--reference", input(t, c.file+".npz"), "--simulate"})
		}
		for _, args := range commands {
			code, text := gtc(t, args...)
			if want := map[string]int{"check": 1}[args[0]]; code != want || strings.Count(text, c.says) != 1 {
				t.Errorf("gtc %s: code %d, want %d and %q once\n%s", strings.Join(args, " "), code, want, c.says, text)
			}
			code, text = gtc(t, slices.Concat(args, strings.Fields(c.flag))...)
			if code != 0 || strings.Contains(text, c.says) {
				t.Errorf("gtc %s %s: code %d\n%s", strings.Join(args, " "), c.flag, code, text)
			}
		}
	}
}
