package onnx

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var activationRows = []row{
	{op: "Acos", since: 7, min: 1, max: 1, rule: map1(ops.Acos)},
	{op: "Acosh", since: 9, min: 1, max: 1, rule: map1(ops.Acosh)},
	{op: "Asin", since: 7, min: 1, max: 1, rule: map1(ops.Asin)},
	{op: "Asinh", since: 9, min: 1, max: 1, rule: map1(ops.Asinh)},
	{op: "Atan", since: 7, min: 1, max: 1, rule: map1(ops.Atan)},
	{op: "Atanh", since: 9, min: 1, max: 1, rule: map1(ops.Atanh)},
	{op: "Cosh", since: 9, min: 1, max: 1, rule: map1(ops.Cosh)},
	{op: "Sinh", since: 9, min: 1, max: 1, rule: map1(ops.Sinh)},
	{op: "Tan", since: 7, min: 1, max: 1, rule: map1(ops.Tan)},
	{op: "IsNaN", since: 9, min: 1, max: 1, rule: map1(ops.IsNaN)},
	{op: "IsInf", since: 10, min: 1, max: 1, rule: importIsInf},
	{op: "Softplus", since: 1, min: 1, max: 1, rule: map1(ops.Softplus)},
	{op: "Softsign", since: 1, min: 1, max: 1, rule: map1(softsign)},
	{op: "Mish", since: 18, min: 1, max: 1, rule: map1(mish)},
	{op: "HardSwish", since: 14, min: 1, max: 1, rule: map1(hardSwish)},
	{op: "HardSigmoid", since: 6, min: 1, max: 1, rule: importHardSigmoid},
	{op: "Elu", since: 6, min: 1, max: 1, rule: importElu},
	{op: "Selu", since: 6, min: 1, max: 1, rule: importSelu},
	{op: "Celu", since: 12, min: 1, max: 1, rule: importCelu},
	{op: "LeakyRelu", since: 6, min: 1, max: 1, rule: importLeakyRelu},
	{op: "PRelu", since: 6, min: 2, max: 2, rule: importPRelu},
	{op: "ThresholdedRelu", since: 10, min: 1, max: 1, rule: importThresholdedRelu},
	{op: "Shrink", since: 9, min: 1, max: 1, rule: importShrink},
	{op: "Swish", since: 24, min: 1, max: 1, rule: func(w *walker, n *node, in []*val) []*val {
		return outs(swish(w.b, w.value(in[0]), n.float("alpha", 1)))
	}},
	{op: "SwiGLU", since: 28, min: 2, max: 2, rule: func(w *walker, n *node, in []*val) []*val {
		if !in[0].t.Equal(in[1].t) {
			n.fail("the gate is %s, the value %s: want equal types", in[0].t, in[1].t)
		}
		return outs(ops.Mul(w.b, swish(w.b, w.value(in[0]), n.float("alpha", 1)), w.value(in[1])))
	}},
	{op: "Hardmax", since: 1, min: 1, max: 1, rule: importSoftmax(hardmax)},
	{op: "LRN", since: 1, min: 1, max: 1, rule: importLRN},
	{op: "MeanVarianceNormalization", since: 9, min: 1, max: 1, rule: importMVN},
	{op: "Det", since: 11, min: 1, max: 1, rule: func(w *walker, n *node, in []*val) []*val {
		d := in[0].t.Dims
		if len(d) < 2 || d[len(d)-1] != d[len(d)-2] {
			n.fail("operand 0 is %s: want square matrices", in[0].t)
		}
		return outs(ops.Det(w.b, w.value(in[0])))
	}},
	{op: "Gelu", since: 20, min: 1, max: 1, rule: importGelu},
}

// importIsInf compares with the infinities that the node looks for.
func importIsInf(w *walker, n *node, in []*val) []*val {
	x := w.value(in[0])
	neg, pos := n.int("detect_negative", 1) != 0, n.int("detect_positive", 1) != 0
	is := func(v *ir.Value, sign int) *ir.Value { return ops.Eq(w.b, v, ops.ScalarLike(w.b, v, math.Inf(sign))) }
	switch {
	case neg && pos:
		return outs(is(ops.Abs(w.b, x), 1))
	case neg:
		return outs(is(x, -1))
	case pos:
		return outs(is(x, 1))
	}
	return outs(ops.Zeros(w.b, x.Type.With(dtype.Bool)))
}

