package fuse

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// lowering is how op is written as others that have kernels; nil when it has one itself, or when there is no way. Kernels
// see neither tensors without elements, whose index spaces have no refinement, nor types that a target's template lacks:
// those of half precision are computed in f32 then.
func lowering(c *pass.Context, op *ir.Op) func(b *ir.Builder, op *ir.Op) []*ir.Value {
	r := &op.Def.Rules
	switch {
	case r.Collective != "" || r.Effect || ops.Literal(op) != nil:
		return nil
	case !slices.ContainsFunc(op.Out, hasElements):
		return nothing
	case slices.ContainsFunc(op.In, empty):
		if how := onNothing(op); how != nil {
			return how
		}
	}
	switch impl := group.Impl(op); {
	case impl.Kind == kir.Template && !c.Opt.Native(op, impl): // as if it had none
		if how := narrower(c, op, impl); how != nil {
			return how
		}
	case impl.Kind != kir.None:
		return nil
	}
	switch {
	case slices.ContainsFunc(op.In, half) && slices.ContainsFunc(op.Out, half):
		return widened
	}
	return r.Decompose
}

// narrower is how a product of half precision with a result in f32 is computed by a target that has only the one with a
// result of its operands' type; nil where it has neither.
func narrower(c *pass.Context, op *ir.Op, impl kir.Impl) func(b *ir.Builder, op *ir.Op) []*ir.Value {
	if op.Def.Rules.Out == nil {
		return nil
	}
	attrs := op.Def.Rules.Out(op, dtype.Invalid)
	d, out := op.In[0].Type.DType, op.Out[0].Type.DType
	one := &ir.Op{Def: op.Def, In: op.In, Attrs: attrs, Out: []*ir.Value{{Type: op.Out[0].Type.With(d)}}}
	if d == out || !c.Opt.Native(one, impl) {
		return nil
	}
	return func(b *ir.Builder, op *ir.Op) []*ir.Value {
		return []*ir.Value{ops.Cast(b, b.Emit(op.Def, attrs, op.In...), out)}
	}
}

func hasElements(v *ir.Value) bool { return v.Type.Elems() > 0 }

func empty(v *ir.Value) bool { return v != nil && v.Type.Elems() == 0 }

func half(v *ir.Value) bool {
	return v != nil && (v.Type.DType == dtype.F16 || v.Type.DType == dtype.BF16)
}

// nothing makes results without elements.
func nothing(b *ir.Builder, op *ir.Op) []*ir.Value {
	var out []*ir.Value
	for _, v := range op.Out {
		out = append(out, ops.Const(b, &ir.Tensor{Type: v.Type, Data: []byte{}}))
	}
	return out
}

// onNothing is how an op is computed of which some operand has no elements; nil when its kernel sees to that.
func onNothing(op *ir.Op) func(b *ir.Builder, op *ir.Op) []*ir.Value {
	impl := group.Impl(op)
	_, product := ops.AsMatMul(op)
	switch {
	case impl.Kind == kir.Reduce:
		return func(b *ir.Builder, op *ir.Op) []*ir.Value {
			start := ops.OfNothing(op.Out[0].Type.DType, impl.ReduceOp)
			return []*ir.Value{ops.BroadcastTo(b, ops.Const(b, start.Tensor()), op.Out[0].Type.Dims)}
		}
	case op.Move() == ir.Joins && op.Def.Rules.Operands < 0:
		return func(b *ir.Builder, op *ir.Op) []*ir.Value {
			parts := slices.DeleteFunc(slices.Clone(op.In), empty)
			if len(parts) == 1 {
				return parts
			}
			return b.EmitN(op.Def, op.Attrs, parts...)
		}
	case impl.Kind == kir.Assemble && len(op.In) == 1:
		return func(b *ir.Builder, op *ir.Op) []*ir.Value { return []*ir.Value{ops.Full(b, op.Out[0].Type, impl.Fill)} }
	case product: // the one whose kernels do not see to that
		return func(b *ir.Builder, op *ir.Op) []*ir.Value {
			if bias, _ := op.Bias(); bias != nil {
				return []*ir.Value{ops.BroadcastTo(b, bias, op.Out[0].Type.Dims)}
			}
			return []*ir.Value{ops.Zeros(b, op.Out[0].Type)}
		}
	}
	return nil
}

// widened computes op in f32.
func widened(b *ir.Builder, op *ir.Op) []*ir.Value {
	in := slices.Clone(op.In)
	for i, v := range in {
		if half(v) {
			in[i] = ops.Cast(b, v, dtype.F32)
		}
	}
	out := slices.Clone(b.EmitN(op.Def, op.Attrs, in...))
	for i, v := range out {
		out[i] = ops.Cast(b, v, op.Out[i].Type.DType)
	}
	return out
}
