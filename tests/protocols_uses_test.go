package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// functions are the names of functions of programs, which are ordinary words elsewhere.
var functions = []string{"step", "eval", "forward", "micro", "local", "average"}

// python is where functions are those of Python, as exporters name them.
const python = "frontend/onnx/internal/model/loc.go"

// TestProtocolWords: where ordinary words stand for a function, a result or a role, they are not spelled out: these have names in
// runtime/abi.
func TestProtocolWords(t *testing.T) {
	for _, f := range handWritten(t) {
		if strings.HasSuffix(f.path, "_test.go") || outerProgram(f.pkg) || strings.HasPrefix(f.path, "runtime/abi/") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if what, lit := spelledWord(n); lit != nil && f.path != python {
				t.Errorf("%s spells out %s, %s: runtime/abi has a name for it", f.where(lit.Pos()), what, lit.Value)
			}
			return true
		})
	}
}

// spelledWord finds a string that n uses as a function, a result or a role; nil for none.
func spelledWord(n ast.Node) (what string, lit *ast.BasicLit) {
	switch n := n.(type) {
	case *ast.CallExpr: // f.Result("count"), m.Func("step")
		s, ok := n.Fun.(*ast.SelectorExpr)
		switch {
		case ok && len(n.Args) > 0 && s.Sel.Name == "Result":
			return "a result", word(n.Args[0], nil)
		case ok && len(n.Args) > 0 && s.Sel.Name == "Func":
			return "a function", word(n.Args[0], functions)
		}
	case *ast.BinaryExpr: // t.Role == "param", f.Name == "step"
		if n.Op == token.EQL || n.Op == token.NEQ {
			return compared(n.X, n.Y)
		}
	case *ast.AssignStmt: // f.Name = "micro"
		if len(n.Lhs) == 1 && len(n.Rhs) == 1 {
			return compared(n.Lhs[0], n.Rhs[0])
		}
	case *ast.CompositeLit: // ir.Func{Name: "step"}, abi.Action{Func: "step"}
		s, _ := n.Type.(*ast.SelectorExpr)
		for _, e := range n.Elts {
			kv, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			if k, ok := kv.Key.(*ast.Ident); ok && (k.Name == "Func" || k.Name == "Name" && s != nil && s.Sel.Name == "Func") {
				if lit := word(kv.Value, functions); lit != nil {
					return "a function", lit
				}
			}
		}
	}
	return "", nil
}

// compared finds a string that a field with names of functions, or a role, is compared with or set to.
func compared(field, value ast.Expr) (what string, lit *ast.BasicLit) {
	s, ok := field.(*ast.SelectorExpr)
	switch {
	case ok && s.Sel.Name == "Role":
		return "a role", word(value, nil)
	case ok && (s.Sel.Name == "Name" || s.Sel.Name == "Func"):
		return "a function", word(value, functions)
	}
	return "", nil
}

// word is e when it is a string, not empty, and of the list unless that is nil.
func word(e ast.Expr, list []string) *ast.BasicLit {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return nil
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil || text == "" || list != nil && !slices.Contains(list, text) {
		return nil
	}
	return lit
}

// TestSpelledWord: each way in which a word can be spelled out is found, and others are let through.
func TestSpelledWord(t *testing.T) {
	for text, want := range map[string]string{
		`m.Func("step")`: "a function", `fs.Func("seed", "", set)`: "", `f.Result("count")`: "a result", `b.Result("", v)`: "", `t.Role == "param"`: "a role", `t.Role != abi.RoleParam`: "",
		`f.Name == "eval"`: "a function", `p.Name == "weight"`: "", `a.Func != "micro"`: "a function", `ir.Func{Name: "forward"}`: "a function",
		`abi.Action{Func: "step"}`: "a function", `ir.Func{Name: name}`: "", `mesh.Axis{Name: "step"}`: "",
	} {
		got := ""
		expr, err := parser.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(expr, func(n ast.Node) bool {
			if n != nil {
				if what, lit := spelledWord(n); lit != nil {
					got = what
				}
			}
			return true
		})
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
