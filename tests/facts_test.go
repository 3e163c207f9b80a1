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
	"passes/trainstep/masked.go ExpDef":      "infinity for large numbers, which no weight of zero takes away: it is made anew of smaller ones",
	"passes/unstack/unstack.go AttentionDef": "heads of keys are repeated before it, where there are fewer than of queries",
}

// reading lists the passes that read attributes of ops, by which they tell them as well, and what for. None of it asks what an op
// is for its own sake: where that is a fact, facts are asked.
var reading = map[string]string{
	"passes/epilogue/rules.go":      "over which dims a sum is: of a reduction, all of which have these attributes",
	"passes/lora/lora.go":           "which operand of a product, a convolution or a lookup a weight is, and which way it lies",
	"passes/normalize/rows.go":      "which operand of a product is transposed",
	"passes/optimizer/sparse.go":    "along which dim rows are looked up and added, and which row has no gradient",
	"passes/schedule/schedule.go":   "which rank a message goes to or comes from",
	"passes/trainstep/batchnorm.go": "epsilon, momentum and statistics of batch normalisations, which it rewrites",
	"passes/trainstep/masked.go":    "constants, and attributes that are dims, of the same op for other sizes of the batch",
	"passes/unstack/unstack.go":     "how views, products and attention move a dim that is taken apart",
}

// maxNaming is how many places may name an op.
const maxNaming = 9

// TestPassesAskForFacts: passes ask for facts of ops and name none of them, but for what naming lists.
func TestPassesAskForFacts(t *testing.T) {
	found, read := map[string]bool{}, map[string]bool{}
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
		for _, e := range told(f.ast) {
			if read[f.path] = true; reading[f.path] == "" {
				t.Errorf("%s tells an op by its attributes", f.where(e.Pos()))
			}
		}
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
	for _, path := range slices.Sorted(maps.Keys(reading)) {
		if !read[path] {
			t.Errorf("no attributes are read any more in %s", path)
		}
	}
}

// told lists the types of attributes that a file asserts, or chooses by.
func told(file *ast.File) []ast.Expr {
	var out []ast.Expr
	note := func(e ast.Expr) {
		if s, ok := e.(*ast.SelectorExpr); ok && strings.HasSuffix(s.Sel.Name, "Attrs") {
			out = append(out, s)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeAssertExpr:
			note(n.Type)
		case *ast.CaseClause:
			for _, e := range n.List {
				note(e)
			}
		}
		return true
	})
	return out
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
