package rank

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"testing"

	"github.com/dave/jennifer/jen"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// filled sets every field of v, and of what it holds, to something that is not zero and that no other field has; n counts. leaf
// sees each that holds no others, with its path. Functions stay nil: other code stands for them.
func filled(v reflect.Value, path string, n *int, leaf func(path string, v reflect.Value)) {
	*n++
	switch v.Kind() {
	case reflect.Int:
		v.SetInt(int64(*n))
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d \"\n", *n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem(), path, n, leaf)
		return
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			filled(v.Index(i), fmt.Sprintf("%s[%d]", path, i), n, leaf)
		}
		return
	case reflect.Struct:
		for i := range v.NumField() {
			filled(v.Field(i), path+"."+v.Type().Field(i).Name, n, leaf)
		}
		return
	default:
		return
	}
	leaf(path, v)
}

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

// TestLiterals: what generated code holds is what was printed, whatever fields the structs of runtime/abi have or get; and a
// printer that left any of them zero, which is tried with each, would be noticed.
func TestLiterals(t *testing.T) {
	var c abi.Call
	var paths []string
	n := 0
	filled(reflect.ValueOf(&c).Elem(), "", &n, func(path string, _ reflect.Value) { paths = append(paths, path) })
	if got := through(t, c); !reflect.DeepEqual(got, c) {
		t.Fatalf("%+v is printed as what is %+v", c, got)
	}
	for _, faulty := range paths {
		var d abi.Call
		n := 0
		filled(reflect.ValueOf(&d).Elem(), "", &n, func(path string, v reflect.Value) {
			if path == faulty {
				v.SetZero()
			}
		})
		if got := through(t, d); reflect.DeepEqual(got, c) || !reflect.DeepEqual(got, d) {
			t.Errorf("without %s it is printed the same", faulty)
		}
	}
	if len(paths) < 150 {
		t.Errorf("only %d fields were tried: %v", len(paths), paths)
	}
}
