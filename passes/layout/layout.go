// Package layout says how one op runs on a mesh: from the shardings of its operands, what each operand must
// be and what the results then are. It reads nothing but the op's factor rule, so that it holds for any mesh
// axis (data, tensor, micro-batches in time). The passes shard (which annotates) and spmd (which inserts the
// collectives) share it and therefore agree. The rules are those of SBP in OneFlow (arXiv:2110.15032) and of
// Shardy's factor propagation.
package layout

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Plan is how an op runs.
type Plan struct {
	In     []mesh.Sharding // what each operand must be
	Out    []mesh.Sharding // what each result is, after the reductions
	Reduce []Reduction     // what must be combined right after the op because it cannot stay partial
	Index  *Index          // the part of a factor of kind factor.Index that a rank works on; nil: the whole
	Ways   int             // into how many parts the op's loops are split over ranks and micro-batches
	Notes  []string        // why an operand is taken whole though it comes in parts
}

// Reduction combines result Out over Axes by Op (max, min, prod).
type Reduction struct {
	Out  int
	Op   string
	Axes []string
}

// Index is a split of a factor of kind factor.Index: see ir.Rules.Indexed.
type Index struct {
	Axes []string
	Size int // of one part
}

// Of plans op, whose values have global types, for operands laid out as in. want, when not nil, is a wish for
// the results.
//
// Where operands and wishes disagree about an axis, the first of these decides. For the axes of data (dp, mb):
// operands that depend on the data (Value.Data), the other operands, the wishes: samples stay where they are, and
// parameters that ZeRO took apart are put together. For other axes (tp): operands that do not depend on the data, the
// wishes (the gradient of a parameter lies as it does), the other operands: weights stay where they are, and
// activations are put together. Among equals the largest operand decides. Where one operand is a sum to be finished
// over such an axis, or one of two terms that depend on the data is whole, the other operands do not split the op over
// it: the stream of residuals stays whole, rather than that all that is added to it is cut and put together again.
func Of(m mesh.Mesh, op *ir.Op, in, want []mesh.Sharding) Plan {
	p := &planner{m: m, op: op, used: map[string]bool{}}
	if op.Def.Rules.Factors != nil {
		p.rule = op.Def.Rules.Factors(op)
	}
	if p.rule.IsEmpty() || len(p.rule.In) != len(op.In) || len(p.rule.Out) != len(op.Out) {
		return p.whole(in)
	}
	p.axes = make([][]string, len(p.rule.Factors))
	operands := func(data bool, allowed func(axis string) bool) {
		for _, i := range bySize(op.In) {
			if op.In[i].Data == data {
				p.claim(p.rule.In[i], in[i], allowed)
			}
		}
	}
	wishes := func(allowed func(axis string) bool) {
		sums := p.partial(in) // what may stay a partial sum is combined once, behind the op
		for i := range want {
			p.claim(p.rule.Out[i], want[i], func(axis string) bool { return allowed(axis) && !slices.Contains(sums, axis) })
		}
	}
	every := func(string) bool { return true }
	operands(true, ofData)
	operands(false, every)
	wishes(func(axis string) bool { return !ofData(axis) })
	operands(true, func(axis string) bool { return ofData(axis) || !meetsWhole(op, in, axis) })
	wishes(func(axis string) bool { return !addedUp(in, axis) })
	for _, i := range bySize(op.In) {
		p.tell(op.In[i], p.rule.In[i], in[i])
	}
	return p.finish(in)
}

// ofData reports whether samples are split over axis.
func ofData(axis string) bool { return axis == mesh.DataAxis || axis == mesh.TimeAxis }

// addedUp reports whether an operand is a partial sum over axis as well as over time. Then nothing wants its parts yet: sums
// over time come first, and ranks add up what was accumulated, once a step.
func addedUp(in []mesh.Sharding, axis string) bool {
	return axis != mesh.TimeAxis && slices.ContainsFunc(in, func(s mesh.Sharding) bool {
		return slices.Contains(s.Partial, axis) && slices.Contains(s.Partial, mesh.TimeAxis)
	})
}

