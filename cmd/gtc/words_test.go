package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// plain are the ways in which the fault of a flag is told: what it must be, what it needs, what it has no effect with.
var plain = regexp.MustCompile(` must be | needs | has no effect | have no effect | need | cannot be | exclude each other|: write |: say which |: at most | at most | is not supported yet| is empty: give `)

// TestMessages: an error about a flag says so in one of these ways.
func TestMessages(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, filepath.Join("..", "..", "compiler", "limits.go"), filepath.Join("..", "..", "runtime", "train", "internal", "loop", "flags.go"))
	n := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			lit, isText := call.Args[0].(*ast.BasicLit)
			if !ok || !isText || f.Sel.Name != "Errorf" && f.Sel.Name != "New" {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil || !strings.HasPrefix(text, "--") || strings.HasSuffix(text, ": %w") {
				return true
			}
			if n++; !plain.MatchString(text) {
				t.Errorf("%s: %q says neither what the flag must be or needs, nor what it has no effect with", fset.Position(lit.Pos()), text)
			}
			return true
		})
	}
	if n < 20 {
		t.Errorf("only %d messages were found", n)
	}
}
