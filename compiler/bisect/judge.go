package bisect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// judge follows a module through the pipeline.
type judge struct {
	have   pass.Prop // the facts that hold
	before []interp.Program
	whole  []*ir.Func // the functions as they last were on global shapes
	asked  int        // rewrites before the passes since
	since  []string   // passes since it last could be run
}

// judging is a watch that compares the module behind each pass, or behind the one pass named only, with that before it, and
// tells what it found: fault is nil where both compute the same. A module that cannot be run, because a later pass cuts it into
// what is done for each micro-batch, is left to the next: passes are those since the last that could.
func judging(ctx context.Context, only string, told func(passes string, asked, before int, fault error) error, last ...*pass.Rewrite) func(*pass.Context, pass.Pass) error {
	j := &judge{have: pass.Typed}
	return func(c *pass.Context, p pass.Pass) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		now := snapshot(c)
		had := j.have
		j.have = j.have&^p.Clears | p.Makes
		j.since = append(j.since, p.Name)
		if j.have&pass.Local != 0 && !runs(now) {
			return nil
		}
		var err error
		if names := strings.Join(j.since, ", "); only == "" || only == names {
			fault := j.compare(c, p, had, now)
			for _, l := range last {
				*l = c.Asked.Last
			}
			err = told(names, c.Asked.Total, j.asked, fault)
		}
		j.before, j.asked, j.since = now, c.Asked.Total, nil
		if j.have&pass.Local == 0 {
			j.whole = now[0].Module.Funcs
		}
		return err
	}
}

// snapshot copies the programs as they are.
func snapshot(c *pass.Context) []interp.Program {
	var list []interp.Program
	for _, p := range c.Programs() {
		m := &ir.Module{Mesh: p.Module.Mesh}
		for _, f := range p.Module.Funcs {
			g, _ := f.Clone()
			m.Funcs = append(m.Funcs, g)
		}
		list = append(list, interp.Program{Module: m, Actions: slices.Clone(p.Actions), Slots: p.Slots})
	}
	return list
}

// compare holds what p left to what it was given. What p is there to change is not compared: what is trained, and what
// ranks say to one another where options have them say less.
func (j *judge) compare(c *pass.Context, p pass.Pass, had pass.Prop, now []interp.Program) error {
	switch {
	case j.before == nil || p.Clears&^j.have&pass.Typed != 0:
		return nil
	case p.Makes&pass.HasGrad != 0:
		if err := gradients(now[0].Module.Func(abi.FuncStep)); err != nil {
			return err
		}
	case had&j.have&pass.Local != 0 && len(j.since) == 1:
		if g := c.Opt.GradComm; p.Name == "compress" && (g.Compress != "" || g.Period > 0 || g.DType != "" && g.DType != "f32") {
			return nil
		}
		return j.ranks(now)
	case j.have&pass.Local != 0:
		return j.split(c, now)
	}
	for _, f := range j.before[0].Module.Funcs {
		g := now[0].Module.Func(f.Name)
		if g == nil {
			return fmt.Errorf("@%s does not exist any more", f.Name)
		}
		if err := sameResults(f, g, had&^j.have&pass.HasGrad != 0); err != nil {
			return err
		}
	}
	return nil
}

// runs reports whether ranks can do a step: not before it is cut into what is done for each micro-batch.
func runs(programs []interp.Program) bool {
	m := programs[0].Module
	return m.Mesh.Size(mesh.TimeAxis) == 1 && m.Mesh.Size(mesh.PipelineAxis) == 1 || m.Func(abi.FuncMicro) != nil || m.Func(abi.FuncStep) == nil || programs[0].Actions != nil
}

// halfTolerance is how far results may be from one another, in norm, where values are of half precision, and round wherever they
// are stored: to 2^-9 of themselves each in bf16, and what a relu lets through turns with the sign of what is nearly 0. Of a
// network of three layers on random contents gradients differ by a ninth; what is computed wrong differs by as much as it is.
const halfTolerance = 0.25

