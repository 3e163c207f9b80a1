package interp_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
)

func f32(dims []int, v ...float64) *ir.Array {
	return &ir.Array{Type: ir.T(dtype.F32, dims...), F: v}
}

func want(t *testing.T, what string, got *ir.Array, v ...float64) {
	t.Helper()
	if got == nil || !slices.Equal(got.F, v) {
		t.Errorf("%s is %v, want %v", what, got, v)
	}
}

// TestRun checks named results, updates and starting contents.
func TestRun(t *testing.T) {
	m := ir.MustParse(`func @step(%x: f32[2], %w: f32[2] param, %n: f32[2] state) {
  %y = mul %x, %w : f32[2]
  %m = add %n, %y : f32[2]
  return out0=%y, %n <- %m
}`)
	f := m.Funcs[0]
	f.Param("w").Init = ir.Floats(ir.T(dtype.F32, 2), 3, 4)
	out, err := interp.Run(f, map[string]*ir.Array{"x": f32([]int{2}, 1, 2)})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "out0", out.Named["out0"], 3, 8)
	want(t, "n", out.Updates["n"], 3, 8)
	if _, err := interp.Run(f, nil); err == nil || !strings.Contains(err.Error(), `no value is given for input "x"`) {
		t.Errorf("without x: %v", err)
	}
	if _, err := interp.Run(f, map[string]*ir.Array{"x": f32([]int{1}, 1)}); err == nil || !strings.Contains(err.Error(), "is f32[2], but f32[1] is given") {
		t.Errorf("with a wrong x: %v", err)
	}
}

// TestRanks runs each collective on a 2x2 mesh, where rank r is at dp=r/2, tp=r%2 and holds 10^r.
func TestRanks(t *testing.T) {
	m := ir.MustParse(`mesh @m = [dp=2, tp=2, mb=3]
func @f(%x: f32[2], %y: f32[3]) {
  %s = all_reduce %x {axis="tp", op="sum"} : f32[2]
  %m, %n = all_reduce %x, %x {axis="dp", op="max"} : f32[2], f32[2]
  %g = all_gather %x {axis="dp", size=2} : f32[4]
  %r = reduce_scatter %x {axis="tp", size=2, op="sum"} : f32[1]
  %k = shard_slice %x {axis="tp", size=2} : f32[1]
  %b = shard_slice %y {axis="mb", size=3} : f32[1]
  return s=%s, m=%m, n=%n, g=%g, r=%r, k=%k, b=%b
}`)
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	var args []map[string]*ir.Array
	for _, v := range []float64{1, 10, 100, 1000} {
		args = append(args, map[string]*ir.Array{"x": f32([]int{2}, v, 2*v), "y": f32([]int{3}, v, v+1, v+2)})
	}
	out, err := interp.Options{Micro: 1}.RunRanks(m, m.Funcs[0], 4, args)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "s on rank 2", out[2].Named["s"], 1100, 2200)
	want(t, "m on rank 1", out[1].Named["m"], 1000, 2000)
	want(t, "n on rank 0", out[0].Named["n"], 100, 200)
	want(t, "g on rank 3", out[3].Named["g"], 10, 20, 1000, 2000)
	want(t, "r on rank 0", out[0].Named["r"], 11)
	want(t, "r on rank 3", out[3].Named["r"], 2200)
	want(t, "k on rank 2", out[2].Named["k"], 100)
	want(t, "k on rank 3", out[3].Named["k"], 2000)
	want(t, "b on rank 1", out[1].Named["b"], 11)
	if _, err := interp.RunRanks(m, m.Funcs[0], 2, args[:2]); err == nil {
		t.Error("2 ranks on a mesh of 4")
	}
}

const whole = `mesh @m = [dp=2, tp=2]
func @f(%x: f32[4,6], %w: f32[6,8] param, %v: f32[8,2] param) {
  %h = matmul %x, %w : f32[4,8]
  %a = relu %h : f32[4,8]
  %y = matmul %a, %v : f32[4,2]
  %s = reduce_sum %y {dims=[0,1]} : f32[1,1]
  return out0=%y, loss_sum=%s
}`

