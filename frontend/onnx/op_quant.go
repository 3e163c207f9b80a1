package onnx

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Quantisation. A quantised result is made twice: in its narrow type, and as an image, the same numbers in a float type
// (val.image). What dequantises reads the image, so that gradients flow as torch.fake_quantize has them: straight
// through the rounding, 1 inside the clip range and 0 outside. Scales get the gradient of that composition, which is
// LSQ's (Esser et al., arXiv 1902.08153, without its factor g); they are constants unless --train names them. Zero points
// are integers and have none.

var quantRows = []row{
	{op: "QuantizeLinear", since: 10, min: 2, max: 3, rule: importQuantize},
	{op: "DequantizeLinear", since: 10, min: 2, max: 3, rule: importDequantize},
	{op: "com.microsoft.QuantizeLinear", since: 1, min: 2, max: 3, rule: importQuantize},
	{op: "com.microsoft.DequantizeLinear", since: 1, min: 2, max: 3, rule: importDequantize},
	{op: "DynamicQuantizeLinear", since: 11, min: 1, max: 1, rule: importDynamicQuantize},
	{op: "QLinearMatMul", since: 10, min: 8, max: 8, rule: importQLinearMatMul},
	{op: "QLinearConv", since: 10, min: 8, max: 9, rule: importQLinearConv},
	{op: "MatMulInteger", since: 10, min: 2, max: 4, rule: importMatMulInteger},
	{op: "ConvInteger", since: 10, min: 2, max: 4, rule: importConvInteger},
	{op: "com.microsoft.MatMulNBits", since: 1, min: 3, max: 6, rule: importMatMulNBits},
}

// operandAt is operand i, nil when it is left out.
func operandAt(in []*val, i int) *val {
	if i < len(in) {
		return in[i]
	}
	return nil
}

// plain gives x as floats of type d that carry gradients, without its scale.
func (w *walker) plain(x *val, d dtype.DType) *ir.Value {
	if x.image != nil {
		return ops.Cast(w.b, x.image, d)
	}
	return ops.Cast(w.b, w.value(x), d)
}

// wideFor is the type to hold the numbers of a quantised type in.
func wideFor(scale dtype.DType) dtype.DType {
	if scale == dtype.F64 {
		return dtype.F64
	}
	return dtype.F32
}

// along repeats a scale or zero point s, one number, one per index of dim, or one per block of dim, to dims.
func (w *walker) along(n *node, s *ir.Value, dims []int, dim, block int) *ir.Value {
	own := s.Type.Dims
	switch {
	case s.Type.Elems() == 1 && len(own) <= 1:
		return ops.BroadcastTo(w.b, ops.Reshape(w.b, s, nil), dims)
	case len(own) == 1 && block == 0:
		dim = n.dim(dim, len(dims))
		if own[0] != dims[dim] {
			n.fail("a scale or zero point is %s, operand 0 has %d along axis %d", s.Type, dims[dim], dim)
		}
		shape := slices.Repeat([]int{1}, len(dims))
		shape[dim] = own[0]
		return ops.Expand(w.b, ops.Reshape(w.b, s, shape), dims)
	case block <= 0:
		n.fail("a scale or zero point is %s: want one number, or one for each index of an axis", s.Type)
	}
	dim = n.dim(dim, len(dims))
	want := slices.Clone(dims)
	want[dim] = (dims[dim] + block - 1) / block
	if !slices.Equal(own, want) {
		n.fail("a scale or zero point is %s: want dims %v for blocks of %d along axis %d", s.Type, want, block, dim)
	}
	shape := slices.Insert(slices.Clone(own), dim+1, 1)
	s = ops.Reshape(w.b, s, shape)
	shape[dim+1] = block
	s = ops.Expand(w.b, s, shape)
	want[dim] *= block
	s = ops.Reshape(w.b, s, want)
	if want[dim] != dims[dim] { // the last block is cut off
		s = ops.SliceDim(w.b, s, dim, 0, dims[dim])
	}
	return s
}

// quantise rounds r = x/scale, of a float type, to integers of type d around zp, or to floats of 8 bits and fewer. zp,
// which may be nil, has r's dims.
func (w *walker) quantise(r, zp *ir.Value, d dtype.DType, saturate bool) *val {
	if d.IsSmallFloat() {
		if zp != nil {
			r = ops.Add(w.b, r, ops.Cast(w.b, zp, r.Type.DType))
		}
		return w.narrow(ops.Cast(w.b, r, wideFor(r.Type.DType)), d, saturate)
	}
	r = ops.RoundThrough(w.b, r)
	r = ops.Cast(w.b, r, wideFor(r.Type.DType)) // f16 cannot hold all sums with zero points
	if zp != nil {
		r = ops.Add(w.b, r, ops.Cast(w.b, zp, r.Type.DType))
	}
	image := w.within(r, d)
	return quantized(ops.Cast(w.b, image, d), image)
}

