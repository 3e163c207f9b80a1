package samples

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Along says along which dim of inputs their samples lie.
type Along map[*ir.Value]int

// Trace is what is known of a function when samples lie along given dims.
type Trace struct {
	*Facts    // Crosses is the first of Crossings; values behind it are known all the same
	Crossings []CrossSample
	PerSample *CrossSample // the first op that takes something else than data which differs from sample to sample, a positional embedding for one

	same map[dimOf]bool
}

type dimOf struct {
	v *ir.Value
	d int
}

// TraceOf follows n samples along the dims of at through all that the wanted values are made of, also behind ops by which
// they meet.
func TraceOf(f *ir.Func, n int, at Along, wanted ...*ir.Value) *Trace {
	t := &Trace{Facts: &Facts{Batch: n, at: map[*ir.Value]Layout{}}, same: map[dimOf]bool{}}
	for p, d := range at {
		l := plain(p.Type.Dims)
		if d < len(l) && n > 0 && p.Type.Dims[d] > 0 && p.Type.Dims[d]%n == 0 {
			l[d] = joined([]Part{{Size: n, Step: 1}, {Size: p.Type.Dims[d] / n}})
		}
		t.at[p] = l
	}
	needed := needed(f, wanted)
	for _, op := range f.Ops {
		if slices.ContainsFunc(op.Out, func(v *ir.Value) bool { return needed[v] }) {
			t.op(op)
		}
	}
	return t
}

// Leading follows the samples of a function all of whose data lead with them, to what is wanted; nil where there are fewer than two.
func Leading(f *ir.Func, wanted ...*ir.Value) *Trace {
	at, n := Along{}, batch(f)
	if n < 2 {
		return nil
	}
	for _, p := range f.Params {
		if p.Role.FromData() && len(p.Type.Dims) > 0 {
			at[p] = 0
		}
	}
	return TraceOf(f, n, at, wanted...)
}

// op lays out the results of op, and notes where samples meet in it.
func (t *Trace) op(op *ir.Op) {
	w, m := t.begin(op)
	if w == nil {
		t.cross(m)
		return
	}
	if m = w.operands(); m == nil {
		m = w.crosses()
	}
	t.cross(m)
	w.results()
	if t.PerSample == nil {
		t.PerSample = t.perSample(w)
	}
}

func (t *Trace) cross(m *CrossSample) {
	if m == nil {
		return
	}
	if t.Crosses == nil {
		t.Crosses = m
	}
	t.Crossings = append(t.Crossings, *m)
}

// perSample finds an operand without samples that differs along a factor of samples.
func (t *Trace) perSample(w *walk) *CrossSample {
	for i, v := range w.op.In {
		if v == nil {
			continue
		}
		for d, list := range w.rule.In[i] {
			if l := t.at[v]; d < len(l) && hasSamples(l[d]) || !slices.ContainsFunc(list, func(f int) bool { return hasSamples(w.parts[f]) }) {
				continue
			}
			if !t.Uniform(v, d) {
				return &CrossSample{w.op, fmt.Sprintf("takes %%%s, which differs from sample to sample", v.Name)}
			}
		}
	}
	return nil
}

// Uniform reports whether v, which no data are in, is proven to be the same all along dim d.
func (t *Trace) Uniform(v *ir.Value, d int) bool {
	if v.Type.Dims[d] == 1 {
		return true
	}
	if v.Op == nil {
		return false
	}
	key := dimOf{v, d}
	if y, ok := t.same[key]; ok {
		return y
	}
	y := t.findUniform(v, d)
	t.same[key] = y
	return y
}

func (t *Trace) findUniform(v *ir.Value, d int) bool {
	op := v.Op
	if c := ops.Literal(op); c != nil {
		return repeats(c, d)
	}
	if op.Move() == ir.Repeats {
		in := op.In[0]
		return in.Type.Dims[d] == 1 || t.Uniform(in, d)
	}
	if op.Def.Rules.Factors == nil {
		return false
	}
	rule := op.Def.Rules.Factors(op)
	if len(rule.In) != len(op.In) || len(rule.Out) != len(op.Out) {
		return false
	}
	list, read := rule.Out[v.Index][d], false
	for _, f := range list {
		if rule.Factors[f].Kind != factor.Free {
			return false
		}
	}
	for i, x := range op.In {
		if x == nil {
			continue
		}
		for k, of := range rule.In[i] {
			if !slices.ContainsFunc(of, func(f int) bool { return slices.Contains(list, f) }) {
				continue
			}
			if read = true; !t.Uniform(x, k) {
				return false
			}
		}
	}
	return read
}

// most bounds the constants that are looked into.
const most = 1 << 20

// repeats reports whether a constant is the same all along dim d.
func repeats(c *ir.Tensor, d int) bool {
	dims := c.Type.Dims
	if c.Absent() || c.Type.Elems() == 0 || c.Type.Elems() > most {
		return false
	}
	each := c.Type.Bytes() / c.Type.Elems() * ir.Product(dims[d+1:])
	if each == 0 || c.Type.Elems()*c.Type.DType.Size() != len(c.Data) { // several elements in a byte
		return false
	}
	for from := 0; from < len(c.Data); from += each * dims[d] {
		for k := 1; k < dims[d]; k++ {
			if !slices.Equal(c.Data[from:from+each], c.Data[from+k*each:from+(k+1)*each]) {
				return false
			}
		}
	}
	return true
}

// Outermost is the dim of a value along which all samples lie, with whatever else is in the dim inside each of them.
func (t *Trace) Outermost(v *ir.Value) (d int, ok bool) {
	dims := t.at[v].Dims()
	if len(dims) != 1 {
		return 0, false
	}
	parts := t.at[v][dims[0]]
	first := parts[0]
	return dims[0], first.Size == t.Batch && first.Step == 1
}

// Separate reports whether no samples meet on the way to outputs. A graph that ends in one number, its loss, adds samples up somewhere:
// that tells nothing about where they lie.
func (t *Trace) Separate(outputs []*ir.Value) bool {
	loss := !slices.ContainsFunc(outputs, func(v *ir.Value) bool { return v.Type.Elems() != 1 })
	return !slices.ContainsFunc(t.Crossings, func(m CrossSample) bool { return !loss || m.Text != adds })
}

// Lined reports whether every output has all samples along a dim, or is one number.
func (t *Trace) Lined(outputs []*ir.Value) bool {
	for _, v := range outputs {
		if _, ok := t.Outermost(v); !ok && v.Type.Elems() != 1 {
			return false
		}
	}
	return true
}
