package rank

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"testing"

	"github.com/dave/jennifer/jen"

	"github.com/gtc-compiler/gtc/internal/mutations"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// evaluated sets v to what the expression e, which generated code holds, gives. Types are those of v.
func evaluated(t *testing.T, e ast.Expr, v reflect.Value) {
	t.Helper()
	switch e := e.(type) {
	case *ast.UnaryExpr:
		v.Set(reflect.New(v.Type().Elem()))
		evaluated(t, e.X, v.Elem())
	case *ast.BasicLit:
		var err error
		switch v.Kind() {
		case reflect.String:
			var s string
			s, err = strconv.Unquote(e.Value)
			v.SetString(s)
		case reflect.Float64:
			var x float64
			x, err = strconv.ParseFloat(e.Value, 64)
			v.SetFloat(x)
		case reflect.Uint64:
			var x uint64
			x, err = strconv.ParseUint(e.Value, 10, 64)
			v.SetUint(x)
		default:
			var x int64
			x, err = strconv.ParseInt(e.Value, 10, 64)
			v.SetInt(x)
		}
		if err != nil {
			t.Fatal(err)
		}
	case *ast.Ident:
		v.SetBool(e.Name == "true")
	case *ast.CompositeLit:
		if v.Kind() == reflect.Slice {
			v.Set(reflect.MakeSlice(v.Type(), len(e.Elts), len(e.Elts)))
		}
		for i, x := range e.Elts {
			if field, keyed := x.(*ast.KeyValueExpr); keyed {
				evaluated(t, field.Value, v.FieldByName(field.Key.(*ast.Ident).Name))
			} else {
				evaluated(t, x, v.Index(i))
			}
		}
	default:
		t.Fatalf("a %T in a literal", e)
	}
}

// through prints c and evaluates what was printed.
func through(t *testing.T, c abi.Call) abi.Call {
	t.Helper()
	f := jen.NewFile("p")
	f.Var().Id("x").Op("=").Add(literal(c))
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", f.GoString(), 0)
	if err != nil {
		t.Fatalf("%v\n%s", err, f.GoString())
	}
	var out abi.Call
	for _, d := range file.Decls {
		if s, ok := d.(*ast.GenDecl).Specs[0].(*ast.ValueSpec); ok {
			evaluated(t, s.Values[0], reflect.ValueOf(&out).Elem())
		}
	}
	return out
}

// TestMutationsOfLiterals: what generated code holds is what was printed, whatever fields the structs of runtime/abi have or get; and
// a printer that left any of them zero, which is tried with each, would be noticed.
func TestMutationsOfLiterals(t *testing.T) {
	mutations.Zeroed(mutations.Of(t, 150), "the printer of programs", func(c abi.Call) abi.Call { return through(t, c) })
}
