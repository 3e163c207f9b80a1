package kir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// example has every kind of instruction.
const example = `kernel [4, row 6] chunks=2 work=128
  p0: f32[24] align=64
  p1: i64[6] align=8
  p2: bf16[24] out align=2
  p3: f32[6] out align=64
  v0 = load p0[6*i0 + i1] : f32 elem
  v1 = load p1[i1] : i64 elem
  v2 = index [3 + i0] : i64 row
  v3 = lt v1, v2 : bool elem
  v4 = const -0.5 : f32 uniform
  v5 = select v3, v0, v4 : f32 elem
  v6 = reduce.max v5 : f32 row @1
  v7 = sub v5, v6 : f32 elem @1
  v8 = cast v7 : bf16 elem @1
  v9 = store p2[6*i0 + i1], v8 : bf16 elem @1
  v10 = acc.sum p3[i1], v7 : f32 elem @1
`

// TestText: the example is printed as it was read, and makes sense.
func TestText(t *testing.T) {
	k, err := Parse("# a comment\n" + example)
	if err != nil {
		t.Fatal(err)
	}
	if k.String() != example {
		t.Errorf("printed as\n%s", k)
	}
	if err := k.Verify(); err != nil {
		t.Error(err)
	}
}

// TestParseErrors: what is wrong is told by line and by what was wanted.
func TestParseErrors(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"kernel [4", "[4", `"kernel" is expected`},
		{"kernel [4", "kernel [-4", "line 1: \"-4\" is not a number"},
		{"row 6]", "row 6", `"," is expected`},
		{"p1: i64", "p2: i64", "line 3: p2 is the name of buffer 1"},
		{"p1: i64", "p1: i65", "unknown element type"},
		{"v3 = lt", "v4 = lt", "line 9: v4 is the name of instruction 3"},
		{"v3 = lt v1", "v3 = .lt v1", "the name of an instruction is expected"},
		{": bool elem", ": bool all", "level \"all\" must be"},
		{"v10 = acc.sum p3[i1]", "v10 = acc.sum p3[i2]", "there is no dim 2"},
		{"i0 + i1], v8", "i0 - i1], v8", `"+" is expected`},
		{"const -0.5", "const half", "\"half\" is not a number"},
		{"bf16 elem @1\n  v10", "bf16 elem @1 !\n  v10", "\"!\" is not expected"},
		{example, "", "there is no kernel"},
		{example, example + example, "a second kernel"},
	} {
		if !strings.Contains(example, c.old) {
			t.Fatalf("the example has no %q", c.old)
		}
		_, err := Parse(strings.Replace(example, c.old, c.new, 1))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in place of %q: %v, want %q", c.new, c.old, err, c.want)
		}
	}
}

// TestVerify: each thing that printers rely on is missed when it is not so.
func TestVerify(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"work=128", "work=64", "accumulators take 128 bytes"},
		{"chunks=2", "chunks=0", "0 chunks"},
		{"f32[24]", "f32[23]", "from element 0 to 23 of a param with 23"},
		{"p0[6*i0", "p0[-1 + 6*i0", "from element -1"},
		{"p1: i64[6]", "p1: i32[6]", "it is i64, but p1 is i32"},
		{"lt v1, v2", "lt v1, v9", "v9 does not come before it"},
		{"lt v1, v2", "lt v1, v0", "operands of lt are i64 and f32, but must be of one type"},
		{"lt v1, v2", "lt v1", "takes 2 operands"},
		{"lt v1, v2 : bool", "lt v1, v2 : i64", "it is bool, not i64"},
		{"lt v1", "less v1", "no such instruction"},
		{"select v3", "select v1", "but must be bool"},
		{"reduce.max v5", "reduce.mean v5", "no reduction \"mean\""},
		{"reduce.max v5 : f32 row @1", "reduce.max v5 : f32 row", "comes after 1 reductions, not 0"},
		{"reduce.max v5 : f32 row", "reduce.max v5 : f32 elem", "not elem"},
		{"sub v5, v6 : f32 elem @1", "sub v5, v6 : f32 elem", "comes after 1 reductions"},
		{"sub v5, v6 : f32 elem", "sub v5, v6 : f32 row", "level is elem at least"},
		{"cast v7", "cast v7, v7", "takes 1 operands"},
		{"store p2[6*i0 + i1], v8", "store p2[6*i0 + i1], v7", "v7 is f32"},
		{"[24] out", "[24]", "p2 is not an output"},
		{"f32[24] align", "f32[24] out align", "p0 is an output, but nothing writes it"},
		{"acc.sum p3[i1]", "acc.sum p3[i0]", "varies over rows"},
		{"acc.sum p3[i1], v7", "acc.sum p3[i1], v9", "v9 is not a value"},
		{"p3: f32[6] out", "p3: f32[24] out", "accumulators take 256"},
		{"load p0[6*i0 + i1]", "load p3[i1]", "p3 is read by v0 and written by v10"},
		{"const -0.5 : f32", "const -0.5 : i64", "the constant is not of type i64"},
		{"index [3 + i0] : i64", "index [3 + i0] : i32", "it is i64, not i32"},
	} {
		k, err := Parse(strings.Replace(example, c.old, c.new, 1))
		if err != nil {
			t.Fatalf("%q: %v", c.new, err)
		}
		if err := k.Verify(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in place of %q: %v, want %q", c.new, c.old, err, c.want)
		}
	}
}

