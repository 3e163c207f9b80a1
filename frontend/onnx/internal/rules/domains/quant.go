package domains

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/arrays"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/layers"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Quantisation. A quantised result is made twice: in its narrow type, and as an image, the same numbers in a float type
// (val.image). What dequantises reads the image, so that gradients flow as torch.fake_quantize has them: straight
// through the rounding, 1 inside the clip range and 0 outside. Scales get the gradient of that composition, which is
// LSQ's (Esser et al., arXiv 1902.08153, without its factor g); they are constants unless --train names them. Zero points
// are integers and have none.

var quantRows = []walk.Row{
	{Op: "QuantizeLinear", Since: 10, Min: 2, Max: 3, Rule: importQuantize},
	{Op: "DequantizeLinear", Since: 10, Min: 2, Max: 3, Rule: importDequantize},
	{Op: "com.microsoft.QuantizeLinear", Since: 1, Min: 2, Max: 3, Rule: importQuantize},
	{Op: "com.microsoft.DequantizeLinear", Since: 1, Min: 2, Max: 3, Rule: importDequantize},
	{Op: "DynamicQuantizeLinear", Since: 11, Min: 1, Max: 1, Rule: importDynamicQuantize},
	{Op: "QLinearMatMul", Since: 10, Min: 8, Max: 8, Rule: importQLinearMatMul},
	{Op: "QLinearConv", Since: 10, Min: 8, Max: 9, Rule: importQLinearConv},
	{Op: "MatMulInteger", Since: 10, Min: 2, Max: 4, Rule: importMatMulInteger},
	{Op: "ConvInteger", Since: 10, Min: 2, Max: 4, Rule: importConvInteger},
	{Op: "com.microsoft.MatMulNBits", Since: 1, Min: 3, Max: 6, Rule: importMatMulNBits},
}

// operandAt is operand i, nil when it is left out.
func operandAt(in []*walk.Val, i int) *walk.Val {
	if i < len(in) {
		return in[i]
	}
	return nil
}

// plain gives x as floats of type d that carry gradients, without its scale.
func plain(w *walk.Walker, x *walk.Val, d dtype.DType) *ir.Value {
	if x.Image != nil {
		return ops.Cast(w.B, x.Image, d)
	}
	return ops.Cast(w.B, w.Value(x), d)
}

// wideFor is the type to hold the numbers of a quantised type in.
func wideFor(scale dtype.DType) dtype.DType {
	if scale == dtype.F64 {
		return dtype.F64
	}
	return dtype.F32
}

// along repeats a scale or zero point s, one number, one per index of dim, or one per block of dim, to dims.
func along(w *walk.Walker, n *model.Node, s *ir.Value, dims []int, dim, block int) *ir.Value {
	own := s.Type.Dims
	switch {
	case s.Type.Elems() == 1 && len(own) <= 1:
		return ops.BroadcastTo(w.B, ops.Reshape(w.B, s, nil), dims)
	case len(own) == 1 && block == 0:
		dim = n.Dim(dim, len(dims))
		if own[0] != dims[dim] {
			n.Fail("a scale or zero point is %s, but operand 0 has size %d along axis %d", s.Type, dims[dim], dim)
		}
		shape := slices.Repeat([]int{1}, len(dims))
		shape[dim] = own[0]
		return ops.Expand(w.B, ops.Reshape(w.B, s, shape), dims)
	case block <= 0:
		n.Fail("a scale or zero point is %s, but must be one number, or one for each index of an axis", s.Type)
	}
	dim = n.Dim(dim, len(dims))
	want := slices.Clone(dims)
	want[dim] = (dims[dim] + block - 1) / block
	if !slices.Equal(own, want) {
		n.Fail("a scale or zero point is %s, but must have dims %v for blocks of %d along axis %d", s.Type, want, block, dim)
	}
	shape := slices.Insert(slices.Clone(own), dim+1, 1)
	s = ops.Reshape(w.B, s, shape)
	shape[dim+1] = block
	s = ops.Expand(w.B, s, shape)
	want[dim] *= block
	s = ops.Reshape(w.B, s, want)
	if want[dim] != dims[dim] { // the last block is cut off
		s = ops.SliceDim(w.B, s, dim, 0, dims[dim])
	}
	return s
}

// quantise rounds r = x/scale, of a float type, to integers of type d around zp, or to floats of 8 bits and fewer. zp,
// which may be nil, has r's dims.
func quantise(w *walk.Walker, r, zp *ir.Value, d dtype.DType, saturate bool) *walk.Val {
	if d.IsSmallFloat() {
		if zp != nil {
			r = ops.Add(w.B, r, ops.Cast(w.B, zp, r.Type.DType))
		}
		return arrays.Narrow(w, ops.Cast(w.B, r, wideFor(r.Type.DType)), d, saturate)
	}
	r = ops.RoundThrough(w.B, r)
	r = ops.Cast(w.B, r, wideFor(r.Type.DType)) // f16 cannot hold all sums with zero points
	if zp != nil {
		r = ops.Add(w.B, r, ops.Cast(w.B, zp, r.Type.DType))
	}
	image := arrays.Within(w, r, d)
	return walk.Quantized(ops.Cast(w.B, image, d), image)
}

