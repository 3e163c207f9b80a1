package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The budgets of a hand-written Go file. A soft bound may be passed by one in twenty, a hard bound by none.
const (
	softFile, hardFile = 400, 800 // lines
	softFunc, hardFunc = 60, 120  // lines from func to the closing brace
	maxParams          = 6
	oneIn              = 20
)

// The budgets of a package, its tests and what generators made apart.
const (
	maxPackage = 5000 // lines
	maxFanOut  = 18   // packages of the module that it imports
	manyUsers  = 10   // packages that import it, from which on it is common ground
	maxCommon  = 8    // packages of the module that common ground may import: what everybody stands on stands on little
)

// large lists packages of more than maxPackage lines, with the reason. It may only become shorter.
var large = map[string]string{
	"ir/ops": "every op, all its rules in one place",
}

// wide lists packages that import more than maxFanOut others, with the reason.
var wide = map[string]string{
	"passes":  "the table of all passes",
	"cmd/gtc": "a command for each thing that can be done",
}

// unbounded lists functions that may be longer than hardFunc, with the reason. A function that is only a table literal or
// one flat switch needs no entry.
var unbounded = map[string]string{}

// calling lists the packages whose functions may take more parameters, with the reason.
var calling = map[string]string{
	"kernels/cpu": "entry points have the calling convention of C kernels: pointers and sizes by position",
}

// parsed is one hand-written file with its syntax.
type parsed struct {
	sourceFile
	fset *token.FileSet
	ast  *ast.File
}

