package ir_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/internal/mutations"
	"github.com/gtc-compiler/gtc/ir"
)

// scheduled is a function with calls and places: a sum over ranks beside kernels, a product that is made within a concat, a
// concat of two parts, and calls that are launched together, at once and in order.
const scheduled = `mesh @m = [dp=2]

func @step(%x: f32[4,8] &0, %w: f32[8,8] param &128, %p: f32[8] param &384) {
  %h = matmul %x, %w : f32[4,8] &448 @1
  %s = reduce_sum %h {dims=[0]} : f32[1,8] &576 @2
  %g = all_reduce %s {axis="dp", op="sum"} : f32[1,8] &576 @3
  %r = relu %h : f32[4,8] &640 @4
  %m = matmul %r, %w : f32[4,8] &768 @5
  %c = concat %m, %r : f32[8,8] &768 @6
  %k = const {value=f32[8](1.0 2.0 3.0 4.0 5.0 6.0 7.0 8.0)} : f32[8] &1024
  %v = reshape %g {dims=[8]} : f32[8]
  %a = add %p, %v : f32[8] &384 @7
  %b = mul %v, %k : f32[8] &1088 @8
  %d = exp %b : f32[8] &1152 @9
  %e = exp %d : f32[8] &1216 @10
  %z = concat %d, %e : f32[16] &1280 @11
  return out0=%c, %p <- %a, out1=%z
} calls {
  0: @1 (%x, %w) -> (%h)
  1: @2 (%h) -> (%s)
  2: @3 (%s) -> (%g) on dp
  3: @4 (%h) -> (%r)
  4: @5 (%r, %w) -> (%m in %c)
  5: @6/2 (%m, %r) -> (%c)
  6: @7 (%p, %g) -> (%a) + @8 (%g, %k) -> (%b) after 2
  7: @9 (%b) -> (%d alone); @10 (%d) -> (%e)
  8: @11/1 (%d, %e) -> (%z)
  9: @11/2 (%d, %e) -> (%z)
}
`

// offloaded is a function that offloads two values and fetches them, on an arena in which what is fetched, and others, take the places
// of what is not needed meanwhile.
const offloaded = `func @step(%x: f32[8] &0) {
  %a = exp %x : f32[8] &64 @1
  %ha = offload %a {lands=2} : f32[8] &0 @2
  %b = tanh %a : f32[8] &128 @3
  %c = neg %b : f32[8] &192 @4
  %hc = offload %c {lands=1} : f32[8] &4096 @5
  %d = exp %c : f32[8] &64 @6
  %fa = fetch %ha : f32[8] &128 @7
  %e = mul %d, %fa : f32[8] &256 @8
  %fc = fetch %hc : f32[8] &192 @9
  %g = exp %e : f32[8] &320 @10
  %h = mul %g, %fc : f32[8] &384 @11
  return out0=%h
} calls {
  0: @1 (%x) -> (%a)
  1: @2 (%a) -> (%ha) on host>
  2: @3 (%a) -> (%b)
  3: @4 (%b) -> (%c) after 1
  4: @5 (%c) -> (%hc) on host>
  5: @6 (%c) -> (%d) after 4
  6: @7 (%ha) -> (%fa) on host<
  7: @8 (%d, %fa) -> (%e) after 6
  8: @9 (%hc) -> (%fc) on host<
  9: @10 (%e) -> (%g)
  10: @11 (%g, %fc) -> (%h) after 8
}
`

// parsed is the function of a text.
func parsed(t *testing.T, text string) (*ir.Module, *ir.Func) {
	t.Helper()
	m, err := ir.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return m, m.Funcs[0]
}

// TestMutationsOfCalls: every edge of a schedule that is dropped, every call that is left out, done twice or in the place of the next
// one that needs it, and every wait that is early or late, is noticed.
func TestMutationsOfCalls(t *testing.T) {
	list := mutations.Of(t, 100)
	mutateCalls(t, list, scheduled, [][2]int{{0, 1}, {1, 2}, {3, 4}, {0, 3}, {6, 7}, {7, 8}})
	mutateCalls(t, list, offloaded, [][2]int{{0, 1}, {3, 4}, {4, 5}, {6, 7}, {7, 9}, {8, 10}})
	m, f := parsed(t, scheduled)
	f.Calls[7].InOrder = false
	if err := f.Verify(m); err != nil {
		list.Caught("what is in order at once", "Verify", err)
	} else {
		list.Missed("what is in order at once")
	}
}

