package folder

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// code is what the Go files of a generated package say, read without compiling them.
type code struct {
	calls    map[string]*ast.CompositeLit // the lists of calls, by variable
	programs map[int]map[string]string    // by index: function -> variable
	fset     *token.FileSet
}

// readCode parses the Go files of a package.
func readCode(pkg string, files map[string][]byte) (*code, error) {
	c := &code{calls: map[string]*ast.CompositeLit{}, programs: map[int]map[string]string{}, fset: token.NewFileSet()}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) != ".go" {
			continue
		}
		f, err := parser.ParseFile(c.fset, pkg+"/"+name, files[name], parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				for i, value := range v.Values {
					if lit, ok := value.(*ast.CompositeLit); ok && i < len(v.Names) {
						c.variable(v.Names[i].Name, lit)
					}
				}
			}
		}
	}
	return c, nil
}

// variable takes a list of calls, or a program.
func (c *code) variable(name string, lit *ast.CompositeLit) {
	if _, list := lit.Type.(*ast.ArrayType); list {
		c.calls[name] = lit
		return
	}
	index, funcs := -1, map[string]string{}
	for key, value := range fields(lit) {
		switch key {
		case "Index":
			index = number(value)
		case "Funcs":
			m, _ := value.(*ast.CompositeLit)
			if m == nil {
				continue
			}
			for _, e := range m.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				if v, ok := kv.Value.(*ast.Ident); ok {
					funcs[text(kv.Key)] = v.Name
				}
			}
		}
	}
	if index >= 0 {
		c.programs[index] = funcs
	}
}

// compare tells the first difference between a program's code and its description.
func (c *code) compare(index int, p *abi.Program) string {
	funcs := c.programs[index]
	if funcs == nil {
		return fmt.Sprintf("%s has no program %d", p.Package, index)
	}
	for _, f := range p.Funcs {
		lit := c.calls[funcs[f.Name]]
		if lit == nil {
			return fmt.Sprintf("%s has no calls of @%s of program %d", p.Package, f.Name, index)
		}
		var want []abi.Collective
		for _, col := range p.Collectives {
			if col.Func == f.Name {
				want = append(want, col)
			}
		}
		if fault := c.compareCalls(lit, f.Name, want); fault != "" {
			return fmt.Sprintf("program %d is not what the plan says: %s", index, fault)
		}
	}
	return ""
}

// compareCalls compares the collectives of one function.
func (c *code) compareCalls(lit *ast.CompositeLit, fn string, want []abi.Collective) string {
	n := 0
	for _, e := range lit.Elts {
		call, ok := e.(*ast.CompositeLit)
		if !ok {
			continue
		}
		got, where, ok := c.collective(call)
		if !ok {
			continue
		}
		if n >= len(want) {
			return fmt.Sprintf("%s: @%s issues %s, which the plan does not have", where, fn, describe(got))
		}
		w := want[n]
		n++
		if describe(got) != describe(w) {
			return fmt.Sprintf("%s: @%s issues %s; the plan has %s", where, fn, describe(got), describe(w))
		}
	}
	if n < len(want) {
		return fmt.Sprintf("%s: @%s lacks %s", c.fset.Position(lit.Pos()), fn, describe(want[n]))
	}
	return ""
}

// collective reads the Comm of a call; false for kernels and for slices, which talk to nobody.
func (c *code) collective(call *ast.CompositeLit) (abi.Collective, string, bool) {
	ref, ok := fields(call)["Comm"].(*ast.UnaryExpr)
	if !ok {
		return abi.Collective{}, "", false
	}
	lit, ok := ref.X.(*ast.CompositeLit)
	if !ok {
		return abi.Collective{}, "", false
	}
	f := fields(lit)
	out := abi.Collective{Kind: mesh.Collective(text(f["Kind"])), Axis: text(f["Axis"]), Peer: max(0, number(f["Peer"])), Op: text(f["Op"]), DType: text(f["DType"]),
		Bytes: number(f["Bytes"]), Tensors: []string{text(f["Tensor"])}, Loc: text(f["Loc"])}
	return out, c.fset.Position(lit.Pos()).String(), out.Kind.Talks()
}

// describe tells what the code and the plan say alike of a collective.
func describe(c abi.Collective) string {
	peer := ""
	if c.Kind.Message() {
		peer = fmt.Sprintf(" with %d", c.Peer)
	}
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s over %s%s of %s, %d bytes (%s) at %s", c.Kind, c.Op, c.Axis, peer, c.DType, c.Bytes,
		strings.Join(c.Tensors, ", "), c.Loc)), " ")
}

// fields are the named fields of a struct literal.
func fields(lit *ast.CompositeLit) map[string]ast.Expr {
	out := map[string]ast.Expr{}
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if k, ok := kv.Key.(*ast.Ident); ok {
				out[k.Name] = kv.Value
			}
		}
	}
	return out
}

// text is a string literal's value, "" for anything else.
func text(e ast.Expr) string {
	if b, ok := e.(*ast.BasicLit); ok && b.Kind == token.STRING {
		if s, err := strconv.Unquote(b.Value); err == nil {
			return s
		}
	}
	return ""
}

// number is an integer literal's value, -1 for anything else.
func number(e ast.Expr) int {
	if b, ok := e.(*ast.BasicLit); ok && b.Kind == token.INT {
		if n, err := strconv.Atoi(b.Value); err == nil {
			return n
		}
	}
	return -1
}
