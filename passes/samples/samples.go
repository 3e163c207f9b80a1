// Package samples says where in the values of a function the samples of a batch lie, and where they depend on one another: which op
// makes what is wanted of one sample depend on others. It reads factor rules, so that it knows merged dims (B*T or T*B), samples
// that lie inside, and values with a dim for each of two samples (x·xᵀ).
//
// # Why
//
// The last batch of an epoch may be short. It is then filled up with samples whose weight is 0, and what they touch must
// not count. A sum over samples may hold them where each of its terms is zero with the weight; any other op that reads
// more than one sample at a time would let them in. Of finds the first such op.
package samples

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/factor"
)

// Part is a factor of a dim, the slower-varying ones first. A dim of B*T has a part for each.
type Part struct {
	Size int
	Step int  // how many samples a step along it is: 1 for whole samples, 0 where it does not run over samples
	Null bool // elements of samples with weight 0 are zero
}

// Layout is the parts of each dim of a value. Dims that hold no samples have one part, or none when their size is 1.
type Layout [][]Part

// Has reports whether any dim runs over samples.
func (l Layout) Has() bool { return slices.ContainsFunc(l, hasSamples) }

// Dims are the dims that run over samples.
func (l Layout) Dims() []int {
	var list []int
	for d, parts := range l {
		if hasSamples(parts) {
			list = append(list, d)
		}
	}
	return list
}

func hasSamples(parts []Part) bool {
	return slices.ContainsFunc(parts, func(p Part) bool { return p.Step > 0 })
}

// CrossSample is an op that makes one sample's values depend on other samples.
type CrossSample struct {
	Op   *ir.Op
	Text string // what it does, "adds up samples", ...
}

// String tells it with the node's name and line, such as `node "/Mean" (ReduceMean) model.py:12 adds up samples`.
func (m *CrossSample) String() string {
	l := m.Op.Loc
	name := fmt.Sprintf("node %q", l.Node)
	if l.OpType != "" {
		name += " (" + l.OpType + ")"
	}
	if l.File != "" {
		name += fmt.Sprintf(" %s:%d", l.File, l.Line)
	}
	return name + " " + m.Text
}

// Facts are what is known of a function in global form.
type Facts struct {
	Batch   int          // samples of the batch; 0 where no input says
	Crosses *CrossSample // the first op by which samples that fill a batch would count; nil when there is none. Values behind it are not known

	at    map[*ir.Value]Layout
	grows map[*ir.Value][]bool
}

// Of walks the ops of f that the wanted values need.
func Of(f *ir.Func, wanted ...*ir.Value) *Facts {
	s := &Facts{Batch: batch(f), at: map[*ir.Value]Layout{}}
	if s.Batch < 2 { // one sample alone fills its batch
		return s
	}
	s.params(f)
	needed := needed(f, wanted)
	for _, op := range f.Ops {
		if !slices.ContainsFunc(op.Out, func(v *ir.Value) bool { return needed[v] }) {
			continue
		}
		if s.Crosses = s.op(op); s.Crosses != nil {
			return s
		}
	}
	return s
}

// params lays out what is read from data.
func (s *Facts) params(f *ir.Func) {
	for _, p := range f.Params {
		if p.Role.FromData() {
			s.at[p] = s.data(p)
		}
	}
}

// Kept is Of what the results of f that names pick are made of, and of all that f keeps for the next step.
func Kept(f *ir.Func, pick func(name string) bool) *Facts {
	var wanted []*ir.Value
	for _, r := range f.Results {
		if r.Updates != nil || pick(r.Name) {
			wanted = append(wanted, r.Value)
		}
	}
	s := Of(f, wanted...)
	for _, r := range f.Results {
		if s.Crosses == nil && r.Updates != nil && r.Value.Op != nil && s.at[r.Value].Has() {
			s.Crosses = &CrossSample{r.Value.Op, fmt.Sprintf("keeps %q of each sample for the next step", r.Updates.Name)}
		}
	}
	return s
}

