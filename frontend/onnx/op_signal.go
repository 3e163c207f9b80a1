package onnx

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var signalRows = []row{
	{op: "DFT", since: 17, min: 1, max: 2, rule: importDFT},
	{op: "DFT", since: 20, min: 1, max: 3, rule: importDFT},
	{op: "STFT", since: 17, min: 2, max: 4, rule: importSTFT},
	{op: "HannWindow", since: 17, min: 1, max: 1, rule: importWindow(0.5, 0.5, 0)},
	{op: "HammingWindow", since: 17, min: 1, max: 1, rule: importWindow(25.0/46, 1-25.0/46, 0)},
	{op: "BlackmanWindow", since: 17, min: 1, max: 1, rule: importWindow(0.42, 0.5, 0.08)},
	{op: "MelWeightMatrix", since: 17, min: 5, max: 5, rule: importMelWeights},
}

// importWindow is a sum of cosines over one period, c0 - c1·cos + c2·cos of twice the angle, of a known size.
func importWindow(c0, c1, c2 float64) rule {
	return func(w *walker, n *node, in []*val) []*val {
		size := scalarInt(n, w.known(n, in, 0))
		if size < 0 {
			n.fail("a window of %d", size)
		}
		period := size
		if n.int("periodic", 1) == 0 {
			period--
		}
		out := n.array(ir.T(n.outputType(), size))
		for i := range size {
			at := 2 * math.Pi * float64(i) / float64(max(period, 1))
			v := c0 - c1*math.Cos(at) + c2*math.Cos(2*at)
			if out.F != nil {
				out.F[i] = v
			} else {
				out.I[i] = int64(v)
			}
		}
		return known(settle(out))
	}
}

// outputType is the attribute output_datatype, f32 when it is absent.
func (n *node) outputType() dtype.DType {
	d, err := convertType(int32(n.int("output_datatype", 1)))
	if err != nil || d == dtype.Bool {
		n.fail("output_datatype %d", n.int("output_datatype", 1))
	}
	return d
}

// importMelWeights makes the triangular filters [dft_length/2+1, bins], evenly spaced on the mel scale
// 2595·log10(1+f/700), as the operator's definition does it: edges are rounded down to whole bins of the spectrum.
func importMelWeights(w *walker, n *node, in []*val) []*val {
	scalar := func(i int) float64 {
		a := w.known(n, in, i)
		if a.Type.Elems() != 1 {
			n.fail("operand %d is %s, want one number", i, a.Type)
		}
		if a.F != nil {
			return a.F[0]
		}
		return float64(a.I[0])
	}
	bins, length, rate, low, high := scalar(0), scalar(1), scalar(2), scalar(3), scalar(4)
	if !(bins >= 1 && bins <= maxFold && length >= 0 && length <= maxFold && rate > 0 && low >= 0 && high >= low && high <= rate) {
		n.fail("%g bins of a transform of length %g at rate %g from %g to %g Hz", bins, length, rate, low, high)
	}
	rows := int(length)/2 + 1
	out := n.array(ir.T(n.outputType(), rows, int(bins)))
	mel := func(f float64) float64 { return 2595 * math.Log10(1+f/700) }
	step := (mel(high) - mel(low)) / (bins + 2)
	edge := func(i int) int {
		f := 700 * (math.Pow(10, (float64(i)*step+mel(low))/2595) - 1)
		return int(math.Floor((length + 1) * f / rate))
	}
	set := func(row, bin int, v float64) {
		switch {
		case row >= rows:
			n.fail("frequency %g is beyond the transform of length %g", high, length)
		case out.F != nil:
			out.F[row*int(bins)+bin] = v
		default:
			out.I[row*int(bins)+bin] = int64(v)
		}
	}
	for i := range int(bins) {
		lo, mid, hi := edge(i), edge(i+1), edge(i+2)
		if lo == mid {
			set(mid, i, 1)
		}
		for j := lo; j <= mid && lo < mid; j++ {
			set(j, i, float64(j-lo)/float64(mid-lo))
		}
		for j := mid; j < hi; j++ {
			set(j, i, float64(hi-j)/float64(hi-mid))
		}
	}
	return known(settle(out))
}

// complexRows is a signal as vectors of a transform: real and imaginary parts [R,n], im nil when there is none.
type complexRows struct{ re, im *ir.Value }

// each applies a linear map to both parts.
func (z complexRows) each(f func(*ir.Value) *ir.Value) complexRows {
	z.re = f(z.re)
	if z.im != nil {
		z.im = f(z.im)
	}
	return z
}

