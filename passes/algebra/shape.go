package algebra

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

func reshape(b *ir.Builder, op *ir.Op) *ir.Value {
	x, dims := op.In[0], op.Out[0].Type.Dims
	if slices.Equal(x.Type.Dims, dims) {
		return x
	}
	if r := Made(x, ops.ReshapeDef); r != nil {
		return ops.Reshape(b, r.In[0], dims)
	}
	if t := Made(x, ops.TransposeDef); t != nil && Made(t.In[0], ops.ReshapeDef) != nil {
		return regroupBelow(b, t, dims)
	}
	return nil
}

// regroupBelow swaps a reshape to dims with the transpose t it reads, when t leaves leading dims in place and
// the reshape regroups only those. The reshape then meets the one that t reads: exporters merge batch and heads,
// transpose, and split them again.
func regroupBelow(b *ir.Builder, t *ir.Op, dims []int) *ir.Value {
	perm, from := t.Attrs.(ops.TransposeAttrs).Perm, t.In[0].Type.Dims
	p := 0
	for p < len(perm) && perm[p] == p {
		p++
	}
	moved := t.Out[0].Type.Dims[p:]
	q := len(dims) - len(moved)
	if p == 0 || q < 0 || !slices.Equal(dims[q:], moved) {
		return nil
	}
	next := make([]int, len(dims))
	for i := range next {
		if next[i] = i; i >= q {
			next[i] = perm[i-q+p] - p + q
		}
	}
	return ops.Transpose(b, ops.Reshape(b, t.In[0], slices.Concat(dims[:q], from[p:])), next)
}

func transpose(b *ir.Builder, op *ir.Op) *ir.Value {
	x, perm := op.In[0], op.Attrs.(ops.TransposeAttrs).Perm
	if slices.IsSorted(perm) {
		return x
	}
	if t := Made(x, ops.TransposeDef); t != nil {
		inner := t.Attrs.(ops.TransposeAttrs).Perm
		both := make([]int, len(perm))
		for i, p := range perm {
			both[i] = inner[p]
		}
		return ops.Transpose(b, t.In[0], both)
	}
	last := -1
	for _, p := range perm {
		if x.Type.Dims[p] != 1 {
			if p < last {
				return nil
			}
			last = p
		}
	}
	return ops.Reshape(b, x, op.Out[0].Type.Dims) // only dims of size 1 moved
}

func expand(b *ir.Builder, op *ir.Op) *ir.Value {
	x, dims := op.In[0], op.Out[0].Type.Dims
	if slices.Equal(x.Type.Dims, dims) {
		return x
	}
	if e := Made(x, ops.ExpandDef); e != nil {
		return ops.Expand(b, e.In[0], dims)
	}
	return nil
}

func slice(b *ir.Builder, op *ir.Op) *ir.Value {
	x, a := op.In[0], op.Attrs.(ops.SliceAttrs)
	if slices.Equal(x.Type.Dims, op.Out[0].Type.Dims) {
		return x // as many elements in each dim as there are: all of them, by step 1
	}
	if s := Made(x, ops.SliceDef); s != nil {
		in := s.Attrs.(ops.SliceAttrs)
		starts, steps := make([]int, len(a.Starts)), make([]int, len(a.Starts))
		for d := range starts {
			starts[d] = in.Starts[d] + a.Starts[d]*stepOf(in.Steps, d)
			steps[d] = stepOf(in.Steps, d) * stepOf(a.Steps, d)
		}
		return ops.Slice(b, s.In[0], starts, a.Sizes, steps)
	}
	if k := Made(x, ops.ConcatDef); k != nil {
		return sliceOfConcat(b, k, a)
	}
	return nil
}

func stepOf(steps []int, d int) int {
	if len(steps) == 0 {
		return 1
	}
	return steps[d]
}

// sliceOfConcat reads the one part that holds the whole slice, when there is one.
func sliceOfConcat(b *ir.Builder, k *ir.Op, a ops.SliceAttrs) *ir.Value {
	d := k.Attrs.(ops.ConcatAttrs).Dim
	if a.Sizes[d] == 0 {
		return nil
	}
	first := a.Starts[d]
	last := first + (a.Sizes[d]-1)*stepOf(a.Steps, d)
	at := 0
	for _, part := range k.In {
		n := part.Type.Dims[d]
		if first >= at && last < at+n {
			starts := slices.Clone(a.Starts)
			starts[d] -= at
			return ops.Slice(b, part, starts, a.Sizes, a.Steps)
		}
		at += n
	}
	return nil
}

func pad(_ *ir.Builder, op *ir.Op) *ir.Value {
	a := op.Attrs.(ops.PadAttrs)
	for _, l := range [][]int{a.Low, a.High, a.Interior} {
		if slices.ContainsFunc(l, func(n int) bool { return n != 0 }) {
			return nil
		}
	}
	return op.In[0]
}

