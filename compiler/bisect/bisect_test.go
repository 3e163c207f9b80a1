package bisect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// network is two layers with a bias and a gelu that is spelt out.
func network() *ir.Module {
	f := &ir.Func{Name: "forward"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "net"}
	x := b.Param("x", ir.T(dtype.F32, 8, 6), ir.Input)
	w := b.Param("w", ir.T(dtype.F32, 6, 10), ir.Param)
	bias := b.Param("b", ir.T(dtype.F32, 10), ir.Param)
	v := b.Param("v", ir.T(dtype.F32, 10, 4), ir.Param)
	h := ops.Add(b, ops.MatMul(b, x, w), ops.BroadcastTo(b, bias, []int{8, 10}))
	e := ops.AddScalar(b, ops.Erf(b, ops.MulScalar(b, h, 0.7071067811865476)), 1)
	h = ops.MulScalar(b, ops.Mul(b, h, e), 0.5)
	b.Result("out0", ops.MatMul(b, h, v))
	return &ir.Module{Funcs: []*ir.Func{f}}
}

// through lowers the network by a table.
func through(opt pass.Options, table []pass.Pass) Lower {
	return func(rewrites *int, watch func(*pass.Context, pass.Pass) error) (*pass.Context, error) {
		o := opt
		o.Loss, o.Rewrites = "mse", rewrites
		c := &pass.Context{Module: network(), Opt: &o}
		if watch != nil {
			c.Watch = func(p pass.Pass) error { return watch(c, p) }
		}
		return c, passes.Run(c, table)
	}
}

// layouts are where programs differ.
var layouts = []pass.Options{
	{Optimizer: pass.Optimizer{Name: "adamw", LR: 0.1}, ClipNorm: 1, Forward: true},
	{DP: 2, Microbatches: 2, Zero: 2, Optimizer: pass.Optimizer{LR: 0.1}},
	{PP: 2, DP: 2, Microbatches: 2, Optimizer: pass.Optimizer{LR: 0.1}, Check: true},
	{TP: 2, Precision: "fp16", Target: pass.CUDA, Arch: []string{pass.Host}, Optimizer: pass.Optimizer{LR: 0.1}},
	{DP: 2, Microbatches: 2, GradComm: pass.GradComm{Compress: "topk", Fraction: 0.25}, Optimizer: pass.Optimizer{LR: 0.1}},
	{DP: 2, GradComm: pass.GradComm{Period: 2}, Optimizer: pass.Optimizer{LR: 0.1}},
}

// TestNothingToFind: the pipeline as it is has no fault in any layout.
func TestNothingToFind(t *testing.T) {
	for _, o := range layouts {
		found, err := Interpret(context.Background(), through(o, passes.Table))
		if err != nil || found != nil {
			t.Errorf("%v, %v of %+v", found, err, o)
		}
	}
}

// behind inserts a row behind the one named.
func behind(name string, row pass.Pass) []pass.Pass {
	i := slices.IndexFunc(passes.Table, func(p pass.Pass) bool { return p.Name == name })
	return slices.Insert(slices.Clone(passes.Table), i+1, row)
}

// third makes, of the third product in the last function that changes parameters, a difference; the first two become
// products again, which is right.
func third(c *pass.Context) error {
	f := c.Module.Func("step")
	if f == nil {
		f = c.Module.Funcs[0]
	}
	n := 0
	c.Improve(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		if op.Def != ops.MulDef || op.Out[0].Sharding.Dims != nil && len(op.Out[0].Type.Dims) == 0 {
			return nil
		}
		n++
		v := ops.Mul(b, op.In[0], op.In[1])
		if n == 3 {
			v = ops.Sub(b, op.In[0], op.In[1])
		}
		v.Sharding = op.Out[0].Sharding
		return []*ir.Value{v}
	})
	return nil
}

