package interp

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// RunPrograms simulates steps training steps on the same data; args gives whole contents of parameters and data by name.
func RunPrograms(programs []Program, args map[string]*ir.Array, steps int) (*Simulation, error) {
	s, err := Simulate(programs, args)
	if err != nil {
		return nil, err
	}
	for k := range steps {
		if err := s.Step(args); err != nil {
			return nil, fmt.Errorf("step %d: %w", k, err)
		}
	}
	return s, nil
}

// EquivalentSteps compares whole, a function on global shapes, with what the rank program m does in its place: for
// @step all micro-batches, with state carried from one to the next; for any other function one call for each
// micro-batch, whose sums (loss_sum, count, correct) are added.
func EquivalentSteps(m *ir.Module, whole *ir.Func, seed uint64) error {
	return EquivalentStepsOn(m, whole, Random(whole, seed))
}

// EquivalentStepsOn is EquivalentSteps on given arguments of whole.
func EquivalentStepsOn(m *ir.Module, whole *ir.Func, args map[string]*ir.Array) error {
	return EquivalentPrograms([]Program{{Module: m}}, whole, args, 1)
}

// EquivalentPrograms compares whole, a function on global shapes, with what programs (as of Simulate) do in its place
// over several steps on the same data, each going on from the state that the one before left. All results of whole
// must be there and agree, put together from the parts of ranks and micro-batches by their shardings.
func EquivalentPrograms(programs []Program, whole *ir.Func, args map[string]*ir.Array, steps int) error {
	s, err := Simulate(programs, args)
	if err != nil {
		return err
	}
	args = maps.Clone(args)
	for k := range steps {
		want, err := Run(whole, args)
		if err != nil {
			return err
		}
		if whole.Name == abi.FuncStep {
			err = s.Step(args)
		} else {
			err = s.Call(whole.Name, args)
		}
		if err == nil {
			err = s.compare(whole, want)
		}
		if err != nil && steps > 1 {
			return fmt.Errorf("step %d: %w", k, err)
		} else if err != nil {
			return err
		}
		maps.Copy(args, want.Updates)
	}
	return nil
}

// compare holds the last step to the outcome of whole.
func (s *Simulation) compare(whole *ir.Func, want *Outcome) error {
	var errs []error
	for i, r := range whole.Results {
		what, name := "result "+r.Name, r.Name
		get := func() (*ir.Array, error) { return s.Result(name, whole.Name != abi.FuncStep) }
		if r.Updates != nil {
			what, name = "update of "+r.Updates.Name, r.Updates.Name
			get = func() (*ir.Array, error) { return s.Whole(name) }
		}
		got, err := get()
		if err == nil && got == nil {
			err = errors.New("is missing")
		}
		if err == nil {
			err = Differ(want.All[i], got, max(s.tolerance(), tolerance(whole)))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("@%s: %s: %w", whole.Name, what, err))
		}
	}
	return errors.Join(append(errs, s.restored(whole))...)
}

// restored checks that accumulators are zero after a step. Those of a program that merges them in a tree (pass tree) are
// written before they are read, and need not be.
func (s *Simulation) restored(whole *ir.Func) error {
	for _, p := range s.programs {
		if slices.ContainsFunc(p.Module.Funcs, func(f *ir.Func) bool { return abi.IsMergeFunc(f.Name) }) {
			return nil
		}
	}
	for r, kept := range s.kept {
		for name, x := range kept {
			if abi.Accum.Has(name) && slices.ContainsFunc(x.F, func(v float64) bool { return v != 0 }) {
				return fmt.Errorf("@%s leaves %q of rank %d %v", whole.Name, name, r, x.F[:min(8, len(x.F))])
			}
		}
	}
	return nil
}

// tolerance is that of the functions of all programs.
func (s *Simulation) tolerance() float64 {
	tol := Tolerance
	for _, p := range s.programs {
		tol = max(tol, tolerance(p.Module.Funcs...))
	}
	return tol
}
