package tests

import (
	"path"
	"regexp"
	"slices"
	"testing"
)

// marks are notes that something is unfinished. What is not done is an error that says so, or an issue.
var marks = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)

// vague are package names that say nothing of what is inside.
var vague = []string{"util", "utils", "common", "helper", "helpers", "manager", "misc", "base", "shared", "lib"}

// TestWords: no package has a vague name, and no comment says that something is unfinished.
func TestWords(t *testing.T) {
	for _, f := range handWritten(t) {
		if slices.Contains(vague, path.Base(f.pkg)) || slices.Contains(vague, f.ast.Name.Name) {
			t.Errorf("%s: package %s is named for nothing in particular", f.path, f.ast.Name.Name)
		}
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				if m := marks.FindString(c.Text); m != "" {
					t.Errorf("%s: %s in a comment", f.where(c.Pos()), m)
				}
			}
		}
	}
}