const local = `mesh @m = [dp=2, tp=2]
func @f(%x: f32[2,6]{dp,_}, %w: f32[6,4]{_,tp} param, %v: f32[4,2]{tp,_} param) {
  %h = matmul %x, %w : f32[2,4]{dp,tp}
  %a = relu %h : f32[2,4]{dp,tp}
  %p = matmul %a, %v : f32[2,2]{dp,_; partial=tp}
  %y = all_reduce %p {axis="tp", op="sum"} : f32[2,2]{dp,_}
  %s = reduce_sum %y {dims=[0,1]} : f32[1,1]{_,_; partial=dp}
  return out0=%y, loss_sum=%s
}`

// TestEquivalentRanks checks a column-row parallel pair against the whole program, and that a missing all_reduce
// is seen.
func TestEquivalentRanks(t *testing.T) {
	g, l := ir.MustParse(whole), ir.MustParse(local)
	if err := interp.EquivalentRanks(l, g.Funcs[0], l.Funcs[0], 1); err != nil {
		t.Error(err)
	}
	bad := ir.MustParse(strings.Replace(local, `all_reduce %p {axis="tp", op="sum"}`, `neg %p`, 1))
	if err := interp.EquivalentRanks(bad, g.Funcs[0], bad.Funcs[0], 1); err == nil {
		t.Error("a program without its all_reduce passes")
	}
}

// TestShard takes arrays apart and together over two axes in one dim.
func TestShard(t *testing.T) {
	m := ir.MustParse(local).Mesh
	x := f32([]int{4, 2}, 0, 1, 2, 3, 4, 5, 6, 7)
	f := ir.MustParse(`func @f(%a: f32[4,2]{dp+tp,_}, %b: f32[4,2]{_,tp; partial=dp}, %c: f32[4,2]) { return }`).Funcs[0]
	for _, p := range f.Params {
		var parts []*ir.Array
		for r := range 4 {
			parts = append(parts, interp.Shard(m, p.Sharding, r, 0, x))
		}
		got, err := interp.Unshard(m, p.Sharding, parts, 0)
		if err != nil {
			t.Errorf("%s: %v", p.Sharding, err)
			continue
		}
		want(t, p.Sharding.String(), got, x.F...)
	}
	want(t, "rank 1", interp.Shard(m, f.Params[0].Sharding, 1, 0, x), 2, 3)
}

// TestEquivalent checks that the comparison sees a wrong rewrite.
func TestEquivalent(t *testing.T) {
	f := ir.MustParse(`func @f(%x: f32[8]) { %y = silu %x : f32[8] return out0=%y }`).Funcs[0]
	g := ir.MustParse(`func @f(%x: f32[8]) { %s = sigmoid %x : f32[8] %y = mul %x, %s : f32[8] return out0=%y }`).Funcs[0]
	h := ir.MustParse(`func @f(%x: f32[8]) { %s = tanh %x : f32[8] %y = mul %x, %s : f32[8] return out0=%y }`).Funcs[0]
	if err := interp.Equivalent(f, g, 1); err != nil {
		t.Error(err)
	}
	if err := interp.Equivalent(f, h, 1); err == nil || !strings.Contains(err.Error(), "result out0: element") {
		t.Errorf("a wrong rewrite gives %v", err)
	}
}

// TestRandomIndices checks that indices fit what they index.
func TestRandomIndices(t *testing.T) {
	f := ir.MustParse(`func @f(%i: i64[50], %j: i64[50], %w: f32[3,2] param) {
  %r = reshape %i {dims=[5,10]} : i64[5,10]
  %y = gather %w, %r : f32[5,10,2]
  return out0=%y
}`).Funcs[0]
	args := interp.Random(f, 1)
	if slices.Max(args["i"].I) != 2 || slices.Max(args["j"].I) != 3 {
		t.Errorf("indices up to %d and %d", slices.Max(args["i"].I), slices.Max(args["j"].I))
	}
	again := interp.Random(f, 1)
	if !slices.Equal(args["w"].F, again["w"].F) || slices.Equal(args["w"].F, interp.Random(f, 2)["w"].F) {
		t.Error("contents are not a function of the seed")
	}
}
