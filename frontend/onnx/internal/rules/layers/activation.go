package layers

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/arrays"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var activationRows = []walk.Row{
	{Op: "Acos", Since: 7, Min: 1, Max: 1, Rule: arrays.Map1(ops.Acos)},
	{Op: "Acosh", Since: 9, Min: 1, Max: 1, Rule: arrays.Map1(ops.Acosh)},
	{Op: "Asin", Since: 7, Min: 1, Max: 1, Rule: arrays.Map1(ops.Asin)},
	{Op: "Asinh", Since: 9, Min: 1, Max: 1, Rule: arrays.Map1(ops.Asinh)},
	{Op: "Atan", Since: 7, Min: 1, Max: 1, Rule: arrays.Map1(ops.Atan)},
	{Op: "Atanh", Since: 9, Min: 1, Max: 1, Rule: arrays.Map1(ops.Atanh)},
	{Op: "Cosh", Since: 9, Min: 1, Max: 1, Rule: arrays.Map1(ops.Cosh)},
	{Op: "Sinh", Since: 9, Min: 1, Max: 1, Rule: arrays.Map1(ops.Sinh)},
	{Op: "Tan", Since: 7, Min: 1, Max: 1, Rule: arrays.Map1(ops.Tan)},
	{Op: "IsNaN", Since: 9, Min: 1, Max: 1, Rule: arrays.Map1(ops.IsNaN)},
	{Op: "IsInf", Since: 10, Min: 1, Max: 1, Rule: importIsInf},
	{Op: "Softplus", Since: 1, Min: 1, Max: 1, Rule: arrays.Map1(ops.Softplus)},
	{Op: "Softsign", Since: 1, Min: 1, Max: 1, Rule: arrays.Map1(Softsign)},
	{Op: "Mish", Since: 18, Min: 1, Max: 1, Rule: arrays.Map1(mish)},
	{Op: "HardSwish", Since: 14, Min: 1, Max: 1, Rule: arrays.Map1(hardSwish)},
	{Op: "HardSigmoid", Since: 6, Min: 1, Max: 1, Rule: importHardSigmoid},
	{Op: "Elu", Since: 6, Min: 1, Max: 1, Rule: importElu},
	{Op: "Selu", Since: 6, Min: 1, Max: 1, Rule: importSelu},
	{Op: "Celu", Since: 12, Min: 1, Max: 1, Rule: importCelu},
	{Op: "LeakyRelu", Since: 6, Min: 1, Max: 1, Rule: importLeakyRelu},
	{Op: "PRelu", Since: 6, Min: 2, Max: 2, Rule: importPRelu},
	{Op: "ThresholdedRelu", Since: 10, Min: 1, Max: 1, Rule: importThresholdedRelu},
	{Op: "Shrink", Since: 9, Min: 1, Max: 1, Rule: importShrink},
	{Op: "Swish", Since: 24, Min: 1, Max: 1, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		return walk.Results(swish(w.B, w.Value(in[0]), n.Float("alpha", 1)))
	}},
	{Op: "SwiGLU", Since: 28, Min: 2, Max: 2, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		if !in[0].Type.Equal(in[1].Type) {
			n.Fail("the gate is %s and the value %s, but both must have the same type", in[0].Type, in[1].Type)
		}
		return walk.Results(ops.Mul(w.B, swish(w.B, w.Value(in[0]), n.Float("alpha", 1)), w.Value(in[1])))
	}},
	{Op: "Hardmax", Since: 1, Min: 1, Max: 1, Rule: importSoftmax(hardmax)},
	{Op: "LRN", Since: 1, Min: 1, Max: 1, Rule: importLRN},
	{Op: "MeanVarianceNormalization", Since: 9, Min: 1, Max: 1, Rule: importMVN},
	{Op: "Det", Since: 11, Min: 1, Max: 1, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		d := in[0].Type.Dims
		if len(d) < 2 || d[len(d)-1] != d[len(d)-2] {
			n.Fail("operand 0 is %s, but must be square matrices", in[0].Type)
		}
		return walk.Results(ops.Det(w.B, w.Value(in[0])))
	}},
	{Op: "Gelu", Since: 20, Min: 1, Max: 1, Rule: importGelu},
}