// handWritten parses all files of the module that no generator made.
func handWritten(t *testing.T) []parsed {
	t.Helper()
	var out []parsed
	for _, f := range sourceFiles(t) {
		fset := token.NewFileSet()
		tree, err := parser.ParseFile(fset, filepath.Join(root, filepath.FromSlash(f.path)), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if !ast.IsGenerated(tree) {
			out = append(out, parsed{f, fset, tree})
		}
	}
	return out
}

// lines counts the lines of a node, the first and the last included.
func (p *parsed) lines(n ast.Node) int {
	return p.fset.Position(n.End()).Line - p.fset.Position(n.Pos()).Line + 1
}

// where is path:line of a position.
func (p *parsed) where(pos token.Pos) string {
	return fmt.Sprintf("%s:%d", p.path, p.fset.Position(pos).Line)
}

// TestFileBudget bounds the lines of a file.
func TestFileBudget(t *testing.T) {
	files := handWritten(t)
	var long []string
	for _, f := range files {
		n := f.fset.File(f.ast.FileStart).LineCount()
		if n > hardFile {
			t.Errorf("%s has %d lines, %d at most", f.path, n, hardFile)
		}
		if n > softFile {
			long = append(long, fmt.Sprintf("%s: %d lines", f.path, n))
		}
	}
	share(t, "files of more than", softFile, long, len(files))
}

// share fails when more than one in twenty passes a soft bound, and says which do when asked.
func share(t *testing.T, what string, bound int, over []string, of int) {
	t.Helper()
	list := strings.Join(over, "\n")
	if len(over)*oneIn > of {
		t.Errorf("%d of %d are %s %d lines, one in %d at most:\n%s", len(over), of, what, bound, oneIn, list)
		return
	}
	t.Logf("%d of %d are %s %d lines\n%s", len(over), of, what, bound, list)
}

// TestPackageBudget bounds the lines of a package, how many others it imports, and how many what many import.
func TestPackageBudget(t *testing.T) {
	lines, imports, users := map[string]int{}, map[string]map[string]bool{}, map[string]int{}
	for _, f := range handWritten(t) {
		if f.test {
			continue
		}
		lines[f.pkg] += f.fset.File(f.ast.FileStart).LineCount()
		if imports[f.pkg] == nil {
			imports[f.pkg] = map[string]bool{}
		}
		for _, name := range f.imports {
			if pkg, ours := inModule(name); ours && !imports[f.pkg][pkg] {
				imports[f.pkg][pkg] = true
				if !slices.Contains(outer, topFolder(f.pkg)) {
					users[pkg]++
				}
			}
		}
	}
	for pkg, n := range lines {
		out := len(imports[pkg])
		if over := n > maxPackage; over != (large[pkg] != "") {
			t.Errorf("%s has %d lines, %d at most; listed among large packages: %v", pkg, n, maxPackage, large[pkg] != "")
		}
		if over := out > maxFanOut; over != (wide[pkg] != "") {
			t.Errorf("%s imports %d packages, %d at most; listed among wide packages: %v", pkg, out, maxFanOut, wide[pkg] != "")
		}
		if users[pkg] > manyUsers && out > maxCommon {
			t.Errorf("%s is imported by %d packages and imports %d: what more than %d stand on may import %d", pkg, users[pkg], out, manyUsers, maxCommon)
		}
	}
}

// TestFuncBudget bounds the lines and the parameters of a function. Tests are held to the hard bounds only by review: a
// table of cases is as long as the cases are many.
func TestFuncBudget(t *testing.T) {
	var long []string
	count := 0
	for _, f := range handWritten(t) {
		if f.test {
			continue
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			count++
			name, n := f.pkg+"."+fn.Name.Name, f.lines(fn)
			if n > softFunc {
				long = append(long, fmt.Sprintf("%s %s: %d lines", f.where(fn.Pos()), fn.Name.Name, n))
			}
			if n > hardFunc && unbounded[name] == "" && !flat(fn.Body) {
				t.Errorf("%s: %s has %d lines, %d at most", f.where(fn.Pos()), fn.Name.Name, n, hardFunc)
			}
			if k := fn.Type.Params.NumFields(); k > maxParams && calling[f.pkg] == "" {
				t.Errorf("%s: %s has %d parameters, %d at most", f.where(fn.Pos()), fn.Name.Name, k, maxParams)
			}
		}
	}
	share(t, "functions of more than", softFunc, long, count)
}

// flat reports whether a body is one table or one switch, perhaps with a line or two round it.
func flat(body *ast.BlockStmt) bool {
	if len(body.List) > 3 {
		return false
	}
	for _, s := range body.List {
		switch s := s.(type) {
		case *ast.SwitchStmt, *ast.TypeSwitchStmt:
			return true
		case *ast.ReturnStmt:
			if len(s.Results) == 1 {
				if _, ok := s.Results[0].(*ast.CompositeLit); ok {
					return true
				}
			}
		case *ast.AssignStmt:
			if _, ok := s.Rhs[0].(*ast.CompositeLit); ok {
				return true
			}
		}
	}
	return false
}

// TestDocumented: every exported name outside tests has a doc comment, and every package one that says what it is.
func TestDocumented(t *testing.T) {
	packages := map[string]bool{}
	for _, f := range handWritten(t) {
		if f.test {
			continue
		}
		packages[f.pkg] = packages[f.pkg] || f.ast.Doc != nil
		for _, decl := range f.ast.Decls {
			for _, name := range bare(decl) {
				t.Errorf("%s: %s has no doc comment", f.where(name.Pos()), name.Name)
			}
		}
	}
	for pkg, ok := range packages {
		if !ok {
			t.Errorf("%s: no file has a package comment", pkg)
		}
	}
}

// bare lists the exported names that a declaration leaves without a comment. The comment of a group of constants or
// variables serves for all in it, and a comment at the end of the line serves too. Methods of unexported types count as
// unexported.
func bare(decl ast.Decl) []*ast.Ident {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && (d.Recv == nil || exportedType(d.Recv.List[0].Type)) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		var out []*ast.Ident
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && s.Doc == nil && s.Comment == nil && (d.Doc == nil || d.Lparen.IsValid()) {
					out = append(out, s.Name)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
						out = append(out, n)
					}
				}
			}
		}
		return out
	}
	return nil
}

// exportedType reports whether the type of a receiver is exported.
func exportedType(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.StarExpr:
		return exportedType(e.X)
	case *ast.IndexExpr:
		return exportedType(e.X)
	case *ast.IndexListExpr:
		return exportedType(e.X)
	case *ast.Ident:
		return e.IsExported()
	}
	return false
}
