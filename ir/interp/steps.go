package interp

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
)

// EquivalentSteps compares whole, a function on global shapes, with what the rank program m does in its place: for
// @step all micro-batches, @micro for all but the last, with state carried from one to the next; for any other
// function one call for each micro-batch, whose sums (loss_sum, count, correct) are added.
func EquivalentSteps(m *ir.Module, whole *ir.Func, seed uint64) error {
	return EquivalentStepsOn(m, whole, Random(whole, seed))
}

// EquivalentStepsOn is EquivalentSteps on given arguments of whole.
func EquivalentStepsOn(m *ir.Module, whole *ir.Func, args map[string]*ir.Array) error {
	want, err := Run(whole, args)
	if err != nil {
		return err
	}
	s := &stepper{m: m, args: args, whole: whole, times: m.Mesh.Size(mesh.TimeAxis)}
	for range m.Mesh.Ranks() {
		s.state = append(s.state, map[string]*ir.Array{})
	}
	if err := s.run(); err != nil {
		return err
	}
	got, err := s.collect(want)
	if err != nil {
		return err
	}
	return Compare(whole, s.last, want, got, Tolerance)
}

// stepper runs a step on all ranks.
type stepper struct {
	m     *ir.Module
	whole *ir.Func
	args  map[string]*ir.Array
	times int
	state []map[string]*ir.Array // per rank: contents of what is kept between calls
	calls [][]*Outcome           // per micro-batch and rank
	last  *ir.Func
}

func (s *stepper) run() error {
	for k := range s.times {
		f := s.m.Func(s.whole.Name)
		if s.whole.Name == "step" && k < s.times-1 {
			f = s.m.Func("micro")
		}
		if f == nil {
			return fmt.Errorf("there is no function for micro-batch %d of @%s", k, s.whole.Name)
		}
		s.last = f
		ranks := make([]map[string]*ir.Array, len(s.state))
		for r := range ranks {
			ranks[r] = map[string]*ir.Array{}
			for _, p := range f.Params {
				if kept := s.state[r][p.Name]; kept != nil {
					ranks[r][p.Name] = kept
				} else if a := s.args[p.Name]; a != nil {
					ranks[r][p.Name] = Shard(s.m.Mesh, p.Sharding, r, k, a)
				}
			}
		}
		out, err := Options{Micro: k}.RunRanks(s.m, f, len(ranks), ranks)
		if err != nil {
			return err
		}
		for r, o := range out {
			for name, a := range o.Updates {
				s.state[r][name] = a
			}
		}
		s.calls = append(s.calls, out)
	}
	return nil
}

// collect puts the results of whole together from those of the ranks and micro-batches.
func (s *stepper) collect(want *Outcome) (*Outcome, error) {
	all := &Outcome{All: want.All, Named: map[string]*ir.Array{}, Updates: map[string]*ir.Array{}}
	for i, res := range s.last.Results {
		parts := make([]*ir.Array, len(s.state))
		sh := res.Value.Sharding
		if res.Updates != nil {
			sh = res.Updates.Sharding
		}
		for r := range parts {
			parts[r] = s.overTime(res, i, r)
		}
		if res.Updates != nil && s.whole.Param(res.Updates.Name) == nil {
			for _, p := range parts { // an accumulator is zero between steps
				if slices.ContainsFunc(p.F, func(x float64) bool { return x != 0 }) {
					return nil, fmt.Errorf("@%s leaves %q %v", s.last.Name, res.Updates.Name, p.F)
				}
			}
			continue
		}
		a, err := Unshard(s.m.Mesh, withoutTime(sh), parts, Tolerance)
		if err != nil {
			return nil, fmt.Errorf("@%s: result %d (%q): %w", s.last.Name, i, res.Value.Name, err)
		}
		if res.Updates != nil {
			all.Updates[res.Updates.Name] = a
		} else {
			all.Named[res.Name] = a
		}
	}
	return all, nil
}

// overTime is result i of rank r over all micro-batches: joined where it is split over them, added where each call
// gives a sum, else the last.
func (s *stepper) overTime(res ir.Result, i, r int) *ir.Array {
	final := s.calls[s.times-1][r].All[i]
	if res.Updates != nil {
		return final
	}
	var each []*ir.Array
	for _, c := range s.calls {
		each = append(each, c[r].Named[res.Name])
	}
	for d, axes := range res.Value.Sharding.Dims {
		if slices.Contains(axes, mesh.TimeAxis) {
			return Join(d, each)
		}
	}
	if s.whole.Name != "step" {
		return combine("sum", each)
	}
	return final
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
