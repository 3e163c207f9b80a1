package proof

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/distributed/schedule"
	"github.com/gtc-compiler/gtc/internal/mutations"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// pipeline is the plan of a model of parts that each receive, reduce over tp and send, forward and back, with an update that
// reduces gradients over dp and the norm over pp.
func pipeline(t testing.TB, name string, pp, dp, tp, chunks, micros int) *abi.Manifest {
	t.Helper()
	tab, err := schedule.Make(name, pp, chunks, micros)
	if err != nil {
		t.Fatal(err)
	}
	m := &abi.Manifest{Mesh: []abi.Axis{{Name: "pp", Size: pp}, {Name: "dp", Size: dp}, {Name: "tp", Size: tp}}, Ranks: pp * dp * tp,
		Train: abi.Train{Microbatches: micros}}
	for r := range m.Ranks {
		m.RankProgram = append(m.RankProgram, r/(dp*tp))
	}
	for i := range pp {
		m.Programs = append(m.Programs, stage(tab, i, dp*tp))
	}
	return m
}

var funcName = map[schedule.Kind]string{schedule.F: "fwd", schedule.B: "bwd", schedule.W: "wgrad"}

func stage(tab *schedule.Table, i, wide int) abi.Program {
	p := abi.Program{Slots: tab.Slots(i)}
	add := func(fn, kind, axis, op, tensor string, peer int) {
		if axis != "pp" && wide == 1 { // meshes have no axes of one rank
			return
		}
		p.Collectives = append(p.Collectives, abi.Collective{Func: fn, Kind: mesh.Collective(kind), Axis: axis, Op: op, Peer: peer, DType: "f32", Bytes: 64,
			Tensors: []string{tensor}, Loc: fmt.Sprintf("model.py:%d", len(p.Collectives)+1)})
	}
	message := func(fn, kind, tensor string, part, peer int) {
		if part >= 0 && part < tab.Parts()-1 {
			add(fn, kind, "pp", "", fmt.Sprintf("%s%d", tensor, part), peer%tab.Stages)
		}
	}
	for c := range tab.Chunks {
		part, number := tab.Part(i, c), fmt.Sprintf(".%d", c)
		message("fwd"+number, "recv", "h", part-1, i+tab.Stages-1)
		add("fwd"+number, "all_reduce", "tp", "sum", "a"+number, 0)
		message("fwd"+number, "send", "h", part, i+1)
		message("bwd"+number, "recv", "d_h", part, i+1)
		add("bwd"+number, "all_reduce", "tp", "sum", "d_a"+number, 0)
		message("bwd"+number, "send", "d_h", part-1, i+tab.Stages-1)
		p.Funcs = append(p.Funcs, abi.Func{Name: "fwd" + number}, abi.Func{Name: "bwd" + number})
		if tab.Split {
			p.Funcs = append(p.Funcs, abi.Func{Name: "wgrad" + number})
		}
		message("eval", "recv", "e", part-1, i+tab.Stages-1)
		message("eval", "send", "e", part, i+1)
	}
	add("step", "all_reduce", "dp", "sum", "d_w", 0)
	add("step", "all_reduce", "pp", "sum", "norm", 0)
	p.Funcs = append(p.Funcs, abi.Func{Name: "step"}, abi.Func{Name: "eval"})
	for _, a := range tab.Rank(i) {
		p.Actions = append(p.Actions, abi.Action{Func: fmt.Sprintf("%s.%d", funcName[a.Kind], a.Chunk), Micro: a.Micro, Slot: a.Slot})
	}
	p.Actions = append(p.Actions, abi.Action{Func: "step", Micro: tab.Micros - 1})
	return p
}