// TestEval: the example by hand.
func TestEval(t *testing.T) {
	k, err := Parse(example)
	if err != nil {
		t.Fatal(err)
	}
	b := []Buffer{{F: make([]float64, 24)}, {I: []int64{0, 1, 2, 3, 4, 5}}, NewBuffer(k.Params[2].DType, 24), NewBuffer(k.Params[3].DType, 6)}
	for i := range b[0].F {
		b[0].F[i] = float64(i) / 3
	}
	if err := k.Eval(b); err != nil {
		t.Fatal(err)
	}
	sums := make([]float64, 6)
	for i := range 4 {
		row, most := make([]float64, 6), -0.5
		for j := range row {
			if row[j] = -0.5; j < 3+i {
				row[j] = float64(6*i+j) / 3
			}
			most = max(most, row[j])
		}
		for j, x := range row {
			sums[j] += x - most
			if want := k.Params[2].DType.Round(x - most); b[2].F[6*i+j] != want {
				t.Errorf("element %d of row %d is %v, want %v", j, i, b[2].F[6*i+j], want)
			}
		}
	}
	for j, want := range sums {
		if want = k.Params[3].DType.Round(want); b[3].F[j] != want {
			t.Errorf("sum %d is %v, want %v", j, b[3].F[j], want)
		}
	}
	if err := k.Eval(b[:3:3]); err == nil {
		t.Error("a buffer is missing, which Eval does not tell")
	}
}

// kernels are the texts in testdata: those of models, and those of the printers' golden files.
func kernels(t testing.TB) []string {
	files, err := filepath.Glob("testdata/*.kir")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.Split(strings.TrimSpace(string(text)), "\n\n")...)
	}
	return list
}

// FuzzText: what is read prints as something that reads back and prints the same; Verify does not panic, nor does Eval of what it
// lets through.
func FuzzText(f *testing.F) {
	f.Add(example)
	f.Add("kernel [1, row 1] chunks=1 work=0\n  p0: f16[0] align=0\n  p1: f32[1] align=0\n  v0 = load p1[i0 + i1] : f32 elem\n") // a buffer of nothing
	for _, text := range kernels(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := Parse(text)
		if err != nil {
			return
		}
		once := k.String()
		again, err := Parse(once)
		if err != nil {
			t.Fatalf("printed text does not parse: %v\n%s", err, once)
		}
		if twice := again.String(); twice != once {
			t.Fatalf("text changes:\n%s%s", once, twice)
		}
		if k.Verify() != nil || k.Rows()*k.RowElems()*len(k.Insts) > 1<<16 {
			return
		}
		var b []Buffer
		for _, p := range k.Params {
			if p.Elems > 1<<16 {
				return
			}
			b = append(b, NewBuffer(p.DType, p.Elems))
		}
		if err := k.Eval(b); err != nil {
			t.Fatalf("%v\n%s", err, once)
		}
	})
}
