package layers

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/arrays"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Windows over the spatial dims of [N,C,…].
var poolRows = []walk.Row{
	{Op: "MaxPool", Since: 1, Min: 1, Max: 1, Rule: importMaxPool},
	{Op: "AveragePool", Since: 1, Min: 1, Max: 1, Rule: importAvgPool},
	{Op: "LpPool", Since: 1, Min: 1, Max: 1, Rule: importLpPool},
	{Op: "GlobalAveragePool", Since: 1, Min: 1, Max: 1, Rule: globalPool(func(w *walk.Walker, _ *model.Node, x *ir.Value) *ir.Value {
		return ops.ReduceMean(w.B, x, 2)
	})},
	{Op: "GlobalMaxPool", Since: 1, Min: 1, Max: 1, Rule: globalPool(func(w *walk.Walker, _ *model.Node, x *ir.Value) *ir.Value {
		y, _ := ops.MaxPool(w.B, x, ops.MaxPoolAttrs{Kernel: x.Type.Dims[2:]}) // the first of equal maxima gets the gradient
		return y
	})},
	{Op: "GlobalLpPool", Since: 1, Min: 1, Max: 1, Rule: globalPool(func(w *walk.Walker, n *model.Node, x *ir.Value) *ir.Value {
		p := power(n)
		return arrays.Root(w.B, ops.ReduceSum(w.B, powered(w.B, x, p), 2), p)
	})},
	{Op: "MaxUnpool", Since: 9, Min: 2, Max: 3, Rule: importMaxUnpool},
	{Op: "Col2Im", Since: 18, Min: 3, Max: 3, Rule: importCol2Im},
}

func poolWindow(n *model.Node, in []*walk.Val) window {
	d := in[0].Type.Dims
	if len(d) < 3 {
		n.Fail("operand 0 is %s, but must be [N,C,…]", in[0].Type)
	}
	if n.Ints("kernel_shape") == nil {
		n.Fail("attribute \"kernel_shape\" is missing")
	}
	return windowOf(n, d[2:], nil).samePads(n, d[2:])
}

// importMaxPool gives, when they are wanted, the places of the maxima in the whole tensor, flattened; storage_order 1
// numbers the elements of a plane with the first spatial dim fastest.
func importMaxPool(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	g := poolWindow(n, in)
	y, at := ops.MaxPool(w.B, w.Value(in[0]), ops.MaxPoolAttrs{Kernel: g.kernel, Strides: g.strides, Pads: g.pads,
		Dilations: g.dilations, CeilMode: n.Int("ceil_mode", 0) != 0})
	if !n.Wants(1) {
		return walk.Results(y)
	}
	at = ops.Cast(w.B, at, dtype.I64)
	d := in[0].Type.Dims
	if n.Int("storage_order", 0) != 0 {
		at = columnMajor(w, at, d[2:])
	}
	return walk.Results(y, ops.Add(w.B, at, planeStart(w, at.Type.Dims, ir.Product(d[2:]))))
}

// planeStart is, for every element of [N,C,…] dims, size times the number of its plane.
func planeStart(w *walk.Walker, dims []int, size int) *ir.Value {
	plane := ops.Iota(w.B, dtype.I64, []int{dims[0] * dims[1]}, 0)
	shape := slices.Concat(dims[:2], slices.Repeat([]int{1}, len(dims)-2))
	return ops.Expand(w.B, ops.Reshape(w.B, ops.MulScalar(w.B, plane, float64(size)), shape), dims)
}

// columnMajor turns row-major positions in a plane into those with the first dim fastest.
func columnMajor(w *walk.Walker, at *ir.Value, plane []int) *ir.Value {
	sum, scale := ops.Zeros(w.B, at.Type), 1
	for i, s := range ir.Strides(plane) {
		index := ops.Mod(w.B, ops.Div(w.B, at, ops.ScalarLike(w.B, at, float64(max(s, 1)))), ops.ScalarLike(w.B, at, float64(plane[i])))
		sum = ops.Add(w.B, sum, ops.MulScalar(w.B, index, float64(scale)))
		scale *= plane[i]
	}
	return sum
}

func (g window) average(n *model.Node) ops.AvgPoolAttrs {
	return ops.AvgPoolAttrs{Kernel: g.kernel, Strides: g.strides, Pads: g.pads, Dilations: g.dilations,
		CeilMode: n.Int("ceil_mode", 0) != 0}
}

func importAvgPool(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	a := poolWindow(n, in).average(n)
	a.IncludePad = n.Int("count_include_pad", 0) != 0
	return walk.Results(ops.AvgPool(w.B, w.Value(in[0]), a))
}

// importLpPool is the root of a sum of powers.
func importLpPool(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	a, p := poolWindow(n, in).average(n), power(n)
	a.Sum = true
	return walk.Results(arrays.Root(w.B, ops.AvgPool(w.B, powered(w.B, w.Value(in[0]), p), a), p))
}

// power is the attribute p of a norm; opset 1 has it as a float.
func power(n *model.Node) float64 {
	p := 2.0
	if n.Opset < 2 {
		p = n.Float("p", 2)
	} else {
		p = float64(n.Int("p", 2))
	}
	if !(p > 0) {
		n.Fail("p is %g, but must be a positive number", p)
	}
	return p
}