// needed marks what the wanted values are made of, and themselves.
func needed(f *ir.Func, wanted []*ir.Value) map[*ir.Value]bool {
	on := map[*ir.Value]bool{}
	for _, v := range wanted {
		on[v] = true
	}
	for _, op := range slices.Backward(f.Ops) {
		if slices.ContainsFunc(op.Out, func(v *ir.Value) bool { return on[v] }) {
			for _, v := range op.In {
				on[v] = true
			}
		}
	}
	return on
}

// Layout is where samples lie in v.
func (s *Facts) Layout(v *ir.Value) Layout { return s.at[v] }

// Reader gives the layouts of values as they are asked for, also of such that are yet to be made.
func Reader(f *ir.Func) *Facts {
	s := &Facts{Batch: batch(f), at: map[*ir.Value]Layout{}}
	if s.Batch > 1 {
		s.params(f)
	}
	return s
}

// Reach works out the layouts of v and of what it is made of, and reports whether no samples meet up to there. Ops that
// have been read must not change any more.
func (s *Facts) Reach(v *ir.Value) bool {
	if s.Batch < 2 || v.Op == nil || s.at[v] != nil {
		return s.Crosses == nil
	}
	for _, in := range v.Op.In {
		if in != nil && !s.Reach(in) {
			return false
		}
	}
	s.Crosses = s.op(v.Op)
	return s.Crosses == nil
}

// batch is the number of samples: the leading dim of the first input that has dims, as the run-time counts.
func batch(f *ir.Func) int {
	for _, p := range f.Params {
		if p.Role == ir.Input && len(p.Type.Dims) > 0 && p.Type.Dims[0] > 0 {
			return p.Type.Dims[0]
		}
	}
	return 0
}

// data is the layout of what is read: rows of each sample follow one another.
func (s *Facts) data(p *ir.Value) Layout {
	l := plain(p.Type.Dims)
	if len(l) > 0 && p.Type.Dims[0] > 0 && p.Type.Dims[0]%s.Batch == 0 {
		l[0] = joined([]Part{{s.Batch, 1, p.Role == ir.Weight}, {p.Type.Dims[0] / s.Batch, 0, false}})
	}
	return l
}

func plain(dims []int) Layout {
	l := make(Layout, len(dims))
	for d, n := range dims {
		l[d] = joined([]Part{{Size: n}})
	}
	return l
}

// joined drops parts of size 1 and merges neighbours that continue one another.
func joined(parts []Part) []Part {
	var out []Part
	for _, p := range parts {
		if p.Size == 1 {
			continue
		}
		if n := len(out) - 1; n >= 0 && out[n].Step == p.Step*p.Size && (p.Step > 0) == (out[n].Step > 0) && out[n].Null == p.Null {
			out[n] = Part{out[n].Size * p.Size, p.Step, p.Null}
			continue
		}
		out = append(out, p)
	}
	return out
}

// cut divides the parts of a dim into one list for each factor of it; nil where a factor ends within no divisor of a part.
func cut(parts []Part, sizes []int) [][]Part {
	out := make([][]Part, len(sizes))
	rest := slices.Clone(parts)
	for i, n := range sizes {
		for n > 1 {
			if len(rest) == 0 {
				return nil
			}
			p := rest[0]
			switch {
			case n%p.Size == 0:
				out[i], rest, n = append(out[i], p), rest[1:], n/p.Size
			case p.Size%n == 0:
				inner := p.Size / n
				out[i] = append(out[i], Part{n, p.Step * inner, p.Null})
				rest[0], n = Part{inner, p.Step, p.Null}, 1
			default:
				return nil
			}
		}
	}
	if len(rest) > 0 {
		return nil
	}
	return out
}

// op works out the layouts of op's results.
func (s *Facts) op(op *ir.Op) *CrossSample {
	w, m := s.begin(op)
	if w == nil {
		return cmp.Or(m, s.grown(op))
	}
	if m := w.operands(); m != nil {
		return m
	}
	if m := w.crosses(); m != nil {
		return m
	}
	w.results()
	return s.grown(op)
}

// grown lays out numbers of places in the batch that op makes of nothing: they grow with it, and follow its order.
func (s *Facts) grown(op *ir.Op) *CrossSample {
	for _, v := range op.Out {
		for d, grows := range s.grows[v] {
			n := v.Type.Dims[d]
			switch {
			case !grows || hasSamples(s.at[v][d]):
			case n%s.Batch == 0 && (len(op.In) == 0 || op.Move() == ir.Repeats):
				s.at[v] = slices.Clone(s.at[v])
				s.at[v][d] = joined([]Part{{s.Batch, 1, false}, {n / s.Batch, 0, false}})
			default:
				return &CrossSample{op, "makes other numbers of values for another size of the batch"}
			}
		}
	}
	return nil
}

