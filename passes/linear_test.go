package passes_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// deep is a residual network of n blocks, as an importer would spell it: bias added, gelu by erf, RMS norm by hand.
func deep(n int) *ir.Module {
	f := &ir.Func{Name: "forward"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "block"}
	x := b.Param("x", ir.T(1, 4, 8), ir.Input)
	for range n {
		w := b.Param("w", ir.T(1, 8, 8), ir.Param)
		bias := b.Param("b", ir.T(1, 8), ir.Param)
		g := b.Param("g", ir.T(1, 8), ir.Param)
		ms := ops.AddScalar(b, ops.ReduceMean(b, ops.Square(b, x), 1), 1e-6)
		norm := ops.Mul(b, x, ops.BroadcastTo(b, ops.Recip(b, ops.Sqrt(b, ms)), x.Type.Dims))
		norm = ops.Mul(b, norm, ops.BroadcastTo(b, g, x.Type.Dims))
		h := ops.Add(b, ops.MatMul(b, norm, w), ops.BroadcastTo(b, bias, x.Type.Dims))
		e := ops.AddScalar(b, ops.Erf(b, ops.MulScalar(b, h, 0.7071067811865476)), 1)
		x = ops.Add(b, x, ops.MulScalar(b, ops.Mul(b, h, e), 0.5))
	}
	b.Result("out0", x)
	return &ir.Module{Funcs: []*ir.Func{f}}
}

// threadTime is the processor time that the calling thread has taken: unlike the time of day it does not pass while others run.
func threadTime(t testing.TB) time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var r syscall.Rusage
	if err := syscall.Getrusage(thread, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// passTimes runs the pipeline and adds up the processor time of each pass.
func passTimes(t testing.TB, c *pass.Context) map[string]time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	times := map[string]time.Duration{}
	table := slices.Clone(passes.Table)
	for i, p := range table {
		table[i].Run = func(c *pass.Context) error {
			start := threadTime(t)
			defer func() { times[p.Name] += threadTime(t) - start }()
			return p.Run(c)
		}
	}
	if err := passes.Run(c, table); err != nil {
		t.Fatal(err)
	}
	return times
}

// frontTimes is how long each pass took on n blocks, and the number of ops of @step at the end.
func frontTimes(t testing.TB, n int) (map[string]time.Duration, int) {
	c := &pass.Context{Module: deep(n), Opt: &pass.Options{Loss: "mse", StopAfter: "simplify", ClipNorm: 1,
		Optimizer: pass.Optimizer{Name: "adamw", LR: 1e-3, WeightDecay: 0.1}}}
	return passTimes(t, c), len(c.Module.Func("step").Ops)
}

// TestPassesAreLinear: eight times the ops may take twenty times as long (a quadratic pass takes 64 times). It is the
// growth that is held, not the speed, in processor time: other work on the machine can still slow down one measurement, by what
// it leaves in the caches, so that each pass has several tries.
func TestPassesAreLinear(t *testing.T) {
	var slow []string
	for range 5 {
		slow = nil
		small, _ := frontTimes(t, 20)
		large, n := frontTimes(t, 160)
		if n < 10000 {
			t.Fatalf("only %d ops", n)
		}
		for p, took := range large {
			if took > 20*small[p] && took > 300*time.Millisecond {
				slow = append(slow, fmt.Sprintf("%s takes %v for 20 blocks and %v for 160 (%d ops)", p, small[p], took, n))
			}
		}
		if slow == nil {
			return
		}
	}
	t.Errorf("in the last of five tries: %s", strings.Join(slow, "; "))
}
