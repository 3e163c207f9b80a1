package domains

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/arrays"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Quantised operators of com.microsoft, which ONNX Runtime's quantiser writes: each dequantises, computes and quantises.
// Their gradients are those of the parts.
var quantContribRows = []walk.Row{
	{Op: "com.microsoft.QLinearAdd", Since: 1, Min: 7, Max: 8, Rule: qlinear(ops.Add)},
	{Op: "com.microsoft.QLinearMul", Since: 1, Min: 7, Max: 8, Rule: qlinear(ops.Mul)},
	{Op: "com.microsoft.QLinearSigmoid", Since: 1, Min: 2, Max: 5, Rule: qlinearOf("Sigmoid")},
	{Op: "com.microsoft.QLinearLeakyRelu", Since: 1, Min: 2, Max: 5, Rule: qlinearOf("LeakyRelu")},
	{Op: "com.microsoft.QLinearSoftmax", Since: 1, Min: 2, Max: 5, Rule: qlinearOf("Softmax")},
	{Op: "com.microsoft.QLinearReduceMean", Since: 1, Min: 2, Max: 5, Rule: qlinearOf("ReduceMean")},
	{Op: "com.microsoft.QLinearAveragePool", Since: 1, Min: 2, Max: 5, Rule: qlinearOf("AveragePool")},
	{Op: "com.microsoft.QLinearGlobalAveragePool", Since: 1, Min: 2, Max: 5, Rule: qlinearOf("GlobalAveragePool")},
	{Op: "com.microsoft.QLinearConcat", Since: 1, Min: 5, Max: -1, Rule: importQLinearConcat},
	{Op: "com.microsoft.QGemm", Since: 1, Min: 6, Max: 9, Rule: importQGemm},
	{Op: "com.microsoft.MatMulIntegerToFloat", Since: 1, Min: 4, Max: 7, Rule: importMatMulIntegerToFloat},
	{Op: "com.microsoft.DynamicQuantizeMatMul", Since: 1, Min: 3, Max: 5, Rule: importDynamicQuantizeMatMul},
}

// dequantised is (x - zp) * scale in f32.
func dequantised(w *walk.Walker, n *model.Node, x, scale, zp *walk.Val) *ir.Value {
	v := centred(w, n, x, zp, 0, dtype.F32)
	return ops.Mul(w.B, v, along(w, n, plain(w, scale, dtype.F32), v.Type.Dims, 0, 0))
}

// requantised is v, f32, quantised to type d by one scale and zero point.
func requantised(w *walk.Walker, n *model.Node, v *ir.Value, scale, zp *walk.Val, d dtype.DType) *walk.Val {
	r := ops.Div(w.B, v, along(w, n, plain(w, scale, dtype.F32), v.Type.Dims, 0, 0))
	return quantise(w, r, zeroPoint(w, n, zp, v.Type.Dims, 0, 0), d, true)
}

// qlinear imports (A, A_scale, A_zero_point, B, B_scale, B_zero_point, C_scale, C_zero_point).
func qlinear(f func(b *ir.Builder, x, y *ir.Value) *ir.Value) walk.Rule {
	two := arrays.Map2(f)
	return func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		a, b := dequantised(w, n, in[0], in[1], in[2]), dequantised(w, n, in[3], in[4], in[5])
		v := two(w, n, walk.Results(a, b))[0].Value
		return []*walk.Val{requantised(w, n, v, in[6], operandAt(in, 7), in[0].Type.DType)}
	}
}

// qlinearOf imports (X, X_scale, X_zero_point, Y_scale, Y_zero_point) around an operator of the default domain.
func qlinearOf(op string) walk.Rule {
	return func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		inner := *n
		inner.Op, inner.Opset = op, 13
		if n.Int("channels_last", 0) != 0 {
			n.Fail("channels_last is not supported; export with channels first")
		}
		scale := operandAt(in, 3)
		if scale == nil {
			n.Fail("it has %d inputs, among which the scale of the result is missing", len(in))
		}
		r, why := walk.Lookup(&inner)
		if r == nil {
			n.Fail("%s cannot be imported%s", op, why)
		}
		v := r.Rule(w, &inner, walk.Results(dequantised(w, n, in[0], in[1], in[2])))[0]
		return []*walk.Val{requantised(w, n, w.Value(v), scale, operandAt(in, 4), in[0].Type.DType)}
	}
}

