package tests

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// patterns are the packages in which passes match shapes of graphs, and so may name any op.
var patterns = []string{"passes/recognize", "passes/simplify", "passes/algebra"}

// naming lists the ops that other passes name all the same, with the reason. What a pass must know of ops in general is a
// fact of theirs (ir.Facts), or follows from another rule.
var naming = map[string]string{
	"passes/epilogue/rules.go GtDef":         "the gradient of relu has no op: it is a choice by x > 0",
	"passes/precision/plan.go TopKDef":       "routers of experts choose by a softmax, whose ties matter: a shape of two ops",
	"passes/precision/plan.go SoftmaxDef":    "the same",
	"passes/trainstep/accuracy.go XentDef":   "the one loss that accuracy is counted beside",
	"passes/trainstep/accuracy.go NeDef":     "models spell so which targets count in such a loss",
	"passes/unstack/unstack.go AttentionDef": "heads of keys are repeated before it, where there are fewer than of queries",
}

// maxNaming is how many places may name an op.
const maxNaming = 9

// TestPassesAskForFacts: passes ask for facts of ops and name none of them, but for what naming lists.
func TestPassesAskForFacts(t *testing.T) {
	found := map[string]bool{}
	for _, f := range handWritten(t) {
		if !strings.HasPrefix(f.pkg, "passes") || slices.Contains(patterns, f.pkg) || strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch x, _ := s.X.(*ast.Ident); {
			case x != nil && x.Name == "ops" && strings.HasSuffix(s.Sel.Name, "Def"):
				key := f.path + " " + s.Sel.Name
				if found[key] = true; naming[key] == "" {
					t.Errorf("%s names %s: what the pass must know of it may be a fact (ir.Facts), which the test of ir/ops checks", f.where(s.Pos()), s.Sel.Name)
				}
			case x != nil && x.Name == "ir" && s.Sel.Name == "LookupDef":
				t.Errorf("%s looks up an op by its name", f.where(s.Pos()))
			}
			return true
		})
		ast.Inspect(f.ast, func(n ast.Node) bool {
			b, ok := n.(*ast.BinaryExpr)
			if ok && (defName(b.X) || defName(b.Y)) && (b.Op.String() == "==" || b.Op.String() == "!=") {
				t.Errorf("%s compares the name of an op", f.where(b.Pos()))
			}
			if s, ok := n.(*ast.SwitchStmt); ok && s.Tag != nil && defName(s.Tag) {
				t.Errorf("%s chooses by the name of an op", f.where(s.Pos()))
			}
			return true
		})
	}
	if len(naming) > maxNaming {
		t.Errorf("%d places name ops, more than %d", len(naming), maxNaming)
	}
	for _, key := range slices.Sorted(maps.Keys(naming)) {
		if !found[key] {
			t.Errorf("nothing is named any more at %s", key)
		}
	}
}

// defName reports whether e is the name of an op's kind.
func defName(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Name" {
		return false
	}
	d, ok := s.X.(*ast.SelectorExpr)
	return ok && d.Sel.Name == "Def"
}