// within clips v to the range of d. The ends are within, as in torch.fake_quantize, whose values lie on them: they get a
// gradient, which those of a clip do not.
func (w *walker) within(v *ir.Value, d dtype.DType) *ir.Value {
	lo, hi := d.Range()
	inside := ops.And(w.b, ops.Ge(w.b, v, ops.ScalarLike(w.b, v, lo)), ops.Le(w.b, v, ops.ScalarLike(w.b, v, hi)))
	return ops.Where(w.b, inside, v, ops.Clip(w.b, v, lo, hi))
}

func importQuantize(w *walker, n *node, in []*val) []*val {
	x, scale, zp := in[0], in[1], operandAt(in, 2)
	d, dim, block := dtype.U8, n.int("axis", 1), n.int("block_size", 0)
	if code := n.int("output_dtype", 0); code != 0 {
		d = n.typeCode("output_dtype", code)
	}
	if zp != nil {
		if n.attrs["output_dtype"] != nil && n.int("output_dtype", 0) != 0 && d != zp.t.DType {
			n.fail("output_dtype is %s, the zero point is %s", d, zp.t)
		}
		d = zp.t.DType
	}
	if !d.IsInt() && !d.IsSmallFloat() || d == dtype.F8E8M0 {
		n.fail("the result would be %s, which is no type to quantise to", d)
	}
	compute := scale.t.DType
	if code := n.int("precision", 0); code != 0 {
		compute = n.typeCode("precision", code)
	}
	if !compute.IsFloat() || compute.IsSmallFloat() {
		compute = dtype.F32
	}
	xv := w.plain(x, compute)
	sv := w.plain(scale, compute)
	if w.array(scale) == nil {
		sv = ops.CastThrough(w.b, sv, compute) // ties depend on the last bit of a scale that is computed
	}
	r := ops.Div(w.b, xv, w.along(n, sv, x.t.Dims, dim, block))
	return []*val{w.quantise(r, w.zeroPoint(n, zp, x.t.Dims, dim, block), d, n.saturates())}
}

// zeroPoint is zp spread to dims; nil when there is none or it is known to be zero.
func (w *walker) zeroPoint(n *node, zp *val, dims []int, dim, block int) *ir.Value {
	if zp == nil {
		return nil
	}
	if a := w.array(zp); a != nil && !slices.ContainsFunc(a.F, func(x float64) bool { return x != 0 }) &&
		!slices.ContainsFunc(a.I, func(x int64) bool { return x != 0 }) {
		return nil
	}
	return w.along(n, w.plain(zp, dtype.F32), dims, dim, block)
}

// typeCode is the element type that an attribute names.
func (n *node) typeCode(attr string, code int) dtype.DType {
	d, err := convertType(int32(code))
	if err != nil {
		n.fail("%s: %v", attr, err)
	}
	return d
}

func importDequantize(w *walker, n *node, in []*val) []*val {
	x, scale, zp := in[0], in[1], operandAt(in, 2)
	dim, block, to := n.int("axis", 1), n.int("block_size", 0), scale.t.DType
	if code := n.int("output_dtype", 0); code != 0 {
		to = n.typeCode("output_dtype", code)
	}
	if !to.IsFloat() || to.IsSmallFloat() {
		n.fail("the result would be %s: want f32, f16 or bf16", to)
	}
	if zp != nil && zp.t.DType != x.t.DType {
		n.fail("operand 0 is %s, the zero point is %s: element types must agree", x.t, zp.t)
	}
	if x.init != nil && x.t.Elems() > 1 {
		w.m.warn("weights that the file stores as %s stay as they are; to train them, export the float weights in front of "+
			"QuantizeLinear (quantisation-aware training)", x.t.DType)
	}
	wide := wideFor(to)
	v := w.plain(x, wide)
	if z := w.zeroPoint(n, zp, x.t.Dims, dim, block); z != nil {
		v = ops.Sub(w.b, v, ops.Cast(w.b, z, wide))
	}
	v = ops.Mul(w.b, v, w.along(n, w.plain(scale, wide), x.t.Dims, dim, block))
	return outs(ops.Cast(w.b, v, to))
}