// mutateCalls changes the calls of a text in every way, and swaps those that are told.
func mutateCalls(t *testing.T, list *mutations.List, text string, swaps [][2]int) {
	t.Helper()
	m, f := parsed(t, text)
	if err := m.Verify(); err != nil {
		t.Fatal(err)
	}
	notice := func(what string, change func(calls []ir.Call) []ir.Call) {
		t.Helper()
		g, _ := f.Clone()
		g.Calls = change(g.Calls)
		if err := g.Verify(m); err != nil {
			list.Caught(what, "Verify", err)
		} else {
			list.Missed(what)
		}
	}
	for i := range f.Calls {
		c := &f.Calls[i]
		notice(fmt.Sprint("without call ", i), func(l []ir.Call) []ir.Call { return renumbered(slices.Delete(l, i, i+1), i) })
		notice(fmt.Sprint("twice call ", i), func(l []ir.Call) []ir.Call { return append(l, l[i]) })
		for k := range c.Wait {
			notice(fmt.Sprintf("call %d without wait %d", i, k), func(l []ir.Call) []ir.Call { l[i].Wait = slices.Delete(l[i].Wait, k, k+1); return l })
		}
		notice(fmt.Sprintf("call %d waits for itself", i), func(l []ir.Call) []ir.Call { l[i].Wait = append(l[i].Wait, i); return l })
		for k := range c.Work {
			for n := range c.Work[k].Read {
				notice(fmt.Sprintf("call %d without read %d of work %d", i, n, k), func(l []ir.Call) []ir.Call {
					l[i].Work[k].Read = slices.Delete(l[i].Work[k].Read, n, n+1)
					return l
				})
			}
			for n := range c.Work[k].Write {
				notice(fmt.Sprintf("call %d without write %d of work %d", i, n, k), func(l []ir.Call) []ir.Call {
					l[i].Work[k].Write = slices.Delete(l[i].Work[k].Write, n, n+1)
					return l
				})
			}
		}
	}
	for _, swap := range swaps {
		notice(fmt.Sprint("swapped calls ", swap), func(l []ir.Call) []ir.Call { l[swap[0]], l[swap[1]] = l[swap[1]], l[swap[0]]; return l })
	}
}

// renumbered corrects waits for later calls when call gone was left out.
func renumbered(l []ir.Call, gone int) []ir.Call {
	for i := range l {
		for k, w := range l[i].Wait {
			if w > gone {
				l[i].Wait[k]--
			}
		}
	}
	return l
}