// TestWrongRewriteIsFound: a pass with one wrong rewrite among right ones, at various places of the pipeline, is found, and so
// is the rewrite.
func TestWrongRewriteIsFound(t *testing.T) {
	for _, at := range []string{"optimizer", "rows", "spmd", "overlap", "epilogue"} {
		for _, o := range layouts[:2] {
			found, err := Interpret(context.Background(), through(o, behind(at, pass.Pass{Name: "wrong", Run: third})))
			if err != nil || found == nil || !strings.Contains(found.Pass, "wrong") || found.Rewrite == nil || found.Rewrite.Pass != "wrong" || found.Rewrite.Text != "mul becomes sub" {
				t.Errorf("behind %s, %d ranks: %v, %v", at, max(1, o.DP), found, err)
				continue
			}
			if text := found.String(); !strings.Contains(text, "of pass wrong: %") || !strings.Contains(text, `"net"`) || found.Checks > 64 {
				t.Errorf("it is told as %s, after %d checks", text, found.Checks)
			}
		}
	}
}

// TestWrongPassIsFound: a pass that does wrong what it does not ask for is found without a rewrite, and so are wrong gradients.
func TestWrongPassIsFound(t *testing.T) {
	wrong := func(name string) func(c *pass.Context) error {
		return func(c *pass.Context) error {
			f := c.Module.Func("step")
			b := ir.NewBuilder(f)
			b.Loc = ir.Loc{Node: "net"}
			for i, r := range f.Results {
				if r.Name == name {
					f.Results[i].Value = ops.MulScalar(b, r.Value, 1.01)
					f.Results[i].Value.Sharding = r.Value.Sharding
				}
			}
			return nil
		}
	}
	for _, c := range []struct{ at, result string }{{"autodiff", "grad/b"}, {"optimizer", "loss_sum"}, {"overlap", "loss_sum"}} {
		row := pass.Pass{Name: "wrong", Run: wrong(c.result)}
		if c.at == "autodiff" {
			row.Makes = pass.HasGrad
		}
		found, err := Interpret(context.Background(), through(layouts[1], behind(c.at, row)))
		if err != nil || found == nil || found.Pass != "wrong" || found.Rewrite != nil {
			t.Errorf("behind %s: %v, %v", c.at, found, err)
		}
	}
}

// TestCommand finds the rewrite with which a command begins to fail, and tells one that fails whatever is left out.
func TestCommand(t *testing.T) {
	lower := through(layouts[0], passes.Table)
	for _, c := range []struct {
		script string
		number int // of the rewrite; -1: none is told, 0: nothing fails
	}{{"test $GTC_REWRITES -lt 17 || { echo wrong; exit 3; }", 17}, {"test $GTC_REWRITES -lt 1", 1}, {"exit 1", -1}, {"exit 0", 0}} {
		found, err := Command(context.Background(), lower, []string{"sh", "-c", c.script})
		switch {
		case err != nil:
			t.Errorf("%s: %v", c.script, err)
		case c.number == 0 && found == nil, c.number == -1 && found != nil && found.Rewrite == nil && found.Pass == "":
		case found == nil || found.Rewrite == nil || found.Rewrite.Number != c.number || found.Pass == "":
			t.Errorf("%s: %v", c.script, found)
		case c.number == 17 && (!strings.Contains(fmt.Sprint(found), "exit status 3: wrong") || found.Checks > 16):
			t.Errorf("%s: %v after %d checks", c.script, found, found.Checks)
		}
	}
	if _, err := Command(context.Background(), lower, []string{"./no-such-command"}); !errors.As(err, new(*compiler.InputError)) {
		t.Errorf("a command that is not there is no fault of what was given: %v", err)
	}
	// What a command left running does not keep bisect waiting, and is no fault of the command.
	if found, err := Command(context.Background(), lower, []string{"sh", "-c", "sleep 4 & exit 0"}); found != nil || err != nil {
		t.Errorf("a command that leaves a child and ends well: %v, %v", found, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := Command(ctx, lower, []string{"sh", "-c", "sleep 60; exit 1"}); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 30*time.Second {
		t.Errorf("a command that hangs: %v after %v", err, time.Since(start))
	}
}