// Grow says which dims of v are larger for a larger batch, before anything is read that is made of it.
func (s *Facts) Grow(v *ir.Value, dims []bool) {
	if s.grows == nil {
		s.grows = map[*ir.Value][]bool{}
	}
	s.grows[v] = dims
}

// begin starts the work on an op that samples are in, with results laid out as if there were none; nil where that is all, for there are none, or
// the op has no rule and needs them all.
func (s *Facts) begin(op *ir.Op) (*walk, *CrossSample) {
	for _, v := range op.Out {
		s.at[v] = plain(v.Type.Dims)
	}
	if !slices.ContainsFunc(op.In, func(v *ir.Value) bool { return v != nil && s.at[v].Has() }) {
		return nil, nil
	}
	if w := s.walk(op); w != nil {
		return w, nil
	}
	if op.Draws() && op.In[0].Type.Equal(op.Out[0].Type) { // element by element; its counter is of no sample
		s.at[op.Out[0]] = s.at[op.In[0]]
		return nil, nil
	}
	return nil, s.all(op)
}

// walk is a walk that has not begun; nil where op has no rule.
func (s *Facts) walk(op *ir.Op) *walk {
	var rule factor.Rule
	if op.Def.Rules.Factors != nil {
		rule = op.Def.Rules.Factors(op)
	}
	if len(rule.In) != len(op.In) || len(rule.Out) != len(op.Out) {
		return nil
	}
	return &walk{s: s, op: op, rule: rule, parts: make([][]Part, len(rule.Factors)), null: make([][]bool, len(rule.Factors))}
}

// walk is the work on one op.
type walk struct {
	s     *Facts
	op    *ir.Op
	rule  factor.Rule
	parts [][]Part // of each factor that runs over samples
	null  [][]bool // of each such factor: per operand, whether it is zero where the weight is
}

// operands finds which factors run over samples. What is one number for all places follows whatever order the others have.
func (w *walk) operands() *CrossSample {
	if m := w.read(func(v *ir.Value, d int) bool { return !repeated(v, d) }); m != nil {
		return m
	}
	return w.read(func(v *ir.Value, d int) bool { return repeated(v, d) })
}

// repeated reports whether v repeats one number along dim d.
func repeated(v *ir.Value, d int) bool {
	return v.Moved() == ir.Repeats && v.Op.In[0].Type.Dims[d] == 1
}

// laidOut reports whether all factors of a dim have parts.
func (w *walk) laidOut(list factor.Dim) bool {
	return !slices.ContainsFunc(list, func(f int) bool { return w.parts[f] == nil })
}

// read finds which factors of the dims that are asked for run over samples.
func (w *walk) read(asked func(v *ir.Value, d int) bool) *CrossSample {
	for i, v := range w.op.In {
		if v == nil || !w.s.at[v].Has() {
			continue
		}
		if len(w.rule.In[i]) != len(v.Type.Dims) {
			return w.s.all(w.op)
		}
		for d, list := range w.rule.In[i] {
			if parts := w.s.at[v][d]; hasSamples(parts) && asked(v, d) && (!repeated(v, d) || !w.laidOut(list)) {
				if m := w.dim(i, list, parts); m != nil {
					return m
				}
			}
		}
	}
	return nil
}

// dim gives the factors of a dim of operand i their parts.
func (w *walk) dim(i int, list factor.Dim, parts []Part) *CrossSample {
	sizes := make([]int, len(list))
	for k, f := range list {
		sizes[k] = w.rule.Factors[f].Size
	}
	lists := cut(parts, sizes)
	if lists == nil {
		return &CrossSample{w.op, "takes dims apart that hold samples"}
	}
	for k, f := range list {
		if !hasSamples(lists[k]) {
			continue
		}
		bare := slices.Clone(lists[k])
		null := true
		for j := range bare {
			null = null && (bare[j].Null || bare[j].Step == 0)
			bare[j].Null = false
		}
		if w.parts[f] != nil && !slices.Equal(w.parts[f], bare) {
			return &CrossSample{w.op, "brings samples together that lie in different orders"}
		}
		w.parts[f] = bare
		if w.null[f] == nil {
			w.null[f] = make([]bool, len(w.op.In))
		}
		w.null[f][i] = null
	}
	return nil
}