// TestMutationsOfPlaces: plans of memory in which something that is still needed is overwritten are refused, with the reason.
func TestMutationsOfPlaces(t *testing.T) {
	list := mutations.Of(t, 13)
	cases := []struct{ name, change, to, want string }{
		{"over what an offload reads", "%b = tanh %a : f32[8] &128", "%b = tanh %a : f32[8] &64", "call 2, @3 (%a) -> (%b), writes %b &64, which call 1 still needs for %a: no call has waited for it"},
		{"over what a fetch writes", "%g = exp %e : f32[8] &320", "%g = exp %e : f32[8] &192", "call 9, @10 (%e) -> (%g), writes %g &192, which call 8 still needs for %fc: no call has waited for it"},
		{"fetched over what is still read", "%fa = fetch %ha : f32[8] &128", "%fa = fetch %ha : f32[8] &64", "call 7, @8 (%d, %fa) -> (%e) after 6, reads %d &64, where there is %fa"},
		{"in host storage, over what is still to be fetched", "{lands=1} : f32[8] &4096", "{lands=1} : f32[8] &0", "call 6, @7 (%ha) -> (%fa) on host<, reads %ha &0, where there is %hc"},
		{"no host storage", "{lands=1} : f32[8] &4096", "{lands=1} : f32[8]", "writes %hc, which has no memory"},
		{"a value over one that is still read", "%r = relu %h : f32[4,8] &640", "%r = relu %h : f32[4,8] &192", "call 4, @5 (%r, %w) -> (%m in %c), reads %w &128, where there is %r"},
		{"over what a collective works on", "%r = relu %h : f32[4,8] &640", "%r = relu %h : f32[4,8] &576", "call 3, @4 (%h) -> (%r), writes %r &576, which call 2 still needs for %g: no call has waited for it"},
		{"over an assembly that has begun", "%k = const {value=f32[8](1.0 2.0 3.0 4.0 5.0 6.0 7.0 8.0)} : f32[8] &1024", "%k = const {value=f32[8](1.0 2.0 3.0 4.0 5.0 6.0 7.0 8.0)} : f32[8] &896", "%c"},
		{"over a constant", "%z = concat %d, %e : f32[16] &1280", "%z = concat %d, %e : f32[16] &1024", "call 8, @11/1 (%d, %e) -> (%z), writes %z &1024 over the constant %k"},
		{"two of one launch", "%b = mul %v, %k : f32[8] &1088 @8", "%b = mul %v, %k : f32[8] &384 @8", "writes %b &384 twice at once"},
		{"what another of the launch reads", "%b = mul %v, %k : f32[8] &1088 @8", "%b = mul %v, %k : f32[8] &576 @8", "reads %g &576, where it writes at the same time"},
		{"over a result", "%e = exp %d : f32[8] &1216", "%e = exp %d : f32[8] &768", "result %c &768 is lost: when all calls are done, there is %e"},
		{"no memory", "%e = exp %d : f32[8] &1216", "%e = exp %d : f32[8]", "writes %e, which has no memory"},
	}
	for _, c := range cases {
		base := scheduled
		if strings.Contains(offloaded, c.change) {
			base = offloaded
		}
		text := strings.Replace(base, c.change, c.to, 1)
		m, err := ir.Parse(text)
		if err != nil || text == base {
			t.Fatalf("%s: %v", c.name, err)
		}
		err = m.Verify()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
			continue
		}
		list.Caught("in memory, "+c.name, "Verify", err)
	}
}

// TestCallsErrors: faulty text of calls is refused with its reason.
func TestCallsErrors(t *testing.T) {
	const head = "func @f(%x: f32[2]) {\n  %a = exp %x : f32[2] @1\n  return out0=%a\n} calls "
	for _, c := range []struct{ calls, parse, verify string }{
		{"{ 1: @1 (%x) -> (%a) }", "call 0 has number 1", ""},
		{"{ 0: @1 (%y) -> (%a) }", "%y is used before it is defined", ""},
		{"{ 0: @1/0 (%x) -> (%a) }", "part numbers must be at least 1", ""},
		{"{ 0: @1 (%x) -> (%x in %a) }", "%x cannot lie within %a", ""},
		{"{ 0: @1 (%x) -> (%a) on _ }", "the name of a stream is expected", ""},
		{"{ }", "", "no call does group 1"},
		{"{ 0: @2 (%x) -> (%a) }", "", "does group 2, which has no ops"},
		{"{ 0: @1/1 (%x) -> (%a) 1: @1 (%x) -> (%a) }", "", "does @1 again"},
		{"{ 0: @1/3 (%x) -> (%a) }", "", "does @1/3, which the group does not have"},
		{"{ 0: @1 (%x) -> (%a) on dp }", "", "must be either a collective or a transfer on a stream, or kernels on no stream"},
		{"{ 0: @1 (%x, %a) -> (%a) }", "", "reads %a, which the ops of @1 do not"},
		{"{ 0: @1 (%x) -> (%a in %a) }", "", "writes %a within %a, which is not made of it"},
	} {
		m, err := ir.Parse(head + c.calls)
		if err == nil && c.parse == "" {
			err = m.Verify()
		}
		if err == nil || !strings.Contains(err.Error(), c.parse+c.verify) {
			t.Errorf("%s: %v, want %q", c.calls, err, c.parse+c.verify)
		}
	}
}
