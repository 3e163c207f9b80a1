package kir

import (
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// computed are the types that kernels compute in, and halves those that they compute in f32.
var (
	computed = []dtype.DType{dtype.F32, dtype.F64, dtype.I8, dtype.I16, dtype.I32, dtype.I64, dtype.U8, dtype.U16, dtype.U32, dtype.U64, dtype.Bool}
	halves   = []dtype.DType{dtype.F16, dtype.BF16}
)

// TestTable: each row says, for the types that it takes, what the function is and how it is printed; that both agree is held to
// by running them, in codegen/c and codegen/cuda.
func TestTable(t *testing.T) {
	for _, f := range All() {
		if f.Rule == Convert { // the printers know conversions: they are between two types
			continue
		}
		for _, d := range slices.Concat(computed, halves) {
			switch takes := f.Takes.Has(d); {
			case (takes || f.Rule == Choose) && f.C.of(d) == "":
				t.Errorf("%s of %s is not printed", f.Name, d)
			case takes && (d.IsFloat() && f.Float == nil || !d.IsFloat() && f.Int == nil):
				t.Errorf("%s of %s has no meaning", f.Name, d)
			}
		}
	}
	if Lookup("nothing") != nil || len(All()) != len(byName) {
		t.Error("Lookup finds other functions than All lists")
	}
}

// TestResult: types follow from the rule, and what does not fit is refused.
func TestResult(t *testing.T) {
	f32, i64, b := dtype.F32, dtype.I64, dtype.Bool
	for _, c := range []struct {
		name string
		to   dtype.DType
		args []dtype.DType
		want dtype.DType // Invalid: an error
	}{
		{"add", 0, []dtype.DType{f32, f32}, f32}, {"add", 0, []dtype.DType{f32, i64}, 0}, {"add", 0, []dtype.DType{b, b}, 0}, {"add", 0, []dtype.DType{f32}, 0},
		{"lt", 0, []dtype.DType{i64, i64}, b}, {"isnan", 0, []dtype.DType{f32}, b}, {"isnan", 0, []dtype.DType{i64}, 0},
		{"select", 0, []dtype.DType{b, i64, i64}, i64}, {"select", 0, []dtype.DType{i64, i64, i64}, 0}, {"select", 0, []dtype.DType{b, i64, f32}, 0},
		{"cast", i64, []dtype.DType{f32}, i64}, {"cast", 0, []dtype.DType{f32}, 0}, {"bitcast", dtype.I32, []dtype.DType{f32}, dtype.I32}, {"bitcast", i64, []dtype.DType{f32}, 0},
		{"exp", 0, []dtype.DType{dtype.F8E4M3}, 0},
	} {
		got, err := Lookup(c.name).Result(c.to, c.args...)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("%s of %v is %s, %v; want %s", c.name, c.args, got, err, c.want)
		}
	}
}