// whole reports whether factor f runs over all samples.
func (w *walk) whole(f int) bool {
	return slices.ContainsFunc(w.parts[f], func(p Part) bool { return p == Part{Size: w.s.Batch, Step: 1} })
}

// crosses finds whether the op reads several samples at a time, other than in a sum whose terms weights have made zero.
func (w *walk) crosses() *CrossSample {
	if w.op.Def.Rules.PerPart {
		return w.statistics()
	}
	for f, parts := range w.parts {
		if parts == nil || w.whole(f) && w.filled(f) {
			continue
		}
		switch k := w.rule.Factors[f].Kind; k {
		case factor.Free:
		case factor.Sum:
			if !w.whole(f) || !w.terms(f) {
				return &CrossSample{w.op, adds}
			}
		case factor.Max, factor.Min, factor.Prod:
			return &CrossSample{w.op, "takes the " + words[k] + " over samples"}
		case factor.Index:
			return &CrossSample{w.op, "picks samples by their place in the batch"}
		default:
			return w.s.all(w.op)
		}
	}
	return nil
}

// all is a cross-sample op that needs every sample.
func (s *Facts) all(op *ir.Op) *CrossSample {
	if over := op.Def.Rules.Over; over != "" {
		return &CrossSample{op, over + " samples"}
	}
	return &CrossSample{op, "needs all samples at once"}
}

var words = map[factor.Kind]string{factor.Max: "maximum", factor.Min: "minimum", factor.Prod: "product"}

// terms reports whether each term of a sum over factor f is zero where the sample's weight is.
func (w *walk) terms(f int) bool {
	return slices.ContainsFunc(w.op.Linear(), func(set []int) bool {
		along := w.along(set, f)
		return len(along) > 0 && !slices.ContainsFunc(along, func(i int) bool { return !w.null[f][i] })
	})
}

// statistics crosses nothing where its rows are of samples and it is told by the weights which of them count, or where samples lie
// along the channels alone: each of these is normalised by itself.
func (w *walk) statistics() *CrossSample {
	counts := w.op.Def.Rules.Counts
	for f, parts := range w.parts {
		if parts == nil || slices.Contains(w.rule.In[0][1], f) {
			continue
		}
		if counts == 0 || len(w.op.In) <= counts || !slices.Contains(w.rule.In[0][0], f) || !w.whole(f) || !hasSamples(w.s.at[w.op.In[0]][0]) || !w.null[f][counts] {
			return &CrossSample{w.op, "takes statistics of the batch"}
		}
	}
	return nil
}

// results lays the op's results out as its factors are.
func (w *walk) results() {
	for i, v := range w.op.Out {
		l := make(Layout, len(v.Type.Dims))
		for d, list := range w.rule.Out[i] {
			if !slices.ContainsFunc(list, func(f int) bool { return w.parts[f] != nil }) {
				l[d] = joined([]Part{{Size: v.Type.Dims[d]}})
				continue
			}
			var parts []Part
			for _, f := range list {
				if w.parts[f] == nil {
					parts = append(parts, Part{Size: w.rule.Factors[f].Size})
					continue
				}
				null := w.stays(f)
				for _, p := range w.parts[f] {
					p.Null = null && p.Step > 0
					parts = append(parts, p)
				}
			}
			l[d] = joined(parts)
		}
		w.s.at[v] = l
	}
}

// stays reports whether a result is zero along factor f where the sample's weight is.
func (w *walk) stays(f int) bool {
	null := func(set []int) bool {
		return !slices.ContainsFunc(set, func(i int) bool { return i >= len(w.null[f]) || !w.null[f][i] })
	}
	return slices.ContainsFunc(w.op.Linear(), null) || slices.ContainsFunc(w.op.Def.Rules.Zero, null)
}

// adds is what a sum over samples does.
const adds = "adds up samples"
