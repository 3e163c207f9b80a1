package tests

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// architecture is the map of the sources.
const architecture = "docs/architecture.md"

// named are `path` and `path:Name` in a document.
var named = regexp.MustCompile("`([.a-z][A-Za-z0-9_./*-]*/[A-Za-z0-9_./*-]+|[a-z_]+\\.go)(?::([A-Za-z][A-Za-z0-9_]*))?`")

// TestArchitecture: every file, folder and declaration that docs/architecture.md names is there, every folder with sources is in
// it, and the table of packages is what their comments say.
func TestArchitecture(t *testing.T) {
	path := filepath.Join(root, filepath.FromSlash(architecture))
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := declared(t)
	text := withFolders(t, string(page), m.comments)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	} else if text != string(page) {
		n, now, old := firstDifference(text, string(page))
		t.Errorf("%s is out of date from line %d on:\n  %s\nthe packages now say\n  %s\nif that is meant: go test ./tests -run TestArchitecture -update", architecture, n, old, now)
	}
	count := 0
	for i, line := range strings.Split(text, "\n") {
		for _, found := range named.FindAllStringSubmatch(line, -1) {
			count++
			if why := m.missing(found[1], found[2]); why != "" {
				t.Errorf("%s:%d: %s", architecture, i+1, why)
			}
		}
	}
	if count < 100 {
		t.Errorf("only %d names were found", count)
	}
	suites, err := os.ReadFile(filepath.Join(root, "tests", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for folder := range m.comments {
		if suite := regexp.MustCompile("^tests/[a-z0-9]+").FindString(folder); suite != "" && !strings.Contains(string(suites), "`"+suite+"`") {
			t.Errorf("tests/README.md says nothing of %s", suite)
		}
	}
}

// withFolders is the page with the table of packages that have a comment.
func withFolders(t *testing.T, page string, comments map[string]string) string {
	t.Helper()
	const begin, end = "<!-- begin folders -->\n", "<!-- end folders -->"
	before, rest, ok := strings.Cut(page, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no lines %q and %q", architecture, begin, end)
	}
	at := places(t)
	var b strings.Builder
	b.WriteString("| folder | | what it is |\n|---|---|---|\n")
	for _, pkg := range slices.Sorted(maps.Keys(comments)) {
		if tower := map[string]string{"both": "leaf", "run": "run", "test": "test"}[at[pkg].tower]; comments[pkg] != "" {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", pkg, tower, oneLine(comments[pkg]))
		}
	}
	return before + begin + b.String() + end + after
}

// oneLine is the first sentence of a package's comment, without the words that only name it.
func oneLine(comment string) string {
	s := new(doc.Package).Synopsis(comment)
	s = regexp.MustCompile(`^(Package|Command) [a-z0-9]+ (is |are )?`).ReplaceAllString(s, "")
	return strings.TrimRight(strings.ReplaceAll(s, "|", "\\|"), ".:")
}

// declarations are the names that each file declares, methods by their own, and the comment of each package that is not
// only tests.
type declarations struct {
	files    map[string]map[string]bool
	comments map[string]string
}

// declared reads all Go files.
func declared(t *testing.T) *declarations {
	t.Helper()
	d := &declarations{files: map[string]map[string]bool{}, comments: map[string]string{}}
	for _, f := range sourceFiles(t) {
		tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(f.path)), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if f.test {
			d.comments[f.pkg] += ""
		} else if tree.Doc != nil {
			d.comments[f.pkg] = tree.Doc.Text()
		}
		d.files[f.path] = names(tree)
	}
	return d
}

// names are those that a file declares.
func names(file *ast.File) map[string]bool {
	out := map[string]bool{}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			out[f.Name.Name] = true
			continue
		}
		for _, s := range decl.(*ast.GenDecl).Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				out[s.Name.Name] = true
			case *ast.ValueSpec:
				for _, n := range s.Names {
					out[n.Name] = true
				}
			}
		}
	}
	return out
}

// missing says what is wrong with a name of the page, and where the thing is now if one other file has it; "" when it is right.
func (d *declarations) missing(path, name string) string {
	found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(path)))
	where := ""
	if name != "" {
		var list []string
		for file, names := range d.files {
			if names[name] {
				list = append(list, file)
			}
		}
		if slices.Sort(list); len(list) > 0 && len(list) < 4 {
			where = "; " + name + " is declared in " + strings.Join(list, ", ")
		}
	}
	switch {
	case err != nil || len(found) == 0:
		return path + " does not exist" + where
	case name != "" && !d.files[path][name]:
		return path + " does not declare " + name + where
	}
	return ""
}

// TestArchitectureNotices: what is not there is told, with the place where it is now.
func TestArchitectureNotices(t *testing.T) {
	d := declared(t)
	for _, c := range []struct{ path, name, want string }{
		{"tests/layers_test.go", "layers", ""},
		{"tests/layers_test.go", "places", ""},
		{"tests/budget_test.go", "forbidden", "tests/budget_test.go does not declare forbidden; forbidden is declared in tests/layers_test.go"},
		{"tests/layer_test.go", "inModule", "tests/layer_test.go does not exist; inModule is declared in tests/layers_test.go"},
		{"tests/nowhere", "", "tests/nowhere does not exist"},
		{"tests/*_test.go", "", ""},
	} {
		if got := d.missing(c.path, c.name); got != c.want {
			t.Errorf("%s:%s: %q, want %q", c.path, c.name, got, c.want)
		}
	}
}
