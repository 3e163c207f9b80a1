package onnx

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Quantised operators of com.microsoft, which ONNX Runtime's quantiser writes: each dequantises, computes and quantises.
// Their gradients are those of the parts.
var quantContribRows = []row{
	{op: "com.microsoft.QLinearAdd", since: 1, min: 7, max: 8, rule: qlinear(ops.Add)},
	{op: "com.microsoft.QLinearMul", since: 1, min: 7, max: 8, rule: qlinear(ops.Mul)},
	{op: "com.microsoft.QLinearSigmoid", since: 1, min: 2, max: 5, rule: qlinearOf("Sigmoid")},
	{op: "com.microsoft.QLinearLeakyRelu", since: 1, min: 2, max: 5, rule: qlinearOf("LeakyRelu")},
	{op: "com.microsoft.QLinearSoftmax", since: 1, min: 2, max: 5, rule: qlinearOf("Softmax")},
	{op: "com.microsoft.QLinearReduceMean", since: 1, min: 2, max: 5, rule: qlinearOf("ReduceMean")},
	{op: "com.microsoft.QLinearAveragePool", since: 1, min: 2, max: 5, rule: qlinearOf("AveragePool")},
	{op: "com.microsoft.QLinearGlobalAveragePool", since: 1, min: 2, max: 5, rule: qlinearOf("GlobalAveragePool")},
	{op: "com.microsoft.QLinearConcat", since: 1, min: 5, max: -1, rule: importQLinearConcat},
	{op: "com.microsoft.QGemm", since: 1, min: 6, max: 9, rule: importQGemm},
	{op: "com.microsoft.MatMulIntegerToFloat", since: 1, min: 4, max: 7, rule: importMatMulIntegerToFloat},
	{op: "com.microsoft.DynamicQuantizeMatMul", since: 1, min: 3, max: 5, rule: importDynamicQuantizeMatMul},
}

// dequantised is (x - zp) * scale in f32.
func (w *walker) dequantised(n *node, x, scale, zp *val) *ir.Value {
	v := w.centred(n, x, zp, 0, dtype.F32)
	return ops.Mul(w.b, v, w.along(n, w.plain(scale, dtype.F32), v.Type.Dims, 0, 0))
}

// requantised is v, f32, quantised to type d by one scale and zero point.
func (w *walker) requantised(n *node, v *ir.Value, scale, zp *val, d dtype.DType) *val {
	r := ops.Div(w.b, v, w.along(n, w.plain(scale, dtype.F32), v.Type.Dims, 0, 0))
	return w.quantise(r, w.zeroPoint(n, zp, v.Type.Dims, 0, 0), d, true)
}

// qlinear imports (A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point).
func qlinear(f func(b *ir.Builder, x, y *ir.Value) *ir.Value) rule {
	two := map2(f)
	return func(w *walker, n *node, in []*val) []*val {
		a, b := w.dequantised(n, in[0], in[1], in[2]), w.dequantised(n, in[3], in[4], in[5])
		v := two(w, n, outs(a, b))[0].v
		return []*val{w.requantised(n, v, in[6], operandAt(in, 7), in[0].t.DType)}
	}
}

// qlinearOf imports (X, X_scale, X_zero_point, Y_scale, Y_zero_point) around an operator of the default domain.
func qlinearOf(op string) rule {
	return func(w *walker, n *node, in []*val) []*val {
		inner := *n
		inner.op, inner.opset = op, 13
		if n.int("channels_last", 0) != 0 {
			n.fail("channels_last is not supported; export with channels first")
		}
		scale := operandAt(in, 3)
		if scale == nil {
			n.fail("has %d inputs, the scale of the result is missing", len(in))
		}
		r, why := lookup(&inner)
		if r == nil {
			n.fail("%s cannot be imported%s", op, why)
		}
		v := r.rule(w, &inner, outs(w.dequantised(n, in[0], in[1], in[2])))[0]
		return []*val{w.requantised(n, w.value(v), scale, operandAt(in, 4), in[0].t.DType)}
	}
}

// importQLinearConcat joins (Y_scale, Y_zero_point, then a tensor, its scale and its zero point for each part).
func importQLinearConcat(w *walker, n *node, in []*val) []*val {
	if len(in)%3 != 2 {
		n.fail("has %d inputs: want two and three for each part", len(in))
	}
	dim := n.dim(n.int("axis", 0), len(in[2].t.Dims))
	var parts []*ir.Value
	for i := 2; i < len(in); i += 3 {
		parts = append(parts, w.dequantised(n, in[i], in[i+1], in[i+2]))
	}
	return []*val{w.requantised(n, ops.Concat(w.b, dim, parts...), in[0], in[1], in[1].t.DType)}
}

// importQGemm is alpha*a_scale*b_scale * (op(A) op(B) + C), C being quantised by alpha*a_scale*b_scale; quantised itself
// when the result has a scale.
func importQGemm(w *walker, n *node, in []*val) []*val {
	transA, transB := n.int("transA", 0) != 0, n.int("transB", 0) != 0
	if len(in[0].t.Dims) != 2 || len(in[3].t.Dims) != 2 {
		n.fail("operands are %s and %s: want matrices", in[0].t, in[3].t)
	}
	inner, columns := 1, 1
	if transA {
		inner = 0
	}
	if transB {
		columns = 0
	}
	d := exactFloat(in[0].t.Dims[inner])
	v := ops.MatMulT(w.b, w.centred(n, in[0], in[2], 0, d), w.centred(n, in[3], in[5], columns, d), transA, transB)
	if c := operandAt(in, 6); c != nil {
		v = ops.Add(w.b, v, ops.BroadcastTo(w.b, w.plain(c, d), v.Type.Dims))
	}
	v = ops.Cast(w.b, v, dtype.F32)
	for _, scale := range []*val{in[1], in[4]} {
		v = ops.Mul(w.b, v, w.along(n, w.plain(scale, dtype.F32), v.Type.Dims, 1, 0))
	}
	if alpha := n.float("alpha", 1); alpha != 1 {
		v = ops.MulScalar(w.b, v, alpha)
	}
	if scale := operandAt(in, 7); scale != nil {
		return []*val{w.requantised(n, v, scale, operandAt(in, 8), in[0].t.DType)}
	}
	return outs(v)
}

// importMatMulIntegerToFloat takes (A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias).
func importMatMulIntegerToFloat(w *walker, n *node, in []*val) []*val {
	v := ops.Cast(w.b, w.product(n, in[0], operandAt(in, 4), in[1], operandAt(in, 5)), dtype.F32)
	last := len(v.Type.Dims) - 1
	v = ops.Mul(w.b, v, w.along(n, w.plain(in[2], dtype.F32), v.Type.Dims, max(last-1, 0), 0))
	v = ops.Mul(w.b, v, w.along(n, w.plain(in[3], dtype.F32), v.Type.Dims, last, 0))
	if bias := operandAt(in, 6); bias != nil {
		v = ops.Add(w.b, v, ops.BroadcastTo(w.b, w.value(bias), v.Type.Dims))
	}
	return outs(v)
}

// importDynamicQuantizeMatMul takes (A, B, b_scale, b_zero_point, bias) and quantises A by its own range.
func importDynamicQuantizeMatMul(w *walker, n *node, in []*val) []*val {
	a := importDynamicQuantize(w, n, in[:1])
	return importMatMulIntegerToFloat(w, n, slices.Concat([]*val{a[0], in[1], a[1], in[2], a[2]},
		[]*val{operandAt(in, 3), operandAt(in, 4)}))
}