// importIsInf compares with the infinities that the node looks for.
func importIsInf(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x := w.Value(in[0])
	neg, pos := n.Int("detect_negative", 1) != 0, n.Int("detect_positive", 1) != 0
	is := func(v *ir.Value, sign int) *ir.Value { return ops.Eq(w.B, v, ops.ScalarLike(w.B, v, math.Inf(sign))) }
	switch {
	case neg && pos:
		return walk.Results(is(ops.Abs(w.B, x), 1))
	case neg:
		return walk.Results(is(x, -1))
	case pos:
		return walk.Results(is(x, 1))
	}
	return walk.Results(ops.Zeros(w.B, x.Type.With(dtype.Bool)))
}

// Softsign is x/(1+|x|).
func Softsign(b *ir.Builder, x *ir.Value) *ir.Value {
	return ops.Div(b, x, ops.AddScalar(b, ops.Abs(b, x), 1))
}

func mish(b *ir.Builder, x *ir.Value) *ir.Value {
	return ops.Mul(b, x, ops.Tanh(b, ops.Softplus(b, x)))
}

// swish is x·sigmoid(alpha·x).
func swish(b *ir.Builder, x *ir.Value, alpha float64) *ir.Value {
	if alpha == 1 {
		return ops.Silu(b, x)
	}
	return ops.Mul(b, x, ops.Sigmoid(b, ops.MulScalar(b, x, alpha)))
}

// bounded is x bounded to [0,top], with no gradient at or outside of the bounds, as PyTorch's hard activations have it.
func bounded(b *ir.Builder, x *ir.Value, top float64) *ir.Value {
	y := ops.Relu(b, x)
	end := ops.ScalarLike(b, y, top)
	return ops.Where(b, ops.Ge(b, y, end), end, y)
}

// hardSwish is x·min(max(x+3, 0), 6)/6, whose bounds are exact.
func hardSwish(b *ir.Builder, x *ir.Value) *ir.Value {
	return ops.Mul(b, x, ops.MulScalar(b, bounded(b, ops.AddScalar(b, x, 3), 6), 1.0/6))
}

// HardSigmoid is alpha*x + beta within 0 and 1.
func HardSigmoid(b *ir.Builder, x *ir.Value, alpha, beta float64) *ir.Value {
	return bounded(b, ops.AddScalar(b, ops.MulScalar(b, x, alpha), beta), 1)
}

func importHardSigmoid(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	return walk.Results(HardSigmoid(w.B, w.Value(in[0]), n.Float("alpha", 0.2), n.Float("beta", 0.5)))
}

func importElu(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	return walk.Results(ops.Elu(w.B, w.Value(in[0]), n.Float("alpha", 1)))
}

func importSelu(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	y := ops.Elu(w.B, w.Value(in[0]), n.Float("alpha", 1.6732632423543772))
	return walk.Results(ops.MulScalar(w.B, y, n.Float("gamma", 1.0507009873554805)))
}

// importCelu is max(0,x) + min(0, alpha*(exp(x/alpha)-1)) = alpha*elu(x/alpha).
func importCelu(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	alpha := n.Float("alpha", 1)
	y := ops.Elu(w.B, ops.MulScalar(w.B, w.Value(in[0]), 1/alpha), 1)
	return walk.Results(ops.MulScalar(w.B, y, alpha))
}

func importLeakyRelu(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	return walk.Results(ops.LeakyRelu(w.B, w.Value(in[0]), n.Float("alpha", 0.01)))
}

// importPRelu is x where positive, else slope*x; the slope broadcasts to x only. Before opset 7 it is one number or
// one a channel.
func importPRelu(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x := w.Value(in[0])
	var slope *ir.Value
	if d := in[1].Type.Dims; n.Opset < 7 && len(d) == 1 && d[0] > 1 && len(x.Type.Dims) > 1 {
		slope = perChannel(w, in[1], x.Type.Dims)
	} else {
		slope = w.Spread(in[1], x.Type.Dims)
	}
	positive := ops.Gt(w.B, x, ops.Zeros(w.B, x.Type))
	return walk.Results(ops.Where(w.B, positive, x, ops.Mul(w.B, slope, x)))
}

