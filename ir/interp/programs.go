package interp

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Program is what the ranks at one coordinate of the axis pp run.
type Program struct {
	Module  *ir.Module
	Actions []abi.Action // of one step, in order; nil: @micro for each micro-batch but the last, then @step
	Slots   int          // copies of the stash; 0 without one
}

// Call is one action of one rank, and what it gave.
type Call struct {
	abi.Action
	Fn  *ir.Func
	Out *Outcome
}

// Simulation is a set of ranks, each running a program of its own as a goroutine. What programs keep between calls
// (parameters, buffers, optimizer state) stays from one step to the next.
type Simulation struct {
	// Watch, when set, sees the results of every op of every rank, one at a time.
	Watch func(rank int, op *ir.Op, out []*ir.Array)
	// ByTag has messages told apart by what they are and of which micro-batch, not by the order in which they were sent, so that
	// actions may be done in another order.
	ByTag bool
	// Shuffle, unless 0, is that of Options.
	Shuffle uint64

	mesh     mesh.Mesh
	programs []Program
	kept     []map[string]*ir.Array // per rank
	stash    []map[stashKey]stashed
	calls    [][]Call // of the last step, per rank
}

// stashKey is a stash parameter in one slot; stashed, what it holds, of which micro-batch.
type stashKey struct {
	name string
	slot int
}

type stashed struct {
	micro int
	x     *ir.Array
}

// Simulate makes the ranks of a compilation. programs are by coordinate on pp, or one for all ranks, on one mesh. args
// gives whole contents by name for what is kept between calls, in any dims of as many elements; what is not there starts as its Init (whole, or the part
// of a rank), or as zeros.
func Simulate(programs []Program, args map[string]*ir.Array) (*Simulation, error) {
	if len(programs) == 0 {
		return nil, fmt.Errorf("there is no program to simulate")
	}
	s := &Simulation{mesh: programs[0].Module.Mesh, programs: programs}
	if n := s.mesh.Size(mesh.PipelineAxis); len(programs) != 1 && len(programs) != n {
		return nil, fmt.Errorf("there are %d programs for %d stages", len(programs), n)
	}
	for rank := range s.mesh.Ranks() {
		kept := map[string]*ir.Array{}
		for _, f := range s.program(rank).Module.Funcs {
			for _, p := range f.Params {
				if kept[p.Name] != nil || p.Role != ir.Param && p.Role != ir.Buffer && p.Role != ir.State {
					continue
				}
				a := s.first(rank, p, args[p.Name])
				if !a.Type.Equal(p.Type) {
					return nil, fmt.Errorf("rank %d, @%s: %s %q is %s, but %s is given", rank, f.Name, p.Role, p.Name, p.Type, a.Type)
				}
				kept[p.Name] = a
			}
		}
		s.kept = append(s.kept, kept)
	}
	return s, nil
}

// first is what p of a rank holds at the start; whole is what the caller gives for it, or nil.
func (s *Simulation) first(rank int, p *ir.Value, whole *ir.Array) *ir.Array {
	switch {
	case whole != nil:
		return Shard(s.mesh, p.Sharding, rank, 0, shaped(whole, WholeDims(s.mesh, p)))
	case p.Init == nil:
		return ir.NewArray(p.Type)
	case p.Init.Type.Equal(p.Type):
		return p.Init.Array()
	}
	return Shard(s.mesh, p.Sharding, rank, 0, p.Init.Array())
}

// WholeDims are the dims of all parts of v together.
func WholeDims(m mesh.Mesh, v *ir.Value) []int {
	dims := slices.Clone(v.Type.Dims)
	for d := range dims {
		for _, axis := range v.Sharding.Axes(d) {
			dims[d] *= m.Size(axis)
		}
	}
	return dims
}

// shaped is x with other dims of as many elements: of a projection that a layout takes apart, as of checkpoints, the
// contents are in the same order.
func shaped(x *ir.Array, dims []int) *ir.Array {
	if slices.Equal(x.Type.Dims, dims) || x.Type.Elems() != ir.Product(dims) {
		return x
	}
	return &ir.Array{Type: ir.T(x.Type.DType, dims...), F: x.F, I: x.I}
}

// stage is rank's coordinate on pp.
func (s *Simulation) stage(rank int) int { return s.mesh.Coord(rank, mesh.PipelineAxis) }

func (s *Simulation) program(rank int) *Program {
	if len(s.programs) == 1 {
		return &s.programs[0]
	}
	return &s.programs[s.stage(rank)]
}

