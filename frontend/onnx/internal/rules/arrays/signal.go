package arrays

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var signalRows = []walk.Row{
	{Op: "DFT", Since: 17, Min: 1, Max: 2, Rule: importDFT},
	{Op: "DFT", Since: 20, Min: 1, Max: 3, Rule: importDFT},
	{Op: "STFT", Since: 17, Min: 2, Max: 4, Rule: importSTFT},
	{Op: "HannWindow", Since: 17, Min: 1, Max: 1, Rule: importWindow(0.5, 0.5, 0)},
	{Op: "HammingWindow", Since: 17, Min: 1, Max: 1, Rule: importWindow(25.0/46, 1-25.0/46, 0)},
	{Op: "BlackmanWindow", Since: 17, Min: 1, Max: 1, Rule: importWindow(0.42, 0.5, 0.08)},
	{Op: "MelWeightMatrix", Since: 17, Min: 5, Max: 5, Rule: importMelWeights},
}

// importWindow is a sum of cosines over one period, c0 - c1·cos + c2·cos of twice the angle, of a known size.
func importWindow(c0, c1, c2 float64) walk.Rule {
	return func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		size := fold.Int(n, MustKnow(w, n, in, 0))
		if size < 0 {
			n.Fail("size is %d, but must be 0 or more", size)
		}
		period := size
		if n.Int("periodic", 1) == 0 {
			period--
		}
		out := n.Array(ir.T(outputType(n), size))
		for i := range size {
			at := 2 * math.Pi * float64(i) / float64(max(period, 1))
			v := c0 - c1*math.Cos(at) + c2*math.Cos(2*at)
			if out.F != nil {
				out.F[i] = v
			} else {
				out.I[i] = int64(v)
			}
		}
		return walk.Known(fold.Settle(out))
	}
}

// outputType is the attribute output_datatype, f32 when it is absent.
func outputType(n *model.Node) dtype.DType {
	d, err := model.DTypeOf(int32(n.Int("output_datatype", 1)))
	if err != nil || d == dtype.Bool {
		n.Fail("output_datatype %d is not a supported type of numbers", n.Int("output_datatype", 1))
	}
	return d
}