func importThresholdedRelu(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x := w.Value(in[0])
	above := ops.Gt(w.B, x, ops.ScalarLike(w.B, x, n.Float("alpha", 1)))
	return walk.Results(ops.Where(w.B, above, x, ops.Zeros(w.B, x.Type)))
}

// importShrink moves what is outside [-lambd, lambd] by bias towards zero; the rest is zero. Integers are compared
// as floats, and the bias truncates with the cast back.
func importShrink(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, lambda, bias := w.Value(in[0]), n.Float("lambd", 0.5), n.Float("bias", 0)
	d := x.Type.DType
	if !d.IsFloat() {
		x = ops.Cast(w.B, x, dtype.F64)
	}
	zero := ops.Zeros(w.B, x.Type)
	above := ops.Gt(w.B, x, ops.ScalarLike(w.B, x, lambda))
	below := ops.Lt(w.B, x, ops.ScalarLike(w.B, x, -lambda))
	y := ops.Where(w.B, below, ops.AddScalar(w.B, x, bias), zero)
	y = ops.Where(w.B, above, ops.AddScalar(w.B, x, -bias), y)
	return walk.Results(ops.Cast(w.B, y, d))
}

func importGelu(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	return walk.Results(ops.Gelu(w.B, w.Value(in[0]), n.Str("approximate", "none") == "tanh"))
}

// hardmax is 1 at the first maximum along dim, else 0.
func hardmax(b *ir.Builder, x *ir.Value, dim int) *ir.Value {
	best := ops.Expand(b, ops.Argmax(b, x, dim), x.Type.Dims)
	return ops.Cast(b, ops.Eq(b, ops.Iota(b, dtype.I64, x.Type.Dims, dim), best), x.Type.DType)
}

// importLRN divides by the sum of squares of neighbouring channels: shifted slices of the padded squares, added.
func importLRN(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, d, size := w.Value(in[0]), in[0].Type.Dims, n.Int("size", 0)
	if len(d) < 2 || size < 1 || size > maxWindow {
		n.Fail("size is %d, but must be from 1 to %d, and operand 0 is %s, which needs channels", size, maxWindow, in[0].Type)
	}
	low, high := make([]int, len(d)), make([]int, len(d))
	low[1], high[1] = (size-1)/2, size/2
	squares := ops.Pad(w.B, ops.Square(w.B, x), low, high, nil, 0)
	sum := ops.SliceDim(w.B, squares, 1, 0, d[1])
	for k := 1; k < size; k++ {
		sum = ops.Add(w.B, sum, ops.SliceDim(w.B, squares, 1, k, d[1]))
	}
	base := ops.AddScalar(w.B, ops.MulScalar(w.B, sum, n.Float("alpha", 1e-4)/float64(size)), n.Float("bias", 1))
	scale := ops.Pow(w.B, base, ops.ScalarLike(w.B, base, -n.Float("beta", 0.75)))
	return walk.Results(ops.Mul(w.B, x, scale))
}

// maxWindow bounds the channels that LRN adds up, an op each.
const maxWindow = 1024

// importMVN is (x-mean)/(std+1e-9) over the axes, as the operator's function body has it.
func importMVN(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, axes := w.Value(in[0]), n.Ints("axes")
	if axes == nil {
		axes = []int{0, 2, 3}
	}
	axes = fold.ReduceAxes(n, len(in[0].Type.Dims), axes)
	centred := ops.Sub(w.B, x, ops.Expand(w.B, ops.ReduceMean(w.B, x, axes...), x.Type.Dims))
	std := ops.Sqrt(w.B, ops.ReduceMean(w.B, ops.Square(w.B, centred), slices.Clone(axes)...))
	return walk.Results(ops.Div(w.B, centred, ops.Expand(w.B, ops.AddScalar(w.B, std, 1e-9), x.Type.Dims)))
}
