package group_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// views is a random chain of views on %x, the results of which are its values.
func views(r *rand.Rand) *ir.Func {
	f := &ir.Func{Name: "views"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "views"}
	v := b.Param("x", ir.T(dtype.F32, 2, 3, 4), ir.Input)
	for range 1 + r.IntN(6) {
		dims := v.Type.Dims
		n := len(dims)
		d := r.IntN(n)
		switch r.IntN(5) {
		case 0:
			v = ops.Transpose(b, v, r.Perm(n))
		case 1:
			start := r.IntN(dims[d])
			v = ops.SliceDim(b, v, d, start, 1+r.IntN(dims[d]-start))
		case 2:
			v = ops.Reshape(b, v, []int{ir.Product(dims)})
		case 3:
			v = ops.Reshape(b, v, append([]int{1}, dims...))
		case 4:
			if dims[0] == 1 {
				v = ops.Expand(b, v, append([]int{3}, dims[1:]...))
			}
		}
		b.Result("", v)
	}
	return f
}

// TestResolve holds accesses to what the views give when they are evaluated: element for element, from the value that Resolve
// says holds them; where a chain is not affine, to the view at which it breaks.
func TestResolve(t *testing.T) {
	affine, broken := 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := views(r)
		if len(f.Ops) == 0 {
			continue // the constructors make none of views that change nothing
		}
		if k := r.IntN(2 * len(f.Ops)); k < len(f.Ops) {
			f.Ops[k].Group = 1 // a copy
		}
		x := ir.NewArray(f.Params[0].Type)
		for i := range x.F {
			x.F[i] = float64(i)
		}
		values := map[*ir.Value]*ir.Array{f.Params[0]: x}
		for _, op := range f.Ops {
			in := make([]*ir.Array, len(op.In))
			for i, v := range op.In {
				in[i] = values[v]
			}
			out, err := interp.Op(op, in)
			if err != nil {
				t.Fatal(err)
			}
			values[op.Out[0]] = out[0]
		}
		for _, op := range f.Ops {
			v := op.Out[0]
			src, acc, ok := group.Resolve(v)
			if !ok {
				broken++
				if !group.Virtual(v) || src.Op == nil || values[src] == nil {
					t.Fatalf("seed %d: %%%s breaks at %%%s\n%s", seed, v.Name, src.Name, f)
				}
				continue
			}
			affine++
			if group.Virtual(src) || !slices.Equal(acc.Dims, v.Type.Dims) {
				t.Fatalf("seed %d: %%%s resolves to %%%s, over %v\n%s", seed, v.Name, src.Name, acc.Dims, f)
			}
			for i, want := range values[v].F {
				if got := values[src].F[place(acc, i)]; got != want {
					t.Fatalf("seed %d: element %d of %%%s is %g at its place in %%%s, want %g\n%s", seed, i, v.Name, got, src.Name, want, f)
				}
			}
			dense := acc.IsDense() && src.Type.Elems() == v.Type.Elems()
			if alias := group.Alias(v); (alias == src) != (dense || v == src) || alias != src && alias != v {
				t.Fatalf("seed %d: %%%s shares the buffer of %%%s\n%s", seed, v.Name, alias.Name, f)
			}
		}
	}
	if affine < 400 || broken < 20 {
		t.Errorf("only %d affine views and %d that are not", affine, broken)
	}
}

// place is where element i of a view lies.
func place(a kir.Access, i int) int {
	at := a.Offset
	for d := len(a.Dims) - 1; d >= 0; d-- {
		at += i % a.Dims[d] * a.Strides[d]
		i /= a.Dims[d]
	}
	return at
}

