package trainstep

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/samples"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Programs have their samples along the leading dim of all that they read and give: ranks, micro-batches and the run-time
// cut there. A model may have them along another, such as [time, batch, channels] of a recurrent network. Its inputs then come
// into the program with samples in front and are turned where the graph begins, and its outputs are turned where it ends.
//
// Which dim it is is given (--batch-dim), or the leading one where that can be. Where it cannot, or samples would meet, and there
// is exactly one other way in which none meet and only data differ between them, that is it.

// lead brings samples to the leading dim of inputs and outputs, and notes in c.BatchDims where the model has them.
func lead(c *pass.Context, f *ir.Func) error {
	s := &samples.Search{F: f}
	for _, p := range f.Params {
		if p.Role == ir.Input && len(p.Type.Dims) > 0 {
			s.Inputs = append(s.Inputs, p)
		}
	}
	for _, r := range f.Results {
		if r.Updates == nil {
			s.Outputs = append(s.Outputs, r.Value)
		}
	}
	var err error
	if s.Fixed, err = given(c, f, false); err != nil {
		return err
	}
	if len(s.Inputs) == 0 || len(s.Outputs) == 0 {
		return nil
	}
	at, err := hinted(c, s)
	if at == nil && err == nil {
		at, err = choose(c, s)
	}
	if err != nil || at == nil {
		return err
	}
	first := s.Inputs[0]
	n := first.Type.Dims[at[first]]
	l := &leader{c: c, f: f, at: at, trace: samples.TraceOf(f, n, at, s.Outputs...), back: map[*ir.Value]*ir.Value{}}
	for _, p := range s.Inputs {
		if d := at[p]; d > 0 {
			c.Remark(p, "has its %d samples along dim %d, %s", n, d, l.why(s))
		}
	}
	return l.run()
}

// hinted is the one way to follow what --batch speaks for; nil where it speaks for the leading dim.
func hinted(c *pass.Context, s *samples.Search) (samples.Along, error) {
	hints, err := given(c, s.F, true)
	if err != nil || len(hints) == 0 {
		return nil, err
	}
	maps.Copy(hints, s.Fixed)
	one := *s
	one.Fixed = hints
	ways, _ := one.Apart()
	if len(ways) == 1 {
		return ways[0], nil
	}
	for _, p := range s.Inputs {
		if d := hints[p]; d > 0 {
			return nil, ir.Errorf(ir.Loc{}, "input %q is %s: dimension %d, not the leading one, has the %d samples of --batch", p.Name, p.Type, d, p.Type.Dims[d]).
				Note("--batch-dim %s=%d says that the samples lie along it; if they do not, export with a dynamic batch dimension", p.Name, d)
		}
	}
	return nil, nil
}

// leadAgain is lead of the same model with a larger batch.
func leadAgain(c *pass.Context, f *ir.Func) error {
	at, n := samples.Along{}, 0
	var outputs []*ir.Value
	for _, p := range f.Params {
		if p.Role == ir.Input && len(p.Type.Dims) > 0 {
			at[p] = c.BatchDims[p.Name]
			if n == 0 {
				n = p.Type.Dims[at[p]]
			}
		}
	}
	for _, r := range f.Results {
		if r.Updates == nil {
			outputs = append(outputs, r.Value)
		}
	}
	if !turns(at) {
		return nil
	}
	l := &leader{c: c, f: f, at: at, trace: samples.TraceOf(f, n, at, outputs...), back: map[*ir.Value]*ir.Value{}}
	return l.run()
}

// times reports whether the inputs of larger are those of f with so many times the samples, and nothing else.
func times(f, larger *ir.Func, n int) bool {
	if len(f.Params) != len(larger.Params) {
		return false
	}
	for i, p := range f.Params {
		if d, e := p.Type.Dims, larger.Params[i].Type.Dims; p.Role == ir.Input && len(d) > 0 && (len(e) != len(d) || e[0] != n*d[0] || !slices.Equal(e[1:], d[1:])) {
			return false
		}
	}
	return true
}