// importQLinearConcat joins (Y_scale, Y_zero_point, then a tensor, its scale and its zero point for each part).
func importQLinearConcat(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	if len(in)%3 != 2 {
		n.Fail("it has %d inputs, but must have two, and three more for each part", len(in))
	}
	dim := n.Dim(n.Int("axis", 0), len(in[2].Type.Dims))
	var parts []*ir.Value
	for i := 2; i < len(in); i += 3 {
		parts = append(parts, dequantised(w, n, in[i], in[i+1], in[i+2]))
	}
	return []*walk.Val{requantised(w, n, ops.Concat(w.B, dim, parts...), in[0], in[1], in[1].Type.DType)}
}

// importQGemm is alpha*a_scale*b_scale * (op(A) op(B) + C), C being quantised by alpha*a_scale*b_scale; quantised itself
// when the result has a scale.
func importQGemm(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	transA, transB := n.Int("transA", 0) != 0, n.Int("transB", 0) != 0
	if len(in[0].Type.Dims) != 2 || len(in[3].Type.Dims) != 2 {
		n.Fail("operands are %s and %s, but must be matrices", in[0].Type, in[3].Type)
	}
	inner, columns := 1, 1
	if transA {
		inner = 0
	}
	if transB {
		columns = 0
	}
	d := exactFloat(in[0].Type.Dims[inner])
	v := ops.MatMulT(w.B, centred(w, n, in[0], in[2], 0, d), centred(w, n, in[3], in[5], columns, d), transA, transB)
	if c := operandAt(in, 6); c != nil {
		v = ops.Add(w.B, v, ops.BroadcastTo(w.B, plain(w, c, d), v.Type.Dims))
	}
	v = ops.Cast(w.B, v, dtype.F32)
	for _, scale := range []*walk.Val{in[1], in[4]} {
		v = ops.Mul(w.B, v, along(w, n, plain(w, scale, dtype.F32), v.Type.Dims, 1, 0))
	}
	if alpha := n.Float("alpha", 1); alpha != 1 {
		v = ops.MulScalar(w.B, v, alpha)
	}
	if scale := operandAt(in, 7); scale != nil {
		return []*walk.Val{requantised(w, n, v, scale, operandAt(in, 8), in[0].Type.DType)}
	}
	return walk.Results(v)
}

// importMatMulIntegerToFloat takes (A, B, a_scale, b_scale, a_zero_point, b_zero_point, bias).
func importMatMulIntegerToFloat(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	v := ops.Cast(w.B, product(w, n, in[0], operandAt(in, 4), in[1], operandAt(in, 5)), dtype.F32)
	last := len(v.Type.Dims) - 1
	v = ops.Mul(w.B, v, along(w, n, plain(w, in[2], dtype.F32), v.Type.Dims, max(last-1, 0), 0))
	v = ops.Mul(w.B, v, along(w, n, plain(w, in[3], dtype.F32), v.Type.Dims, last, 0))
	if bias := operandAt(in, 6); bias != nil {
		v = ops.Add(w.B, v, ops.BroadcastTo(w.B, w.Value(bias), v.Type.Dims))
	}
	return walk.Results(v)
}

// importDynamicQuantizeMatMul takes (A, B, b_scale, b_zero_point, bias) and quantises A by its own range.
func importDynamicQuantizeMatMul(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	a := importDynamicQuantize(w, n, in[:1])
	return importMatMulIntegerToFloat(w, n, slices.Concat([]*walk.Val{a[0], in[1], a[1], in[2], a[2]},
		[]*walk.Val{operandAt(in, 3), operandAt(in, 4)}))
}