// TestPipelines proves every schedule, by symmetry and rank by rank.
func TestPipelines(t *testing.T) {
	for _, name := range schedule.Names() {
		for _, pp := range []int{2, 3, 4} {
			for _, micros := range []int{1, 2, 12} {
				if name == "interleaved" && micros%pp != 0 {
					continue
				}
				m := pipeline(t, name, pp, 2, 2, 0, micros)
				rep, err := check(m, true)
				if err != nil {
					t.Errorf("%s, %d stages, %d micro-batches: %v", name, pp, micros, err)
					continue
				}
				all, err := check(m, false)
				if err != nil || rep.Run != pp || all.Run != m.Ranks || all.Entries[0].Messages != 4*rep.Entries[0].Messages || rep.Entries[0].Messages == 0 ||
					all.Entries[0].Collectives != 4*rep.Entries[0].Collectives {
					t.Errorf("%s, %d stages, %d micro-batches: %v by symmetry, %v rank by rank; %v", name, pp, micros, rep, all, err)
				}
			}
		}
	}
}

// with is the plan with another program for one rank.
func with(m *abi.Manifest, rank int, p abi.Program) *abi.Manifest {
	out := *m
	out.RankProgram, out.Programs = slices.Clone(m.RankProgram), append(slices.Clone(m.Programs), p)
	out.RankProgram[rank] = len(m.Programs)
	return &out
}

// mutant is one change of one rank's program.
type mutant struct {
	what string
	P    abi.Program
}

// mutants are all changes of a kind to a program: each collective and each action dropped, doubled, moved and altered.
func mutants(p abi.Program, axes []abi.Axis) []mutant {
	var out []mutant
	copyOf := func() abi.Program {
		q := p
		q.Collectives, q.Actions = slices.Clone(p.Collectives), slices.Clone(p.Actions)
		return q
	}
	for i, c := range p.Collectives {
		q := copyOf()
		q.Collectives = slices.Delete(q.Collectives, i, i+1)
		out = append(out, mutant{"drop " + tell(&c), q})
		q = copyOf()
		q.Collectives = slices.Insert(q.Collectives, i, c)
		out = append(out, mutant{"double " + tell(&c), q})
		for k := i + 1; k < len(p.Collectives); k++ {
			if d := p.Collectives[k]; d.Func == c.Func {
				q = copyOf()
				q.Collectives[i], q.Collectives[k] = d, c
				out = append(out, mutant{"swap " + tell(&c) + " with " + tell(&d), q})
			}
		}
		alter := func(what string, f func(c *abi.Collective)) {
			q := copyOf()
			if f(&q.Collectives[i]); fmt.Sprint(q.Collectives[i]) != fmt.Sprint(c) {
				out = append(out, mutant{what + " " + tell(&c), q})
			}
		}
		alter("halve", func(c *abi.Collective) { c.Bytes /= 2 })
		alter("enlarge", func(c *abi.Collective) { c.Bytes += 64 })
		alter("type of", func(c *abi.Collective) { c.DType = "i32" })
		alter("tensor of", func(c *abi.Collective) { c.Tensors = []string{"other"} })
		alter("operator of", func(c *abi.Collective) { c.Op = "max" })
		alter("no operator of", func(c *abi.Collective) { c.Op = "" })
		for _, a := range append(axes, abi.Axis{Name: "cp", Size: 1}) {
			alter("axis "+a.Name+" of", func(c *abi.Collective) { c.Axis = a.Name })
		}
		for peer := -1; peer <= 2; peer++ {
			if c.Kind == "send" || c.Kind == "recv" {
				alter(fmt.Sprintf("peer %d of", peer), func(c *abi.Collective) { c.Peer = peer })
			}
		}
		for _, kind := range []mesh.Collective{"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "recv"} {
			alter(string(kind)+" instead of", func(c *abi.Collective) { c.Kind = kind })
		}
		for _, f := range p.Funcs {
			alter("in @"+f.Name+" instead", func(c *abi.Collective) { c.Func = f.Name })
		}
	}
	return append(out, actionMutants(p, copyOf)...)
}