// differ tells how two results differ: in an element, beside the largest, by more than folded constants of f32 may, or in norm
// by more than half precision, where any of the functions has it.
func differ(want, got *ir.Array, funcs ...*ir.Func) error {
	if !slices.ContainsFunc(funcs, hasHalf) || len(want.F) == 0 || !want.Type.Equal(got.Type) {
		return interp.Differ(want, got, interp.Tolerance)
	}
	d, n := 0.0, 0.0
	for i, x := range want.F {
		d += (got.F[i] - x) * (got.F[i] - x)
		n += x * x
	}
	if d, n = math.Sqrt(d), math.Sqrt(n); !(d <= halfTolerance*max(n, 1e-3)) {
		return fmt.Errorf("differs by %.3g in norm, and is itself %.3g", d, n)
	}
	return nil
}

// hasHalf reports whether f has values of half precision.
func hasHalf(f *ir.Func) bool {
	return slices.ContainsFunc(f.Ops, func(op *ir.Op) bool {
		return slices.ContainsFunc(op.Out, func(v *ir.Value) bool { return v.Type.DType == dtype.F16 || v.Type.DType == dtype.BF16 })
	})
}

// sameResults runs f and g on the same random data and compares the results that both have; without those of gradients where
// they come to mean something else.
func sameResults(f, g *ir.Func, otherGrads bool) error {
	args := interp.Random(g, 1)
	maps.Copy(args, interp.Random(f, 1))
	want, err := runWith(f, args)
	if err != nil {
		return err
	}
	got, err := runWith(g, args)
	if err != nil {
		return err
	}
	for _, all := range []struct {
		what      string
		want, got map[string]*ir.Array
	}{{"result", want.Named, got.Named}, {"update of", want.Updates, got.Updates}} {
		for _, name := range slices.Sorted(maps.Keys(all.want)) {
			x, y := all.want[name], all.got[name]
			if y == nil || otherGrads && abi.Gradient.Has(name) {
				continue
			}
			if err := differ(x, alike(y, x.Type), f, g); err != nil {
				return fmt.Errorf("@%s: %s %q %w", f.Name, all.what, name, err)
			}
		}
	}
	return nil
}

// runWith runs f on the contents of args, whatever dims they have there.
func runWith(f *ir.Func, args map[string]*ir.Array) (*interp.Outcome, error) {
	own := map[string]*ir.Array{}
	for _, p := range f.Params {
		if a := args[p.Name]; a != nil {
			own[p.Name] = alike(a, p.Type)
		}
	}
	return interp.Run(f, own)
}

// alike is x as an array of type t where it has as many elements, in the same order.
func alike(x *ir.Array, t ir.Type) *ir.Array {
	if x.Type.DType != t.DType || x.Type.Elems() != t.Elems() {
		return x
	}
	return &ir.Array{Type: t, F: x.F, I: x.I}
}

// split compares the programs of ranks with the functions on global shapes.
func (j *judge) split(c *pass.Context, now []interp.Program) error {
	for _, f := range j.whole {
		f, args := *f, interp.Random(f, 1)
		if parts := max(1, c.Opt.DP) * max(1, c.Opt.Microbatches); parts > 1 && ownStatistics(&f) {
			// Statistics of a rank's own samples are those of the whole batch where all ranks have the same samples, but for
			// the running variance, which divides by one less than their number.
			for _, p := range f.Params {
				if p.Role.FromData() {
					repeat(args[p.Name], parts)
				}
			}
			f.Results = slices.DeleteFunc(slices.Clone(f.Results), func(r ir.Result) bool { return r.Updates != nil && r.Updates.Role == ir.Buffer })
		}
		want, err := interp.Run(&f, args)
		if err != nil {
			return err
		}
		got, err := given(now, &f, args)
		if err != nil {
			return err
		}
		for i, r := range f.Results {
			x := got[what(r)]
			if x == nil {
				return fmt.Errorf("@%s: no rank gives the %s, or they differ", f.Name, what(r))
			}
			if err := differ(want.All[i], alike(x, want.All[i].Type), &f); err != nil {
				return fmt.Errorf("@%s: %s %w", f.Name, what(r), err)
			}
		}
	}
	return nil
}

// ownStatistics reports whether f normalises by statistics of the samples of one rank.
func ownStatistics(f *ir.Func) bool {
	return slices.ContainsFunc(f.Ops, func(op *ir.Op) bool {
		a, ok := op.Attrs.(ops.BatchNormAttrs)
		return ok && !a.Sync
	})
}

