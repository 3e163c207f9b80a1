package samples

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
)

// of parses a function of four samples and walks it.
func of(t *testing.T, body string) (*ir.Func, *Facts) {
	t.Helper()
	m, err := ir.Parse("func @step(%x: f32[4,3], %w: f32[4] weight, %p: f32[3,3] param, %g: f32[3] param) {\n" + body + "\n}")
	if err != nil {
		t.Fatal(err)
	}
	f := m.Funcs[0]
	return f, Kept(f, func(string) bool { return true })
}

// TestCrossSample: what reads several samples at a time lets in those that fill up a batch, but for sums of what their weights
// make zero.
func TestCrossSample(t *testing.T) {
	for _, c := range []struct{ name, body, met string }{
		{"each sample by itself", "%y = matmul %x, %p : f32[4,3]\n%s = softmax %y {dim=1} : f32[4,3]\nreturn y=%s", ""},
		{"weighted sum", "%r = reduce_sum %x {dims=[1]} : f32[4,1]\n%v = reshape %r {dims=[4]} : f32[4]\n%m = mul %v, %w : f32[4]\n%s = reduce_sum %m {dims=[0]} : f32[1]\nreturn y=%s", ""},
		{"count", "%s = reduce_sum %w {dims=[0]} : f32[1]\nreturn y=%s", ""},
		{"weights spread over rows", "%r = reshape %w {dims=[4,1]} : f32[4,1]\n%e = expand %r {dims=[4,3]} : f32[4,3]\n%m = mul %e, %x : f32[4,3]\n%v = reshape %m {dims=[12]} : f32[12]\n%s = reduce_sum %v {dims=[0]} : f32[1]\nreturn y=%s", ""},
		{"weights of rows in another order", "%a = transpose %x {perm=[1,0]} : f32[3,4]\n%v = reshape %a {dims=[12]} : f32[12]\n%r = reshape %w {dims=[4,1]} : f32[4,1]\n%e = expand %r {dims=[4,3]} : f32[4,3]\n%u = reshape %e {dims=[12]} : f32[12]\n%m = mul %u, %v : f32[12]\nreturn y=%m",
			"brings samples together that lie in different orders"},
		{"unweighted sum", "%s = reduce_sum %x {dims=[0]} : f32[1,3]\nreturn y=%s", "adds up samples"},
		{"a sum after more than the weight", "%e = exp %w : f32[4]\n%s = reduce_sum %e {dims=[0]} : f32[1]\nreturn y=%s", "adds up samples"},
		{"softmax over the batch", "%s = softmax %x {dim=0} : f32[4,3]\nreturn y=%s", "takes a softmax over samples"},
		{"greatest of the batch", "%s = reduce_max %x {dims=[0]} : f32[1,3]\nreturn y=%s", "takes the maximum over samples"},
		{"products of samples", "%a = transpose %x {perm=[1,0]} : f32[3,4]\n%s = matmul %x, %a : f32[4,4]\nreturn y=%s", ""},
		{"softmax over products of samples", "%a = transpose %x {perm=[1,0]} : f32[3,4]\n%z = matmul %x, %a : f32[4,4]\n%s = softmax %z {dim=1} : f32[4,4]\nreturn y=%s", "takes a softmax over samples"},
		{"shifted by a sample", "%s = slice %x {starts=[1,0], sizes=[3,3], steps=[1,1]} : f32[3,3]\nreturn y=%s", "needs all samples at once"},
		{"statistics of all", "%y, %m, %v = batch_norm %x, %g, %g {eps=1e-05} : f32[4,3], f32[3], f32[3]\nreturn y=%y", "takes statistics of the batch"},
		{"statistics of what counts", "%c = cast %w {to=bool} : bool[4]\n%y, %m, %v, %n = batch_norm %x, %g, %g, %c {eps=1e-05} : f32[4,3], f32[3], f32[3], f32[3]\nreturn y=%y", ""},
		{"statistics of each sample", "%r = reshape %x {dims=[1,4,3]} : f32[1,4,3]\n%y, %m, %v = batch_norm %r, %w, %w {eps=1e-05} : f32[1,4,3], f32[4], f32[4]\nreturn y=%y", ""},
		{"statistics of what is of no sample", "%f = slice %p {starts=[0,0], sizes=[1,3], steps=[1,1]} : f32[1,3]\n%q = concat %p, %f {dim=0} : f32[4,3]\n%c = cast %w {to=bool} : bool[4]\n" +
			"%y, %m, %v, %n = batch_norm %q, %g, %g, %c {eps=1e-05} : f32[4,3], f32[3], f32[3], f32[3]\nreturn y=%y", "takes statistics of the batch"},
		{"not wanted", "%s = reduce_sum %x {dims=[0]} : f32[1,3]\n%y = exp %x : f32[4,3]\nreturn y=%y", ""},
		{"kept for the next step", "%y = exp %x : f32[4,3]\nreturn y=%p, %x <- %y", `keeps "x" of each sample for the next step`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, s := of(t, c.body)
			got := ""
			if s.Crosses != nil {
				got = s.Crosses.Text
			}
			if got != c.met {
				t.Errorf("samples meet: %q, want %q\n%s", got, c.met, f)
			}
		})
	}
}