func actionMutants(p abi.Program, copyOf func() abi.Program) []mutant {
	var out []mutant
	for i, a := range p.Actions {
		add := func(what string, f func(q *abi.Program)) {
			q := copyOf()
			f(&q)
			out = append(out, mutant{fmt.Sprintf("%s %v", what, a), q})
		}
		add("drop", func(q *abi.Program) { q.Actions = slices.Delete(q.Actions, i, i+1) })
		add("double", func(q *abi.Program) { q.Actions = slices.Insert(q.Actions, i, a) })
		for k := i + 1; k < len(p.Actions); k++ {
			add(fmt.Sprintf("swap %d and %d, %v,", i, k, p.Actions[k]), func(q *abi.Program) { q.Actions[i], q.Actions[k] = q.Actions[k], q.Actions[i] })
		}
		add("later", func(q *abi.Program) { q.Actions[i].Micro++ })
		add("earlier", func(q *abi.Program) { q.Actions[i].Micro-- })
		add("next slot of", func(q *abi.Program) { q.Actions[i].Slot++ })
		add("last slot of", func(q *abi.Program) { q.Actions[i].Slot-- })
		for _, f := range p.Funcs {
			if f.Name != a.Func {
				add("call "+f.Name+" for", func(q *abi.Program) { q.Actions[i].Func = f.Name })
			}
		}
	}
	return out
}

// harmless says why a change that the simulation lets pass changes nothing that ranks wait for.
func harmless(p, q *abi.Program) string {
	var moved []abi.Collective
	for i := range p.Collectives {
		if len(p.Collectives) != len(q.Collectives) {
			return ""
		}
		if fmt.Sprint(p.Collectives[i]) != fmt.Sprint(q.Collectives[i]) {
			moved = append(moved, p.Collectives[i])
		}
	}
	channel := func(c abi.Collective) string {
		if kindOf(&c) == doMeet {
			return c.Axis
		}
		return fmt.Sprint(c.Kind, c.Axis, c.Peer)
	}
	if len(moved) == 2 && moved[0].Func == moved[1].Func && channel(moved[0]) != channel(moved[1]) {
		return "the order of two ops on different channels"
	}
	if len(moved) > 0 || len(p.Actions) != len(q.Actions) {
		return ""
	}
	var acts []int
	for i := range p.Actions {
		if p.Actions[i] != q.Actions[i] {
			acts = append(acts, i)
		}
	}
	if len(acts) == 2 && acts[0]+1 == acts[1] && p.Actions[acts[0]] == q.Actions[acts[1]] && p.Actions[acts[1]] == q.Actions[acts[0]] &&
		p.Actions[acts[0]].Func != p.Actions[acts[1]].Func && p.Actions[acts[0]].Micro != p.Actions[acts[1]].Micro {
		return "the order of two neighbours, of different micro-batches and functions: another schedule that is right"
	}
	return ""
}

// TestMutationsOfPlans changes one rank's program in every way: the simulation finds all changes but those of which harmless says why
// they stop nobody, and these are found because the ranks of a stage differ.
func TestMutationsOfPlans(t *testing.T) {
	list := mutations.Of(t, 1000)
	for _, name := range schedule.Names() {
		for _, wide := range []int{2, 1} {
			m := pipeline(t, name, 2, wide, wide, 0, 4)
			if _, err := Check(m); err != nil {
				t.Fatal(err)
			}
			for rank := range m.Ranks {
				p := m.Programs[m.RankProgram[rank]]
				for _, mu := range mutants(p, m.Mesh) {
					bad := with(m, rank, mu.P)
					what := fmt.Sprintf("%s on %d ranks, rank %d: %s", name, m.Ranks, rank, mu.what)
					if _, err := check(bad, true); err != nil {
						list.Caught(what, "proof", err)
						continue
					}
					if why := harmless(&p, &mu.P); why != "" {
						list.Harmless(what, why)
					} else {
						list.Missed(what)
					}
					if _, err := Check(bad); wide > 1 && (err == nil || !strings.Contains(err.Error(), "run different programs")) {
						t.Errorf("%s, rank %d: %s: %v", name, rank, mu.what, err)
					}
				}
			}
		}
	}
}

