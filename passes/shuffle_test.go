package passes_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/schedule"
	"github.com/gtc-compiler/gtc/internal/mutations"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// shuffledSeeds is how many orders of each pipeline are tried.
const shuffledSeeds = 6

// shuffles are the pipelines whose actions are shuffled.
var shuffles = []pass.Options{
	{PP: 2, Microbatches: 4, Pipeline: "1f1b"},
	{PP: 3, Microbatches: 3, Pipeline: "zb-h1"},
	{PP: 2, Microbatches: 4, Pipeline: "interleaved"},
	{PP: 2, DP: 2, Microbatches: 2, Zero: 2, Pipeline: "gpipe"},
}

// pipelined compiles a model for the ranks of o and makes the table of its schedule.
func pipelined(t *testing.T, o pass.Options) (*pass.Context, *schedule.Table) {
	t.Helper()
	o.Loss, o.StopAfter, o.Optimizer = "mse", "overlap", pass.Optimizer{LR: 0.1}
	c := &pass.Context{Module: blocks(24), Opt: &o}
	if err := passes.Run(c, passes.Table); err != nil {
		t.Fatal(err)
	}
	table, err := schedule.Make(o.Pipeline, o.PP, o.Chunks, o.Microbatches)
	if err != nil {
		t.Fatal(err)
	}
	return c, table
}

// blocks is a residual network of six blocks on a batch of so many samples.
func blocks(batch int) *ir.Module {
	f := &ir.Func{Name: "forward"}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "block"}
	x := b.Param("x", ir.T(dtype.F32, batch, 8), ir.Input)
	for range 6 {
		w := b.Param("w", ir.T(dtype.F32, 8, 8), ir.Param)
		x = ops.Add(b, x, ops.Tanh(b, ops.MatMul(b, x, w)))
	}
	b.Result("out0", x)
	return &ir.Module{Funcs: []*ir.Func{f}}
}

// inOrder runs a step of a pipeline whose stages do their actions in the order of a table, and gives what ranks keep and give.
func inOrder(c *pass.Context, table *schedule.Table) (map[string][]float64, error) {
	programs, args := simulated(c)
	kinds := map[schedule.Kind]string{schedule.F: "fwd", schedule.B: "bwd", schedule.W: "wgrad"}
	for i := range programs {
		var actions []abi.Action
		for _, a := range table.Rank(i) {
			if name := fmt.Sprintf("%s.%d", kinds[a.Kind], a.Chunk); programs[i].Module.Func(name) != nil {
				actions = append(actions, abi.Action{Func: name, Micro: a.Micro, Slot: a.Slot})
			}
		}
		programs[i].Actions, programs[i].Slots = append(actions, programs[i].Actions[len(programs[i].Actions)-1]), table.Slots(i)
	}
	s, err := interp.Simulate(programs, args)
	if err != nil {
		return nil, err
	}
	s.ByTag = true
	if err := s.Step(args); err != nil {
		return nil, err
	}
	all := map[string][]float64{}
	for rank := range programs[0].Module.Mesh.Ranks() {
		for _, name := range s.Names() {
			if x := s.Kept(rank, name); x != nil {
				all[fmt.Sprintf("what rank %d keeps of %s", rank, name)] = numbers(x)
			}
		}
	}
	return all, nil
}

// TestShuffledActions: stages that do any action that is ready, by the needs that the simulator of schedules goes by, compute
// what the table's order computes, to the bit.
func TestShuffledActions(t *testing.T) {
	for _, o := range shuffles {
		c, table := pipelined(t, o)
		want, err := inOrder(c, table)
		if err != nil {
			t.Fatal(err)
		}
		same := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
		other := 0
		for seed := range uint64(shuffledSeeds) {
			shuffled := table.Shuffled(seed, nil)
			for i := range table.Stages {
				if !slices.EqualFunc(shuffled.Rank(i), table.Rank(i), func(a, b schedule.Action) bool { return a.String() == b.String() }) {
					other++
					break
				}
			}
			got, err := inOrder(c, shuffled)
			if err != nil {
				t.Errorf("%s, seed %d: %v", o.Pipeline, seed, err)
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(want)) {
				if !slices.EqualFunc(got[name], want[name], same) {
					t.Errorf("%s, seed %d: %s is %v, want %v", o.Pipeline, seed, name, got[name][:2], want[name][:2])
				}
			}
		}
		if other == 0 {
			t.Errorf("%s: no seed gives another order", o.Pipeline)
		}
	}
}

// TestMutationsOfNeeds has the simulator of schedules forget that actions need others of their stage: an order that follows shows it,
// that of one of the seeds at the latest.
func TestMutationsOfNeeds(t *testing.T) {
	list := mutations.Of(t, 5)
	for _, o := range shuffles {
		c, table := pipelined(t, o)
		// A need on another stage orders two ranks, which a message does anyway; only those within a stage can be missed.
		for _, drop := range []struct{ kind, on schedule.Kind }{{schedule.B, schedule.F}, {schedule.W, schedule.B}} {
			if drop.kind == schedule.W && !table.Split {
				continue
			}
			found := ""
			for seed := uint64(0); seed < shuffledSeeds && found == ""; seed++ {
				_, err := inOrder(c, table.Shuffled(seed, func(a schedule.Action, part int, kind schedule.Kind, of int) bool {
					return a.Kind == drop.kind && kind == drop.on && part == of
				}))
				if err != nil {
					found = err.Error()
				}
			}
			mutation := fmt.Sprintf("need dropped: %s of %d stages: of %s for %s", o.Pipeline, o.PP, drop.kind, drop.on)
			if !strings.Contains(found, "reads stash") && !strings.Contains(found, "no rank can go on") {
				list.Missed(mutation)
				continue
			}
			list.Caught(mutation, "interpreter", found)
		}
	}
}

