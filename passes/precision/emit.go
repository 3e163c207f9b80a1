package precision

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/algebra"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// emitter writes a function anew with the types that a plan gives its values.
type emitter struct {
	*plan
	c  *pass.Context
	b  *ir.Builder
	to dtype.DType // half precision

	stored map[*ir.Value]*ir.Value                 // what takes the place of an old value
	cast   map[dtype.DType]map[*ir.Value]*ir.Value // other types of it, by old value
}

func newEmitter(c *pass.Context, p *plan, to dtype.DType) *emitter {
	return &emitter{plan: p, c: c, b: ir.NewBuilder(p.f), to: to, stored: map[*ir.Value]*ir.Value{},
		cast: map[dtype.DType]map[*ir.Value]*ir.Value{to: {}, dtype.F32: {}}}
}

func (e *emitter) run() {
	old := e.f.Ops
	e.f.Ops = nil
	for _, v := range e.f.Params {
		e.stored[v] = v
	}
	narrow := 0
	for _, op := range old {
		e.op(op)
		for _, v := range op.Out {
			if e.low[v] {
				narrow++
			}
		}
	}
	for i, r := range e.f.Results {
		e.b.Loc = e.c.Loc(locOf(r.Value))
		e.f.Results[i].Value = e.get(r.Value, r.Value.Type.DType)
	}
	e.f.DCE()
	e.c.Remark(nil, "@%s stores %d of its values in %s", e.f.Name, narrow, e.to)
}

func locOf(v *ir.Value) ir.Loc {
	if v.Op != nil {
		return v.Op.Loc
	}
	return ir.Loc{Node: v.Name}
}

// get is old value v in type d, if it is a float this pass is about, else as it is.
func (e *emitter) get(v *ir.Value, d dtype.DType) *ir.Value {
	s := e.stored[v]
	if !single(v) || s.Type.DType == d {
		return s
	}
	if w := e.cast[d][v]; w != nil {
		return w
	}
	var w *ir.Value
	if d == e.to && v.Op != nil && kind(v.Op) == kir.View && !e.data[v] { // a view of a parameter: of its cast
		w = e.b.Emit(v.Op.Def, v.Op.Attrs, e.get(v.Op.In[0], d))
	} else {
		w = ops.Cast(e.b, s, d)
	}
	e.b.Rename(w, s.Name+"."+d.String())
	e.cast[d][v] = w
	return w
}

// op emits op in the types that its rule and the plan say.
func (e *emitter) op(op *ir.Op) {
	if !slices.ContainsFunc(op.In, single) || op.Move() == ir.Casts {
		for i, v := range op.In {
			if v != nil {
				op.In[i] = e.stored[v]
			}
		}
		e.f.Ops = append(e.f.Ops, op)
		e.b.Loc = e.c.Loc(op.Loc)
		for _, v := range op.Out {
			e.store(v, v)
		}
		return
	}
	e.b.Loc = op.Loc
	in := make([]*ir.Value, len(op.In))
	for i, v := range op.In {
		if v != nil {
			in[i] = e.get(v, e.operand(op, i))
		}
	}
	e.b.Loc = op.Loc
	outs := e.b.EmitN(op.Def, e.attrs(op), in...)
	e.b.Loc = e.c.Loc(op.Loc)
	for i, v := range op.Out {
		outs[i].Op.Why = op.Why
		e.store(v, outs[i])
	}
}

// operand is the type in which op reads operand i.
func (e *emitter) operand(op *ir.Op, i int) dtype.DType {
	switch stored := op.Def.Rules.AsStored; {
	case isLow(op):
		if sums(op, i) {
			return dtype.F32
		}
		return e.to
	case slices.Contains(stored, i):
		return e.stored[op.In[i]].Type.DType
	case stored != nil:
		return dtype.F32
	case op.Move() == ir.LooksUp && e.low[op.Out[0]] && !e.low[op.In[0]]:
		return e.table(op)
	case isOwn(op) && e.low[op.Out[0]], e.exact(op):
		return e.to
	}
	return dtype.F32
}

// table is the type in which rows of an f32 table are looked up: narrow where the table is cast for others anyway or has no more
// elements than there are to look up.
func (e *emitter) table(op *ir.Op) dtype.DType {
	v := op.In[0]
	if v.Type.Elems() <= op.Out[0].Type.Elems() || slices.ContainsFunc(e.uses[v], func(o *ir.Op) bool { return isLow(o) }) {
		return e.to
	}
	return dtype.F32
}

// exact reports whether op, elementwise and without a rule, is computed in half precision: it has a narrow result and narrow
// operands, or constants that half precision has. Such an op is computed in f32 and rounded once, as with casts round it.
func (e *emitter) exact(op *ir.Op) bool {
	if op.Def.Rules.Precision != "" || kind(op) != kir.Pointwise || !e.low[op.Out[0]] {
		return false
	}
	return !slices.ContainsFunc(op.In, func(v *ir.Value) bool {
		if !single(v) || e.low[v] {
			return false
		}
		u, ok := algebra.Uniform(v)
		return !ok || e.to.Round(u) != u
	})
}

// attrs are op's; of a product that is the gradient of a parameter, with a result in f32.
func (e *emitter) attrs(op *ir.Op) any {
	if out := op.Def.Rules.Out; out != nil && isLow(op) && e.wide[op.Out[0]] {
		return out(op, dtype.F32)
	}
	return op.Attrs
}

// store makes w, cast if need be, the value that takes old v's place and name. Readers never see what was there before the
// rounding: it would be kept for them.
func (e *emitter) store(v, w *ir.Value) {
	want := v.Type.DType
	if e.low[v] {
		want = e.to
	}
	if !single(v) || w.Type.DType == want {
		e.stored[v] = w
		if w != v {
			pass.TakeName(e.b, w, v)
		}
		return
	}
	name := v.Name
	e.b.Rename(v, name+".old")
	e.b.Rename(w, name+"."+w.Type.DType.String())
	e.stored[v] = e.b.Rename(ops.Cast(e.b, w, want), name)
	if want == dtype.F32 {
		e.cast[e.to][v] = w
	}
}
