package spmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/passtest"
	"github.com/gtc-compiler/gtc/passes/shard"
	"github.com/gtc-compiler/gtc/passes/spmd"
)

// tied is a table that is embedding and head, with cross entropy and the gradient of the table.
const tied = `func @step(%i: i64[4,8], %t: i64[32] target, %e: f32[96,64] param) {
  %x = gather %e, %i : f32[4,8,64]
  %r = reshape %x {dims=[32,64]} : f32[32,64]
  %n = tanh %r : f32[32,64]
  %l = matmul %n, %e {transB=true} : f32[32,96]
  %one = const {value=f32[1](1.0)} : f32[1]
  %d = expand %one {dims=[32]} : f32[32]
  %s, %dl = xent_both %l, %t, %d {ignoreIndex=-100} : f32[32], f32[32,96]
  %dn = matmul %dl, %e : f32[32,64]
  %de = matmul %dl, %n {transA=true} : f32[96,64]
  %dx = reshape %dn {dims=[4,8,64]} : f32[4,8,64]
  %da = scatter_add %i, %dx {size=96} : f32[96,64]
  %g = add %de, %da : f32[96,64]
  %next = sub %e, %g : f32[96,64]
  %all = reduce_sum %s {dims=[0]} : f32[1]
  %a = argmax %l {dim=1} : i64[32,1]
  return loss_sum=%all, correct=%a, %e <- %next
}`

