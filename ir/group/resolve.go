// Package group says how ops share one kernel: through which views an operand is read, and whether an op
// fits the iteration space of a group. The fuse pass builds groups with it, and codegen/kernel replays
// the same rules to print them, so the two cannot disagree.
package group

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Impl is how op is computed; kind None when its rules have no Impl.
func Impl(op *ir.Op) kir.Impl {
	if i, ok := op.Lowered.(*kir.Impl); ok {
		return *i
	}
	i := &kir.Impl{}
	if op.Def.Rules.Impl != nil {
		*i = op.Def.Rules.Impl(op)
	}
	op.Lowered = i
	return *i
}

// Virtual reports whether v takes no storage of its own: a view that fuse did not give a kernel.
func Virtual(v *ir.Value) bool {
	return v.Op != nil && v.Op.Group == 0 && Impl(v.Op).Kind == kir.View
}

// Scalar returns the literal that every element of v is, when v is (a view of) a uniform constant that
// fuse did not give a kernel: such values are written into expressions.
func Scalar(v *ir.Value) (*kir.Expr, bool) {
	for Virtual(v) {
		v = v.Op.In[0]
	}
	if v.Op == nil || len(v.Op.In) > 0 || v.Op.Group != 0 {
		return nil, false
	}
	impl := Impl(v.Op)
	if impl.Kind == kir.Pointwise && impl.Expr[0].Op == "const" {
		return impl.Expr[0], true
	}
	return nil, false
}

// Resolve follows views from v to the value that holds its elements. The access runs over v's dims.
// When the composition is not affine it returns the view at which it breaks, with ok false.
func Resolve(v *ir.Value) (src *ir.Value, acc kir.Access, ok bool) {
	if !Virtual(v) {
		return v, kir.Dense(v.Type.Dims), true
	}
	src, acc, ok = Resolve(v.Op.In[0])
	if !ok {
		return src, acc, false
	}
	next, ok := acc.View(*Impl(v.Op).View, v.Type.Dims)
	if !ok {
		return v.Op.In[0], acc, false
	}
	return src, next, true
}

// Alias follows views that change nothing but the shape to the value whose buffer v shares; v itself
// when it has its own.
func Alias(v *ir.Value) *ir.Value {
	src, acc, ok := Resolve(v)
	if ok && acc.IsDense() && src.Type.Elems() == v.Type.Elems() {
		return src
	}
	return v
}

// Strided reports whether template op may read its operand number i through the views on it, and the access.
func Strided(op *ir.Op, impl kir.Impl, i int) (src *ir.Value, acc kir.Access, ok bool) {
	places := impl.Strided[i]
	if places == nil {
		return nil, acc, false
	}
	src, acc, ok = Resolve(op.In[i])
	if !ok {
		return nil, acc, false
	}
	for d, p := range places {
		if p < 0 && acc.Dims[d] > 1 && acc.Strides[d] != 1 {
			return nil, acc, false
		}
	}
	return src, acc, true
}