// given are the dims that are named, or those that --batch speaks for.
func given(c *pass.Context, f *ir.Func, hints bool) (samples.Along, error) {
	at := samples.Along{}
	for _, text := range c.Opt.BatchDim {
		text, hint := strings.CutSuffix(text, "?")
		if hint != hints {
			continue
		}
		name, number, ok := strings.Cut(text, "=")
		d, err := strconv.Atoi(number)
		if !ok || err != nil {
			return nil, ir.Errorf(ir.Loc{}, "--batch-dim %q: write INPUT=N, the input and its dimension, counted from 0", text)
		}
		p := f.Param(name)
		if p == nil || p.Role != ir.Input {
			var names []string
			for _, q := range f.Params {
				if q.Role == ir.Input {
					names = append(names, q.Name)
				}
			}
			return nil, ir.Errorf(ir.Loc{}, "--batch-dim %s: the model has no such input; there are: %s", text, strings.Join(names, ", "))
		}
		if d < 0 {
			d += len(p.Type.Dims)
		}
		if d < 0 || d >= len(p.Type.Dims) {
			return nil, ir.Errorf(ir.Loc{}, "--batch-dim %s: input %q is %s, which has no such dimension", text, name, p.Type)
		}
		at[p] = d
	}
	return at, nil
}

// choose decides where samples lie; nil is the leading dim of everything.
func choose(c *pass.Context, s *samples.Search) (samples.Along, error) {
	front := samples.Along{}
	for _, p := range s.Inputs {
		front[p] = s.Fixed[p]
	}
	possible := fits(s, front)
	if possible && !turns(front) {
		n := s.Inputs[0].Type.Dims[0]
		if n < 2 || samples.TraceOf(s.F, n, front, s.Outputs...).Separate(s.Outputs) {
			return nil, nil
		}
		return better(c, s), nil
	}
	ways, all := s.Apart()
	if len(ways) > 1 && possible && slices.ContainsFunc(ways, func(w samples.Along) bool { return same(w, front) }) {
		return front, nil
	}
	if len(ways) == 0 && !possible {
		ways, all = s.Lined()
	}
	switch {
	case len(ways) == 1:
		return ways[0], nil
	case possible:
		return front, nil
	case len(s.Fixed) == 0 && !all || len(s.Fixed) == 0 && len(ways) == 0:
		return nil, nil // what reads the leading dim says that it is none
	}
	var texts []string
	for _, w := range ways {
		texts = append(texts, told(s, w))
	}
	if len(texts) == 0 {
		return nil, lost(s, front)
	}
	return nil, ir.Errorf(ir.Loc{}, "the samples of the batch may lie along different dimensions of the inputs").
		Note("say which with %s", strings.Join(texts, ", or "))
}

// lost says which input or output does not go with what is given.
func lost(s *samples.Search, at samples.Along) error {
	first := s.Inputs[0]
	n := first.Type.Dims[at[first]]
	for _, p := range s.Inputs {
		if size := p.Type.Dims[at[p]]; n == 0 || size%n != 0 || at[p] > 0 && size != n {
			return ir.Errorf(ir.Loc{}, "input %q is %s, which does not have %d samples along dimension %d, as input %q %s has along dimension %d", p.Name, p.Type, n, at[p],
				first.Name, first.Type, at[first]).Note("--batch-dim INPUT=N names the dimension for each input where it is not the leading one")
		}
	}
	t := samples.TraceOf(s.F, n, at, s.Outputs...)
	for _, v := range s.Outputs {
		if _, ok := t.Outermost(v); !ok && v.Type.Elems() != 1 {
			return inside(t, v)
		}
	}
	return ir.Errorf(ir.Loc{}, "the samples of the batch cannot be followed from the inputs to the outputs (%s)", told(s, at))
}