// lower runs shard and spmd on text, and the rank programs against it.
func lower(t *testing.T, text string, opt *pass.Options) *pass.Context {
	t.Helper()
	c, err := passtest.Context("spmd", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Opt = opt
	opt.IgnoreIndex = -100
	whole, _ := c.Module.Funcs[0].Clone()
	if err := shard.Run(c); err != nil {
		t.Fatal(err)
	}
	if err := spmd.Run(c); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(3) {
		if err := interp.EquivalentSteps(c.Module, whole, seed+1); err != nil {
			t.Errorf("random input %d: %v\n%s", seed+1, err, c.Module)
		}
	}
	return c
}

// messages lists the mesh operations of a function with their types, sorted.
func messages(f *ir.Func) []string {
	var list []string
	for _, op := range f.Ops {
		switch a := op.Attrs.(type) {
		case ops.AllReduceAttrs:
			list = append(list, fmt.Sprintf("all_reduce %s %s", a.Op, op.Out[0].Type))
		case ops.AllGatherAttrs, ops.ReduceScatterAttrs, ops.AllToAllAttrs:
			list = append(list, fmt.Sprintf("%s %s", op.Def.Name, op.Out[0].Type))
		}
	}
	slices.Sort(list)
	return list
}

// TestVocabulary splits the rows of the table: a look-up and the gradient of the head each take one sum over ranks,
// cross entropy and the class that wins one number for each row and reduction.
func TestVocabulary(t *testing.T) {
	c := lower(t, tied, &pass.Options{TP: 2, Shard: []string{"e=tp,_"}})
	want := []string{
		"all_reduce max f32[32,1]", "all_reduce max f32[32,1]", "all_reduce min i64[32,1]", // maximum of xent, of argmax, and where it is
		"all_reduce sum f32[32,1]", "all_reduce sum f32[32,1]", // the denominator, the target's score
		"all_reduce sum f32[32,64]", "all_reduce sum f32[4,8,64]",
	}
	if got := messages(c.Module.Funcs[0]); !slices.Equal(got, want) {
		t.Errorf("collectives are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if d := c.Module.Funcs[0].Param("e").Type.Dims; !slices.Equal(d, []int{48, 64}) {
		t.Errorf("a rank has %v of the table", d)
	}
	lower(t, tied, &pass.Options{DP: 2, TP: 2, Shard: []string{"e=tp,_"}})
	lower(t, tied, &pass.Options{DP: 2, Shard: []string{"e=dp,_"}}) // without tensor parallelism, too
	lower(t, tied, &pass.Options{TP: 4, DP: 2, Shard: []string{"e=_,tp"}})
}

// TestForced reads a user's shardings from a file, of parameters and of a value that is none.
func TestForced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shardings")
	if err := os.WriteFile(file, []byte("# all of it\n*=_,tp\n\nr=tp,_\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := lower(t, tied, &pass.Options{TP: 2, Shard: []string{"@" + file}})
	f := c.Module.Funcs[0]
	if s := f.Param("e").Sharding.String(); s != "{_,tp}" {
		t.Errorf("the table lies as %s", s)
	}
	for _, op := range f.Ops {
		if v := op.Out[0]; v.Name == "n" && v.Sharding.String() != "{tp,_}" {
			t.Errorf("what follows r lies as %q", v.Sharding)
		}
	}
}

// smoothed is cross entropy with label smoothing as a model spells it out, and its gradient in the head.
const smoothed = `func @step(%x: f32[8,32], %t: i64[8,1] target, %w: f32[48,32] param) {
  %l = matmul %x, %w {transB=true} : f32[8,48]
  %p = log_softmax %l {dim=1} : f32[8,48]
  %g = gather_elements %p, %t {dim=1} : f32[8,1]
  %s = reduce_sum %p {dims=[1]} : f32[8,1]
  %n = add %g, %s : f32[8,1]
  %o = const {value=f32[1,1](1.0)} : f32[1,1]
  %a = expand %o {dims=[8,1]} : f32[8,1]
  %e = expand %o {dims=[8,48]} : f32[8,48]
  %h = scatter_elements_add %t, %a {dim=1, dims=[8,48]} : f32[8,48]
  %dp = add %h, %e : f32[8,48]
  %dl = log_softmax_grad %p, %dp {dim=1} : f32[8,48]
  %dw = matmul %dl, %x {transA=true} : f32[48,32]
  %next = sub %w, %dw : f32[48,32]
  %all = reduce_sum %n {dims=[0,1]} : f32[1,1]
  return loss_sum=%all, %w <- %next
}`

// TestSmoothing takes the mean over the whole vocabulary though each rank has a part of it.
func TestSmoothing(t *testing.T) {
	c := lower(t, smoothed, &pass.Options{TP: 4, Shard: []string{"w=tp,_"}})
	for _, m := range messages(c.Module.Funcs[0]) {
		if strings.Contains(m, "48") {
			t.Errorf("%s: only numbers for each row need to travel", m)
		}
	}
	lower(t, smoothed, &pass.Options{DP: 2, TP: 2, Shard: []string{"w=tp,_"}})
}

// TestDropout draws, of the columns that a rank has, the numbers that the whole program draws for them, under sequence
// parallelism too.
func TestDropout(t *testing.T) {
	const text = `func @step(%x: f32[4,8,16], %n: i64[] state, %w: f32[16,48] param, %v: f32[48,16] param) {
  %h = matmul %x, %w : f32[4,8,48]
  %d = dropout %h, %n {p=0.5, seed=3} : f32[4,8,48]
  %y = matmul %d, %v : f32[4,8,16]
  %r = add %x, %y : f32[4,8,16]
  %e = dropout %r, %n {p=0.25, seed=4} : f32[4,8,16]
  return out0=%e
}`
	for _, o := range []pass.Options{{TP: 2}, {TP: 4, SP: true}, {DP: 2, TP: 2, SP: true}} {
		o.Shard = []string{"w=_,tp"}
		c := lower(t, text, &o)
		for _, p := range c.Module.Funcs[0].Params {
			if p.Name == "v" && p.Sharding.String() != "{tp,_}" {
				t.Errorf("the second weight lies as %q", p.Sharding)
			}
		}
		for _, m := range messages(c.Module.Funcs[0]) {
			if strings.Contains(m, "48") {
				t.Errorf("%v: %s: the hidden activation stays in parts", o, m)
			}
		}
	}
}