// importDFT transforms along axis; the last dim holds the real or the real and imaginary part.
func importDFT(w *walker, n *node, in []*val) []*val {
	b, d := w.b, in[0].t.Dims
	last := len(d) - 1
	if last < 1 || d[last] < 1 || d[last] > 2 || !in[0].t.DType.IsFloat() {
		n.fail("operand 0 is %s: want floats […,1] or […,2]", in[0].t)
	}
	axis := n.int("axis", 1)
	if n.opset >= 20 {
		axis = -2
		if a := w.known(n, in, 2); a != nil {
			axis = scalarInt(n, a)
		}
	}
	if axis = n.dim(axis, len(d)); axis == last {
		n.fail("axis %d is the one of real and imaginary parts", axis)
	}
	inverse, oneSided := n.int("inverse", 0) != 0, n.int("onesided", 0) != 0
	length := d[axis]
	if inverse && oneSided {
		length = 2 * (d[axis] - 1)
	}
	if a := w.known(n, in, 1); a != nil {
		length = scalarInt(n, a)
	}
	if length < 1 || length > maxFold {
		n.fail("a transform of length %d", length)
	}
	x := w.value(in[0])
	half := length
	if inverse && oneSided {
		half = length/2 + 1
	}
	high := make([]int, len(d))
	high[axis] = half - d[axis] // cut or padded with zeros to the length
	x = ops.Pad(b, x, make([]int, len(d)), high, nil, 0)
	lead := slices.Delete(ops.AllDims(x), axis, axis+1)
	perm := append(lead[:len(lead)-1:len(lead)-1], axis) // […, axis] of one part
	part := func(k int) *ir.Value {
		if k >= d[last] {
			return nil
		}
		v := ops.Reshape(b, ops.SliceDim(b, x, last, k, 1), x.Type.Dims[:last])
		v = ops.Transpose(b, v, perm)
		return ops.Reshape(b, v, []int{v.Type.Elems() / max(half, 1), half})
	}
	y := complexRows{part(0), part(1)}
	if inverse && oneSided {
		y = w.realInverse(n, y, length)
	} else {
		y = w.fourier(n, y, length, inverse)
		if oneSided {
			y = y.each(func(v *ir.Value) *ir.Value { return ops.SliceDim(b, v, 1, 0, length/2+1) })
		}
	}
	if inverse {
		y = y.each(func(v *ir.Value) *ir.Value { return ops.MulScalar(b, v, 1/float64(length)) })
	}
	return outs(joinParts(b, y, x.Type.Dims, perm, last))
}

// joinParts undoes perm and stacks the parts along the last dim.
func joinParts(b *ir.Builder, y complexRows, d, perm []int, last int) *ir.Value {
	size := y.re.Type.Dims[1]
	moved, back := make([]int, last), make([]int, last)
	for i, p := range perm {
		moved[i], back[p] = d[p], i
	}
	moved[last-1] = size
	var parts []*ir.Value
	for _, v := range []*ir.Value{y.re, y.im} {
		if v != nil {
			v = ops.Transpose(b, ops.Reshape(b, v, moved), back)
			parts = append(parts, ops.Reshape(b, v, append(slices.Clone(v.Type.Dims), 1)))
		}
	}
	return ops.Concat(b, last, parts...)
}

// densePoints is the length up to which a transform is one product with the matrix of its cosines and sines; longer
// ones are split into two of smaller lengths where the length has factors.
const densePoints = 256

// fourier transforms vectors of length size, without the division of the inverse. The imaginary part of the result
// is never nil.
func (w *walker) fourier(n *node, x complexRows, size int, inverse bool) complexRows {
	b, rows := w.b, x.re.Type.Dims[0]
	sign := -1.0
	if inverse {
		sign = 1
	}
	p := 1
	for k := 2; k*k <= size && size > densePoints; k++ {
		if size%k == 0 {
			p = k
		}
	}
	if p == 1 {
		return w.multiply(x, w.roots(n, size, size, size, sign, x.re.Type.DType))
	}
	// Index i = q·i1 + i2, result k = k1 + p·k2 (Cooley and Tukey, 1965): p-point transforms over i1, a turn by
	// i2·k1, then q-point transforms over i2.
	q := size / p
	y := x.each(func(v *ir.Value) *ir.Value {
		v = ops.Transpose(b, ops.Reshape(b, v, []int{rows, p, q}), []int{0, 2, 1})
		return ops.Reshape(b, v, []int{rows * q, p})
	})
	y = w.fourier(n, y, p, inverse) // [rows*q, p]
	turn := w.roots(n, q, p, size, sign, x.re.Type.DType)
	y = complexRows{ops.Reshape(b, y.re, []int{rows, q, p}), ops.Reshape(b, y.im, []int{rows, q, p})}
	wide := turn.each(func(v *ir.Value) *ir.Value { return ops.BroadcastTo(b, v, []int{rows, q, p}) })
	y = complexRows{ops.Sub(b, ops.Mul(b, y.re, wide.re), ops.Mul(b, y.im, wide.im)),
		ops.Add(b, ops.Mul(b, y.re, wide.im), ops.Mul(b, y.im, wide.re))}
	y = y.each(func(v *ir.Value) *ir.Value {
		return ops.Reshape(b, ops.Transpose(b, v, []int{0, 2, 1}), []int{rows * p, q})
	})
	y = w.fourier(n, y, q, inverse) // [rows*p, q]
	return y.each(func(v *ir.Value) *ir.Value {
		v = ops.Transpose(b, ops.Reshape(b, v, []int{rows, p, q}), []int{0, 2, 1})
		return ops.Reshape(b, v, []int{rows, size})
	})
}