// Step runs one training step on all ranks: their actions, on the parts of data, whole contents of inputs, targets and
// sample weights by name. Ranks that cannot go on, or collectives that do not match, are an error that names the ops.
func (s *Simulation) Step(data map[string]*ir.Array) error {
	return s.run(data, func(p *Program) []abi.Action {
		if p.Actions != nil {
			return p.Actions
		}
		return s.each(func(micro, last int) string {
			if micro < last {
				return abi.FuncMicro
			}
			return abi.FuncStep
		})
	})
}

// Call runs the named function on all ranks, once for each micro-batch.
func (s *Simulation) Call(name string, data map[string]*ir.Array) error {
	return s.run(data, func(*Program) []abi.Action { return s.each(func(int, int) string { return name }) })
}

// each is an action for each micro-batch.
func (s *Simulation) each(name func(micro, last int) string) []abi.Action {
	n := s.mesh.Size(mesh.TimeAxis)
	var list []abi.Action
	for k := range n {
		list = append(list, abi.Action{Func: name(k, n-1), Micro: k})
	}
	return list
}

func (s *Simulation) run(data map[string]*ir.Array, actions func(*Program) []abi.Action) error {
	s.calls = make([][]Call, s.mesh.Ranks())
	s.stash = make([]map[stashKey]stashed, s.mesh.Ranks())
	return together(s.mesh, s.ByTag, func(rank int, b *board) error {
		s.stash[rank] = map[stashKey]stashed{}
		p := s.program(rank)
		for _, a := range actions(p) {
			if err := s.act(rank, b, p, a, data); err != nil {
				return err
			}
		}
		return nil
	})
}

// act does one action of a rank.
func (s *Simulation) act(rank int, b *board, p *Program, a abi.Action, data map[string]*ir.Array) error {
	f := p.Module.Func(a.Func)
	if f == nil {
		return fmt.Errorf("there is no function @%s for micro-batch %d", a.Func, a.Micro)
	}
	if a.Slot < 0 || a.Slot > 0 && a.Slot >= p.Slots {
		return fmt.Errorf("@%s of micro-batch %d works on slot %d, but there is room for %d", a.Func, a.Micro, a.Slot, p.Slots)
	}
	e, err := s.enter(rank, f, a, data)
	if err != nil {
		return err
	}
	if err := (Options{Micro: a.Micro, Watch: s.Watch, Shuffle: s.Shuffle}).run(f, e, rank, b); err != nil {
		return err
	}
	out := e.leave(f)
	for _, r := range f.Results {
		if r.Updates == nil {
			continue
		}
		x := e[r.Value]
		if !x.Type.Equal(r.Updates.Type) {
			return fmt.Errorf("@%s gives %q as %s, but it is %s", f.Name, r.Updates.Name, x.Type, r.Updates.Type)
		}
		if r.Updates.Role == ir.Stash {
			s.stash[rank][stashKey{r.Updates.Name, a.Slot}] = stashed{a.Micro, x}
			delete(out.Updates, r.Updates.Name)
		} else {
			s.kept[rank][r.Updates.Name] = x
		}
	}
	s.calls[rank] = append(s.calls[rank], Call{a, f, out})
	return nil
}

// enter binds the parameters of f for action a.
func (s *Simulation) enter(rank int, f *ir.Func, a abi.Action, data map[string]*ir.Array) (env, error) {
	e := env{}
	for _, p := range f.Params {
		switch p.Role {
		case ir.Param, ir.Buffer, ir.State:
			e[p] = s.kept[rank][p.Name]
		case ir.Stash:
			st, ok := s.stash[rank][stashKey{p.Name, a.Slot}]
			if ok && st.micro == a.Micro {
				e[p] = st.x
			} else if reads(f, p) {
				return nil, fmt.Errorf("@%s of micro-batch %d reads stash %q, of which slot %d holds no value of that micro-batch", f.Name, a.Micro, p.Name, a.Slot)
			}
		default:
			x := given(data, p)
			if x == nil {
				return nil, fmt.Errorf("@%s: no value is given for %s %q", f.Name, p.Role, p.Name)
			}
			e[p] = Shard(s.mesh, p.Sharding, rank, a.Micro, x)
		}
		if x := e[p]; x != nil && !x.Type.Equal(p.Type) {
			return nil, fmt.Errorf("@%s: %s %q is %s, but %s is given", f.Name, p.Role, p.Name, p.Type, x.Type)
		}
	}
	return e, nil
}

// reads reports whether f uses the contents of its parameter p.
func reads(f *ir.Func, p *ir.Value) bool {
	return slices.ContainsFunc(f.Ops, func(op *ir.Op) bool { return slices.Contains(op.In, p) }) ||
		slices.ContainsFunc(f.Results, func(r ir.Result) bool { return r.Value == p })
}

