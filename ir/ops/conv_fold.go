package ops

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
)

// A convolution without a template of its own has its first spatial dim folded: the taps along it become channels, its
// output positions samples. What remains has one spatial dim fewer, and with none left it is a matrix product. So 3-D
// ones become 2-D ones, which have templates, and those of other element types matrix products of that type.
//
//	y[n,o,p,q...] = Σ_k conv(x[n,c,p*stride-pad+k*dilation,...], w[o,c,k,...])

// convParts is the Decompose of the three convolutions.
func convParts(b *ir.Builder, op *ir.Op) []*ir.Value {
	a, d, err := convOf(op)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	if half(op.In[0].Type.DType) {
		return inF32(b, op)
	}
	f := convFold{b, a, d}
	switch op.Def {
	case ConvInputGradDef:
		return []*ir.Value{f.uncolumns(f.inputGrad(f.batched(op.In[0]), f.weight(op.In[1])))}
	case ConvWeightGradDef:
		return []*ir.Value{Reshape(b, f.weightGrad(f.columns(op.In[0]), f.batched(op.In[1])), d.w)}
	}
	y := f.unbatched(f.forward(f.columns(op.In[0]), f.weight(op.In[1])))
	if bias := operand(op, 2); bias != nil {
		shape := filled(len(d.y), 1)
		shape[1] = d.y[1]
		y = Add(b, y, Expand(b, Reshape(b, bias, shape), d.y))
	}
	return []*ir.Value{y}
}

// convFold folds the first spatial dim of a convolution of dims d.
type convFold struct {
	b *ir.Builder
	a ConvAttrs
	d convDims
}

// taps and steps are the sizes of the folded dim in w and y.
func (f convFold) taps() int  { return f.d.w[2] }
func (f convFold) steps() int { return f.d.y[2] }

// rest is the geometry of the dims that stay.
func (f convFold) rest() ConvAttrs {
	n := len(f.a.Strides)
	return ConvAttrs{f.a.Strides[1:], slices.Concat(f.a.Pads[1:n], f.a.Pads[n+1:]), f.a.Dilations[1:], f.a.Groups}
}

// exchanged swaps dims 1 and 2 of v.
func exchanged(b *ir.Builder, v *ir.Value) *ir.Value {
	perm := AllDims(v)
	perm[1], perm[2] = 2, 1
	return Transpose(b, v, perm)
}

// columns brings x [N,C,S,rest...] to [N*steps,C*taps,rest...]: what each output position along the dim reads.
func (f convFold) columns(x *ir.Value) *ir.Value {
	b, n := f.b, len(f.a.Strides)
	low, high := make([]int, len(f.d.x)), make([]int, len(f.d.x))
	low[2], high[2] = f.a.Pads[0], f.a.Pads[n]
	x = Pad(b, x, low, high, nil, 0)
	var parts []*ir.Value
	for k := range f.taps() {
		starts, sizes, steps := make([]int, len(f.d.x)), with(x.Type.Dims, 2, f.steps()), filled(len(f.d.x), 1)
		starts[2], steps[2] = k*f.a.Dilations[0], f.a.Strides[0]
		part := exchanged(b, Slice(b, x, starts, sizes, steps)) // [N,steps,C,rest...]
		parts = append(parts, Reshape(b, part, slices.Insert(slices.Clone(part.Type.Dims), 3, 1)))
	}
	all := Concat(b, 3, parts...)
	return Reshape(b, all, slices.Concat([]int{f.d.x[0] * f.steps(), f.d.x[1] * f.taps()}, f.d.x[3:]))
}

// uncolumns is the adjoint of columns.
func (f convFold) uncolumns(g *ir.Value) *ir.Value {
	b := f.b
	g = Reshape(b, g, slices.Concat([]int{f.d.x[0], f.steps(), f.d.x[1], f.taps()}, f.d.x[3:]))
	var sum *ir.Value
	for k := range f.taps() {
		part := SliceDim(b, g, 3, k, 1)
		part = exchanged(b, Reshape(b, part, slices.Delete(slices.Clone(part.Type.Dims), 3, 4))) // [N,C,steps,rest...]
		low, high, gap := make([]int, len(f.d.x)), make([]int, len(f.d.x)), make([]int, len(f.d.x))
		low[2], gap[2] = k*f.a.Dilations[0]-f.a.Pads[0], f.a.Strides[0]-1
		high[2] = f.d.x[2] - (low[2] + (f.steps()-1)*f.a.Strides[0] + 1)
		part = Pad(b, part, low, high, gap, 0)
		if sum == nil {
			sum = part
		} else {
			sum = Add(b, sum, part)
		}
	}
	return sum
}

// batched brings y [N,O,steps,rest...] to [N*steps,O,rest...]; unbatched goes back.
func (f convFold) batched(y *ir.Value) *ir.Value {
	return Reshape(f.b, exchanged(f.b, y), slices.Concat([]int{f.d.y[0] * f.steps(), f.d.y[1]}, f.d.y[3:]))
}

func (f convFold) unbatched(y *ir.Value) *ir.Value {
	return exchanged(f.b, Reshape(f.b, y, slices.Concat([]int{f.d.y[0], f.steps(), f.d.y[1]}, f.d.y[3:])))
}

// weight brings w [O,C/g,taps,rest...] to [O,C/g*taps,rest...].
func (f convFold) weight(w *ir.Value) *ir.Value {
	return Reshape(f.b, w, slices.Concat([]int{f.d.w[0], f.d.w[1] * f.taps()}, f.d.w[3:]))
}

// flat reports whether no spatial dim is left.
func (f convFold) flat() bool { return len(f.d.x) == 3 }

// grouped brings [R,g*C] to [g,R,C], and rows of [O,C] to [g,O/g,C]; with one group they are matrices as they are.
func (f convFold) grouped(v *ir.Value) *ir.Value {
	if f.a.Groups == 1 {
		return v
	}
	r, c := v.Type.Dims[0], v.Type.Dims[1]/f.a.Groups
	return Transpose(f.b, Reshape(f.b, v, []int{r, f.a.Groups, c}), []int{1, 0, 2})
}

func (f convFold) groupedRows(w *ir.Value) *ir.Value {
	if f.a.Groups == 1 {
		return w
	}
	return Reshape(f.b, w, []int{f.a.Groups, w.Type.Dims[0] / f.a.Groups, w.Type.Dims[1]})
}

// ungrouped is the inverse of grouped.
func (f convFold) ungrouped(v *ir.Value) *ir.Value {
	if f.a.Groups == 1 {
		return v
	}
	d := v.Type.Dims
	return Reshape(f.b, Transpose(f.b, v, []int{1, 0, 2}), []int{d[1], d[0] * d[2]})
}

func (f convFold) forward(x, w *ir.Value) *ir.Value {
	if f.flat() {
		return f.ungrouped(MatMulT(f.b, f.grouped(x), f.groupedRows(w), false, true))
	}
	return Conv(f.b, x, w, f.rest())
}

func (f convFold) inputGrad(y, w *ir.Value) *ir.Value {
	if f.flat() {
		return f.ungrouped(MatMul(f.b, f.grouped(y), f.groupedRows(w)))
	}
	return ConvInputGrad(f.b, y, w, f.rest().InputGrad(f.d.x[3:]))
}

func (f convFold) weightGrad(x, y *ir.Value) *ir.Value {
	if f.flat() {
		return MatMulT(f.b, f.grouped(y), f.grouped(x), true, false)
	}
	return ConvWeightGrad(f.b, x, y, f.rest().WeightGrad(f.d.w[3:]))
}
