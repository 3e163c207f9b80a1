package precision

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// plan says of each f32 value of a function whether it is stored narrow.
type plan struct {
	f    *ir.Func
	uses map[*ir.Value][]*ir.Op
	out  map[*ir.Value]bool // is a result of the function
	data map[*ir.Value]bool // depends on what is read from the data set
	wide map[*ir.Value]bool // stays f32: the loss, gradients of parameters
	low  map[*ir.Value]bool // is stored in half precision
	soft map[*ir.Value]bool // would be, but is not stored at all
}

func newPlan(f *ir.Func) *plan {
	p := &plan{f: f, uses: f.Uses(), out: map[*ir.Value]bool{}, data: map[*ir.Value]bool{}, wide: map[*ir.Value]bool{}, low: map[*ir.Value]bool{}, soft: map[*ir.Value]bool{}}
	for _, r := range f.Results {
		p.out[r.Value] = true
	}
	for _, v := range f.Params {
		p.data[v] = v.Role == ir.Input || v.Role == ir.Target || v.Role == ir.Weight
	}
	for _, op := range f.Ops {
		on := slices.ContainsFunc(op.In, func(v *ir.Value) bool { return p.data[v] })
		for _, v := range op.Out {
			p.data[v] = on
		}
	}
	p.loss()
	p.choices()
	for _, r := range f.Results {
		if abi.Gradient.Has(r.Name) {
			p.gradient(r.Value)
		}
	}
	return p
}

// loss keeps f32 what the forward pass makes of targets and sample weights: the loss, as autocast has it, and metrics.
func (p *plan) loss() {
	forward := map[*ir.Op]bool{}
	var back func(v *ir.Value)
	back = func(v *ir.Value) {
		if v == nil || v.Op == nil || forward[v.Op] {
			return
		}
		forward[v.Op] = true
		for _, x := range v.Op.In {
			back(x)
		}
	}
	for _, r := range p.f.Results {
		if !abi.Gradient.Has(r.Name) {
			back(r.Value)
		}
	}
	for _, v := range p.f.Params {
		p.wide[v] = v.Role == ir.Target || v.Role == ir.Weight
	}
	for _, op := range p.f.Ops {
		if forward[op] && slices.ContainsFunc(op.In, func(v *ir.Value) bool { return p.wide[v] }) {
			for _, v := range op.Out {
				p.wide[v] = true
			}
		}
	}
	for _, v := range p.f.Params {
		p.wide[v] = true
	}
}

// choices keeps f32 the probabilities that top_k chooses by, as a router of experts does: they are computed so, and rounding
// would make equals of them.
func (p *plan) choices() {
	for _, op := range p.f.Ops {
		if op.Def != ops.TopKDef { // of softmax: the shape that routers have
			continue
		}
		v := op.In[0]
		for v.Op != nil && kind(v.Op) == kir.View {
			v = v.Op.In[0]
		}
		if v.Op != nil && v.Op.Def == ops.SoftmaxDef {
			p.wide[v] = true
		}
	}
}

// gradient keeps v f32, the gradient of a parameter, and what it is a view, a part or a sum of.
func (p *plan) gradient(v *ir.Value) {
	if v.Op == nil || p.wide[v] || !single(v) {
		return
	}
	p.wide[v] = true
	if !gathers(v.Op) {
		return
	}
	for _, x := range v.Op.In {
		if !slices.ContainsFunc(p.uses[x], func(op *ir.Op) bool { return !p.wide[op.Out[0]] }) {
			p.gradient(x)
		}
	}
}

// gathers reports whether the result of op is a view, a part, a multiple or a sum of its operands, or several of them in a row.
func gathers(op *ir.Op) bool {
	switch kind(op) {
	case kir.View, kir.Assemble:
		return true
	case kir.Pointwise:
		return op.Def.Rules.Adds || len(op.In) == 1 && op.Linear() != nil
	}
	return false
}

// single reports whether v is of the type that this pass is about.
func single(v *ir.Value) bool { return v != nil && v.Type.DType == dtype.F32 }

// kind is the kind of kernel that computes op; None where its parts do.
func kind(op *ir.Op) kir.Kind {
	if op.Def.Rules.Impl == nil {
		return kir.None
	}
	return op.Def.Rules.Impl(op).Kind
}

// isLow reports whether op is one of those that run in half precision.
func isLow(op *ir.Op) bool { return op.Def.Rules.Precision == "low" && single(op.In[0]) }

// isOwn reports whether op runs in its operands' type: it moves elements, or adds a few.
func isOwn(op *ir.Op) bool { return op.Def.Rules.Precision == "own" }

// bounded reports whether op computes in f32 and its results are no larger than normalised operands: they are stored as these are.
func bounded(op *ir.Op) bool { return op.Def.Rules.Precision == "narrow" }