// importDynamicQuantize quantises to u8 by the range of x, which 0 is made part of. As with PyTorch's observers, no
// gradient flows to the elements that make the range.
func importDynamicQuantize(w *walker, n *node, in []*val) []*val {
	x := w.value(in[0])
	if x.Type.DType != dtype.F32 {
		n.fail("operand 0 is %s, want f32", x.Type)
	}
	all := make([]int, len(x.Type.Dims))
	for i := range all {
		all[i] = i
	}
	zero, still := ops.Scalar(w.b, dtype.F32, 0), ops.Detach(w.b, x)
	hi := ops.Maximum(w.b, ops.Reshape(w.b, ops.ReduceMax(w.b, still, all...), nil), zero)
	lo := ops.Minimum(w.b, ops.Reshape(w.b, ops.ReduceMin(w.b, still, all...), nil), zero)
	scale := ops.CastThrough(w.b, ops.Div(w.b, ops.Sub(w.b, hi, lo), ops.Scalar(w.b, dtype.F32, 255)), dtype.F32)
	// Zeros alone have no range: any scale will do.
	scale = ops.Where(w.b, ops.Eq(w.b, scale, zero), ops.Scalar(w.b, dtype.F32, 1), scale)
	zp := w.quantise(ops.Div(w.b, ops.Neg(w.b, lo), scale), nil, dtype.U8, true)
	r := ops.Div(w.b, x, ops.BroadcastTo(w.b, scale, x.Type.Dims))
	y := w.quantise(r, ops.BroadcastTo(w.b, zp.image, x.Type.Dims), dtype.U8, true)
	return []*val{y, outs(scale)[0], zp}
}

// exactFloat is the type in which sums of count products of two 8-bit integers are exact.
func exactFloat(count int) dtype.DType {
	if count < 1<<24>>16 {
		return dtype.F32
	}
	return dtype.F64
}

// centred is x minus its zero point, in float type d. A zero point of one dimension belongs to dim.
func (w *walker) centred(n *node, x, zp *val, dim int, d dtype.DType) *ir.Value {
	if !x.t.DType.IsInt() && !x.t.DType.IsSmallFloat() {
		n.fail("an operand is %s, want a quantised type", x.t)
	}
	v := w.plain(x, d)
	if z := w.zeroPoint(n, zp, x.t.Dims, dim, 0); z != nil {
		v = ops.Sub(w.b, v, ops.Cast(w.b, z, d))
	}
	return v
}

// product multiplies matrices of centred integers as MatMul does.
func (w *walker) product(n *node, a, azp, b, bzp *val) *ir.Value {
	if len(a.t.Dims) < 1 || len(b.t.Dims) < 1 {
		n.fail("operands are %s and %s: want at least one dimension", a.t, b.t)
	}
	d := exactFloat(a.t.Dims[len(a.t.Dims)-1])
	x := w.centred(n, a, azp, max(len(a.t.Dims)-2, 0), d) // one zero point per row
	y := w.centred(n, b, bzp, len(b.t.Dims)-1, d)         // one per column
	return importMatMul(w, n, outs(x, y))[0].v
}

func importMatMulInteger(w *walker, n *node, in []*val) []*val {
	sum := w.product(n, in[0], operandAt(in, 2), in[1], operandAt(in, 3))
	return []*val{quantized(ops.Cast(w.b, sum, dtype.I32), sum)}
}

func importConvInteger(w *walker, n *node, in []*val) []*val {
	sum := w.convolved(n, in[0], operandAt(in, 2), in[1], operandAt(in, 3))
	return []*val{quantized(ops.Cast(w.b, sum, dtype.I32), sum)}
}

// convolved is the convolution of centred integers: padding with zeros then pads with the zero point.
func (w *walker) convolved(n *node, x, xzp, k, kzp *val) *ir.Value {
	d := exactFloat(ir.Product(k.t.Dims[min(1, len(k.t.Dims)):]))
	return importConv(w, n, outs(w.centred(n, x, xzp, 1, d), w.centred(n, k, kzp, 0, d)))[0].v
}

// scaled is v times x*y/z for scales x, y and z; each is one number, or one for each index of its dim of v.
func (w *walker) scaled(n *node, v *ir.Value, scales [3]*val, dims [3]int) *ir.Value {
	var s [3]*ir.Value
	for i, x := range scales {
		s[i] = w.along(n, w.plain(x, v.Type.DType), v.Type.Dims, dims[i], 0)
	}
	return ops.Mul(w.b, v, ops.Div(w.b, ops.Mul(w.b, s[0], s[1]), s[2]))
}

func importQLinearMatMul(w *walker, n *node, in []*val) []*val {
	v := w.product(n, in[0], in[2], in[3], in[5])
	last := len(v.Type.Dims) - 1
	v = w.scaled(n, v, [3]*val{in[1], in[4], in[6]}, [3]int{max(last-1, 0), last, max(last-1, 0)})
	zp := w.zeroPoint(n, in[7], v.Type.Dims, max(last-1, 0), 0)
	return []*val{w.quantise(v, zp, in[7].t.DType, n.saturates())}
}

func importQLinearConv(w *walker, n *node, in []*val) []*val {
	v := w.convolved(n, in[0], in[2], in[3], in[5])
	if bias := operandAt(in, 8); bias != nil {
		v = ops.Add(w.b, v, w.along(n, w.plain(bias, v.Type.DType), v.Type.Dims, 1, 0))
	}
	v = w.scaled(n, v, [3]*val{in[1], in[4], in[6]}, [3]int{1, 1, 1})
	return []*val{w.quantise(v, w.zeroPoint(n, in[7], v.Type.Dims, 1, 0), in[7].t.DType, true)}
}
