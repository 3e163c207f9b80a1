package walk

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Array is the contents of x when they are known on the host and not too large, else nil.
func (w *Walker) Array(x *Val) *ir.Array {
	if e := x.Type.Elems(); x.Array == nil && x.Init != nil && e <= model.MaxFold && w.spent.Held+e <= model.MaxFoldTotal {
		w.spent.Held += e
		a, err := x.Init.Array()
		if err != nil {
			panic(ir.Errorf(w.B.Loc, "%v", err))
		}
		x.Array = a
	}
	return x.Array
}

// Value is x in the program; known contents become a constant there. Dims along which a constant repeats
// itself are stored once and expanded: exporters bake the batch size into masks, and a constant that does not
// depend on the sample must not be split with the batch.
func (w *Walker) Value(x *Val) *ir.Value {
	if x.Value != nil {
		return x.Value
	}
	x.Value = w.Spread(x, x.Type.Dims)
	return x.Value
}

// Spread is x repeated to dims under NumPy's rules.
func (w *Walker) Spread(x *Val, dims []int) *ir.Value {
	if x.IsSeq || x.None {
		panic(ir.Errorf(w.B.Loc, "an operand is %s, but must be a tensor", Describe(x)))
	}
	if got, ok := fold.Broadcast(x.Type.Dims, dims); !ok || !slices.Equal(got, dims) {
		panic(ir.Errorf(w.B.Loc, "%s does not broadcast to %v", x.Type, dims))
	}
	a := w.Array(x)
	if x.Value != nil || a == nil {
		return ops.BroadcastTo(w.B, w.stored(x), dims)
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
		c = w.B.Rename(ops.Const(w.B, &ir.Tensor{Type: ir.Type{DType: t.Type.DType, Dims: d}, Data: t.Data}), w.ConstName(x))
		if x.consts == nil {
			x.consts = map[int]*ir.Value{}
		}
		x.consts[len(d)] = c
	}
	return ops.Expand(w.B, c, dims)
}

// shrunken is the contents a of x with size 1 along dims that repeat themselves, encoded once.
func (w *Walker) shrunken(x *Val, a *ir.Array) *ir.Tensor {
	if x.shrunk == nil {
		if w.Scans(a) {
			a = Shrink(a)
		}
		x.shrunk = a.Tensor()
	}
	return x.shrunk
}

// Scans charges a look at all of a; false when the import may not afford it.
func (w *Walker) Scans(a *ir.Array) bool {
	e := a.Type.Elems()
	if e > model.MaxWork-w.spent.Work {
		return false
	}
	w.spent.Work += e
	return true
}

// ConstName names constant x in the program: as the file does, where it is an initializer.
func (w *Walker) ConstName(x *Val) string {
	if x.Init != nil {
		return x.Init.Name
	}
	return "const"
}

// stored is a constant as the file holds it, too large to look into, or the value that exists already.
func (w *Walker) stored(x *Val) *ir.Value {
	if x.Value == nil {
		t, err := x.Init.IR()
		if err != nil {
			panic(ir.Errorf(w.B.Loc, "%v", err))
		}
		x.Value = w.B.Rename(ops.Const(w.B, t), x.Init.Name)
	}
	return x.Value
}

// Shrink gives an array in which each dim along which a repeats itself has size 1.
func Shrink(a *ir.Array) *ir.Array {
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
			fold.Copy(next, o*inner, out, o*size*inner, inner)
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

// contents declares an input of a sequence or optional type.
func (w *Walker) contents(name string, c *model.Contents) *Val {
	var all []*Val
	for i, t := range c.Elements {
		if c.Known {
			all = append(all, &Val{Type: t.Type, Array: t.Array()})
			continue
		}
		all = append(all, Results(w.B.Param(c.Port(name, i), t.Type, ir.Input))...)
	}
	switch {
	case c.Absent:
		return &Val{None: true}
	case c.Sequence:
		return &Val{IsSeq: true, Seq: all}
	case len(all) != 1:
		panic(ir.Errorf(ir.Loc{}, "input %q is an optional tensor, but %d tensors are given", name, len(all)))
	}
	return all[0]
}

// HintValue says with which flags x would be known when compiling: those that bind inputs of few numbers that it is computed from. It
// is "" when x depends on other inputs or on parameters, too.
func (w *Walker) HintValue(all ...*Val) string {
	found, seen := []string{}, map[*ir.Value]bool{}
	var stack []*ir.Value
	for _, x := range all {
		if x != nil && x.Value != nil && x.Array == nil {
			stack = append(stack, x.Value)
		}
	}
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[v] {
			continue
		}
		seen[v] = true
		switch {
		case v.Op != nil:
			stack = append(stack, v.Op.In...)
		case v.Role == ir.Input && len(v.Type.Dims) <= 1:
			found = append(found, fmt.Sprintf("--value %s=%s", v.Name, map[bool]string{true: "N", false: "N,M"}[v.Type.Elems() == 1]))
		default:
			return ""
		}
	}
	if len(found) == 0 {
		return ""
	}
	slices.Sort(found)
	return "; " + strings.Join(found, " ") + " makes it known"
}

// Results wraps program values as results.
func Results(vs ...*ir.Value) []*Val {
	out := make([]*Val, len(vs))
	for i, v := range vs {
		if v != nil {
			out[i] = &Val{Type: v.Type, Value: v}
		}
	}
	return out
}

// Known is the one result of a node that is known on the host.
func Known(a *ir.Array) []*Val { return []*Val{{Type: a.Type, Array: a}} }