// TestLayout follows samples through dims that are swapped, merged and taken apart.
func TestLayout(t *testing.T) {
	f, s := of(t, "%a = transpose %x {perm=[1,0]} : f32[3,4]\n%v = reshape %a {dims=[12]} : f32[12]\n%b = reshape %x {dims=[2,2,3]} : f32[2,2,3]\n"+
		"%c = reshape %x {dims=[12]} : f32[12]\nreturn a=%a, v=%v, b=%b, c=%c")
	want := map[string]string{
		"a": "[[{3 0 false}] [{4 1 false}]]",
		"v": "[[{3 0 false} {4 1 false}]]",
		"b": "[[{2 2 false}] [{2 1 false}] [{3 0 false}]]",
		"c": "[[{4 1 false} {3 0 false}]]",
	}
	for _, r := range f.Results {
		if got := fmt.Sprint(s.Layout(r.Value)); got != want[r.Name] {
			t.Errorf("%%%s: %s, want %s", r.Name, got, want[r.Name])
		}
	}
}

// TestMask: each element of a value gets the number of its sample, wherever samples lie; where two samples have one, there is none.
func TestMask(t *testing.T) {
	f, s := of(t, "%a = transpose %x {perm=[1,0]} : f32[3,4]\n%v = reshape %a {dims=[12]} : f32[12]\n%u = reshape %x {dims=[2,2,3]} : f32[2,2,3]\n"+
		"%b = transpose %u {perm=[1,2,0]} : f32[2,3,2]\n%c = reshape %x {dims=[12]} : f32[12]\n%d = matmul %x, %a : f32[4,4]\nreturn a=%a, v=%v, b=%b, c=%c, d=%d, e=%p")
	want := map[string]string{
		"a": "[0 1 2 3 0 1 2 3 0 1 2 3]", "v": "[0 1 2 3 0 1 2 3 0 1 2 3]", "b": "[0 2 0 2 0 2 1 3 1 3 1 3]", "c": "[0 0 0 1 1 1 2 2 2 3 3 3]",
	}
	for _, r := range f.Results {
		g := &ir.Func{Name: "g"}
		b := ir.NewBuilder(g)
		m := s.Layout(r.Value).Mask(b, b.Param("w", ir.T(dtype.F32, 4), ir.Weight))
		if m == nil || want[r.Name] == "" {
			if m != nil || want[r.Name] != "" {
				t.Errorf("%%%s: a mask %v", r.Name, m)
			}
			continue
		}
		b.Result("m", m)
		out, err := interp.Run(g, map[string]*ir.Array{"w": {Type: ir.T(dtype.F32, 4), F: []float64{0, 1, 2, 3}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(out.Named["m"].F); got != want[r.Name] || !m.Type.Equal(r.Value.Type) {
			t.Errorf("%%%s: %s %s, want %s", r.Name, m.Type, got, want[r.Name])
		}
	}
}

// TestString: a cross-sample op is told by the model's node and line.
func TestString(t *testing.T) {
	m := &CrossSample{&ir.Op{Loc: ir.Loc{Node: "/Mean", OpType: "ReduceMean", File: "model.py", Line: 12, Derived: "normalize"}}, "adds up samples"}
	if got := m.String(); !strings.HasPrefix(got, `node "/Mean" (ReduceMean) model.py:12 adds`) {
		t.Error(got)
	}
}