// concat drops empty parts, takes in the parts of a part, and is x when the parts are the consecutive slices of x.
func concat(b *ir.Builder, op *ir.Op) *ir.Value {
	d := op.Attrs.(ops.ConcatAttrs).Dim
	var parts []*ir.Value
	changed := len(op.In) == 1
	for _, v := range op.In {
		k := Made(v, ops.ConcatDef)
		switch {
		case v.Type.Dims[d] == 0:
			changed = true
		case k != nil && k.Attrs == op.Attrs:
			parts, changed = append(parts, k.In...), true
		default:
			parts = append(parts, v)
		}
	}
	if changed && len(parts) > 0 {
		return ops.Concat(b, d, parts...)
	}
	var whole *ir.Value
	at := 0
	for _, v := range op.In {
		s := Made(v, ops.SliceDef)
		if s == nil || whole != nil && s.In[0] != whole {
			return nil
		}
		whole = s.In[0]
		a := s.Attrs.(ops.SliceAttrs)
		for k, n := range a.Sizes {
			want, start := whole.Type.Dims[k], 0
			if k == d {
				want, start = n, at
			}
			if n != want || a.Starts[k] != start || stepOf(a.Steps, k) != 1 {
				return nil
			}
		}
		at += a.Sizes[d]
	}
	if whole != nil && at == whole.Type.Dims[d] {
		return whole
	}
	return nil
}

// padded is what v pads by zeros at both ends of one dim, that dim, and where it starts; nil for other values. Where v is wider
// than what was padded, x is not: the sum of gradients of half precision is one of f32.
func padded(v *ir.Value) (x *ir.Value, dim, start int) {
	if k := Made(v, ops.CastDef); k != nil && lossless(k.In[0].Type.DType, v.Type.DType) {
		v = k.In[0]
	}
	p := Made(v, ops.PadDef)
	if p == nil {
		return nil, 0, 0
	}
	a, dim := p.Attrs.(ops.PadAttrs), -1
	for d, n := range p.In[0].Type.Dims {
		if n == v.Type.Dims[d] {
			continue
		}
		if dim >= 0 || a.Low[d] < 0 || a.High[d] < 0 {
			return nil, 0, 0
		}
		dim = d
	}
	if dim < 0 || a.Value != 0 || slices.ContainsFunc(a.Interior, func(n int) bool { return n != 0 }) {
		return nil, 0, 0
	}
	return p.In[0], dim, a.Low[dim]
}

// addPadded joins the sum of two parts of one dim that lie side by side: the gradient of slices of one value.
func addPadded(b *ir.Builder, op *ir.Op) *ir.Value {
	x, d, at := padded(op.In[0])
	y, e, bt := padded(op.In[1])
	if x == nil || y == nil || d != e {
		return nil
	}
	if bt < at {
		x, at, y, bt = y, bt, x, at
	}
	if at+x.Type.Dims[d] != bt {
		return nil
	}
	to := op.Out[0].Type.DType
	joined := ops.Concat(b, d, as(b, x, to), as(b, y, to))
	low, high := make([]int, len(x.Type.Dims)), make([]int, len(x.Type.Dims))
	low[d], high[d] = at, op.Out[0].Type.Dims[d]-at-joined.Type.Dims[d]
	return ops.Pad(b, joined, low, high, nil, 0)
}

// as is v in the type to.
func as(b *ir.Builder, v *ir.Value, to dtype.DType) *ir.Value {
	if v.Type.DType == to {
		return v
	}
	return ops.Cast(b, v, to)
}

// narrowed is the rounding of joined values to the type that each had before it was widened: they are joined as they were.
func narrowed(b *ir.Builder, op *ir.Op) *ir.Value {
	k := Made(op.In[0], ops.ConcatDef)
	if k == nil {
		return nil
	}
	var parts []*ir.Value
	for _, v := range k.In {
		c := Made(v, ops.CastDef)
		if c == nil || !lossless(c.In[0].Type.DType, v.Type.DType) || c.In[0].Type.DType != op.Out[0].Type.DType {
			return nil
		}
		parts = append(parts, c.In[0])
	}
	return ops.Concat(b, k.Attrs.(ops.ConcatAttrs).Dim, parts...)
}

// gather by consecutive known indices is a slice.
func gather(b *ir.Builder, op *ir.Op) *ir.Value {
	c := Made(op.In[1], ops.ConstDef)
	if c == nil || op.Attrs.(ops.GatherAttrs).NoGrad != 0 {
		return nil
	}
	t, d := c.Attrs.(ops.ConstAttrs).Value, op.Attrs.(ops.GatherAttrs).Dim
	n := t.Type.Elems()
	if n == 0 || len(t.Data) != t.Type.Bytes() {
		return nil
	}
	first := t.Int(0)
	for i := range n {
		if t.Int(i) != first+int64(i) {
			return nil
		}
	}
	if first < 0 || first+int64(n) > int64(op.In[0].Type.Dims[d]) {
		return nil
	}
	return ops.Reshape(b, ops.SliceDim(b, op.In[0], d, int(first), n), op.Out[0].Type.Dims)
}