func importQuantize(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, scale, zp := in[0], in[1], operandAt(in, 2)
	d, dim, block := dtype.U8, n.Int("axis", 1), n.Int("block_size", 0)
	if code := n.Int("output_dtype", 0); code != 0 {
		d = typeCode(n, "output_dtype", code)
	}
	if zp != nil {
		if n.Attrs["output_dtype"] != nil && n.Int("output_dtype", 0) != 0 && d != zp.Type.DType {
			n.Fail("output_dtype is %s, but the zero point is %s", d, zp.Type)
		}
		d = zp.Type.DType
	}
	if !d.IsInt() && !d.IsSmallFloat() || d == dtype.F8E8M0 {
		n.Fail("the result would be %s, to which nothing can be quantised", d)
	}
	compute := scale.Type.DType
	if code := n.Int("precision", 0); code != 0 {
		compute = typeCode(n, "precision", code)
	}
	if !compute.IsFloat() || compute.IsSmallFloat() {
		compute = dtype.F32
	}
	xv := plain(w, x, compute)
	sv := plain(w, scale, compute)
	if w.Array(scale) == nil {
		sv = ops.CastThrough(w.B, sv, compute) // ties depend on the last bit of a scale that is computed
	}
	r := ops.Div(w.B, xv, along(w, n, sv, x.Type.Dims, dim, block))
	return []*walk.Val{quantise(w, r, zeroPoint(w, n, zp, x.Type.Dims, dim, block), d, fold.Saturates(n))}
}

// zeroPoint is zp spread to dims; nil when there is none or it is known to be zero.
func zeroPoint(w *walk.Walker, n *model.Node, zp *walk.Val, dims []int, dim, block int) *ir.Value {
	if zp == nil {
		return nil
	}
	if a := w.Array(zp); a != nil && !slices.ContainsFunc(a.F, func(x float64) bool { return x != 0 }) &&
		!slices.ContainsFunc(a.I, func(x int64) bool { return x != 0 }) {
		return nil
	}
	return along(w, n, plain(w, zp, dtype.F32), dims, dim, block)
}

// typeCode is the element type that an attribute names.
func typeCode(n *model.Node, attr string, code int) dtype.DType {
	d, err := model.DTypeOf(int32(code))
	if err != nil {
		n.Fail("%s: %v", attr, err)
	}
	return d
}

func importDequantize(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, scale, zp := in[0], in[1], operandAt(in, 2)
	dim, block, to := n.Int("axis", 1), n.Int("block_size", 0), scale.Type.DType
	if code := n.Int("output_dtype", 0); code != 0 {
		to = typeCode(n, "output_dtype", code)
	}
	if !to.IsFloat() || to.IsSmallFloat() {
		n.Fail("the result would be %s, but must be f32, f16 or bf16", to)
	}
	if zp != nil && zp.Type.DType != x.Type.DType {
		n.Fail("operand 0 is %s, but the zero point is %s: their element types must be equal", x.Type, zp.Type)
	}
	if x.Init != nil && x.Type.Elems() > 1 {
		w.File.Warn("weights that the file stores as %s stay as they are; to train them, export the float weights in front of "+
			"QuantizeLinear (quantisation-aware training)", x.Type.DType)
	}
	wide := wideFor(to)
	v := plain(w, x, wide)
	if z := zeroPoint(w, n, zp, x.Type.Dims, dim, block); z != nil {
		v = ops.Sub(w.B, v, ops.Cast(w.B, z, wide))
	}
	v = ops.Mul(w.B, v, along(w, n, plain(w, scale, wide), x.Type.Dims, dim, block))
	return walk.Results(ops.Cast(w.B, v, to))
}

// importDynamicQuantize quantises to u8 by the range of x, which 0 is made part of. As with PyTorch's observers, no
// gradient flows to the elements that make the range.
func importDynamicQuantize(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x := w.Value(in[0])
	if x.Type.DType != dtype.F32 {
		n.Fail("operand 0 is %s, but must be f32", x.Type)
	}
	all := make([]int, len(x.Type.Dims))
	for i := range all {
		all[i] = i
	}
	zero, still := ops.Scalar(w.B, dtype.F32, 0), ops.Detach(w.B, x)
	hi := ops.Maximum(w.B, ops.Reshape(w.B, ops.ReduceMax(w.B, still, all...), nil), zero)
	lo := ops.Minimum(w.B, ops.Reshape(w.B, ops.ReduceMin(w.B, still, all...), nil), zero)
	scale := ops.CastThrough(w.B, ops.Div(w.B, ops.Sub(w.B, hi, lo), ops.Scalar(w.B, dtype.F32, 255)), dtype.F32)
	// Zeros alone have no range: any scale will do.
	scale = ops.Where(w.B, ops.Eq(w.B, scale, zero), ops.Scalar(w.B, dtype.F32, 1), scale)
	zp := quantise(w, ops.Div(w.B, ops.Neg(w.B, lo), scale), nil, dtype.U8, true)
	r := ops.Div(w.B, x, ops.BroadcastTo(w.B, scale, x.Type.Dims))
	y := quantise(w, r, ops.BroadcastTo(w.B, zp.Image, x.Type.Dims), dtype.U8, true)
	return []*walk.Val{y, walk.Results(scale)[0], zp}
}

