package layout

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
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
	if p.op.Def == ops.ConcatDef {
		most = n
	}
	switch p.op.Def {
	case ops.PadDef:
		most = max(padTimes*most, padBytes)
	case ops.CastDef:
		most = max(most, scalarBytes)
	}
	return len(p.op.Out) == 1 && p.op.Out[0].Type.Bytes() <= most
}

// linear reports whether op on operands of which those that in calls partial are parts of sums gives parts of
// the sum of its result.
func linear(op *ir.Op, in []mesh.Sharding) bool {
	parts := func(i int) bool { return len(in[i].Partial) > 0 }
	switch op.Def {
	case ops.NegDef, ops.ReshapeDef, ops.TransposeDef, ops.SliceDef, ops.ReduceSumDef:
		return true
	case ops.CastDef:
		return op.In[0].Type.DType.IsFloat() && op.Out[0].Type.DType.IsFloat()
	case ops.PadDef:
		return op.Attrs.(ops.PadAttrs).Value == 0
	case ops.AddDef, ops.SubDef, ops.ConcatDef:
		for i := range op.In {
			if !parts(i) {
				return false
			}
		}
		return true
	case ops.WhereDef:
		return !parts(0) && parts(1) && parts(2)
	case ops.MulDef:
		return parts(0) && constant(op.In[1]) || parts(1) && constant(op.In[0])
	case ops.DivDef:
		return parts(0) && constant(op.In[1])
	}
	return false
}

// constant reports whether v is known when the program is compiled: a constant, through views.
func constant(v *ir.Value) bool {
	for v.Op != nil {
		switch v.Op.Def {
		case ops.ConstDef:
			return true
		case ops.ReshapeDef, ops.ExpandDef, ops.TransposeDef, ops.SliceDef, ops.CastDef:
			v = v.Op.In[0]
		default:
			return false
		}
	}
	return false
}

// Affine reports whether op's result is an affine function of its operands that total tells to be sums over the batch, the
// others being the same whatever part of the batch is summed up: then it is the sum of what op makes of each part, when
// what is added (see Added) is shared out among the parts.
func Affine(op *ir.Op, total func(i int) bool) bool {
	switch op.Def {
	case ops.NegDef, ops.ReshapeDef, ops.TransposeDef, ops.SliceDef, ops.ExpandDef, ops.ReduceSumDef, ops.AddDef, ops.SubDef, ops.ConcatDef:
		return true
	case ops.CastDef:
		return op.In[0].Type.DType.IsFloat() && op.Out[0].Type.DType.IsFloat()
	case ops.AllReduceDef:
		return op.Attrs.(ops.AllReduceAttrs).Op == "sum"
	case ops.WhereDef:
		return !total(0)
	case ops.MulDef:
		return total(0) != total(1)
	case ops.DivDef:
		return !total(1)
	}
	return false
}

// Added reports whether operand i of op, of those that Affine takes, is added to the others or stands in their place.
func Added(op *ir.Op, i int) bool {
	switch op.Def {
	case ops.AddDef, ops.SubDef, ops.ConcatDef:
		return true
	case ops.WhereDef:
		return i > 0
	}
	return false
}