// meetsWhole reports whether an operand is a partial sum over axis, or a term of a sum that is whole over axis.
func meetsWhole(op *ir.Op, in []mesh.Sharding, axis string) bool {
	for i, s := range in {
		if slices.Contains(s.Partial, axis) {
			return true
		}
		if v := op.In[i]; ofTerms(op) && v.Data && !repeated(v) &&
			!slices.ContainsFunc(s.Dims, func(list []string) bool { return slices.Contains(list, axis) }) {
			return true
		}
	}
	return false
}

// repeated reports whether v repeats smaller values, such as a mask for all heads or the targets as ones and zeros: its
// parts are cheap to make.
func repeated(v *ir.Value) bool { return repeatedWithin(v, 6) }

func repeatedWithin(v *ir.Value, depth int) bool {
	switch {
	case v.Op == nil || depth == 0:
		return false
	case v.Moved() == ir.Repeats || len(v.Op.In) == 0:
		return true
	case v.Op.Def.Rules.Impl == nil:
		return false
	}
	if k := v.Op.Def.Rules.Impl(v.Op).Kind; k != kir.Pointwise && v.Moved() != ir.Keeps {
		return false
	}
	return !slices.ContainsFunc(v.Op.In, func(x *ir.Value) bool { return x != nil && !repeatedWithin(x, depth-1) })
}

// MarkData sets Value.Data of every value of f.
func MarkData(f *ir.Func) {
	for _, p := range f.Params {
		p.Data = p.Role.FromData()
	}
	for _, op := range f.Ops {
		data := slices.ContainsFunc(op.In, func(v *ir.Value) bool { return v != nil && v.Data })
		for _, v := range op.Out {
			v.Data = data
		}
	}
}