// inside is the error of an output without a dim of samples.
func inside(t *samples.Trace, v *ir.Value) error {
	if dims := t.Layout(v).Dims(); len(dims) > 0 {
		return ir.Errorf(locOf(v), "output %q %s has the samples of the batch inside dimension %d, merged with another one: let the model give them a dimension of their own", v.Name, v.Type, dims[0])
	}
	return ir.Errorf(locOf(v), "output %q %s has no dimension along which the samples of the batch lie (--batch-dim)", v.Name, v.Type)
}

// better is the one way in which samples do not meet where they do along the leading dim. It is nil, and a hint for whoever has to refuse
// the model, where the leading dim is named, where sizes cannot tell the ways apart, so that data would fit the one as well as the
// other, and for a graph that ends in its loss: in contrastive ones samples are meant to meet, and each token is for itself.
func better(c *pass.Context, s *samples.Search) samples.Along {
	free := *s
	free.Fixed = nil
	ways, all := free.Apart()
	ways = slices.DeleteFunc(ways, func(w samples.Along) bool { return !turns(w) })
	if all && len(ways) == 0 {
		warnInside(c, &free)
	}
	if !all || len(ways) != 1 {
		return nil
	}
	unsure := len(s.Fixed) > 0 || !slices.ContainsFunc(s.Outputs, func(v *ir.Value) bool { return v.Type.Elems() != 1 })
	for p, d := range ways[0] {
		unsure = unsure || d > 0 && p.Type.Dims[d] == p.Type.Dims[0]
	}
	if !unsure {
		return ways[0]
	}
	c.BatchHint = told(s, ways[0])
	c.Remark(nil, "samples depend on one another along the leading dimension of the inputs; if the batch lies along another one, give %s", c.BatchHint)
	return nil
}

// warnInside warns where samples lie along another dim but for an output that merges it with others, as logits of [T*B,V] do: the leading
// dim then counts as the batch, of which data would have to consist.
func warnInside(c *pass.Context, s *samples.Search) {
	ways, all := s.Inside()
	if !all || len(ways) != 1 || !turns(ways[0]) {
		return
	}
	first := s.Inputs[0]
	t := samples.TraceOf(s.F, first.Type.Dims[ways[0][first]], ways[0], s.Outputs...)
	for _, v := range s.Outputs {
		if _, ok := t.Outermost(v); !ok && t.Layout(v).Has() {
			c.Remark(nil, "warning: the leading dimension of %q %s is taken for the batch, though samples depend on one another along it and do not along another (%s): output %q %s has those inside "+
				"of a dimension; let the model give them one of their own", first.Name, first.Type, told(s, ways[0]), v.Name, v.Type)
			return
		}
	}
}

// fits reports whether all inputs and the first output have the number of samples along the dims of at, where this is known.
func fits(s *samples.Search, at samples.Along) bool {
	first := s.Inputs[0]
	n := first.Type.Dims[at[first]]
	for _, p := range s.Inputs {
		size := p.Type.Dims[at[p]]
		if n == 0 || size == 0 || size%n != 0 || at[p] > 0 && size != n {
			return false
		}
	}
	out := s.Outputs[0]
	if turns(at) {
		_, ok := samples.TraceOf(s.F, n, at, s.Outputs...).Outermost(out)
		return ok || out.Type.Elems() == 1
	}
	return len(out.Type.Dims) == 0 || out.Type.Elems() == 1 || out.Type.Dims[0]%n == 0
}

func turns(at samples.Along) bool {
	for _, d := range at {
		if d > 0 {
			return true
		}
	}
	return false
}

func same(a, b samples.Along) bool {
	for p, d := range a {
		if b[p] != d {
			return false
		}
	}
	return true
}

// told spells out flags.
func told(s *samples.Search, at samples.Along) string {
	var list []string
	for _, p := range s.Inputs {
		if d, ok := at[p]; ok && (d > 0 || !turns(at)) {
			list = append(list, fmt.Sprintf("--batch-dim %s=%d", p.Name, d))
		}
	}
	return strings.Join(list, " ")
}

