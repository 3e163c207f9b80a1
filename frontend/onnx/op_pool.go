package onnx

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Windows over the spatial dims of [N,C,…].
var poolRows = []row{
	{op: "MaxPool", since: 1, min: 1, max: 1, rule: importMaxPool},
	{op: "AveragePool", since: 1, min: 1, max: 1, rule: importAvgPool},
	{op: "LpPool", since: 1, min: 1, max: 1, rule: importLpPool},
	{op: "GlobalAveragePool", since: 1, min: 1, max: 1, rule: globalPool(func(w *walker, _ *node, x *ir.Value) *ir.Value {
		return ops.ReduceMean(w.b, x, 2)
	})},
	{op: "GlobalMaxPool", since: 1, min: 1, max: 1, rule: globalPool(func(w *walker, _ *node, x *ir.Value) *ir.Value {
		y, _ := ops.MaxPool(w.b, x, ops.MaxPoolAttrs{Kernel: x.Type.Dims[2:]}) // the first of equal maxima gets the gradient
		return y
	})},
	{op: "GlobalLpPool", since: 1, min: 1, max: 1, rule: globalPool(func(w *walker, n *node, x *ir.Value) *ir.Value {
		p := n.power()
		return root(w.b, ops.ReduceSum(w.b, w.power(x, p), 2), p)
	})},
	{op: "MaxUnpool", since: 9, min: 2, max: 3, rule: importMaxUnpool},
	{op: "Col2Im", since: 18, min: 3, max: 3, rule: importCol2Im},
}

func poolWindow(n *node, in []*val) window {
	d := in[0].t.Dims
	if len(d) < 3 {
		n.fail("operand 0 is %s: want [N,C,…]", in[0].t)
	}
	if n.ints("kernel_shape") == nil {
		n.fail("kernel_shape is missing")
	}
	return windowOf(n, d[2:], nil).samePads(n, d[2:])
}

// importMaxPool gives, when they are wanted, the places of the maxima in the whole tensor, flattened; storage_order 1
// numbers the elements of a plane with the first spatial dim fastest.
func importMaxPool(w *walker, n *node, in []*val) []*val {
	g := poolWindow(n, in)
	y, at := ops.MaxPool(w.b, w.value(in[0]), ops.MaxPoolAttrs{Kernel: g.kernel, Strides: g.strides, Pads: g.pads,
		Dilations: g.dilations, CeilMode: n.int("ceil_mode", 0) != 0})
	if !n.wants(1) {
		return outs(y)
	}
	at = ops.Cast(w.b, at, dtype.I64)
	d := in[0].t.Dims
	if n.int("storage_order", 0) != 0 {
		at = w.columnMajor(at, d[2:])
	}
	return outs(y, ops.Add(w.b, at, w.planeStart(at.Type.Dims, ir.Product(d[2:]))))
}

// planeStart is, for every element of [N,C,…] dims, size times the number of its plane.
func (w *walker) planeStart(dims []int, size int) *ir.Value {
	plane := ops.Iota(w.b, dtype.I64, []int{dims[0] * dims[1]}, 0)
	shape := slices.Concat(dims[:2], slices.Repeat([]int{1}, len(dims)-2))
	return ops.Expand(w.b, ops.Reshape(w.b, ops.MulScalar(w.b, plane, float64(size)), shape), dims)
}

// columnMajor turns row-major positions in a plane into those with the first dim fastest.
func (w *walker) columnMajor(at *ir.Value, plane []int) *ir.Value {
	sum, scale := ops.Zeros(w.b, at.Type), 1
	for i, s := range ir.Strides(plane) {
		index := ops.Mod(w.b, ops.Div(w.b, at, ops.ScalarLike(w.b, at, float64(max(s, 1)))), ops.ScalarLike(w.b, at, float64(plane[i])))
		sum = ops.Add(w.b, sum, ops.MulScalar(w.b, index, float64(scale)))
		scale *= plane[i]
	}
	return sum
}

func (g window) average(n *node) ops.AvgPoolAttrs {
	return ops.AvgPoolAttrs{Kernel: g.kernel, Strides: g.strides, Pads: g.pads, Dilations: g.dilations,
		CeilMode: n.int("ceil_mode", 0) != 0}
}

func importAvgPool(w *walker, n *node, in []*val) []*val {
	a := poolWindow(n, in).average(n)
	a.IncludePad = n.int("count_include_pad", 0) != 0
	return outs(ops.AvgPool(w.b, w.value(in[0]), a))
}

// importLpPool is the root of a sum of powers.
func importLpPool(w *walker, n *node, in []*val) []*val {
	a, p := poolWindow(n, in).average(n), n.power()
	a.Sum = true
	return outs(root(w.b, ops.AvgPool(w.b, w.power(w.value(in[0]), p), a), p))
}

// power is the attribute p of a norm; opset 1 has it as a float.
func (n *node) power() float64 {
	p := 2.0
	if n.opset < 2 {
		p = n.float("p", 2)
	} else {
		p = float64(n.int("p", 2))
	}
	if !(p > 0) {
		n.fail("p is %g, want a positive number", p)
	}
	return p
}

// power is |x| to the power p.
func (w *walker) power(x *ir.Value, p float64) *ir.Value {
	switch p {
	case 1:
		return ops.Abs(w.b, x)
	case 2:
		return ops.Square(w.b, x)
	}
	a := ops.Abs(w.b, x)
	return ops.Pow(w.b, a, ops.ScalarLike(w.b, a, p))
}