// sameBits reports the first result that differs, in name or bits.
func sameBits(got, want map[string][]float64) error {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !slices.EqualFunc(got[name], want[name], func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }) {
			return fmt.Errorf("%s is %v, want %v", name, got[name], want[name])
		}
	}
	return nil
}

// TestShuffledCalls: the samples' programs give the same, to the bit, whatever order is chosen of what they leave open: of ops
// before they are scheduled, and behind that of the moments at which collectives end and of work that runs at once, on the memory that was planned.
func TestShuffledCalls(t *testing.T) {
	samples := orderSamples(t)
	t.Chdir(t.TempDir())
	for _, s := range samples {
		for _, last := range []string{"overlap", "schedule", "memplan", ""} {
			s.opt.StopAfter = last
			c, err := s.through(t, passes.Table)
			if err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			want, err := results(c)
			if err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			for seed := uint64(1); seed <= 2; seed++ {
				got, err := shuffled(c, seed)
				if err == nil {
					err = sameBits(got, want)
				}
				if err != nil {
					t.Errorf("%s behind %s, seed %d: %v", s.name, cmp.Or(last, "all passes"), seed, err)
				}
			}
		}
	}
}

// noticed runs the ranks with several seeds and tells the first sign that something is wrong; nil when there is none.
func noticed(c *pass.Context, want map[string][]float64, seeds uint64) error {
	for seed := uint64(1); seed <= seeds; seed++ {
		got, err := shuffled(c, seed)
		if err == nil {
			err = sameBits(got, want)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// shuffledWaits are the samples whose programs are also run without a wait.
var shuffledWaits = []string{"gates on ranks and micro-batches", "attention on tensor-parallel ranks", "compressed", "halved messages on a GPU", "random 3"}

// TestMutationsOfWaits drops every wait of every call of the samples, one after the other: the program is not valid any more, and,
// were it run, some order that it leaves open would show it, which is tried with some of the samples.
func TestMutationsOfWaits(t *testing.T) {
	const seeds = 12
	list := mutations.Of(t, 60)
	samples := orderSamples(t)
	t.Chdir(t.TempDir())
	for _, s := range samples {
		c, err := s.through(t, passes.Table)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		var want map[string][]float64
		if slices.Contains(shuffledWaits, s.name) {
			if want, err = results(c); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
		for stage, p := range c.Programs() {
			for _, f := range p.Module.Funcs {
				eachWait(f, func(i, number int) {
					mutation := fmt.Sprintf("wait dropped: %s, stage %d: @%s, of call %d, %s, for %d", s.name, stage, f.Name, i, &f.Calls[i], number)
					invalid := p.Module.Verify()
					if invalid == nil {
						list.Missed(mutation)
						return
					}
					list.Caught(mutation, "Verify", invalid)
					if want != nil && !implied(f, i, number) && noticed(c, want, seeds) == nil {
						t.Errorf("%s: nothing shows it when it runs", mutation)
					}
				})
			}
		}
	}
}

// eachWait does try with every wait of every call dropped: that of call i for a collective.
func eachWait(f *ir.Func, try func(i, number int)) {
	for i := range f.Calls {
		all := f.Calls[i].Wait
		for k, number := range all {
			f.Calls[i].Wait = slices.Delete(slices.Clone(all), k, k+1)
			try(i, number)
		}
		f.Calls[i].Wait = all
	}
}

// implied reports whether a call up to the n'th waits for a collective behind that of call number on its stream, which ends in
// order.
func implied(f *ir.Func, n, number int) bool {
	for i := range n + 1 {
		for _, w := range f.Calls[i].Wait {
			if w > number && f.Calls[w].On == f.Calls[number].On {
				return true
			}
		}
	}
	return false
}

// TestMemoryUsedTwice puts what a call writes where another value lies that is still read: the program is not valid, and gives an error
// when it is run by its calls.
func TestMemoryUsedTwice(t *testing.T) {
	samples := orderSamples(t)
	t.Chdir(t.TempDir())
	c, err := samples[0].through(t, passes.Table)
	if err != nil {
		t.Fatal(err)
	}
	want, err := results(c)
	if err != nil {
		t.Fatal(err)
	}
	places := 0
	for _, f := range c.Module.Funcs {
		for i := range f.Calls {
			w := &f.Calls[i].Work[0]
			if f.Calls[i].On != "" || len(w.Write) == 0 || i%3 != 0 { // a third of them, for time
				continue
			}
			v, u := w.Write[0], needed(f, i)
			if u == nil || u == v {
				continue
			}
			was := v.Offset
			v.Offset = u.Offset
			places++
			if c.Module.Verify() == nil {
				t.Errorf("@%s is valid with %%%s in the place of %%%s", f.Name, v.Name, u.Name)
			}
			if noticed(c, want, 1) == nil {
				t.Errorf("@%s: nothing shows that %%%s is in the place of %%%s", f.Name, v.Name, u.Name)
			}
			v.Offset = was
		}
	}
	if places < 10 {
		t.Errorf("only %d places", places)
	}
}

// needed is a value that a call after the n'th reads and one before it made; nil for none.
func needed(f *ir.Func, n int) *ir.Value {
	for i := n + 1; i < len(f.Calls); i++ {
		if f.Calls[i].Work[0].Part != 0 { // that of one operand is said to read all
			continue
		}
		for _, v := range f.Calls[i].Work[0].Read {
			for k := range n {
				if v.Within == nil && slices.Contains(f.Calls[k].Work[0].Write, v) {
					return v
				}
			}
		}
	}
	return nil
}