// ranks is a plan of one function, given the collectives of each program.
func ranks(axes []abi.Axis, programs ...[]abi.Collective) *abi.Manifest {
	m := &abi.Manifest{Mesh: axes, Ranks: len(programs)}
	for i, list := range programs {
		for k := range list {
			c := &list[k]
			c.Func, c.DType, c.Bytes = "step", "f32", max(c.Bytes, 8)
			if c.Kind == "" {
				c.Kind, c.Op = "all_reduce", "sum"
			}
			c.Loc = fmt.Sprintf("m.py:%d", k+1)
		}
		m.RankProgram = append(m.RankProgram, i)
		m.Programs = append(m.Programs, abi.Program{Funcs: []abi.Func{{Name: "step"}}, Collectives: list})
	}
	return m
}

// TestErrors: what is said of ranks that do not fit together names both ops and their lines.
func TestErrors(t *testing.T) {
	dp2 := []abi.Axis{{Name: "dp", Size: 2}}
	square := []abi.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}
	at := func(axis, tensor string) abi.Collective { return abi.Collective{Axis: axis, Tensors: []string{tensor}} }
	to := func(kind, axis string, peer int, tensor string) abi.Collective {
		return abi.Collective{Kind: mesh.Collective(kind), Axis: axis, Peer: peer, Tensors: []string{tensor}}
	}
	list := func(c ...abi.Collective) []abi.Collective { return c }
	big := at("dp", "w")
	big.Bytes = 16
	for name, c := range map[string]struct {
		m    *abi.Manifest
		want string
	}{
		"size": {ranks(dp2, list(at("dp", "w")), list(big)),
			"collective 0 over dp differs: rank 0 issues all_reduce sum over dp of f32, 8 bytes (w), in @step at m.py:1, micro-batch 0; rank 1 issues all_reduce sum over dp of f32, 16 bytes (w), in @step at m.py:1, micro-batch 0"},
		"missing": {ranks(dp2, list(at("dp", "w"), at("dp", "v")), list(at("dp", "w"))),
			"rank 0 waits for all_reduce sum over dp of f32, 8 bytes (v), in @step at m.py:2, micro-batch 0, which rank 1 never issues: its @step is over"},
		"crossed": {ranks(square, list(at("dp", "w"), at("tp", "h")), list(at("tp", "h"), at("dp", "w")), list(at("tp", "h"), at("dp", "w")), list(at("dp", "w"), at("tp", "h"))),
			`ranks wait for one another forever:
  rank 0 waits for rank 2, at all_reduce sum over dp of f32, 8 bytes (w), in @step at m.py:1, micro-batch 0
  rank 2 waits for rank 3, at all_reduce sum over tp of f32, 8 bytes (h), in @step at m.py:1, micro-batch 0
  rank 3 waits for rank 1, at all_reduce sum over dp of f32, 8 bytes (w), in @step at m.py:1, micro-batch 0
  rank 1 waits for rank 0, at all_reduce sum over tp of f32, 8 bytes (h), in @step at m.py:1, micro-batch 0`},
		"both receive first": {ranks(dp2, list(to("recv", "dp", 1, "b"), to("send", "dp", 1, "a")), list(to("recv", "dp", 0, "a"), to("send", "dp", 0, "b"))),
			`ranks wait for one another forever:
  rank 0 waits for rank 1, at recv over dp from 1 of f32, 8 bytes (b), in @step at m.py:1, micro-batch 0
  rank 1 waits for rank 0, at recv over dp from 0 of f32, 8 bytes (a), in @step at m.py:1, micro-batch 0`},
		"never received": {ranks(dp2, list(to("send", "dp", 1, "a")), nil),
			"rank 0 sends rank 1 send over dp to 1 of f32, 8 bytes (a), in @step at m.py:1, micro-batch 0, which it never receives"},
		"other message": {ranks(dp2, list(to("send", "dp", 1, "a")), list(to("recv", "dp", 0, "b"))),
			"rank 1 receives from rank 0 recv over dp from 0 of f32, 8 bytes (b), in @step at m.py:1, micro-batch 0, but what comes is send over dp to 1 of f32, 8 bytes (a), in @step at m.py:1, micro-batch 0"},
		"itself": {ranks(dp2, list(to("send", "dp", 0, "a")), nil), "rank 0 sends to itself"},
		"order only": {ranks(square, list(at("dp", "w"), at("tp", "h")), list(at("dp", "w"), at("tp", "h")), list(at("dp", "w"), at("tp", "h")), list(at("dp", "w"), at("tp", "g"))),
			"collective 0 over tp differs: rank 2 issues"},
		"axis": {ranks(dp2, list(at("tp", "w")), list(at("tp", "w"))), `the mesh [dp=2] has no axis "tp"`},
		"mesh": {&abi.Manifest{Mesh: dp2, Ranks: 3, RankProgram: []int{0, 0, 0}}, "mesh [dp=2] has 2 ranks, but the plan has 3"},
	} {
		if _, err := Check(c.m); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v\nwant %s", name, err, c.want)
		}
	}
}

