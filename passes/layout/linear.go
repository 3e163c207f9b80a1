package layout

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// partial lists the axes over which the operands may stay partial sums because the op is linear in them. It
// never lets a sum grow: an op with a result larger than its operands gets them reduced. Only a pad may make it
// somewhat larger, for it is the gradient of a slice, which others of the same tensor (the gates of an LSTM, the
// steps of a sequence) are soon added to: one sum of them all is smaller than theirs together, and one message.
func (p *planner) partial(in []mesh.Sharding) []string {
	var kept []string
	first := true
	for i, v := range p.op.In {
		if v == nil || len(in[i].Partial) == 0 {
			continue
		}
		if first {
			kept, first = slices.Clone(in[i].Partial), false
			continue
		}
		kept = slices.DeleteFunc(kept, func(a string) bool { return !slices.Contains(in[i].Partial, a) })
	}
	kept = slices.DeleteFunc(kept, func(a string) bool { return p.used[a] })
	if len(kept) == 0 || !linear(p.op, in) || !p.shrinks() {
		return nil
	}
	return kept
}

// A pad may make a partial sum padTimes as large, or as large as padBytes: what costs no more than a message does.
const (
	padTimes = 4
	padBytes = 64 << 10
)

// scalarBytes is what a cast may widen a partial sum to: the squares of gradients are added up in f64.
const scalarBytes = 16

// shrinks reports whether the result is not larger than what it is made of.
func (p *planner) shrinks() bool {
	n, most := 0, 0
	for _, v := range p.op.In {
		n += v.Type.Bytes()
		most = max(most, v.Type.Bytes())
	}
	switch p.op.Move() {
	case ir.Joins:
		if most = n; len(p.op.In) == 1 {
			most = max(padTimes*most, padBytes)
		}
	case ir.Casts:
		most = max(most, scalarBytes)
	}
	return len(p.op.Out) == 1 && p.op.Out[0].Type.Bytes() <= most
}

// spreads reports whether op works element by element, moves elements, or adds them up, in one go or over ranks. Anything heavier
// takes its operands whole: what it is given is read more than once.
func spreads(op *ir.Op) bool {
	r := &op.Def.Rules
	if r.Impl == nil {
		return r.Collective != ""
	}
	k := r.Impl(op).Kind
	return k == kir.Pointwise || k == kir.View || k == kir.Reduce || k == kir.Assemble
}

// linear reports whether op on operands of which those that in calls partial are parts of sums gives parts of
// the sum of its result.
func linear(op *ir.Op, in []mesh.Sharding) bool {
	return slices.ContainsFunc(op.Linear(), func(set []int) bool {
		for i, v := range op.In {
			parts := len(in[i].Partial) > 0
			if slices.Contains(set, i) != parts || !parts && v != nil && v.Type.DType.IsFloat() && !constant(v) {
				return false
			}
		}
		return true
	}) && spreads(op)
}

// scales reports whether linear asks of operand i of op whether it is constant, as of factors.
func scales(op *ir.Op, i int) bool {
	return op.In[i].Type.DType.IsFloat() && slices.ContainsFunc(op.Linear(), func(set []int) bool { return !slices.Contains(set, i) }) && spreads(op)
}

// Product reports whether op adds up products of two operands, in either of which it is linear.
func Product(op *ir.Op) bool { return len(op.Linear()) > 1 && !spreads(op) }

// ofTerms reports whether op adds all its operands, or subtracts some.
func ofTerms(op *ir.Op) bool {
	sets := op.Linear()
	return len(op.In) > 1 && len(sets) == 1 && len(sets[0]) == len(op.In) && op.Move() == ir.Computes
}

// constant reports whether v is known when the program is compiled: a constant, through views.
func constant(v *ir.Value) bool {
	for v.Moved().OfOne() {
		v = v.Op.In[0]
	}
	return v.Op != nil && ops.Literal(v.Op) != nil
}

// Affine reports whether op's result is an affine function of its operands that total tells to be sums over the batch, the
// others being the same whatever part of the batch is summed up: then it is the sum of what op makes of each part, when
// what is added (see Added) is shared out among the parts.
func Affine(op *ir.Op, total func(i int) bool) bool {
	return slices.ContainsFunc(op.Linear(), func(set []int) bool {
		for i := range op.In {
			if total(i) && !slices.Contains(set, i) {
				return false
			}
		}
		return true
	}) && spreads(op)
}

// Added reports whether operand i of op, of those that Affine takes, is added to the others or stands in their place.
func Added(op *ir.Op, i int) bool {
	return slices.ContainsFunc(op.Linear(), func(set []int) bool { return len(set) > 1 && slices.Contains(set, i) })
}
