package layout

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/irtest"
	_ "github.com/gtc-compiler/gtc/ir/ops" // those of the texts
)

// cases are functions whose parameters are laid out, and results that stand alone: their plans, one op after the other.
var cases = []struct{ name, text string }{
	{"samples stay where they are, and what is added up over them is a partial sum", `mesh @m = [dp=2]
func @f(%x: f32[8,6]{dp,_}, %w: f32[6,4] param, %d: f32[8,4]{dp,_}) {
  %y = matmul %x, %w : f32[8,4]
  %r = relu %y : f32[8,4]
  %g = matmul %x, %d {transA=true} : f32[6,4]
  %s = reduce_sum %d {dims=[0]} : f32[1,4]
  %m = reduce_max %d {dims=[0]} : f32[1,4]
  return
}
`},
	{"weights stay where they are: columns, then rows", `mesh @m = [tp=2]
func @f(%x: f32[8,6], %w: f32[6,4]{_,tp} param, %v: f32[4,6]{tp,_} param) {
  %h = matmul %x, %w : f32[8,4]
  %a = gelu %h : f32[8,4]
  %y = matmul %a, %v : f32[8,6]
  %z = add %y, %x : f32[8,6]
  return
}
`},
	{"of two axes each splits one loop; where they disagree about one, data decides", `mesh @m = [dp=2, tp=2]
func @f(%x: f32[8,6]{dp,tp}, %w: f32[6,4]{dp,_} param, %v: f32[6,4]{_,tp} param) {
  %a = matmul %x, %w : f32[8,4]
  %b = matmul %x, %v : f32[8,4]
  return
}
`},
	{"what is needed whole, or does not divide, is put together", `mesh @m = [dp=4, tp=2]
func @f(%x: f32[6,8]{dp,tp}, %y: f32[8,8]{dp,tp}, %w: f32[6,8]{dp,_}) {
  %s = softmax %y {dim=1} : f32[8,8]
  %c = cumsum %y {dim=0, exclusive=false, reverse=false} : f32[8,8]
  %n = neg %w : f32[6,8]
  %r = reshape %y {dims=[64]} : f32[64]
  return
}
`},
	{"a partial sum stays one through what is linear and does not make it larger", `mesh @m = [dp=2]
func @f(%p: f32[4,4]{_,_; partial=dp}, %q: f32[4,4]{_,_; partial=dp}, %x: f32[4,4]) {
  %two = const {value=f32[1,1](2.0)} : f32[1,1]
  %all = expand %two {dims=[4,4]} : f32[4,4]
  %a = add %p, %q : f32[4,4]
  %b = mul %p, %all : f32[4,4]
  %c = transpose %b {perm=[1,0]} : f32[4,4]
  %d = add %p, %x : f32[4,4]
  %e = mul %p, %q : f32[4,4]
  %f = exp %p : f32[4,4]
  %g = concat %p, %q {dim=0} : f32[8,4]
  %h = matmul %p, %x : f32[4,4]
  return
}
`},
	{"an index is looked up in the part of a table that a rank has", `mesh @m = [tp=2]
func @f(%t: f32[10,4]{tp,_} param, %i: i64[6]) {
  %e = gather %t, %i {dim=0} : f32[6,4]
  return
}
`},
}

// describe tells a plan on one line.
func describe(op *ir.Op, p Plan) string {
	side := func(vs []*ir.Value, list []mesh.Sharding) string {
		var parts []string
		for i, v := range vs {
			parts = append(parts, v.Name+list[i].String())
		}
		return strings.Join(parts, ", ")
	}
	text := fmt.Sprintf("%s %s -> %s, %d ways", op.Def.Name, side(op.In, p.In), side(op.Out, p.Out), p.Ways)
	for _, r := range p.Reduce {
		text += fmt.Sprintf(", %s of result %d over %v", r.Op, r.Out, r.Axes)
	}
	if p.Index != nil {
		text += fmt.Sprintf(", indices %d over %v", p.Index.Size, p.Index.Axes)
	}
	for _, n := range p.Notes {
		text += "\n    " + n
	}
	return text
}