// TestSlotsWait: a buffer that is sent from again before the first message is received stops its rank, and the proof knows.
func TestSlotsWait(t *testing.T) {
	send := abi.Collective{Func: "fwd.0", Kind: "send", Axis: "pp", Peer: 1, DType: "f32", Bytes: 8, Tensors: []string{"h"}, Loc: "m.py:1"}
	back := abi.Collective{Func: "bwd.0", Kind: "send", Axis: "pp", Peer: 0, DType: "f32", Bytes: 8, Tensors: []string{"d"}, Loc: "m.py:2"}
	recv := func(c abi.Collective) abi.Collective {
		c.Kind, c.Peer = "recv", 1-c.Peer
		return c
	}
	funcs := []abi.Func{{Name: "fwd.0"}, {Name: "bwd.0"}, {Name: "step"}}
	act := func(list ...string) []abi.Action {
		var out []abi.Action
		for _, s := range list {
			var a abi.Action
			fmt.Sscanf(s[1:], "%d/%d", &a.Micro, &a.Slot)
			a.Func = map[byte]string{'F': "fwd.0", 'B': "bwd.0", 'S': "step"}[s[0]]
			out = append(out, a)
		}
		return out
	}
	m := &abi.Manifest{Mesh: []abi.Axis{{Name: "pp", Size: 2}}, Ranks: 2, RankProgram: []int{0, 1}, Train: abi.Train{Microbatches: 2}, Programs: []abi.Program{
		// Backwards of the first stage need nothing of the second here, so its second forward is what waits.
		{Funcs: funcs, Slots: 1, Collectives: []abi.Collective{send}, Actions: act("F0/0", "B0/0", "F1/0", "B1/0", "S1/0")},
		{Funcs: funcs, Slots: 2, Collectives: []abi.Collective{recv(send)}, Actions: act("F0/0", "F1/1", "B0/0", "B1/1", "S1/0")},
	}}
	if _, err := Check(m); err != nil {
		t.Fatal(err)
	}
	m.Programs[0].Collectives = append(m.Programs[0].Collectives, recv(back))
	m.Programs[1].Collectives = append(m.Programs[1].Collectives, back)
	_, err := Check(m)
	want := "ranks wait for one another forever:\n  rank 0 waits for rank 1, at recv over pp from 1 of f32, 8 bytes (d), in @bwd.0 at m.py:2, micro-batch 0\n  rank 1 waits for rank 0, at recv over pp from 0"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("one slot in the first stage, two forwards in the second: %v", err)
	}
}

// TestManyRanks: 1,024 ranks, in time and by symmetry.
func TestManyRanks(t *testing.T) {
	rep, err := Check(pipeline(t, "1f1b", 8, 16, 8, 0, 128))
	if err != nil || rep.Ranks != 1024 || rep.Run != 8 {
		t.Errorf("%v, %v", rep, err)
	}
}
