package interp

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Tolerance is the default of Differ's tol: passes may fold constants in f32, which moves results by its epsilon.
const Tolerance = 1e-5

// HalfTolerance is that of functions with values of half precision, which sums and fused ops round in other places.
const HalfTolerance = 2e-2

// tolerance is the one for comparing functions.
func tolerance(fs ...*ir.Func) float64 {
	for _, f := range fs {
		for _, op := range f.Ops {
			if slices.ContainsFunc(op.Out, func(v *ir.Value) bool { return half(v.Type) }) {
				return HalfTolerance
			}
		}
	}
	return Tolerance
}

// Differ returns an error when two arrays differ in type, or in an element by more than tol times the largest
// magnitude in want (at least 1e-3). NaNs and infinities must agree.
func Differ(want, got *ir.Array, tol float64) error {
	if !want.Type.Equal(got.Type) {
		return fmt.Errorf("is %s, but must be %s", got.Type, want.Type)
	}
	if !slices.Equal(want.I, got.I) {
		return fmt.Errorf("is %v, but must be %v", got.I, want.I)
	}
	scale := 1e-3
	for _, v := range want.F {
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			scale = max(scale, math.Abs(v))
		}
	}
	for i, v := range want.F {
		w := got.F[i]
		if v == w || math.IsNaN(v) && math.IsNaN(w) || math.Abs(v-w) <= tol*scale {
			continue
		}
		return fmt.Errorf("element %d of %d is %.9g, but must be %.9g", i, len(want.F), w, v)
	}
	return nil
}

// Fill gives x random contents: standard normal floats, integers in [0, limit), bools.
func Fill(r *rand.Rand, x *ir.Array, limit int) {
	for i := range x.F {
		x.F[i] = r.NormFloat64()
	}
	if x.Type.DType == dtype.Bool {
		limit = 2
	}
	for i := range x.I {
		x.I[i] = r.Int64N(int64(max(limit, 1)))
	}
}

// Random makes contents for all parameters of f: floats are standard normal, but positive for buffers and state
// (variances, second moments); sample weights are 1 with a few 0; integers fit what they index, as far as the ops
// that use them tell.
func Random(f *ir.Func, seed uint64) map[string]*ir.Array {
	args := map[string]*ir.Array{}
	for _, p := range f.Params {
		r := rand.New(rand.NewPCG(seed, hash(p.Name)))
		a := ir.NewArray(p.Type)
		Fill(r, a, indexLimit(f, p))
		for i := range a.F {
			switch p.Role {
			case ir.Buffer, ir.State:
				a.F[i] = math.Abs(a.F[i]) + 0.1
			case ir.Weight:
				a.F[i] = 1
				if i > 0 && r.IntN(4) == 0 {
					a.F[i] = 0
				}
			}
		}
		args[p.Name] = a
	}
	return args
}

// hash is FNV-1a, so that a parameter's contents depend on its name and not on its place.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// indexLimit is the least size that v, or a view or cast of it, indexes; 4 when none is seen.
func indexLimit(f *ir.Func, v *ir.Value) int {
	alias := map[*ir.Value]bool{v: true}
	limit := math.MaxInt
	for _, op := range f.Ops {
		for i, x := range op.In {
			if x == nil || !alias[x] {
				continue
			}
			switch a := op.Attrs.(type) {
			case ops.ReshapeAttrs, ops.ExpandAttrs, ops.TransposeAttrs, ops.SliceAttrs, ops.ShardSliceAttrs, ops.AllGatherAttrs, ops.CastAttrs:
				alias[op.Out[0]] = true
			case ops.GatherAttrs:
				if i == 1 {
					limit = min(limit, op.In[0].Type.Dims[a.Dim])
				}
			case ops.ScatterAddAttrs:
				if i == 0 {
					limit = min(limit, a.Size)
				}
			case ops.GatherElementsAttrs:
				if i == 1 {
					limit = min(limit, op.In[0].Type.Dims[a.Dim])
				}
			case ops.ScatterElementsAddAttrs:
				if i == 0 {
					limit = min(limit, a.Dims[a.Dim])
				}
			case ops.XentAttrs:
				if i == 1 {
					limit = min(limit, op.In[0].Type.Dims[1])
				}
			}
		}
	}
	if limit == math.MaxInt {
		return 4
	}
	return limit
}