// leader rewrites a function so that samples lead.
type leader struct {
	c     *pass.Context
	f     *ir.Func
	b     *ir.Builder
	at    samples.Along
	trace *samples.Trace
	back  map[*ir.Value]*ir.Value // inputs with the dims that they had
}

func (l *leader) why(s *samples.Search) string {
	if len(s.Fixed) > 0 {
		return "as is given; the program reads them one after the other"
	}
	return "where they do not depend on one another and only data differ between them; the program reads them one after the other"
}

// run rewrites inputs, ops and outputs.
func (l *leader) run() error {
	old := l.f.Ops
	l.b = ir.NewBuilder(l.f) // knows all names
	l.f.Ops = make([]*ir.Op, 0, len(old))
	for _, p := range l.f.Params {
		if d := l.at[p]; d > 0 {
			l.input(p, d)
		}
	}
	for _, op := range old {
		for i, v := range op.In {
			op.In[i] = l.get(v)
		}
	}
	l.f.Ops = append(l.f.Ops, old...)
	for i := range l.f.Results {
		if err := l.output(&l.f.Results[i]); err != nil {
			return err
		}
	}
	l.f.DCE()
	return l.target()
}

// target notes where the target of the first output has its samples: its dims are those of the output, without that of the classes
// in losses of classes.
func (l *leader) target() error {
	d, turned := l.c.BatchDims[abi.OutputPrefix+"0"]
	if !turned || l.c.Loss == "graph" || l.c.Loss == "" || l.c.Loss == pass.NoLoss {
		return nil
	}
	if l.c.Loss == "cross_entropy" || l.c.Loss == "nll" {
		v := l.f.Results[0].Value
		if len(v.Type.Dims) > 3 {
			return ir.Errorf(locOf(v), "--loss %s: output %q has %d dimensions and its samples along dimension %d, so it is not clear along which one the classes lie; let the model give its samples first",
				l.c.Loss, v.Name, len(v.Type.Dims), d)
		}
		if d == len(v.Type.Dims)-1 { // the classes are before the samples
			d--
		}
	}
	if d > 0 {
		l.note("target", d)
	}
	return nil
}

// input makes p an input with samples in front.
func (l *leader) input(p *ir.Value, d int) {
	l.note(p.Name, d)
	l.b.Loc = ir.Loc{Node: p.Name, Derived: l.c.Pass}
	dims := p.Type.Dims
	p.Type = ir.T(p.Type.DType, slices.Concat([]int{dims[d]}, dims[:d], dims[d+1:])...)
	back := ops.AllDims(p)[1:]
	l.back[p] = ops.Transpose(l.b, p, slices.Insert(back, d, 0))
}

// get is v with the dims that it had.
func (l *leader) get(v *ir.Value) *ir.Value {
	if w := l.back[v]; w != nil {
		return w
	}
	return v
}

func (l *leader) note(name string, d int) {
	if l.c.BatchDims == nil {
		l.c.BatchDims = map[string]int{}
	}
	l.c.BatchDims[name] = d
}

// output turns a result so that samples are in front.
func (l *leader) output(r *ir.Result) error {
	v := r.Value
	r.Value = l.get(v)
	if r.Updates != nil {
		return nil
	}
	d, ok := l.trace.Outermost(v)
	switch {
	case !ok && l.trace.Layout(v).Has():
		return inside(l.trace, v)
	case !ok || d == 0:
		return nil
	}
	l.note(r.Name, d)
	if l.b.Loc = (ir.Loc{Node: v.Name, Derived: l.c.Pass}); v.Op != nil {
		l.b.Loc = l.c.Loc(v.Op.Loc)
	}
	r.Value = ops.Transpose(l.b, r.Value, order(d, len(v.Type.Dims)))
	return nil
}

// order brings dim d of n to the front.
func order(d, n int) []int {
	perm := []int{d}
	for i := range n {
		if i != d {
			perm = append(perm, i)
		}
	}
	return perm
}