// TestPlans writes the plans of all cases; testdata/plans.txt has them (-update rewrites it). Each op is given what the plan
// of the one before it makes.
func TestPlans(t *testing.T) {
	var b strings.Builder
	for _, c := range cases {
		m, err := ir.Parse(c.text)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		f := m.Funcs[0]
		MarkData(f)
		fmt.Fprintf(&b, "%s\n", c.name)
		for _, op := range f.Ops {
			var in []mesh.Sharding
			for _, v := range op.In {
				in = append(in, v.Sharding)
			}
			p := Of(m.Mesh, op, in, nil)
			for i, v := range op.Out {
				v.Sharding = p.Out[i]
			}
			fmt.Fprintf(&b, "  %s\n", describe(op, p))
			fits(t, m.Mesh, op, p)
		}
	}
	irtest.Golden(t, "testdata/plans.txt", b.String())
}

// fits checks what holds of every plan: no axis splits two dims of a value or is also a partial sum of it, and what is split divides.
func fits(t *testing.T, m mesh.Mesh, op *ir.Op, p Plan) {
	t.Helper()
	for i, v := range append(slices.Clone(op.In), op.Out...) {
		s := append(slices.Clone(p.In), p.Out...)[i]
		seen := map[string]bool{}
		for _, axes := range append(slices.Clone(s.Dims), s.Partial) {
			for _, a := range axes {
				if seen[a] {
					t.Errorf("%s: %%%s has %s twice: %s", op, v.Name, a, s)
				}
				seen[a] = true
			}
		}
		if _, err := s.Local(m, v.Type.Dims); err != nil {
			t.Errorf("%s: %%%s: %v", op, v.Name, err)
		}
	}
}

// TestWishes: a wish for the result splits what the operands leave open, and nothing that they have decided.
func TestWishes(t *testing.T) {
	text := `mesh @m = [dp=2, tp=2]
func @f(%x: f32[8,6]{dp,_}, %w: f32[6,4] param) {
  %y = matmul %x, %w : f32[8,4]
  return
}
`
	m, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs[0]
	MarkData(f)
	in := []mesh.Sharding{f.Params[0].Sharding, {}}
	for _, c := range []struct {
		wish mesh.Sharding
		want string
	}{
		{mesh.Sharding{Dims: [][]string{nil, {"tp"}}}, "matmul x{dp,_}, w{_,tp} -> y{dp,tp}, 4 ways"},
		{mesh.Sharding{Dims: [][]string{nil, {"dp"}}}, "matmul x{dp,_}, w -> y{dp,_}, 2 ways"},
		{mesh.Sharding{Dims: [][]string{{"dp", "tp"}, nil}}, "matmul x{dp+tp,_}, w -> y{dp+tp,_}, 4 ways"},
	} {
		if got := describe(f.Ops[0], Of(m.Mesh, f.Ops[0], in, []mesh.Sharding{c.wish})); got != c.want {
			t.Errorf("%s: %s, want %s", c.wish, got, c.want)
		}
	}
}

// TestMarkData: what is read from the data set, and all that is made of it.
func TestMarkData(t *testing.T) {
	m, err := ir.Parse("func @f(%x: f32[2], %t: f32[2] target, %w: f32[2] param, %s: f32[2] state) {\n  %a = add %w, %s : f32[2]\n  %b = mul %a, %t : f32[2]\n  %c = neg %b : f32[2]\n  return\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs[0]
	MarkData(f)
	var got []string
	for _, v := range append(slices.Clone(f.Params), f.Ops[0].Out[0], f.Ops[1].Out[0], f.Ops[2].Out[0]) {
		if v.Data {
			got = append(got, v.Name)
		}
	}
	if strings.Join(got, " ") != "x t b c" {
		t.Error(got)
	}
}