func parse(t *testing.T, text string) *ir.Func {
	t.Helper()
	m, err := ir.Parse(text)
	if err == nil {
		err = m.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	return m.Funcs[0]
}

// TestList: groups in the order of their first ops; what they read from outside, through views, without literals; and what others
// read of them.
func TestList(t *testing.T) {
	f := parse(t, `func @f(%x: f32[2,3], %y: f32[2,3]) {
  %two = const {value=f32[1,1](2.0)} : f32[1,1]
  %all = expand %two {dims=[2,3]} : f32[2,3]
  %m = mul %x, %all : f32[2,3] @1
  %s = reduce_sum %m {dims=[1]} : f32[2,1] @1
  %t = transpose %m {perm=[1,0]} : f32[3,2]
  %p = matmul %t, %y : f32[3,3] @2
  %e = expand %s {dims=[2,3]} : f32[2,3]
  %n = neg %p : f32[3,3] @3
  %d = sub %e, %y : f32[2,3] @4
  return out0=%n, out1=%t
}
`)
	outs := group.Outputs(f)
	var lines []string
	for _, g := range group.List(f) {
		lines = append(lines, fmt.Sprintf("%d: %s -> %s", g.ID, names(g.Inputs()), names(outs[g.ID])))
	}
	if got, want := strings.Join(lines, "\n"), "1: x -> m s\n2: m y -> p\n3: p -> n\n4: s y -> "; got != want {
		t.Errorf("groups are\n%s\nwant\n%s", got, want)
	}
	if e, ok := group.Scalar(f.Ops[1].Out[0]); !ok || e.Op != "const" {
		t.Error("a repeated constant is no scalar")
	}
	if _, ok := group.Scalar(f.Ops[2].Out[0]); ok {
		t.Error("a product is a scalar")
	}
}

func names(list []*ir.Value) string {
	var s []string
	for _, v := range list {
		s = append(s, v.Name)
	}
	return strings.Join(s, " ")
}

// TestSpace: which ops fit one iteration space, in program order, and at which level each then is.
func TestSpace(t *testing.T) {
	for _, c := range []struct {
		name, ops string
		levels    string // of the ops' results: f over all, r one a row, a collected over rows; - does not fit
		rows      [2]int // their number, and elements of one, at the end
	}{
		{"elements", "%a = neg %x : f32[6,4]\n %b = exp %a : f32[6,4]", "ff", [2]int{6, 4}},
		{"through a view", "%r = reshape %x {dims=[24]} : f32[24]\n %a = neg %r : f32[24]\n %b = exp %x : f32[6,4]", "fff", [2]int{6, 4}},
		{"rows", "%s = reduce_sum %x {dims=[1]} : f32[6,1]\n %e = expand %s {dims=[6,4]} : f32[6,4]\n %d = sub %x, %e : f32[6,4]\n %q = reduce_max %d {dims=[1]} : f32[6,1]", "rffr", [2]int{6, 4}},
		{"of rows", "%s = reduce_sum %x {dims=[1]} : f32[6,1]\n %q = exp %s : f32[6,1]", "rr", [2]int{6, 4}},
		{"columns", "%a = neg %x : f32[6,4]\n %s = reduce_sum %a {dims=[0]} : f32[1,4]", "fa", [2]int{6, 4}},
		{"rows and columns", "%s = reduce_sum %x {dims=[1]} : f32[6,1]\n %e = expand %s {dims=[6,4]} : f32[6,4]\n %c = reduce_sum %e {dims=[0]} : f32[1,4]", "rfa", [2]int{6, 4}},
		{"everything", "%s = reduce_sum %x {dims=[0,1]} : f32[1,1]", "a", [2]int{6, 4}},
		{"a column is read", "%s = reduce_sum %x {dims=[0]} : f32[1,4]\n %e = expand %s {dims=[6,4]} : f32[6,4]\n %d = sub %x, %e : f32[6,4]", "a--", [2]int{6, 4}},
		{"rows the other way", "%s = reduce_sum %x {dims=[1]} : f32[6,1]\n %t = transpose %x {perm=[1,0]} : f32[4,6]\n %d = neg %t : f32[4,6]", "r--", [2]int{6, 4}},
		{"read where it was not made", "%a = neg %x : f32[6,4]\n %t = transpose %a {perm=[1,0]} : f32[4,6]\n %r = reshape %t {dims=[6,4]} : f32[6,4]\n %b = exp %r : f32[6,4]", "f---", [2]int{6, 4}},
		{"other sizes", "%a = neg %x : f32[6,4]\n %b = neg %y : f32[5]", "f-", [2]int{6, 4}},
		{"a product", "%a = neg %x : f32[6,4]\n %p = matmul %a, %w : f32[6,6]", "f-", [2]int{6, 4}},
	} {
		f := parse(t, "func @f(%x: f32[6,4], %y: f32[5], %w: f32[4,6]) {\n "+c.ops+"\n  return\n}\n")
		s := &group.Space{Level: map[*ir.Value]group.Level{}}
		got := ""
		for _, op := range f.Ops {
			next, ok := s.With(op)
			if ok != s.Add(op) {
				t.Errorf("%s: With and Add do not agree about %s", c.name, op)
			}
			if !ok {
				got += "-"
				continue
			}
			got += string("?fra"[s.Level[op.Out[0]]])
			if next.Level[op.Out[0]] != s.Level[op.Out[0]] {
				t.Errorf("%s: With and Add give %s different levels", c.name, op)
			}
		}
		rows, elems := s.Rows()
		if got != c.levels || [2]int{rows, elems} != c.rows {
			t.Errorf("%s: levels %s, %d rows of %d; want %s, %v", c.name, got, rows, elems, c.levels, c.rows)
		}
		if built, ok := group.Build(f.Ops); ok != !strings.Contains(c.levels, "-") || ok && fmt.Sprint(built.Dims, built.Row, len(built.Level)) != fmt.Sprint(s.Dims, s.Row, len(s.Level)) {
			t.Errorf("%s: Build gives %v, %v", c.name, built, ok)
		}
		if strings.Contains(got, "a") != (s.WorkBytes() > 0) {
			t.Errorf("%s: %d bytes of partial sums", c.name, s.WorkBytes())
		}
	}
}

// TestChunks: rows are cut by the shape alone, into at most MaxChunks; each takes a copy of what it collects, in lines of 64 bytes.
func TestChunks(t *testing.T) {
	for rows, want := range map[int]int{1: 1, 5: 5, group.MaxChunks: group.MaxChunks, 1000: group.MaxChunks} {
		f := parse(t, fmt.Sprintf("func @f(%%x: f32[%d,20]) {\n  %%a = neg %%x : f32[%d,20]\n  %%s = reduce_sum %%a {dims=[0]} : f32[1,20]\n  return s=%%s\n}\n", rows, rows))
		s, ok := group.Build(f.Ops)
		if !ok || s.Chunks() != want {
			t.Errorf("%d rows: %v, %d chunks, want %d", rows, ok, s.Chunks(), want)
		}
		if line := 20 * kir.AccSize(dtype.F32); ok && rows > 1 && s.WorkBytes() != want*((line+63)/64*64) {
			t.Errorf("%d rows: %d bytes", rows, s.WorkBytes())
		}
	}
}