func softsign(b *ir.Builder, x *ir.Value) *ir.Value {
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

func hardSigmoid(b *ir.Builder, x *ir.Value, alpha, beta float64) *ir.Value {
	return bounded(b, ops.AddScalar(b, ops.MulScalar(b, x, alpha), beta), 1)
}

func importHardSigmoid(w *walker, n *node, in []*val) []*val {
	return outs(hardSigmoid(w.b, w.value(in[0]), n.float("alpha", 0.2), n.float("beta", 0.5)))
}

func importElu(w *walker, n *node, in []*val) []*val {
	return outs(ops.Elu(w.b, w.value(in[0]), n.float("alpha", 1)))
}

func importSelu(w *walker, n *node, in []*val) []*val {
	y := ops.Elu(w.b, w.value(in[0]), n.float("alpha", 1.6732632423543772))
	return outs(ops.MulScalar(w.b, y, n.float("gamma", 1.0507009873554805)))
}

// importCelu is max(0,x) + min(0, alpha*(exp(x/alpha)-1)) = alpha*elu(x/alpha).
func importCelu(w *walker, n *node, in []*val) []*val {
	alpha := n.float("alpha", 1)
	y := ops.Elu(w.b, ops.MulScalar(w.b, w.value(in[0]), 1/alpha), 1)
	return outs(ops.MulScalar(w.b, y, alpha))
}

func importLeakyRelu(w *walker, n *node, in []*val) []*val {
	return outs(ops.LeakyRelu(w.b, w.value(in[0]), n.float("alpha", 0.01)))
}

// importPRelu is x where positive, else slope*x; the slope broadcasts to x only. Before opset 7 it is one number or
// one a channel.
func importPRelu(w *walker, n *node, in []*val) []*val {
	x := w.value(in[0])
	var slope *ir.Value
	if d := in[1].t.Dims; n.opset < 7 && len(d) == 1 && d[0] > 1 && len(x.Type.Dims) > 1 {
		slope = w.perChannel(in[1], x.Type.Dims)
	} else {
		slope = w.spread(in[1], x.Type.Dims)
	}
	positive := ops.Gt(w.b, x, ops.Zeros(w.b, x.Type))
	return outs(ops.Where(w.b, positive, x, ops.Mul(w.b, slope, x)))
}

func importThresholdedRelu(w *walker, n *node, in []*val) []*val {
	x := w.value(in[0])
	above := ops.Gt(w.b, x, ops.ScalarLike(w.b, x, n.float("alpha", 1)))
	return outs(ops.Where(w.b, above, x, ops.Zeros(w.b, x.Type)))
}

// importShrink moves what is outside [-lambd, lambd] by bias towards zero; the rest is zero. Integers are compared
// as floats, and the bias truncates with the cast back.
func importShrink(w *walker, n *node, in []*val) []*val {
	x, lambda, bias := w.value(in[0]), n.float("lambd", 0.5), n.float("bias", 0)
	d := x.Type.DType
	if !d.IsFloat() {
		x = ops.Cast(w.b, x, dtype.F64)
	}
	zero := ops.Zeros(w.b, x.Type)
	above := ops.Gt(w.b, x, ops.ScalarLike(w.b, x, lambda))
	below := ops.Lt(w.b, x, ops.ScalarLike(w.b, x, -lambda))
	y := ops.Where(w.b, below, ops.AddScalar(w.b, x, bias), zero)
	y = ops.Where(w.b, above, ops.AddScalar(w.b, x, -bias), y)
	return outs(ops.Cast(w.b, y, d))
}

func importGelu(w *walker, n *node, in []*val) []*val {
	return outs(ops.Gelu(w.b, w.value(in[0]), n.str("approximate", "none") == "tanh"))
}

// hardmax is 1 at the first maximum along dim, else 0.
func hardmax(b *ir.Builder, x *ir.Value, dim int) *ir.Value {
	best := ops.Expand(b, ops.Argmax(b, x, dim), x.Type.Dims)
	return ops.Cast(b, ops.Eq(b, ops.Iota(b, dtype.I64, x.Type.Dims, dim), best), x.Type.DType)
}

// importLRN divides by the sum of squares of neighbouring channels: shifted slices of the padded squares, added.
func importLRN(w *walker, n *node, in []*val) []*val {
	x, d, size := w.value(in[0]), in[0].t.Dims, n.int("size", 0)
	if len(d) < 2 || size < 1 || size > maxWindow {
		n.fail("a window of %d channels (1 to %d) of %s", size, maxWindow, in[0].t)
	}
	low, high := make([]int, len(d)), make([]int, len(d))
	low[1], high[1] = (size-1)/2, size/2
	squares := ops.Pad(w.b, ops.Square(w.b, x), low, high, nil, 0)
	sum := ops.SliceDim(w.b, squares, 1, 0, d[1])
	for k := 1; k < size; k++ {
		sum = ops.Add(w.b, sum, ops.SliceDim(w.b, squares, 1, k, d[1]))
	}
	base := ops.AddScalar(w.b, ops.MulScalar(w.b, sum, n.float("alpha", 1e-4)/float64(size)), n.float("bias", 1))
	scale := ops.Pow(w.b, base, ops.ScalarLike(w.b, base, -n.float("beta", 0.75)))
	return outs(ops.Mul(w.b, x, scale))
}

// maxWindow bounds the channels that LRN adds up, an op each.
const maxWindow = 1024

// importMVN is (x-mean)/(std+1e-9) over the axes, as the operator's function body has it.
func importMVN(w *walker, n *node, in []*val) []*val {
	x, axes := w.value(in[0]), n.ints("axes")
	if axes == nil {
		axes = []int{0, 2, 3}
	}
	axes = reduceAxes(n, len(in[0].t.Dims), axes)
	centred := ops.Sub(w.b, x, ops.Expand(w.b, ops.ReduceMean(w.b, x, axes...), x.Type.Dims))
	std := ops.Sqrt(w.b, ops.ReduceMean(w.b, ops.Square(w.b, centred), slices.Clone(axes)...))
	return outs(ops.Div(w.b, centred, ops.Expand(w.b, ops.AddScalar(w.b, std, 1e-9), x.Type.Dims)))
}