// powered is |x| to the power p.
func powered(b *ir.Builder, x *ir.Value, p float64) *ir.Value {
	switch p {
	case 1:
		return ops.Abs(b, x)
	case 2:
		return ops.Square(b, x)
	}
	a := ops.Abs(b, x)
	return ops.Pow(b, a, ops.ScalarLike(b, a, p))
}

// globalPool runs f on [N,C,elements of the plane], which leaves one of each.
func globalPool(f func(w *walk.Walker, n *model.Node, x *ir.Value) *ir.Value) walk.Rule {
	return func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		d := in[0].Type.Dims
		if len(d) < 3 {
			n.Fail("operand 0 is %s, but must be [N,C,…]", in[0].Type)
		}
		x := ops.Reshape(w.B, w.Value(in[0]), []int{d[0], d[1], ir.Product(d[2:])})
		return walk.Results(ops.Reshape(w.B, f(w, n, x), slices.Concat(d[:2], slices.Repeat([]int{1}, len(d)-2))))
	}
}

// importMaxUnpool writes each element to the place in its plane that the indices give. A larger output_shape is filled
// with zeros at the far ends, as the ONNX reference does.
func importMaxUnpool(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	g, d := poolWindow(n, in), in[0].Type.Dims
	if !slices.Equal(in[1].Type.Dims, d) || !in[1].Type.DType.IsInt() {
		n.Fail("indices are %s, but must be integers with the dims of the values, %s", in[1].Type, in[0].Type)
	}
	k := len(g.kernel)
	shape := slices.Clone(d[:2])
	for i := range k {
		shape = append(shape, (d[2+i]-1)*g.strides[i]-g.pads[i]-g.pads[k+i]+g.kernel[i])
	}
	size, err := model.Elements(shape[2:])
	if err != nil {
		n.Fail("the result would have dims %v: %v", shape, err)
	}
	flat := []int{d[0], d[1], ir.Product(d[2:])}
	at := ops.Reshape(w.B, ops.Cast(w.B, w.Value(in[1]), dtype.I64), flat)
	at = ops.Sub(w.B, at, planeStart(w, flat, size))
	at = ops.Where(w.B, ops.Lt(w.B, at, ops.Zeros(w.B, at.Type)), ops.ScalarLike(w.B, at, float64(size)), at) // of another plane
	zeros := ops.Zeros(w.B, ir.T(in[0].Type.DType, d[0], d[1], size))
	y := ops.ScatterElements(w.B, zeros, at, ops.Reshape(w.B, w.Value(in[0]), flat), 2, "")
	y = ops.Reshape(w.B, y, shape)
	if want := arrays.MustKnowInts(w, n, in, 2, ""); want != nil {
		low, high := make([]int, len(shape)), make([]int, len(shape))
		for i := range shape {
			if len(want) != len(shape) || want[i] < shape[i] || want[i] > model.MaxDim {
				n.Fail("output_shape is %v, but must be at least the dims of the result, %v", want, shape)
			}
			high[i] = want[i] - shape[i]
		}
		y = ops.Pad(w.B, y, low, high, nil, 0)
	}
	return walk.Results(y)
}

// importCol2Im adds up columns: the transposed convolution, channel by channel, with a kernel for each tap that is one
// there and zero elsewhere.
func importCol2Im(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	image, block, d := fold.Ints(n, arrays.MustKnow(w, n, in, 1)), fold.Ints(n, arrays.MustKnow(w, n, in, 2)), in[0].Type.Dims
	k, err := model.Elements(block)
	if err != nil || len(image) != len(block) || len(d) != 3 || k < 1 || k > model.MaxFold/k || d[1]%k != 0 {
		n.Fail("columns %s with blocks %v do not make an image of %v", in[0].Type, block, image)
	}
	g := windowOf(n, image, block)
	steps := []int{d[0], d[1]}
	for i, s := range image {
		room := s + g.pads[i] + g.pads[len(image)+i] - g.dilations[i]*(block[i]-1) - 1
		if s < 1 || s > model.MaxDim || room < 0 {
			n.Fail("blocks %v do not fit into an image of %v", block, image)
		}
		steps = append(steps, room/g.strides[i]+1)
	}
	if all, err := model.Elements(steps[2:]); err != nil || all != d[2] {
		n.Fail("there are %d columns, but an image of %v has %v", d[2], image, steps[2:])
	}
	channels := d[1] / k
	eye := n.Array(ir.Type{DType: in[0].Type.DType, Dims: slices.Concat([]int{1, k, 1}, block)})
	for i := range k {
		if eye.F == nil {
			n.Fail("columns with elements of type %s are not supported", in[0].Type.DType)
		}
		eye.F[i*k+i] = 1
	}
	taps := w.Spread(&walk.Val{Type: eye.Type, Array: eye}, slices.Concat([]int{channels, k, 1}, block))
	taps = ops.Reshape(w.B, taps, slices.Concat([]int{d[1], 1}, block))
	return walk.Results(ops.ConvInputGrad(w.B, ops.Reshape(w.B, w.Value(in[0]), steps), taps, ops.ConvInputGradAttrs{Strides: g.strides,
		Pads: g.pads, Dilations: g.dilations, Groups: channels, InDims: image}))
}