// root is the p-th root of sums of powers. Its gradient at zero is zero, as that of a norm in PyTorch.
func root(b *ir.Builder, s *ir.Value, p float64) *ir.Value {
	if p == 1 {
		return s
	}
	none, one := ops.Eq(b, s, ops.Zeros(b, s.Type)), ops.ScalarLike(b, s, 1)
	safe := ops.Where(b, none, one, s)
	r := ops.Sqrt(b, safe)
	if p != 2 {
		r = ops.Pow(b, safe, ops.ScalarLike(b, s, 1/p))
	}
	return ops.Where(b, none, ops.Zeros(b, s.Type), r)
}

// globalPool runs f on [N,C,elements of the plane], which leaves one of each.
func globalPool(f func(w *walker, n *node, x *ir.Value) *ir.Value) rule {
	return func(w *walker, n *node, in []*val) []*val {
		d := in[0].t.Dims
		if len(d) < 3 {
			n.fail("operand 0 is %s: want [N,C,…]", in[0].t)
		}
		x := ops.Reshape(w.b, w.value(in[0]), []int{d[0], d[1], ir.Product(d[2:])})
		return outs(ops.Reshape(w.b, f(w, n, x), slices.Concat(d[:2], slices.Repeat([]int{1}, len(d)-2))))
	}
}

// importMaxUnpool writes each element to the place in its plane that the indices give. A larger output_shape is filled
// with zeros at the far ends, as the ONNX reference does.
func importMaxUnpool(w *walker, n *node, in []*val) []*val {
	g, d := poolWindow(n, in), in[0].t.Dims
	if !slices.Equal(in[1].t.Dims, d) || !in[1].t.DType.IsInt() {
		n.fail("indices are %s for values %s", in[1].t, in[0].t)
	}
	k := len(g.kernel)
	shape := slices.Clone(d[:2])
	for i := range k {
		shape = append(shape, (d[2+i]-1)*g.strides[i]-g.pads[i]-g.pads[k+i]+g.kernel[i])
	}
	size, err := product(shape[2:])
	if err != nil {
		n.fail("result dims %v: %v", shape, err)
	}
	flat := []int{d[0], d[1], ir.Product(d[2:])}
	at := ops.Reshape(w.b, ops.Cast(w.b, w.value(in[1]), dtype.I64), flat)
	at = ops.Sub(w.b, at, w.planeStart(flat, size))
	at = ops.Where(w.b, ops.Lt(w.b, at, ops.Zeros(w.b, at.Type)), ops.ScalarLike(w.b, at, float64(size)), at) // of another plane
	zeros := ops.Zeros(w.b, ir.T(in[0].t.DType, d[0], d[1], size))
	y := ops.ScatterElements(w.b, zeros, at, ops.Reshape(w.b, w.value(in[0]), flat), 2, "")
	y = ops.Reshape(w.b, y, shape)
	if want := w.knownInts(n, in, 2, ""); want != nil {
		low, high := make([]int, len(shape)), make([]int, len(shape))
		for i := range shape {
			if len(want) != len(shape) || want[i] < shape[i] || want[i] > maxDim {
				n.fail("output_shape %v for a result of dims %v", want, shape)
			}
			high[i] = want[i] - shape[i]
		}
		y = ops.Pad(w.b, y, low, high, nil, 0)
	}
	return outs(y)
}

// importCol2Im adds up columns: the transposed convolution, channel by channel, with a kernel for each tap that is one
// there and zero elsewhere.
func importCol2Im(w *walker, n *node, in []*val) []*val {
	image, block, d := toInts(n, w.known(n, in, 1)), toInts(n, w.known(n, in, 2)), in[0].t.Dims
	k, err := product(block)
	if err != nil || len(image) != len(block) || len(d) != 3 || k < 1 || k > maxFold/k || d[1]%k != 0 {
		n.fail("columns %s of blocks %v do not make an image of %v", in[0].t, block, image)
	}
	g := windowOf(n, image, block)
	steps := []int{d[0], d[1]}
	for i, s := range image {
		room := s + g.pads[i] + g.pads[len(image)+i] - g.dilations[i]*(block[i]-1) - 1
		if s < 1 || s > maxDim || room < 0 {
			n.fail("blocks %v do not fit an image of %v", block, image)
		}
		steps = append(steps, room/g.strides[i]+1)
	}
	if all, err := product(steps[2:]); err != nil || all != d[2] {
		n.fail("%d columns, an image of %v has %v", d[2], image, steps[2:])
	}
	channels := d[1] / k
	eye := n.array(ir.Type{DType: in[0].t.DType, Dims: slices.Concat([]int{1, k, 1}, block)})
	for i := range k {
		if eye.F == nil {
			n.fail("columns of %s are not supported", in[0].t.DType)
		}
		eye.F[i*k+i] = 1
	}
	taps := w.spread(&val{t: eye.Type, arr: eye}, slices.Concat([]int{channels, k, 1}, block))
	taps = ops.Reshape(w.b, taps, slices.Concat([]int{d[1], 1}, block))
	return outs(ops.ConvInputGrad(w.b, ops.Reshape(w.b, w.value(in[0]), steps), taps, ops.ConvInputGradAttrs{Strides: g.strides,
		Pads: g.pads, Dilations: g.dilations, Groups: channels, InDims: image}))
}