// Calls are the actions that rank did in the last step, in order.
func (s *Simulation) Calls(rank int) []Call { return s.calls[rank] }

// Kept is what rank holds of a parameter, buffer or state; nil when it has none of that name.
func (s *Simulation) Kept(rank int, name string) *ir.Array { return s.kept[rank][name] }

// Whole puts a parameter, buffer or state together from the parts of all ranks. Copies must agree: the replicas of
// data-parallel ranks, and a tied weight of two stages. It is nil when no rank has one of that name.
func (s *Simulation) Whole(name string) (*ir.Array, error) {
	return s.perStage(name, func(ranks []int) (mesh.Sharding, []*ir.Array, error) {
		v := keptValue(s.program(ranks[0]).Module, name)
		if v == nil {
			return mesh.Sharding{}, nil, nil
		}
		var parts []*ir.Array
		for _, r := range ranks {
			parts = append(parts, s.kept[r][name])
		}
		return v.Sharding, parts, nil
	})
}

func keptValue(m *ir.Module, name string) *ir.Value {
	for _, f := range m.Funcs {
		if p := f.Param(name); p != nil && p.Role != ir.Stash {
			return p
		}
	}
	return nil
}

// Names lists what ranks keep between calls, accumulators left out.
func (s *Simulation) Names() []string {
	all := map[string]bool{}
	for _, kept := range s.kept {
		for name := range kept {
			all[name] = !abi.Accum.Has(name)
		}
	}
	maps.DeleteFunc(all, func(_ string, real bool) bool { return !real })
	return slices.Sorted(maps.Keys(all))
}

// Result puts a named result of the last step, or call, together: joined over micro-batches where it is split over
// them, added over them where sum says so, else that of the last action which gives it. nil when no rank gives it.
func (s *Simulation) Result(name string, sum bool) (*ir.Array, error) {
	return s.perStage(name, func(ranks []int) (mesh.Sharding, []*ir.Array, error) {
		var parts []*ir.Array
		var sh mesh.Sharding
		for _, r := range ranks {
			x, of := s.overTime(s.calls[r], name, sum)
			if x == nil {
				return sh, nil, nil
			}
			parts, sh = append(parts, x), of
		}
		return withoutTime(sh), parts, nil
	})
}

// overTime is a result of one rank over all micro-batches, and its layout.
func (s *Simulation) overTime(calls []Call, name string, sum bool) (*ir.Array, mesh.Sharding) {
	byMicro := map[int]*ir.Array{}
	var last *ir.Array
	var sh mesh.Sharding
	for _, c := range calls {
		if x := c.Out.Named[name]; x != nil {
			byMicro[c.Micro], last, sh = x, x, c.Fn.Result(name).Sharding
		}
	}
	var list []*ir.Array
	for _, k := range slices.Sorted(maps.Keys(byMicro)) {
		list = append(list, byMicro[k])
	}
	for d, axes := range sh.Dims {
		if slices.Contains(axes, mesh.TimeAxis) {
			return Join(d, list), sh
		}
	}
	if sum && len(list) > 0 {
		return combine("sum", list), sh
	}
	return last, sh
}

// perStage puts parts together over the ranks of each stage, and compares the stages that have any.
func (s *Simulation) perStage(name string, parts func(ranks []int) (mesh.Sharding, []*ir.Array, error)) (*ir.Array, error) {
	flat := mesh.Mesh{Axes: slices.DeleteFunc(slices.Clone(s.mesh.Axes), func(a mesh.Axis) bool { return a.Name == mesh.PipelineAxis })}
	var out *ir.Array
	first := 0
	for stage := range s.mesh.Size(mesh.PipelineAxis) {
		var ranks []int
		for r := range s.mesh.Ranks() {
			if s.stage(r) == stage {
				ranks = append(ranks, r)
			}
		}
		sh, xs, err := parts(ranks)
		if err != nil || xs == nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		x, err := Unshard(flat, sh, xs, s.tolerance())
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		if out == nil {
			out, first = x, stage
		} else if err := Differ(out, x, s.tolerance()); err != nil {
			return nil, fmt.Errorf("%q: stages %d and %d: %w", name, first, stage, err)
		}
	}
	return out, nil
}

// withoutTime is the layout of a value whose micro-batches were put together.
func withoutTime(s mesh.Sharding) mesh.Sharding {
	drop := func(axes []string) []string {
		return slices.DeleteFunc(slices.Clone(axes), func(a string) bool { return a == mesh.TimeAxis })
	}
	out := mesh.Sharding{Partial: drop(s.Partial)}
	for _, d := range s.Dims {
		out.Dims = append(out.Dims, drop(d))
	}
	return out
}