// Equivalent runs f and g on the same random arguments and compares their results in order, updates by the
// parameter they replace. g may lack parameters of f; one that only g has must have an Init.
func Equivalent(f, g *ir.Func, seed uint64) error {
	args := Random(f, seed)
	want, err := Run(f, args)
	if err != nil {
		return err
	}
	got, err := Run(g, args)
	if err != nil {
		return err
	}
	return Compare(f, g, want, got, tolerance(f, g))
}

// Compare compares the outcomes of f and g: named results and updates by name, the others in order.
func Compare(f, g *ir.Func, want, got *Outcome, tol float64) error {
	if len(want.All) != len(got.All) {
		return fmt.Errorf("@%s has %d results, @%s has %d", f.Name, len(want.All), g.Name, len(got.All))
	}
	var errs []error
	check := func(what string, w, h *ir.Array) {
		if h == nil {
			errs = append(errs, fmt.Errorf("@%s: %s is missing", g.Name, what))
		} else if err := Differ(w, h, tol); err != nil {
			errs = append(errs, fmt.Errorf("@%s: %s: %w", g.Name, what, err))
		}
	}
	for i, r := range f.Results {
		switch {
		case r.Updates != nil:
			check("update of "+r.Updates.Name, want.All[i], got.Updates[r.Updates.Name])
		case r.Name != "":
			check("result "+r.Name, want.All[i], got.Named[r.Name])
		default:
			check(fmt.Sprintf("result %d", i), want.All[i], got.All[i])
		}
	}
	return errors.Join(errs...)
}

// EquivalentModules applies Equivalent to every function of f, which g must have by the same name.
func EquivalentModules(f, g *ir.Module, seed uint64) error {
	var errs []error
	for _, x := range f.Funcs {
		y := g.Func(x.Name)
		if y == nil {
			errs = append(errs, fmt.Errorf("@%s is gone", x.Name))
			continue
		}
		errs = append(errs, Equivalent(x, y, seed))
	}
	return errors.Join(errs...)
}

// EquivalentRanks compares whole, a function on global shapes, with local, the same program for each rank of m's
// mesh: random arguments are split by the shardings of local's parameters, results are put together by those of
// its result values, and must agree with whole's. Micro-batches (mesh.TimeAxis) are not run: micro is the one taken.
func EquivalentRanks(m *ir.Module, whole, local *ir.Func, seed uint64) error {
	args := Random(whole, seed)
	want, err := Run(whole, args)
	if err != nil {
		return err
	}
	world := m.Mesh.Ranks()
	ranks := make([]map[string]*ir.Array, world)
	for r := range ranks {
		ranks[r] = map[string]*ir.Array{}
		for _, p := range local.Params {
			if a := given(args, p); a != nil {
				ranks[r][p.Name] = Shard(m.Mesh, p.Sharding, r, 0, a)
			}
		}
	}
	got, err := RunRanks(m, local, world, ranks)
	if err != nil {
		return err
	}
	all := &Outcome{Named: map[string]*ir.Array{}, Updates: map[string]*ir.Array{}}
	for i, res := range local.Results {
		parts := make([]*ir.Array, world)
		for r := range parts {
			parts[r] = got[r].All[i]
		}
		s := res.Value.Sharding
		if res.Updates != nil {
			s = res.Updates.Sharding
		}
		a, err := Unshard(m.Mesh, s, parts, tolerance(local))
		if err != nil {
			return fmt.Errorf("@%s: result %d (%q): %w", local.Name, i, res.Value.Name, err)
		}
		all.All = append(all.All, a)
		if res.Updates != nil {
			all.Updates[res.Updates.Name] = a
		} else if res.Name != "" {
			all.Named[res.Name] = a
		}
	}
	return Compare(whole, local, want, all, tolerance(whole, local))
}