// sums reports whether operand i of op, which runs in half precision, is f32 all the same.
func sums(op *ir.Op, i int) bool { return slices.Contains(op.Def.Rules.Wide, i) }

// compares reports whether no result of op is a float.
func compares(op *ir.Op) bool {
	return !slices.ContainsFunc(op.Out, func(v *ir.Value) bool { return v.Type.DType.IsFloat() })
}

// settle finds the values that are stored narrow. The set only grows, and few rounds are needed.
func (p *plan) settle() {
	for grown := true; grown; {
		grown = false
		add := func(v *ir.Value) {
			if single(v) && !p.wide[v] && !p.low[v] {
				p.low[v], grown = true, true
			}
		}
		narrow := len(p.soft)
		for _, op := range p.f.Ops {
			p.made(op, add)
			if isLow(op) {
				for i, v := range op.In {
					if !sums(op, i) {
						p.wanted(v, add)
					}
				}
			}
		}
		grown = grown || len(p.soft) > narrow
	}
}

// wanted has v, which an op reads in half precision, stored so. Parameters and what is made of them alone are cast instead.
func (p *plan) wanted(v *ir.Value, add func(*ir.Value)) {
	for single(v) && v.Op != nil && p.data[v] {
		add(v)
		if kind(v.Op) != kir.View {
			return
		}
		v = v.Op.In[0]
	}
}

// made adds those results of op that are stored narrow for what op is.
func (p *plan) made(op *ir.Op, add func(*ir.Value)) {
	switch {
	case isLow(op):
		for i, d := range halfResults(op) {
			if d == dtype.F16 {
				add(op.Out[i])
			}
		}
	case bounded(op):
		for _, v := range op.Out {
			if slices.ContainsFunc(op.In, func(x *ir.Value) bool { return p.narrow(x) && slices.Equal(x.Type.Dims, v.Type.Dims) }) {
				add(v)
			}
		}
	case op.Move() == ir.LooksUp && p.data[op.Out[0]] && p.trained(op.In[0]):
		add(op.Out[0])
	case op.Def.Rules.Precision == "keep" || op.Move() == ir.Casts || !p.follows(op):
	case p.passing(op):
		if v := op.Out[0]; single(v) && !p.wide[v] {
			p.soft[v] = true
		}
	default:
		each(op.Out, add)
	}
}

// halfResults are the types of the results of op, which runs in half precision, when its f32 operands are f16: sums stay f32.
func halfResults(op *ir.Op) []dtype.DType {
	half := *op
	half.In = slices.Clone(op.In)
	for i, v := range half.In {
		if single(v) && !sums(op, i) {
			half.In[i] = &ir.Value{Name: v.Name, Type: v.Type.With(dtype.F16)}
		}
	}
	made, err := op.Def.Rules.Infer(&half)
	if err != nil {
		panic(ir.Errorf(op.Loc, "BUG: %s does not take half precision: %v", op.Def.Name, err))
	}
	var out []dtype.DType
	for _, t := range made {
		out = append(out, t.DType)
	}
	return out
}

func each(vs []*ir.Value, f func(*ir.Value)) {
	for _, v := range vs {
		f(v)
	}
}

// trained reports whether v is a parameter or buffer, or a view of one: a table of embeddings.
func (p *plan) trained(v *ir.Value) bool {
	for v.Op != nil && kind(v.Op) == kir.View {
		v = v.Op.In[0]
	}
	return v.Op == nil && (v.Role == ir.Param || v.Role == ir.Buffer)
}

// follows reports whether the results of op, which has no rule, are narrow: some operand is, and each f32 one is repeated or
// depends on no data.
func (p *plan) follows(op *ir.Op) bool {
	some := false
	for _, v := range op.In {
		switch {
		case !single(v):
		case p.narrow(v):
			some = true
		case p.data[v] && !repeated(v):
			return false
		}
	}
	return some
}

// narrow reports whether v counts as a value of half precision.
func (p *plan) narrow(v *ir.Value) bool { return p.low[v] || p.soft[v] }

// repeated reports whether v has several copies of each of its elements.
func repeated(v *ir.Value) bool {
	n := v.Type.Elems()
	for v.Op != nil && kind(v.Op) == kir.View {
		v = v.Op.In[0]
	}
	return v.Type.Elems() < n
}

// passing reports whether the result of op is on its way to the only op that reads it and will be in one kernel with it: it
// needs no rounding, because it is not stored.
func (p *plan) passing(op *ir.Op) bool {
	v := op.Out[0]
	if len(op.Out) > 1 || p.out[v] || len(p.uses[v]) != 1 || kind(op) != kir.Pointwise {
		return false
	}
	reader := p.uses[v][0]
	k := kind(reader)
	return (k == kir.Pointwise || k == kir.Reduce || bounded(reader)) && !compares(reader) && reader.Def.Rules.AsStored == nil
}
