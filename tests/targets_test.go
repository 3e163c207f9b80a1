package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// table is the one file of the compiler that knows which targets there are.
const table = "passes/pass/target.go"

// TestTargets: the compiler asks a target for its traits, and never which one it is. Neither the packages below target nor their
// names are known outside of them and of the table, so that a new target changes nothing but its own package and a row.
func TestTargets(t *testing.T) {
	names := targetNames(t)
	at := places(t)
	for _, f := range sourceFiles(t) {
		if f.test || at[f.pkg].tower != "gtc" || topFolder(f.pkg) == "target" || f.path == table {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(f.path)), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range namesTarget(file, names) {
			t.Errorf("%s: %s: ask the target for a trait (target.Traits), or for a method", f.path, found)
		}
	}
}

// targetNames are those of the packages that the table lists; other folders below target hold what these share.
func targetNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, f := range sourceFiles(t) {
		for _, imported := range f.imports {
			pkg, _ := inModule(imported)
			if name, ok := strings.CutPrefix(pkg, "target/"); ok && f.path == table {
				names = append(names, name)
			}
		}
	}
	if len(names) < 3 {
		t.Fatalf("only %v are in %s", names, table)
	}
	return names
}

// namesTarget lists the places of a file that name a target: imports, strings, and constants of passes/pass.
func namesTarget(file *ast.File, names []string) (found []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			path, _ := strconv.Unquote(n.Path.Value)
			pkg, _ := inModule(path)
			if inside, ok := strings.CutPrefix(pkg, "target/"); ok && slices.Contains(names, topFolder(inside)) {
				found = append(found, "it imports "+pkg)
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && slices.Contains(names, text) {
				found = append(found, "it has the name "+n.Value)
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "pass" && slices.Contains([]string{"CPU", "CUDA", "Host"}, n.Sel.Name) {
				found = append(found, "it has the constant pass."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}

// TestTargetsNotice: each way of naming a target is seen.
func TestTargetsNotice(t *testing.T) {
	for text, want := range map[string]string{
		`import "github.com/gtc-compiler/gtc/target/ref"`:        "it imports target/ref",
		`import "github.com/gtc-compiler/gtc/target/cuda/image"`: "it imports target/cuda/image",
		`import "github.com/gtc-compiler/gtc/target/launch"`:     "",
		`import "github.com/gtc-compiler/gtc/target"`:            "",
		`var x = o.Target == "cuda"`:                             `it has the name "cuda"`,
		`var x = o.Target == pass.CUDA`:                          "it has the constant pass.CUDA",
		`var x = o.Traits().Device`:                              "",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+text+"\n", parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(namesTarget(file, []string{"cpu", "cuda", "ref"}), "; "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
