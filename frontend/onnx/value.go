package onnx

import (
	"errors"
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// array is the contents of x when they are known on the host and not too large, else nil.
func (w *walker) array(x *val) *ir.Array {
	if e := x.t.Elems(); x.arr == nil && x.init != nil && e <= maxFold && w.spent.held+e <= maxFoldTotal {
		w.spent.held += e
		a, err := x.init.array()
		if err != nil {
			panic(ir.Errorf(w.b.Loc, "%v", err))
		}
		x.arr = a
	}
	return x.arr
}

// value is x in the program; known contents become a constant there. Dims along which a constant repeats
// itself are stored once and expanded: exporters bake the batch size into masks, and a constant that does not
// depend on the sample must not be split with the batch.
func (w *walker) value(x *val) *ir.Value {
	if x.v != nil {
		return x.v
	}
	x.v = w.spread(x, x.t.Dims)
	return x.v
}

// spread is x repeated to dims under NumPy's rules.
func (w *walker) spread(x *val, dims []int) *ir.Value {
	if x.isSeq || x.none {
		panic(ir.Errorf(w.b.Loc, "an operand is %s, want a tensor", describe(x)))
	}
	if got, ok := broadcast(x.t.Dims, dims); !ok || !slices.Equal(got, dims) {
		panic(ir.Errorf(w.b.Loc, "%s does not broadcast to %v", x.t, dims))
	}
	a := w.array(x)
	if x.v != nil || a == nil {
		return ops.BroadcastTo(w.b, w.stored(x), dims)
	}
	t := w.shrunken(x, a)
	d := make([]int, len(dims))
	for i := range d {
		d[i] = 1
		if k := i - len(dims) + len(t.Type.Dims); k >= 0 {
			d[i] = t.Type.Dims[k]
		}
	}
	c := x.consts[len(d)]
	if c == nil {
		c = w.b.Rename(ops.Const(w.b, &ir.Tensor{Type: ir.Type{DType: t.Type.DType, Dims: d}, Data: t.Data}), w.constName(x))
		if x.consts == nil {
			x.consts = map[int]*ir.Value{}
		}
		x.consts[len(d)] = c
	}
	return ops.Expand(w.b, c, dims)
}

// shrunken is the contents a of x with size 1 along dims that repeat themselves, encoded once.
func (w *walker) shrunken(x *val, a *ir.Array) *ir.Tensor {
	if x.shrunk == nil {
		if w.scans(a) {
			a = shrink(a)
		}
		x.shrunk = a.Tensor()
	}
	return x.shrunk
}

// scans charges a look at all of a; false when the import may not afford it.
func (w *walker) scans(a *ir.Array) bool {
	e := a.Type.Elems()
	if e > maxWork-w.spent.work {
		return false
	}
	w.spent.work += e
	return true
}

func (w *walker) constName(x *val) string {
	if x.init != nil {
		return x.init.name
	}
	return "const"
}

// stored is a constant as the file holds it, too large to look into, or the value that exists already.
func (w *walker) stored(x *val) *ir.Value {
	if x.v == nil {
		t, err := x.init.ir()
		if err != nil {
			panic(ir.Errorf(w.b.Loc, "%v", err))
		}
		x.v = w.b.Rename(ops.Const(w.b, t), x.init.name)
	}
	return x.v
}

// shrink gives an array in which each dim along which a repeats itself has size 1.
func shrink(a *ir.Array) *ir.Array {
	out := &ir.Array{Type: ir.Type{DType: a.Type.DType, Dims: slices.Clone(a.Type.Dims)}, F: a.F, I: a.I}
	for d, size := range a.Type.Dims {
		if size < 2 || out.Type.Elems() == 0 {
			continue
		}
		inner := ir.Product(out.Type.Dims[d+1:])
		if !repeats(out, size, inner) {
			continue
		}
		outer := ir.Product(out.Type.Dims[:d])
		dims := slices.Clone(out.Type.Dims)
		dims[d] = 1
		next := ir.NewArray(ir.Type{DType: a.Type.DType, Dims: dims})
		for o := range outer {
			copyElems(next, o*inner, out, o*size*inner, inner)
		}
		out = next
	}
	return out
}

// repeats reports whether the middle dim of a, seen as [outer, size, inner], repeats one slice (bit for bit).
func repeats(a *ir.Array, size, inner int) bool {
	row := size * inner
	for i := range a.Type.Elems() {
		if i%row < inner {
			continue
		}
		if a.F != nil && math.Float64bits(a.F[i]) != math.Float64bits(a.F[i-inner]) {
			return false
		}
		if a.I != nil && a.I[i] != a.I[i-inner] {
			return false
		}
	}
	return true
}

// constantValue is ConstantOfShape's fill: the value attribute's one element, or f32 zero.
func (n *node) constantValue() *ir.Array {
	a := n.attr("value", onnxpb.AttributeProto_TENSOR)
	if a == nil {
		return ir.NewArray(ir.T(dtype.F32, 1))
	}
	arr := n.tensorAttr(a)
	if arr.Type.Elems() != 1 {
		n.fail("the value to fill with has %d elements", arr.Type.Elems())
	}
	return arr
}

// tensorAttr decodes a tensor attribute. External data in attributes is not allowed by the format.
func (n *node) tensorAttr(a *onnxpb.AttributeProto) *ir.Array {
	if a.T == nil {
		n.fail("attribute %q holds no tensor", a.GetName())
	}
	m := &Model{}
	t, err := m.newTensor(a.T)
	if err == nil && t.typ.Elems() > maxFold {
		err = errors.New("the tensor is too large for an attribute; store it as an initializer")
	}
	if err != nil {
		n.fail("attribute %q: %v", a.GetName(), err)
	}
	arr, err := t.array()
	if err != nil {
		n.fail("attribute %q: %v", a.GetName(), err)
	}
	return arr
}