// repeat has every one of so many parts of x, along its first dim, hold what the first does.
func repeat(x *ir.Array, parts int) {
	for i := range x.F {
		x.F[i] = x.F[i%max(1, len(x.F)/parts)]
	}
	for i := range x.I {
		x.I[i] = x.I[i%max(1, len(x.I)/parts)]
	}
}

// ranks compares what two sets of programs give and keep.
func (j *judge) ranks(now []interp.Program) error {
	var funcs []*ir.Func
	for _, p := range append(slices.Clone(j.before), now...) {
		funcs = append(funcs, p.Module.Funcs...)
	}
	for _, f := range j.whole {
		args := interp.Random(f, 1)
		want, wantErr := given(j.before, f, args)
		got, err := given(now, f, args)
		if wantErr != nil {
			return nil // it was found before
		}
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if got[name] == nil {
				return fmt.Errorf("@%s: %s is missing", f.Name, name)
			}
			if err := differ(want[name], got[name], funcs...); err != nil {
				return fmt.Errorf("@%s: %s %w", f.Name, name, err)
			}
		}
	}
	return nil
}

// given is what ranks give and keep when they do what f does. What copies on several ranks do not agree on, as with local SGD,
// is left out.
func given(programs []interp.Program, f *ir.Func, args map[string]*ir.Array) (map[string]*ir.Array, error) {
	s, err := interp.Simulate(programs, args)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(programs[0].Module.Funcs, func(f *ir.Func) bool { return f.Calls != nil }) {
		s.Shuffle = 1 // by its calls, on the memory that was planned
	}
	if f.Name == abi.FuncStep {
		err = s.Step(args)
	} else {
		err = s.Call(f.Name, args)
	}
	if err != nil {
		return nil, err
	}
	all := map[string]*ir.Array{}
	for _, r := range f.Results {
		if r.Updates != nil {
			if x, err := s.Whole(r.Updates.Name); err == nil && x != nil {
				all[what(r)] = x
			}
		} else if x, err := s.Result(r.Name, f.Name != abi.FuncStep); err == nil && x != nil {
			all[what(r)] = x
		}
	}
	return all, nil
}

// what names a result in errors.
func what(r ir.Result) string {
	if r.Updates != nil {
		return fmt.Sprintf("update of %q", r.Updates.Name)
	}
	return fmt.Sprintf("result %q", r.Name)
}

// Of a directional derivative: the step along the direction, and how far the gradients may be from it, beside the sum of the
// magnitudes of their terms. Differences in float64 are exact to some 1e-16 of the loss over the step, and to the step squared.
const (
	differenceStep = 1e-5
	differenceTol  = 1e-4
)

// gradients compares the gradients of f with the difference of the loss along a random direction of all parameters. Not where
// gradients are not meant to be derivatives.
func gradients(f *ir.Func) error {
	if f == nil || slices.ContainsFunc(f.Ops, func(op *ir.Op) bool { return op.Def == ops.DetachDef }) {
		return nil
	}
	args := interp.Random(f, 1)
	out, err := interp.Run(f, args)
	if err != nil {
		return err
	}
	scale := 1.0
	if s := out.Named[pass.GradScale]; s != nil {
		scale = s.F[0]
	}
	r := rand.New(rand.NewPCG(1, 2))
	moved := [2]map[string]*ir.Array{maps.Clone(args), maps.Clone(args)}
	want, terms := 0.0, 0.0
	for _, p := range f.Params {
		g := out.Named[abi.Gradient.Of(p.Name)]
		if g == nil {
			continue
		}
		up, down := ir.NewArray(p.Type), ir.NewArray(p.Type)
		for i, x := range args[p.Name].F {
			d := r.NormFloat64()
			up.F[i], down.F[i] = x+d*differenceStep, x-d*differenceStep
			want += d * g.F[i] / scale
			terms += math.Abs(d * g.F[i] / scale)
		}
		moved[0][p.Name], moved[1][p.Name] = up, down
	}
	var loss [2]float64
	for i, m := range moved {
		o, err := interp.Run(f, m)
		if err != nil {
			return err
		}
		loss[i] = o.Named[abi.LossSum].F[0]
	}
	if got := (loss[0] - loss[1]) / (2 * differenceStep); math.Abs(got-want) > differenceTol*terms+1e-6 {
		return errors.New("the gradients of @" + f.Name + fmt.Sprintf(" along a random direction add up to %.9g, the loss changes by %.9g", want, got))
	}
	return nil
}
