package group

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Place is where a value lies that has no buffer of its own: in a part of In's. Access runs over the value's dims.
type Place struct {
	In     *ir.Value
	Access kir.Access
}

// Within is the place of a value that is made as a part of another; ok is false where it has memory of its own.
func Within(v *ir.Value) (p Place, ok bool) {
	if v.Within == nil {
		return p, false
	}
	at, ok := PlaceIn(v, v.Within.Op)
	if !ok {
		panic("BUG: " + v.Name + " cannot be made within " + v.Within.Name)
	}
	return Place{v.Within, at}, true
}

// BoxAccess is where operand i of an assembly goes in its result, over the operand's dims.
func BoxAccess(op *ir.Op, i int) kir.Access {
	box := Impl(op).Boxes[i]
	at := kir.Access{Dims: op.In[i].Type.Dims, Strides: ir.Strides(op.Out[0].Type.Dims)}
	for d, s := range at.Strides {
		at.Offset += box.Start[d] * s
		if len(box.Step) > 0 {
			at.Strides[d] = box.Step[d] * s
		}
	}
	return at
}

// under is what v is a view of, whatever view.
func under(v *ir.Value) *ir.Value {
	for Virtual(v) {
		v = v.Op.In[0]
	}
	return v
}

// PlaceIn is where a template's result, of which an operand of assembly op is another shape, goes in op's result; ok is false
// where the template cannot write it there.
func PlaceIn(v *ir.Value, op *ir.Op) (at kir.Access, ok bool) {
	i := slices.IndexFunc(op.In, func(o *ir.Value) bool { return under(o) == v && Alias(o) == v })
	places := Impl(v.Op).Strided[len(v.Op.In)+v.Index]
	if places == nil || i < 0 {
		return at, false
	}
	if at, ok = BoxAccess(op, i).Reshape(v.Type.Dims); !ok {
		return at, false
	}
	for d, p := range places {
		if p < 0 && at.Dims[d] > 1 && at.Strides[d] != 1 {
			return at, false
		}
	}
	return at, true
}
