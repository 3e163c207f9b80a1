package rank

import (
	"fmt"
	"reflect"

	"github.com/dave/jennifer/jen"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Structs of runtime/abi that generated code holds are printed here, whatever fields they have: in the order in which they are
// declared, those that are zero left out, unless their tag print says always.

// atTrain are the structs that generated code calls by the names which runtime/train gives them.
var atTrain = []reflect.Type{reflect.TypeFor[abi.Call](), reflect.TypeFor[abi.Comm](), reflect.TypeFor[abi.Copy](), reflect.TypeFor[abi.Span]()}

// literal is the Go expression for x.
func literal(x any) jen.Code { return literalOf(reflect.ValueOf(x), true) }

// literalOf prints v; typed says that a struct's type must stand before its fields, as it need not in a list of them.
func literalOf(v reflect.Value, typed bool) *jen.Statement {
	switch v.Kind() {
	case reflect.Int, reflect.Float64, reflect.Bool:
		return jen.Lit(v.Interface())
	case reflect.String: // also of a type of its own, which Go gives the constant where it stands
		return jen.Lit(v.String())
	case reflect.Uint64:
		return jen.Id(fmt.Sprint(v.Uint()))
	case reflect.Pointer:
		return jen.Op("&").Add(literalOf(v.Elem(), true))
	case reflect.Slice, reflect.Array:
		return typeOf(v.Type()).ValuesFunc(func(list *jen.Group) {
			for i := range v.Len() {
				list.Add(literalOf(v.Index(i), false))
			}
		})
	case reflect.Struct:
		s := jen.Null()
		if typed {
			s = typeOf(v.Type())
		}
		return s.Values(fields(v, nil)...)
	}
	panic("BUG: generated code cannot hold a " + v.Type().String())
}

// fields are those of struct v, and those that other code stands for, by name, in their places.
func fields(v reflect.Value, other map[string]jen.Code) []jen.Code {
	var list []jen.Code
	for i := range v.NumField() {
		f := v.Type().Field(i)
		code := other[f.Name]
		if code == nil {
			if zero := v.Field(i).IsZero() || f.Type.Kind() == reflect.Slice && v.Field(i).Len() == 0; zero && f.Tag.Get("print") != "always" {
				continue
			}
			code = literalOf(v.Field(i), true)
		}
		list = append(list, jen.Id(f.Name).Op(":").Add(code))
	}
	return list
}

// typeOf is how generated code writes type t.
func typeOf(t reflect.Type) *jen.Statement {
	switch t.Kind() {
	case reflect.Slice:
		return jen.Index().Add(typeOf(t.Elem()))
	case reflect.Array:
		return jen.Index(jen.Lit(t.Len())).Add(typeOf(t.Elem()))
	case reflect.Struct:
		for _, known := range atTrain {
			if t == known {
				return jen.Qual(trainPath, t.Name())
			}
		}
		return jen.Qual(abiPath, t.Name())
	}
	return jen.Id(t.String())
}