// roots are the constants exp(sign·2πi·j·k/size) for j < rows and k < columns.
func (w *walker) roots(n *node, rows, columns, size int, sign float64, d dtype.DType) complexRows {
	re, im := n.array(ir.T(d, rows, columns)), n.array(ir.T(d, rows, columns))
	for j := range rows {
		for k := range columns {
			at := 2 * math.Pi * float64(j*k%size) / float64(size)
			re.F[j*columns+k], im.F[j*columns+k] = math.Cos(at), sign*math.Sin(at)
		}
	}
	return complexRows{ops.Const(w.b, re.Tensor()), ops.Const(w.b, im.Tensor())}
}

// multiply is the product of complex rows [R,n] and a complex matrix [n,m].
func (w *walker) multiply(x, m complexRows) complexRows {
	re, im := ops.MatMul(w.b, x.re, m.re), ops.MatMul(w.b, x.re, m.im)
	if x.im != nil {
		re = ops.Sub(w.b, re, ops.MatMul(w.b, x.im, m.im))
		im = ops.Add(w.b, im, ops.MatMul(w.b, x.im, m.re))
	}
	return complexRows{re, im}
}

// realInverse is the real signal of which x is the first half of the spectrum, the other half being its conjugate,
// without the division.
func (w *walker) realInverse(n *node, x complexRows, length int) complexRows {
	b := w.b
	index, sign := n.array(ir.T(i64, length)), n.array(ir.T(x.re.Type.DType, length))
	for k := range length {
		index.I[k], sign.F[k] = int64(k), 1
		if k > length/2 {
			index.I[k], sign.F[k] = int64(length-k), -1
		}
		if k == 0 || 2*k == length {
			sign.F[k] = 0 // these are real; what an imaginary part adds is ignored, as in PyTorch and NumPy
		}
	}
	at := ops.Const(b, index.Tensor())
	full := x.each(func(v *ir.Value) *ir.Value { return ops.Gather(b, v, at, 1) })
	if full.im != nil {
		full.im = ops.Mul(b, full.im, w.spread(known(sign)[0], full.im.Type.Dims))
	}
	return complexRows{re: w.fourier(n, full, length, true).re}
}

// importSTFT cuts the signal into frames, weighs them by the window and transforms each.
func importSTFT(w *walker, n *node, in []*val) []*val {
	b, d := w.b, in[0].t.Dims
	if len(d) == 2 {
		d = append(slices.Clone(d), 1)
	}
	if len(d) != 3 || d[2] < 1 || d[2] > 2 || !in[0].t.DType.IsFloat() {
		n.fail("operand 0 is %s: want floats [N,length,1] or [N,length,2]", in[0].t)
	}
	step, size := scalarInt(n, w.known(n, in, 1)), d[1]
	window := len(in) > 2 && in[2] != nil
	if window {
		if len(in[2].t.Dims) != 1 {
			n.fail("the window is %s, want one dimension", in[2].t)
		}
		size = in[2].t.Dims[0]
	}
	if a := w.known(n, in, 3); a != nil {
		size = scalarInt(n, a)
	}
	if step < 1 || size < 1 || size > d[1] || window && in[2].t.Dims[0] != size || step > maxDim {
		n.fail("frames of %d every %d of a signal of %d", size, step, d[1])
	}
	frames := (d[1]-size)/step + 1
	index := n.array(ir.T(i64, frames, size))
	for i := range index.I {
		index.I[i] = int64(i/size*step + i%size)
	}
	x := ops.Reshape(b, w.value(in[0]), d)
	at := ops.Const(b, index.Tensor())
	part := func(k int) *ir.Value {
		if k >= d[2] {
			return nil
		}
		v := ops.Reshape(b, ops.SliceDim(b, x, 2, k, 1), d[:2])
		if v = ops.Gather(b, v, at, 1); window {
			v = ops.Mul(b, v, ops.BroadcastTo(b, ops.Cast(b, w.value(in[2]), v.Type.DType), v.Type.Dims))
		}
		return ops.Reshape(b, v, []int{d[0] * frames, size})
	}
	y := w.fourier(n, complexRows{part(0), part(1)}, size, false)
	if n.int("onesided", 1) != 0 {
		if d[2] == 2 {
			n.fail("onesided is for real signals; this one is complex")
		}
		y = y.each(func(v *ir.Value) *ir.Value { return ops.SliceDim(b, v, 1, 0, size/2+1) })
	}
	dims := []int{d[0], frames, y.re.Type.Dims[1], 1}
	return outs(ops.Concat(b, 3, ops.Reshape(b, y.re, dims), ops.Reshape(b, y.im, dims)))
}
