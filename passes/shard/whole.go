package shard

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// A value that spans the batch, and that no trained parameter is in, need not wait for the micro-batches: the number of
// targets that count, a sum of class weights, the mean of a mask. Every function that reads it computes it from the data
// of all micro-batches of the step, parameters of role ir.Whole, of which a rank has its own samples; sums over ranks are
// completed by the collectives that any other sum has. The value is made again in each micro-batch, which for what it is
// made of (targets, masks) costs little beside a layer. Twins of the ops stand in front of the function.

// fromData computes what the obstacle waits for from the data of all micro-batches, as far as it depends on nothing else,
// and reports whether there was anything.
func (o *obstacle) fromData(c *pass.Context) bool {
	if o.a.m.Size(mesh.TimeAxis) <= 1 || o.batchNorm && c.Opt.SyncBN { // what --sync-bn does is to merge the micro-batches
		return false
	}
	w := &wholes{o: o, c: c, mixed: mixed(o.a.f), twin: map[*ir.Value]*ir.Value{}}
	for _, v := range o.spanning(w.mixed) {
		w.find(v)
	}
	if len(w.found) == 0 {
		return false
	}
	w.build()
	return true
}

// spanning are the values behind the obstacle of which the whole batch is needed: what is known only in the end, or, of an
// op that cannot be cut, its results; its operands when the results depend on more than data.
func (o *obstacle) spanning(mixed map[*ir.Value]*ir.Value) []*ir.Value {
	if o.value == nil {
		return nil
	}
	if !slices.Contains(o.op.In, o.value) {
		return []*ir.Value{o.value}
	}
	if o.when[o.value] == micro && mixed[o.op.Out[0]] == nil {
		return o.op.Out
	}
	list := []*ir.Value{o.value}
	plan := o.a.plan(o.op)
	for i, v := range o.op.In {
		if v != o.value && sumOf(v, plan.In[i], o.when) {
			list = append(list, v)
		}
	}
	return list
}

// mixed marks the values that depend on more than the data and constants: with the parameter, buffer or state that changes
// them while a step is computed or because of it.
func mixed(f *ir.Func) map[*ir.Value]*ir.Value {
	on := map[*ir.Value]*ir.Value{}
	for _, p := range f.Params {
		if p.Role == ir.Param {
			on[p] = p
		}
	}
	for _, r := range f.Results {
		if r.Updates != nil && r.Updates.Role == ir.Buffer {
			on[r.Updates] = r.Updates
		}
	}
	for _, op := range f.Ops {
		for _, v := range op.In {
			if p := on[v]; p != nil {
				for _, x := range op.Out {
					on[x] = p
				}
				break
			}
		}
	}
	return on
}

// wholes makes twins of values that are computed from the data of all micro-batches.
type wholes struct {
	o     *obstacle
	c     *pass.Context
	mixed map[*ir.Value]*ir.Value
	found []*ir.Value
	b     *ir.Builder
	twin  map[*ir.Value]*ir.Value
}

// find lists the values nearest to v that depend on data alone and span the batch.
func (w *wholes) find(v *ir.Value) {
	switch {
	case v == nil || slices.Contains(w.found, v):
	case w.mixed[v] == nil:
		w.found = append(w.found, v)
	case v.Op != nil:
		plan := w.o.a.plan(v.Op)
		for i, x := range v.Op.In {
			if sumOf(x, plan.In[i], w.o.when) {
				w.find(x)
			}
		}
	}
}

// build makes the twins, and lets every reader of the values that were found read theirs.
func (w *wholes) build() {
	f := w.o.a.f
	w.b = ir.NewBuilder(f)
	list := f.Ops
	f.Ops = nil
	subst := map[*ir.Value]*ir.Value{}
	for _, v := range w.found {
		t := w.of(v)
		if !splitOverTime(v.Sharding) || slices.Contains(w.o.op.Out, v) {
			subst[v] = t
			continue
		}
		for i, x := range w.o.op.In { // others read the samples of one micro-batch
			if x == v {
				w.o.op.In[i] = t
			}
		}
	}
	made, samples := len(f.Ops), 0
	for _, op := range f.Ops {
		for _, v := range op.Out {
			samples = max(samples, v.Type.Elems())
		}
	}
	front := f.Ops
	f.Ops = list
	f.ReplaceAll(subst)
	f.Ops = slices.Concat(front, f.Ops)
	for _, v := range w.found {
		w.c.Remark(w.twin[v], "is computed from the data of all %d micro-batches in each of them because %s needs it before the last is there: %s on up to %d elements",
			w.c.Module.Mesh.Size(mesh.TimeAxis), place(w.o.op), printable.Count(made, "op"), samples)
	}
	f.DCE()
}

// of is v's twin.
func (w *wholes) of(v *ir.Value) *ir.Value {
	if v == nil || w.twin[v] != nil {
		return w.twin[v]
	}
	if v.Op == nil {
		if !v.Role.FromData() || v.Role == ir.Whole || len(v.Type.Dims) == 0 {
			return v
		}
		name := abi.WholeData.Of(v.Name)
		t := w.o.a.f.Param(name)
		if t == nil {
			t = w.b.Param(name, v.Type, ir.Whole)
		}
		if t.Name != name || t.Role != ir.Whole {
			panic(ir.Errorf(ir.Loc{}, "the model has a value %q, which is the name of %q of all micro-batches: rename it", name, v.Name))
		}
		w.twin[v] = t
		return t
	}
	in := make([]*ir.Value, len(v.Op.In))
	for i, x := range v.Op.In {
		in[i] = w.of(x)
	}
	w.b.Loc = w.c.Loc(v.Op.Loc)
	for i, x := range w.b.EmitN(v.Op.Def, v.Op.Attrs, in...) {
		w.twin[v.Op.Out[i]] = w.b.Rename(x, abi.WholeData.Of(v.Op.Out[i].Name))
	}
	return w.twin[v]
}
