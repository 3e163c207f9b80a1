package passes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/passes/pass"
)

type probeAttrs struct{ Value *ir.Tensor }

// probe is an op of this test alone, so that the driver is tested without ir/ops.
var probe = ir.NewOp("driver_probe")

func init() {
	probe.Define(ir.Rules{
		Attrs: probeAttrs{}, Operands: 1, NoGrad: "test op", Doc: "passes its operand on",
		Infer:   func(op *ir.Op) ([]ir.Type, error) { return []ir.Type{op.In[0].Type}, nil },
		Eval:    func(_ *ir.Op, in []*ir.Array) []*ir.Array { return in },
		Samples: func(*rand.Rand) []ir.Sample { return []ir.Sample{{In: []ir.Type{ir.T(dtype.F32, 2)}}} },
	})
}

func probeModule(n int) *ir.Module {
	f := &ir.Func{Name: "forward"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "probe"}
	v := b.Param("x", ir.T(dtype.F32, 2), ir.Input)
	for range n {
		v = b.Emit(probe, probeAttrs{}, v)
	}
	b.Result("out0", v)
	return &ir.Module{Funcs: []*ir.Func{f}}
}

// dropLast is a pass that removes the last op.
func dropLast(c *pass.Context) error {
	f := c.Module.Funcs[0]
	last := f.Ops[len(f.Ops)-1]
	c.Remark(last.Out[0], "removed because it is last")
	f.Replace(last.Out[0], last.In[0])
	f.DCE()
	return nil
}

func nothing(*pass.Context) error { return nil }

func TestDumpOnlyWhatChanged(t *testing.T) {
	dir := t.TempDir()
	c := &pass.Context{Module: probeModule(3), Opt: &pass.Options{DumpDir: dir}}
	table := []pass.Pass{{Name: "still", Run: nothing}, {Name: "drop", Run: dropLast}, {Name: "drop2", Run: dropLast}}
	c.Opt.StopAfter = "drop"
	if err := Run(c, table); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"00-input.ir": true, "01-still.ir": false, "02-drop.ir": true, "02-drop.diff": true, "03-drop2.ir": false} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s exists: %v, want %v", name, err == nil, want)
		}
	}
	sum, _ := os.ReadFile(filepath.Join(dir, "summary.txt"))
	if !strings.Contains(string(sum), "unchanged") || !strings.Contains(string(sum), "drop: %driver_probe.2 removed because it is last") {
		t.Errorf("summary:\n%s", sum)
	}
	diff, _ := os.ReadFile(filepath.Join(dir, "02-drop.diff"))
	if !strings.Contains(string(diff), "-  %driver_probe.2 = driver_probe %driver_probe.1 : f32[2]") {
		t.Errorf("diff:\n%s", diff)
	}
}

// TestStopsAfterWhatIsDisabled: what would run behind it does not, nor when the dump is replayed.
func TestStopsAfterWhatIsDisabled(t *testing.T) {
	c := &pass.Context{Module: probeModule(3), Opt: &pass.Options{DumpDir: t.TempDir(), Disable: []string{"drop"}, StopAfter: "drop"}}
	table := []pass.Pass{{Name: "still", Run: nothing}, {Name: "drop", Run: dropLast}, {Name: "drop2", Run: dropLast}}
	if err := Run(c, table); err != nil {
		t.Fatal(err)
	}
	if n := len(c.Module.Funcs[0].Ops); n != 3 {
		t.Errorf("%d ops are left of 3", n)
	}
	if list, err := ReplayDump(c.Opt.DumpDir, table); err != nil || len(list) != 1 || list[0].Err != nil || list[0].Diff != "" {
		t.Errorf("replayed: %+v, %v", list, err)
	}
}