// bySize lists the numbers of the operands that are present, those with most elements first: they decide.
func bySize(vs []*ir.Value) []int {
	var out []int
	for i, v := range vs {
		if v != nil {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int { return vs[b].Type.Elems() - vs[a].Type.Elems() })
	return out
}

type planner struct {
	m    mesh.Mesh
	op   *ir.Op
	rule factor.Rule
	axes [][]string      // per factor
	used map[string]bool // axes that split a factor
	plan Plan
}

// whole is the plan of an op without a rule: everything replicated.
func (p *planner) whole(in []mesh.Sharding) Plan {
	for i, s := range in {
		if !s.IsReplicated() {
			p.note(p.op.In[i], s, "has no rule for running in parts")
		}
	}
	p.plan.Ways = 1
	p.plan.In, p.plan.Out = make([]mesh.Sharding, len(p.op.In)), make([]mesh.Sharding, len(p.op.Out))
	return p.plan
}

func (p *planner) note(v *ir.Value, s mesh.Sharding, format string, args ...any) {
	p.plan.Notes = append(p.plan.Notes, fmt.Sprintf("%%%s %s: %s %s", v.Name, s, p.op.Def.Name, fmt.Sprintf(format, args...)))
}

// claim splits the factors of a value's dims as s splits the dims, where the op allows it, over allowed axes.
func (p *planner) claim(dims []factor.Dim, s mesh.Sharding, allowed func(axis string) bool) {
	for d, list := range dims {
		if axes := s.Axes(d); len(axes) > 0 {
			p.split(list, axes, allowed)
		}
	}
}

// tell notes why dims of an operand are taken whole.
func (p *planner) tell(v *ir.Value, dims []factor.Dim, s mesh.Sharding) {
	for d, list := range dims {
		axes := s.Axes(d)
		if len(axes) == 0 {
			continue
		}
		if why := p.split(list, axes, func(string) bool { return false }); why != "" {
			p.note(v, s, "%s", why)
		}
	}
}

// split gives axes, as many of them from the left as it can, to the slowest factor of list. It says why not all.
func (p *planner) split(list factor.Dim, axes []string, allowed func(axis string) bool) string {
	f, ok := p.major(list)
	if !ok {
		return "has no loop over that dimension"
	}
	fac := p.rule.Factors[f]
	if fac.Kind == factor.Blocked {
		return "needs that dimension whole"
	}
	for i, a := range axes {
		have := p.axes[f]
		switch {
		case i < len(have) && have[i] == a:
			continue
		case i < len(have):
			return fmt.Sprintf("has another operand split over %v there", have)
		case p.used[a]:
			return "has another dimension split over " + a
		case fac.Size%p.ways(axes[:i+1]) != 0:
			return fmt.Sprintf("has size %d there, which is not divisible by %d", fac.Size, p.ways(axes[:i+1]))
		case !p.slowest(f):
			return "merges that dimension under another one"
		case !allowed(a):
			return "keeps it whole, because another operand is whole or a partial sum"
		}
		p.used[a] = true
		p.axes[f] = append(slices.Clone(have), a)
	}
	return ""
}

// major is the slowest factor of a dim; factors of size 1 do not count.
func (p *planner) major(list factor.Dim) (int, bool) {
	for _, f := range list {
		if p.rule.Factors[f].Size != 1 {
			return f, true
		}
	}
	return 0, false
}

func (p *planner) ways(axes []string) int {
	n := 1
	for _, a := range axes {
		n *= p.m.Size(a)
	}
	return n
}

// slowest reports whether f is the slowest factor of every dim that it is in.
func (p *planner) slowest(f int) bool {
	for _, side := range [][][]factor.Dim{p.rule.In, p.rule.Out} {
		for _, dims := range side {
			for _, list := range dims {
				if m, ok := p.major(list); slices.Contains(list, f) && (!ok || m != f) {
					return false
				}
			}
		}
	}
	return true
}

// finish reads the plan off the axes of the factors.
func (p *planner) finish(in []mesh.Sharding) Plan {
	kept := p.partial(in)
	p.plan.Ways = 1
	for f, axes := range p.axes {
		if n := p.ways(axes); n > 1 {
			p.plan.Ways *= n
			if fac := p.rule.Factors[f]; fac.Kind == factor.Index {
				p.plan.Index = &Index{axes, fac.Size / n}
			}
		}
	}
	for i := range p.op.In {
		s := p.dims(p.rule.In[i])
		if p.op.In[i] != nil && len(in[i].Partial) > 0 {
			s.Partial = kept
		}
		p.plan.In = append(p.plan.In, clean(s))
	}
	for i, dims := range p.rule.Out {
		s, partial := p.dims(dims), slices.Clone(kept)
		for f, axes := range p.axes {
			if len(axes) == 0 || holds(dims, f) {
				continue
			}
			switch k := p.rule.Factors[f].Kind; k {
			case factor.Sum, factor.Index:
				partial = append(partial, axes...)
			case factor.Max, factor.Min, factor.Prod:
				p.plan.Reduce = append(p.plan.Reduce, Reduction{i, k.String(), axes})
			}
		}
		for _, a := range p.m.Axes {
			if slices.Contains(partial, a.Name) {
				s.Partial = append(s.Partial, a.Name)
			}
		}
		p.plan.Out = append(p.plan.Out, clean(s))
	}
	return p.plan
}

func holds(dims []factor.Dim, f int) bool {
	return slices.ContainsFunc(dims, func(list factor.Dim) bool { return slices.Contains(list, f) })
}

func (p *planner) dims(dims []factor.Dim) mesh.Sharding {
	s := mesh.Sharding{Dims: make([][]string, len(dims))}
	for d, list := range dims {
		if f, ok := p.major(list); ok {
			s.Dims[d] = p.axes[f]
		}
	}
	return s
}

// clean makes every replicated sharding the zero value.
func clean(s mesh.Sharding) mesh.Sharding {
	if s.IsReplicated() {
		return mesh.Sharding{}
	}
	return s
}