// exactFloat is the type in which sums of count products of two 8-bit integers are exact.
func exactFloat(count int) dtype.DType {
	if count < 1<<24>>16 {
		return dtype.F32
	}
	return dtype.F64
}

// centred is x minus its zero point, in float type d. A zero point of one dimension belongs to dim.
func centred(w *walk.Walker, n *model.Node, x, zp *walk.Val, dim int, d dtype.DType) *ir.Value {
	if !x.Type.DType.IsInt() && !x.Type.DType.IsSmallFloat() {
		n.Fail("an operand is %s, but must be of a quantised type", x.Type)
	}
	v := plain(w, x, d)
	if z := zeroPoint(w, n, zp, x.Type.Dims, dim, 0); z != nil {
		v = ops.Sub(w.B, v, ops.Cast(w.B, z, d))
	}
	return v
}

// product multiplies matrices of centred integers as MatMul does.
func product(w *walk.Walker, n *model.Node, a, azp, b, bzp *walk.Val) *ir.Value {
	if len(a.Type.Dims) < 1 || len(b.Type.Dims) < 1 {
		n.Fail("operands are %s and %s, but must have at least one dimension", a.Type, b.Type)
	}
	d := exactFloat(a.Type.Dims[len(a.Type.Dims)-1])
	x := centred(w, n, a, azp, max(len(a.Type.Dims)-2, 0), d) // one zero point per row
	y := centred(w, n, b, bzp, len(b.Type.Dims)-1, d)         // one per column
	return layers.ImportMatMul(w, n, walk.Results(x, y))[0].Value
}

func importMatMulInteger(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	sum := product(w, n, in[0], operandAt(in, 2), in[1], operandAt(in, 3))
	return []*walk.Val{walk.Quantized(ops.Cast(w.B, sum, dtype.I32), sum)}
}

func importConvInteger(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	sum := convolved(w, n, in[0], operandAt(in, 2), in[1], operandAt(in, 3))
	return []*walk.Val{walk.Quantized(ops.Cast(w.B, sum, dtype.I32), sum)}
}

// convolved is the convolution of centred integers: padding with zeros then pads with the zero point.
func convolved(w *walk.Walker, n *model.Node, x, xzp, k, kzp *walk.Val) *ir.Value {
	d := exactFloat(ir.Product(k.Type.Dims[min(1, len(k.Type.Dims)):]))
	return layers.ImportConv(w, n, walk.Results(centred(w, n, x, xzp, 1, d), centred(w, n, k, kzp, 0, d)))[0].Value
}

// scaled is v times x*y/z for scales x, y and z; each is one number, or one for each index of its dim of v.
func scaled(w *walk.Walker, n *model.Node, v *ir.Value, scales [3]*walk.Val, dims [3]int) *ir.Value {
	var s [3]*ir.Value
	for i, x := range scales {
		s[i] = along(w, n, plain(w, x, v.Type.DType), v.Type.Dims, dims[i], 0)
	}
	return ops.Mul(w.B, v, ops.Div(w.B, ops.Mul(w.B, s[0], s[1]), s[2]))
}

func importQLinearMatMul(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	v := product(w, n, in[0], in[2], in[3], in[5])
	last := len(v.Type.Dims) - 1
	v = scaled(w, n, v, [3]*walk.Val{in[1], in[4], in[6]}, [3]int{max(last-1, 0), last, max(last-1, 0)})
	zp := zeroPoint(w, n, in[7], v.Type.Dims, max(last-1, 0), 0)
	return []*walk.Val{quantise(w, v, zp, in[7].Type.DType, fold.Saturates(n))}
}

func importQLinearConv(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	v := convolved(w, n, in[0], in[2], in[3], in[5])
	if bias := operandAt(in, 8); bias != nil {
		v = ops.Add(w.B, v, along(w, n, plain(w, bias, v.Type.DType), v.Type.Dims, 1, 0))
	}
	v = scaled(w, n, v, [3]*walk.Val{in[1], in[4], in[6]}, [3]int{1, 1, 1})
	return []*walk.Val{quantise(w, v, zeroPoint(w, n, in[7], v.Type.Dims, 1, 0), in[7].Type.DType, true)}
}
