package explain

import (
	"bytes"
	"math"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/topo"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// TestPlan checks counts, bytes and times worked out by hand: 1 us and 1 GB/s, three micro-batches on two stages of two ranks.
func TestPlan(t *testing.T) {
	top, err := topo.Parse("1us/1GB,pp=10us/1GB")
	if err != nil {
		t.Fatal(err)
	}
	m := &abi.Manifest{Mesh: []abi.Axis{{Name: "pp", Size: 2}, {Name: "dp", Size: 2}}, Ranks: 4, RankProgram: []int{0, 0, 1, 1},
		Train: abi.Train{Microbatches: 3}, Programs: []abi.Program{
			{Actions: []abi.Action{{Func: "fwd.0"}, {Func: "fwd.0", Micro: 1}, {Func: "fwd.0", Micro: 2}, {Func: "step"}},
				Collectives: []abi.Collective{
					{Func: "fwd.0", Kind: "send", Axis: "pp", Peer: 1, DType: "f32", Bytes: 5000, Tensors: []string{"h"}, Loc: "m.py:3"},
					{Func: "step", Kind: "reduce_scatter", Axis: "dp", Op: "sum", DType: "f32", Bytes: 1000, Tensors: []string{"d_w"}, Why: "ZeRO"},
					{Func: "step", Kind: "reduce_scatter", Axis: "dp", Op: "sum", DType: "f32", Bytes: 3000, Tensors: []string{"d_v"}},
					{Func: "eval", Kind: "all_reduce", Axis: "dp", Op: "sum", DType: "f32", Bytes: 4, Tensors: []string{"loss"}},
				}},
			{Collectives: []abi.Collective{{Func: "micro", Kind: "all_gather", Axis: "dp", DType: "f32", Bytes: 8000, Tensors: []string{"w"}}}},
		}}
	p := PlanOf(m, top)
	want := [][]Total{
		{{"dp", "reduce_scatter", 2, 4000, 4000, 2e-6 + 4e-6}, {"pp", "send", 3, 15000, 15000, 3 * 15e-6}},
		{{"dp", "all_gather", 2, 16000, 8000, 2 * (1e-6 + 4e-6)}},
	}
	for i := range want {
		got := p.Programs[i].Totals
		if len(got) != len(want[i]) {
			t.Fatalf("program %d: %+v, want %+v", i, got, want[i])
		}
		for k, w := range want[i] {
			g := got[k]
			if math.Abs(g.Seconds-w.Seconds) > 1e-12 {
				t.Errorf("program %d: %g s, want %g", i, g.Seconds, w.Seconds)
			}
			if g.Seconds = w.Seconds; g != w {
				t.Errorf("program %d: %+v, want %+v", i, g, w)
			}
		}
	}
	if c := p.Programs[0].Collectives[3]; c.PerStep != 0 || c.Ranks != 2 {
		t.Errorf("@eval: %+v", c)
	}
	var b bytes.Buffer
	p.Print(&b)
	for _, line := range []string{
		"program 0, of rank 0-1\n@fwd.0, 3 times a step\n  send over pp, to 1: 4.883 KiB of f32, sends 4.883 KiB in 15 us (direct)\n      h\n      at m.py:3\n",
		"  reduce_scatter sum over dp, 2 ranks: 1000 B of f32, sends 1000 B in 2 us (ring)\n      d_w\n      why: ZeRO\n",
		"  dp reduce_scatter           2    3.906 KiB    3.906 KiB         6 us\n",
	} {
		if !bytes.Contains(b.Bytes(), []byte(line)) {
			t.Errorf("no %q in\n%s", line, &b)
		}
	}
}
