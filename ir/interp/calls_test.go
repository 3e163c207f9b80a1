package interp

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	_ "github.com/gtc-compiler/gtc/ir/ops" // those of the texts
)

// overlapped adds a value over two ranks beside a product, on an arena in which %a takes the place of %n.
const overlapped = `mesh @m = [dp=2]

func @step(%x: f32[4] &0) {
  %n = neg %x : f32[4] &64 @1
  %s = all_reduce %n {axis="dp", op="sum"} : f32[4] &128 @2
  %p = mul %x, %x : f32[4] &192 @3
  %a = add %p, %x : f32[4] &64 @4
  %b = add %a, %s : f32[4] &0 @5
  return out0=%b
} calls {
  0: @1 (%x) -> (%n)
  1: @2 (%n) -> (%s) on dp
  2: @3 (%x) -> (%p)
  3: @4 (%p, %x) -> (%a)
  4: @5 (%a, %s) -> (%b) after 1
}
`

// outcomes runs text on two ranks with seeds, and gives the results of rank 0, or errors.
func outcomes(t *testing.T, text string, seeds uint64) map[string]bool {
	t.Helper()
	m, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	f, all := m.Funcs[0], map[string]bool{}
	args := []map[string]*ir.Array{Random(f, 1), Random(f, 2)}
	for seed := range seeds {
		out, err := Options{Shuffle: seed}.RunRanks(m, f, 2, args) // 0 is the order as it stands
		if err != nil {
			all[err.Error()] = true
		} else {
			all[fmt.Sprint(out[0].Named["out0"].F)] = true
		}
	}
	return all
}

// change is made to a text with calls, and what is told of it by one seed or another.
type change struct{ old, new, want string }

// noticed runs text, which gives one result whatever a seed chooses, and its changes, which are told.
func noticed(t *testing.T, text string, changes []change) {
	t.Helper()
	if all := outcomes(t, text, 30); len(all) != 1 || strings.Contains(fmt.Sprint(all), "%") {
		t.Errorf("%d different results: %v", len(all), all)
	}
	for _, c := range changes {
		other := strings.Replace(text, c.old, c.new, 1)
		all := outcomes(t, other, 40)
		told := func(line string) bool { return strings.Contains(line, c.want) }
		if other == text || !slices.ContainsFunc(slices.Collect(maps.Keys(all)), told) {
			t.Errorf("%q for %q: %v, want %s", c.new, c.old, all, c.want)
		}
	}
}

// TestCallsOnMemory: calls give what the ops give, whatever a seed chooses; a wait that is missing, memory that is used too early, a
// collective that loses what it reads, and work that is not apart show.
func TestCallsOnMemory(t *testing.T) {
	noticed(t, overlapped, []change{
		{" after 1", "", "reads %s, which a call makes that nothing has waited for"},
		{"f32[4] &64 @4", "f32[4] &128 @4", "%s is overwritten while call 1"},
		{"f32[4] &192 @3", "f32[4] &0 @3", "reads %x, but its place holds %p"},
		{"  2: @3 (%x) -> (%p)\n  3: @4 (%p, %x) -> (%a)\n  4:", "  2: @3 (%x) -> (%p) + @4 (%p, %x) -> (%a)\n  3:", "reads %p, but its place holds nothing yet"},
	})
}

// offloaded offloads a value and fetches it, on an arena in which %c takes the place of what was offloaded.
const offloaded = `mesh @m = [dp=2]

func @step(%x: f32[4] &0) {
  %a = neg %x : f32[4] &64 @1
  %h = offload %a {lands=1} : f32[4] &0 @2
  %b = mul %a, %x : f32[4] &128 @3
  %c = neg %b : f32[4] &64 @4
  %f = fetch %h : f32[4] &192 @5
  %d = mul %c, %c : f32[4] &256 @6
  %e = mul %d, %f : f32[4] &320 @7
  return out0=%e
} calls {
  0: @1 (%x) -> (%a)
  1: @2 (%a) -> (%h) on host>
  2: @3 (%a, %x) -> (%b)
  3: @4 (%b) -> (%c) after 1
  4: @5 (%h) -> (%f) on host<
  5: @6 (%c) -> (%d)
  6: @7 (%d, %f) -> (%e) after 4
}
`

// TestTransfersOnMemory: transfers give what the ops give, at whatever moment they end; a wait that is missing, and memory that is used too
// early, show.
func TestTransfersOnMemory(t *testing.T) {
	noticed(t, offloaded, []change{
		{"after 1", "", "%a is overwritten while call 1, which needs it, is still running"},
		{"after 4", "", "reads %f, but its place holds nothing yet"},
		{"f32[4] &128 @3", "f32[4] &64 @3", "%a is overwritten while call 1"},
		{"f32[4] &256 @6", "f32[4] &192 @6", "reads %d, but its place holds %f"},
		{"-> (%c) after 1\n", "-> (%c)\n", "reads %h, but its place holds nothing yet"},
	})
}

// TestShuffledOps: an order of ops is another for another seed, operands come first, and collectives stay in theirs.
func TestShuffledOps(t *testing.T) {
	m, err := ir.Parse("func @f(%x: f32[2]) {\n  %a = neg %x : f32[2]\n  %b = exp %x : f32[2]\n  %r = all_reduce %a {axis=\"dp\", op=\"sum\"} : f32[2]\n" +
		"  %q = all_reduce %b {axis=\"dp\", op=\"sum\"} : f32[2]\n  %c = add %q, %r : f32[2]\n  %d = tanh %x : f32[2]\n  return c=%c, d=%d\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	orders := map[string]bool{}
	for seed := range uint64(20) {
		at := map[string]int{}
		text := ""
		for i, op := range shuffled(m.Funcs[0], rand.New(rand.NewPCG(seed, 1))) {
			at[op.Out[0].Name] = i
			text += op.Out[0].Name
			for _, v := range op.In {
				if _, there := at[v.Name]; v.Op != nil && !there {
					t.Errorf("seed %d: %%%s comes before %%%s", seed, op.Out[0].Name, v.Name)
				}
			}
		}
		if orders[text] = true; len(text) != 6 || at["r"] > at["q"] {
			t.Errorf("seed %d: %s", seed, text)
		}
	}
	if len(orders) < 5 {
		t.Errorf("only %d orders", len(orders))
	}
}
