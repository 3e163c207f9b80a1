package ops

import (
	"fmt"
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// The shape ops.
var (
	ReshapeDef   = ir.NewOp("reshape")
	TransposeDef = ir.NewOp("transpose")
	ExpandDef    = ir.NewOp("expand")
	SliceDef     = ir.NewOp("slice")
	PadDef       = ir.NewOp("pad")
	ConcatDef    = ir.NewOp("concat")
)

// ReshapeAttrs gives the result's dims.
type ReshapeAttrs struct{ Dims []int }

// TransposeAttrs: result dim i is operand dim Perm[i].
type TransposeAttrs struct{ Perm []int }

// ExpandAttrs gives the result's dims; operand dims of size 1 repeat.
type ExpandAttrs struct{ Dims []int }

// SliceAttrs takes Sizes elements from Starts on, every Steps-th (positive; an empty list is all 1), per dim.
type SliceAttrs struct{ Starts, Sizes, Steps []int }

// PadAttrs adds Value: Low before, High after, Interior between elements, per dim; none is negative.
// An empty list is all 0.
type PadAttrs struct {
	Low, High, Interior []int
	Value               float64
}

// ConcatAttrs joins along Dim.
type ConcatAttrs struct{ Dim int }

// Reshape is the same elements in the same order, with other dims. It returns x when the dims agree already.
func Reshape(b *ir.Builder, x *ir.Value, dims []int) *ir.Value {
	if slices.Equal(x.Type.Dims, dims) {
		return x
	}
	return b.Emit(ReshapeDef, ReshapeAttrs{slices.Clone(dims)}, x)
}

// Copy is x, which may lie otherwise on its mesh: a reshape to the dims that it has, which passes keep.
func Copy(b *ir.Builder, x *ir.Value) *ir.Value {
	return b.Emit(ReshapeDef, ReshapeAttrs{slices.Clone(x.Type.Dims)}, x)
}

// Transpose permutes dims: result dim i is x's dim perm[i]. It returns x for the identity.
func Transpose(b *ir.Builder, x *ir.Value, perm []int) *ir.Value {
	if len(perm) == len(x.Type.Dims) && slices.IsSorted(perm) && needDims(perm, len(perm)) == nil {
		return x
	}
	return b.Emit(TransposeDef, TransposeAttrs{slices.Clone(perm)}, x)
}

// Perm is the permutation of dims that op is; nil when it is none.
func Perm(op *ir.Op) []int {
	if op == nil || op.Move() != ir.Permutes {
		return nil
	}
	if a, ok := op.Attrs.(TransposeAttrs); ok {
		return a.Perm
	}
	return nil
}

// Expand repeats x's dims of size 1 to the given dims (as many as x has). It returns x when they agree already.
func Expand(b *ir.Builder, x *ir.Value, dims []int) *ir.Value {
	if slices.Equal(x.Type.Dims, dims) {
		return x
	}
	return b.Emit(ExpandDef, ExpandAttrs{slices.Clone(dims)}, x)
}

// Slice takes sizes[d] elements of dim d from starts[d], every steps[d]-th (nil steps: all 1).
func Slice(b *ir.Builder, x *ir.Value, starts, sizes, steps []int) *ir.Value {
	if !slices.ContainsFunc(steps, func(s int) bool { return s != 1 }) {
		steps = nil
		if slices.Equal(sizes, x.Type.Dims) && slices.Equal(starts, filled(len(starts), 0)) {
			return x
		}
	}
	return b.Emit(SliceDef, SliceAttrs{slices.Clone(starts), slices.Clone(sizes), slices.Clone(steps)}, x)
}

// SliceDim takes size elements of one dim from start; the other dims stay whole.
func SliceDim(b *ir.Builder, x *ir.Value, dim, start, size int) *ir.Value {
	if dim < 0 || dim >= len(x.Type.Dims) {
		panic(ir.Errorf(b.Loc, "cannot slice dim %d of %q %s, which it does not have", dim, x.Name, x.Type))
	}
	return Slice(b, x, with(filled(len(x.Type.Dims), 0), dim, start), with(x.Type.Dims, dim, size), nil)
}

// Pad adds value around and, with interior (may be nil), between the elements of x. Negative low or high crop.
func Pad(b *ir.Builder, x *ir.Value, low, high, interior []int, value float64) *ir.Value {
	x, low, high = crop(b, x, low, high, interior)
	zero := func(v []int) bool { return !slices.ContainsFunc(v, func(n int) bool { return n != 0 }) }
	if zero(interior) {
		interior = nil
		if zero(low) && zero(high) {
			return x
		}
	}
	return b.Emit(PadDef, PadAttrs{slices.Clone(low), slices.Clone(high), slices.Clone(interior), value}, x)
}

// crop slices away the elements of x that negative padding drops, and gives the padding that remains.
func crop(b *ir.Builder, x *ir.Value, low, high, interior []int) (y *ir.Value, lo, hi []int) {
	negative := func(n int) bool { return n < 0 }
	n := len(x.Type.Dims)
	if !slices.ContainsFunc(low, negative) && !slices.ContainsFunc(high, negative) ||
		lengths(n, low, high, interior) != nil || slices.ContainsFunc(interior, negative) {
		return x, low, high
	}
	starts, sizes := make([]int, n), make([]int, n)
	lo, hi = make([]int, n), make([]int, n)
	for d, size := range x.Type.Dims {
		step := at(interior, d, 0) + 1
		total := at(low, d, 0) + max(0, (size-1)*step+1) + at(high, d, 0)
		first, count, start := window(size, step, at(low, d, 0), total)
		starts[d], sizes[d] = first, count
		lo[d], hi[d] = start, total-start-max(0, (count-1)*step+1)
	}
	return Slice(b, x, starts, sizes, nil), lo, hi
}

// window tells which of size elements, placed every step from low on, land in [0, total): the first one,
// how many, and where the first lands. Without any, the place is 0.
func window(size, step, low, total int) (first, count, start int) {
	for first < size && low+first*step < 0 {
		first++
	}
	for first+count < size && low+(first+count)*step < total {
		count++
	}
	if count == 0 {
		return 0, 0, 0
	}
	return first, count, low + first*step
}

// Concat joins xs along dim. It returns the operand when there is only one.
func Concat(b *ir.Builder, dim int, xs ...*ir.Value) *ir.Value {
	if len(xs) == 1 {
		return xs[0]
	}
	return b.Emit(ConcatDef, ConcatAttrs{dim}, xs...)
}

// permute gives dims in the order perm.
func permute(dims, perm []int) []int {
	out := make([]int, len(perm))
	for i, p := range perm {
		out[i] = dims[p]
	}
	return out
}

// at is list[d], or def for an empty list.
func at(list []int, d, def int) int {
	if len(list) == 0 {
		return def
	}
	return list[d]
}

func lengths(n int, lists ...[]int) error {
	for _, l := range lists {
		if len(l) != 0 && len(l) != n {
			return fmt.Errorf("attribute %v does not have an entry for each of %d dims", l, n)
		}
	}
	return nil
}

func inferSlice(op *ir.Op) ([]ir.Type, error) {
	t, a := op.In[0].Type, op.Attrs.(SliceAttrs)
	if len(a.Starts) != len(t.Dims) || len(a.Sizes) != len(t.Dims) {
		return wrong("attributes Starts %v and Sizes %v do not have an entry for each of %d dims", a.Starts, a.Sizes, len(t.Dims))
	}
	if err := lengths(len(t.Dims), a.Steps); err != nil {
		return nil, err
	}
	for d, n := range a.Sizes {
		step := at(a.Steps, d, 1)
		if step < 1 || n < 0 || a.Starts[d] < 0 || n > 0 && a.Starts[d] > t.Dims[d]-1-(n-1)*step || n > t.Dims[d] {
			return wrong("dim %d: %d elements from %d on in steps of %d do not lie within its size, %d", d, n, a.Starts[d], step, t.Dims[d])
		}
	}
	return types(ir.T(t.DType, a.Sizes...))
}

func inferPad(op *ir.Op) ([]ir.Type, error) {
	t, a := op.In[0].Type, op.Attrs.(PadAttrs)
	if err := lengths(len(t.Dims), a.Low, a.High, a.Interior); err != nil {
		return nil, err
	}
	if !t.DType.IsFloat() && a.Value != math.Trunc(a.Value) || t.DType == dtype.Bool && a.Value != 0 && a.Value != 1 {
		return wrong("cannot pad %s by %v", t.DType, a.Value)
	}
	dims := make([]int, len(t.Dims))
	for d, n := range t.Dims {
		gap := at(a.Interior, d, 0)
		dims[d] = n + max(0, n-1)*gap + at(a.Low, d, 0) + at(a.High, d, 0)
		if gap < 0 || at(a.Low, d, 0) < 0 || at(a.High, d, 0) < 0 {
			return wrong("dim %d of size %d cannot be padded by %d, %d and %d between", d, n, at(a.Low, d, 0), at(a.High, d, 0), gap)
		}
	}
	return types(ir.T(t.DType, dims...))
}

func inferConcat(op *ir.Op) ([]ir.Type, error) {
	if len(op.In) == 0 {
		return wrong("has no operands")
	}
	dim, t := op.Attrs.(ConcatAttrs).Dim, op.In[0].Type
	if err := needDim(dim, len(t.Dims)); err != nil {
		return nil, err
	}
	dims := slices.Clone(t.Dims)
	for i, v := range op.In[1:] {
		o := v.Type
		if o.DType != t.DType || len(o.Dims) != len(dims) || !slices.Equal(with(o.Dims, dim, 0), with(dims, dim, 0)) {
			return wrong("operand %d is %s, but operand 0 is %s: only dim %d may differ", i+1, o, t, dim)
		}
		dims[dim] += o.Dims[dim]
	}
	return types(ir.T(t.DType, dims...))
}
