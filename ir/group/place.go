package group

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Place is where a value lies that has no buffer of its own: in a part of In's. Access runs over the value's dims.
type Place struct {
	In     *ir.Value
	Access kir.Access
}

// Places finds the results of templates that can be written straight into the assembly (a concat) that is their
// only reader: the template takes strides for the result, the strides of the box fit, and the boxes leave no gap to
// fill. memplan gives such a value no memory, and codegen/rank no copy.
func Places(f *ir.Func) map[*ir.Value]Place {
	readers := map[*ir.Value]int{}
	for _, op := range f.Ops {
		if op.Group == 0 {
			continue
		}
		for _, v := range op.In {
			if v != nil {
				src, _, _ := Resolve(v)
				readers[src]++
			}
		}
	}
	keep := map[*ir.Value]bool{}
	for _, r := range f.Results {
		src, _, _ := Resolve(r.Value)
		readers[src]++
		keep[src] = keep[src] || r.Updates != nil // it may be made in place of what is still read
	}
	out := map[*ir.Value]Place{}
	for _, op := range f.Ops {
		if op.Group == 0 || Impl(op).Kind != kir.Assemble || keep[op.Out[0]] || !covered(op) {
			continue
		}
		for i, v := range op.In {
			if src, at, ok := placed(op, i, v); ok && readers[src] == 1 {
				out[src] = Place{op.Out[0], at}
			}
		}
	}
	return out
}

// covered reports whether the boxes of an assembly leave no gap.
func covered(op *ir.Op) bool {
	n := 0
	for _, v := range op.In {
		n += v.Type.Elems()
	}
	return n == op.Out[0].Type.Elems()
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

// placed is the template result that operand i of assembly op is another shape of, and its place.
func placed(op *ir.Op, i int, v *ir.Value) (src *ir.Value, at kir.Access, ok bool) {
	src = Alias(v)
	if src.Op == nil || src.Op.Group == 0 || Impl(src.Op).Kind != kir.Template {
		return nil, at, false
	}
	places := Impl(src.Op).Loose[len(src.Op.In)+src.Index]
	if places == nil {
		return nil, at, false
	}
	if at, ok = BoxAccess(op, i).Reshape(src.Type.Dims); !ok {
		return nil, at, false
	}
	for d, p := range places {
		if p < 0 && at.Dims[d] > 1 && at.Strides[d] != 1 {
			return nil, at, false
		}
	}
	return src, at, true
}