func TestPanicLeavesReplayableFile(t *testing.T) {
	dir := t.TempDir()
	c := &pass.Context{Module: probeModule(2), Opt: &pass.Options{DumpDir: dir, Loss: "mse"}}
	big := &ir.Tensor{Type: ir.T(dtype.F32, 100), Data: make([]byte, 400)}
	big.Data[7] = 3
	c.Module.Funcs[0].Ops[0].Attrs = probeAttrs{Value: big}
	table := []pass.Pass{{Name: "drop", Run: dropLast}, {Name: "boom", Run: func(c *pass.Context) error {
		c.Module.Funcs[0].Ops = nil
		panic("out of luck")
	}}}
	err := Run(c, table)
	if err == nil || !strings.Contains(err.Error(), "pass boom panicked: out of luck") || !strings.Contains(err.Error(), "gtc opt -repro") {
		t.Fatalf("error: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(dir, CrashFile))
	if err != nil {
		t.Fatal(err)
	}
	got, name, err := LoadCrash(data)
	if err != nil || name != "boom" || got.Opt.Loss != "mse" || len(got.Module.Funcs[0].Ops) != 1 {
		t.Fatalf("loaded %v %q %+v", err, name, got)
	}
	if b := got.Module.Funcs[0].Ops[0].Tensors()[0].Data; string(b) != string(big.Data) {
		t.Errorf("the constant came back as %v", b)
	}
	got.Opt.DumpDir = dir
	if _, err := Replay(data, []pass.Pass{{Name: "boom", Run: nothing}}); err != nil {
		t.Errorf("replay: %v", err)
	}
}

func TestErrorsNameThePass(t *testing.T) {
	told := ir.Errorf(ir.Loc{Node: "/n"}, "wrong")
	for _, tc := range []struct {
		run  func(*pass.Context) error
		opt  pass.Options
		want string
	}{
		{func(*pass.Context) error { return errors.New("no") }, pass.Options{}, "pass p: no"},
		{func(*pass.Context) error { return told }, pass.Options{}, "node \"/n\"\n  wrong"},
		{func(c *pass.Context) error { c.Module.Funcs[0].Ops[0].Out[0].Type.Dims = []int{3}; return nil }, pass.Options{}, "BUG: pass p left a module that is not valid"},
		{func(c *pass.Context) error { c.Opt.GradComm.Rank = 3; return nil }, pass.Options{}, "BUG: pass p wrote to the options"},
		{func(c *pass.Context) error { c.Opt.Optimizer.NoDecay[0] = "b"; return nil }, pass.Options{Optimizer: pass.Optimizer{NoDecay: []string{"a"}}}, "BUG: pass p wrote to the options"},
		{nothing, pass.Options{Disable: []string{"q"}}, `no pass is called "q"; the passes are p`},
		{nothing, pass.Options{StopAfter: "q"}, `no pass is called "q"`},
	} {
		tc.opt.DumpDir = t.TempDir()
		err := Run(&pass.Context{Module: probeModule(1), Opt: &tc.opt}, []pass.Pass{{Name: "p", Run: tc.run}})
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
}

func TestTableOrder(t *testing.T) {
	if err := Check(Table, pass.Typed, Finished); err != nil {
		t.Fatal(err)
	}
	bad := []pass.Pass{{Name: "late", Needs: pass.HasGrad | pass.Local}}
	if err := Check(bad, pass.Typed, 0); err == nil || err.Error() != "pass late needs HasGrad+Local, which no earlier pass makes" {
		t.Error(err)
	}
	const x, y = pass.Core, pass.HasLoss
	for _, tc := range []struct {
		table []pass.Pass
		want  string
	}{
		{[]pass.Pass{{Name: "a", Makes: x}, {Name: "b", Clears: x}, {Name: "c", Needs: x}}, "pass c needs Core, which b cleared"},
		{[]pass.Pass{{Name: "a", Makes: x | y}, {Name: "b", Makes: x, Clears: x | y}, {Name: "c", Needs: x}}, "after the last pass HasLoss does not hold"},
		{[]pass.Pass{{Name: "a", Makes: x | y, After: []string{"b"}}, {Name: "b"}}, "pass a runs before b, but must run after it"},
		{[]pass.Pass{{Name: "a", Makes: x | y}, {Name: "b", Before: []string{"a"}}}, "pass b runs after a, but must run before it"},
		{[]pass.Pass{{Name: "a", Makes: x | y, After: []string{"d"}}}, `before or after "d", which is not a pass`},
		{[]pass.Pass{{Name: "a", Makes: x | y, Before: []string{"b"}}, {Name: "b", Needs: x, After: []string{"a"}}}, ""},
	} {
		if err := Check(tc.table, 0, x|y); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %q", err, tc.want)
		}
	}
	off := []pass.Pass{{Name: "a", Run: nothing, Makes: pass.Core}, {Name: "b", Run: nothing, Needs: pass.Core}}
	err := Run(&pass.Context{Module: probeModule(1), Opt: &pass.Options{Disable: []string{"a"}}}, off)
	if err == nil || !strings.Contains(err.Error(), "pass b needs Core, which only a disabled pass makes") {
		t.Error(err)
	}
}

func TestDiff(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var a, b []string
		for i := range 30 {
			l := fmt.Sprintf("line %d\n", r.IntN(25))
			if k := r.IntN(10); k > 0 {
				a = append(a, l)
			}
			if k := r.IntN(10); k > 0 {
				b = append(b, l)
			}
			_ = i
		}
		ms := patience(a, b, 0, 0)
		for k, m := range ms {
			if a[m.i] != b[m.j] || k > 0 && (ms[k-1].i >= m.i || ms[k-1].j >= m.j) {
				t.Fatalf("bad match %v in %v", m, ms)
			}
		}
	}
	got := lineDiff("a\nb\nc\nd\ne\nf\ng\nh\n", "a\nb\nc\nd\nX\nf\ng\nh\n")
	if want := "@@ line 2\n b\n c\n d\n-e\n+X\n f\n g\n h\n"; got != want {
		t.Errorf("diff:\n%s", got)
	}
}

func TestDriverIsLinear(t *testing.T) {
	c := &pass.Context{Module: probeModule(10000), Opt: &pass.Options{DumpDir: t.TempDir()}}
	start := time.Now()
	if err := Run(c, []pass.Pass{{Name: "drop", Run: dropLast}}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("10,000 ops took %v", took)
	}
}