// importMelWeights makes the triangular filters [dft_length/2+1, bins], evenly spaced on the mel scale
// 2595·log10(1+f/700), as the operator's definition does it: edges are rounded down to whole bins of the spectrum.
func importMelWeights(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	scalar := func(i int) float64 {
		a := MustKnow(w, n, in, i)
		if a.Type.Elems() != 1 {
			n.Fail("operand %d is %s, but must be one number", i, a.Type)
		}
		if a.F != nil {
			return a.F[0]
		}
		return float64(a.I[0])
	}
	bins, length, rate, low, high := scalar(0), scalar(1), scalar(2), scalar(3), scalar(4)
	if !(bins >= 1 && bins <= model.MaxFold && length >= 0 && length <= model.MaxFold && rate > 0 && low >= 0 && high >= low && high <= rate) {
		n.Fail("%g mel bins, a DFT of length %g and a sample rate of %g do not go with frequencies from %g to %g Hz: bins and rate must be positive, and frequencies from 0 to the rate", bins, length, rate, low, high)
	}
	rows := int(length)/2 + 1
	out := n.Array(ir.T(outputType(n), rows, int(bins)))
	mel := func(f float64) float64 { return 2595 * math.Log10(1+f/700) }
	step := (mel(high) - mel(low)) / (bins + 2)
	edge := func(i int) int {
		f := 700 * (math.Pow(10, (float64(i)*step+mel(low))/2595) - 1)
		return int(math.Floor((length + 1) * f / rate))
	}
	set := func(row, bin int, v float64) {
		switch {
		case row >= rows:
			n.Fail("frequency %g Hz is beyond what a DFT of length %g holds", high, length)
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
	return walk.Known(fold.Settle(out))
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
func importDFT(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	b, d := w.B, in[0].Type.Dims
	last := len(d) - 1
	if last < 1 || d[last] < 1 || d[last] > 2 || !in[0].Type.DType.IsFloat() {
		n.Fail("operand 0 is %s, but must be floats […,1] or […,2]", in[0].Type)
	}
	axis := n.Int("axis", 1)
	if n.Opset >= 20 {
		axis = -2
		if a := MustKnow(w, n, in, 2); a != nil {
			axis = fold.Int(n, a)
		}
	}
	if axis = n.Dim(axis, len(d)); axis == last {
		n.Fail("axis %d is that of the real and imaginary parts, along which nothing can be transformed", axis)
	}
	inverse, oneSided := n.Int("inverse", 0) != 0, n.Int("onesided", 0) != 0
	length := d[axis]
	if inverse && oneSided {
		length = 2 * (d[axis] - 1)
	}
	if a := MustKnow(w, n, in, 1); a != nil {
		length = fold.Int(n, a)
	}
	if length < 1 || length > model.MaxFold {
		n.Fail("dft_length is %d, but must be from 1 to %d", length, model.MaxFold)
	}
	x := w.Value(in[0])
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
		y = realInverse(w, n, y, length)
	} else {
		y = fourier(w, n, y, length, inverse)
		if oneSided {
			y = y.each(func(v *ir.Value) *ir.Value { return ops.SliceDim(b, v, 1, 0, length/2+1) })
		}
	}
	if inverse {
		y = y.each(func(v *ir.Value) *ir.Value { return ops.MulScalar(b, v, 1/float64(length)) })
	}
	return walk.Results(joinParts(b, y, x.Type.Dims, perm, last))
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
func fourier(w *walk.Walker, n *model.Node, x complexRows, size int, inverse bool) complexRows {
	b, rows := w.B, x.re.Type.Dims[0]
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
		return multiply(w, x, roots(w, n, ir.T(x.re.Type.DType, size, size), size, sign))
	}
	// Index i = q·i1 + i2, result k = k1 + p·k2 (Cooley and Tukey, 1965): p-point transforms over i1, a turn by
	// i2·k1, then q-point transforms over i2.
	q := size / p
	y := x.each(func(v *ir.Value) *ir.Value {
		v = ops.Transpose(b, ops.Reshape(b, v, []int{rows, p, q}), []int{0, 2, 1})
		return ops.Reshape(b, v, []int{rows * q, p})
	})
	y = fourier(w, n, y, p, inverse) // [rows*q, p]
	turn := roots(w, n, ir.T(x.re.Type.DType, q, p), size, sign)
	y = complexRows{ops.Reshape(b, y.re, []int{rows, q, p}), ops.Reshape(b, y.im, []int{rows, q, p})}
	wide := turn.each(func(v *ir.Value) *ir.Value { return ops.BroadcastTo(b, v, []int{rows, q, p}) })
	y = complexRows{ops.Sub(b, ops.Mul(b, y.re, wide.re), ops.Mul(b, y.im, wide.im)),
		ops.Add(b, ops.Mul(b, y.re, wide.im), ops.Mul(b, y.im, wide.re))}
	y = y.each(func(v *ir.Value) *ir.Value {
		return ops.Reshape(b, ops.Transpose(b, v, []int{0, 2, 1}), []int{rows * p, q})
	})
	y = fourier(w, n, y, q, inverse) // [rows*p, q]
	return y.each(func(v *ir.Value) *ir.Value {
		v = ops.Transpose(b, ops.Reshape(b, v, []int{rows, p, q}), []int{0, 2, 1})
		return ops.Reshape(b, v, []int{rows, size})
	})
}

// roots are the constants exp(sign·2πi·j·k/size) in the dims of t, for each row j and column k.
func roots(w *walk.Walker, n *model.Node, t ir.Type, size int, sign float64) complexRows {
	rows, columns := t.Dims[0], t.Dims[1]
	re, im := n.Array(t), n.Array(t)
	for j := range rows {
		for k := range columns {
			at := 2 * math.Pi * float64(j*k%size) / float64(size)
			re.F[j*columns+k], im.F[j*columns+k] = math.Cos(at), sign*math.Sin(at)
		}
	}
	return complexRows{ops.Const(w.B, re.Tensor()), ops.Const(w.B, im.Tensor())}
}

// multiply is the product of complex rows [R,n] and a complex matrix [n,m].
func multiply(w *walk.Walker, x, m complexRows) complexRows {
	re, im := ops.MatMul(w.B, x.re, m.re), ops.MatMul(w.B, x.re, m.im)
	if x.im != nil {
		re = ops.Sub(w.B, re, ops.MatMul(w.B, x.im, m.im))
		im = ops.Add(w.B, im, ops.MatMul(w.B, x.im, m.re))
	}
	return complexRows{re, im}
}

// realInverse is the real signal of which x is the first half of the spectrum, the other half being its conjugate,
// without the division.
func realInverse(w *walk.Walker, n *model.Node, x complexRows, length int) complexRows {
	b := w.B
	index, sign := n.Array(ir.T(dtype.I64, length)), n.Array(ir.T(x.re.Type.DType, length))
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
		full.im = ops.Mul(b, full.im, w.Spread(walk.Known(sign)[0], full.im.Type.Dims))
	}
	return complexRows{re: fourier(w, n, full, length, true).re}
}

// importSTFT cuts the signal into frames, weighs them by the window and transforms each.
func importSTFT(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	b, d := w.B, in[0].Type.Dims
	if len(d) == 2 {
		d = append(slices.Clone(d), 1)
	}
	if len(d) != 3 || d[2] < 1 || d[2] > 2 || !in[0].Type.DType.IsFloat() {
		n.Fail("operand 0 is %s, but must be floats [N,length,1] or [N,length,2]", in[0].Type)
	}
	step, size := fold.Int(n, MustKnow(w, n, in, 1)), d[1]
	window := len(in) > 2 && in[2] != nil
	if window {
		if len(in[2].Type.Dims) != 1 {
			n.Fail("the window is %s, but must have one dimension", in[2].Type)
		}
		size = in[2].Type.Dims[0]
	}
	if a := MustKnow(w, n, in, 3); a != nil {
		size = fold.Int(n, a)
	}
	if step < 1 || size < 1 || size > d[1] || window && in[2].Type.Dims[0] != size || step > model.MaxDim {
		n.Fail("frames of length %d, one every %d samples, do not fit a signal of length %d and its window", size, step, d[1])
	}
	frames := (d[1]-size)/step + 1
	index := n.Array(ir.T(dtype.I64, frames, size))
	for i := range index.I {
		index.I[i] = int64(i/size*step + i%size)
	}
	x := ops.Reshape(b, w.Value(in[0]), d)
	at := ops.Const(b, index.Tensor())
	part := func(k int) *ir.Value {
		if k >= d[2] {
			return nil
		}
		v := ops.Reshape(b, ops.SliceDim(b, x, 2, k, 1), d[:2])
		if v = ops.Gather(b, v, at, 1); window {
			v = ops.Mul(b, v, ops.BroadcastTo(b, ops.Cast(b, w.Value(in[2]), v.Type.DType), v.Type.Dims))
		}
		return ops.Reshape(b, v, []int{d[0] * frames, size})
	}
	y := fourier(w, n, complexRows{part(0), part(1)}, size, false)
	if n.Int("onesided", 1) != 0 {
		if d[2] == 2 {
			n.Fail("onesided is for real signals; this one is complex")
		}
		y = y.each(func(v *ir.Value) *ir.Value { return ops.SliceDim(b, v, 1, 0, size/2+1) })
	}
	dims := []int{d[0], frames, y.re.Type.Dims[1], 1}
	return walk.Results(ops.Concat(b, 3, ops.Reshape(b, y.re, dims), ops.Reshape(b, y.im, dims)))
}
