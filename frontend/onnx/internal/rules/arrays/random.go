package arrays

import (
	"math"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

var randomRows = []walk.Row{
	{Op: "RandomUniform", Since: 1, Min: 0, Max: 0, Rule: importRandomUniform},
	{Op: "RandomUniformLike", Since: 1, Min: 1, Max: 1, Rule: importRandomUniform},
	{Op: "RandomNormal", Since: 1, Min: 0, Max: 0, Rule: importRandomNormal},
	{Op: "RandomNormalLike", Since: 1, Min: 1, Max: 1, Rule: importRandomNormal},
	{Op: "Bernoulli", Since: 15, Min: 1, Max: 1, Rule: importBernoulli},
	{Op: "Multinomial", Since: 7, Min: 1, Max: 1, Rule: importMultinomial},
	{Op: "Dropout", Since: 1, Min: 1, Max: 1, Rule: importDropout},
	{Op: "Dropout", Since: 12, Min: 1, Max: 3, Rule: importDropout},
}

// noiseStream is the hash function of steps that makes counters of runs differ; streams of nodes are below.
const noiseStream = 1 << 43

// noise numbers the model's sources of random numbers: each has a stream of its own, and new numbers in every step.
// A node's seed, when given, chooses its stream, so that two nodes with one seed draw the same numbers.
func noise(w *walk.Walker, n *model.Node) (counter *ir.Value, stream int) {
	root := w
	for root.Outer != nil {
		root = root.Outer
	}
	if root.Counter == nil {
		step := w.B.Param(abi.StepCount, ir.T(dtype.I64), ir.State)
		seed := w.B.Param(abi.NoiseSeed, ir.T(dtype.I64), ir.State)
		// With seed 0 the counter is the step. Others' are no shifts of it, so that no run has the numbers of another's later steps.
		apart := ops.Mul(w.B, seed, ops.RandBits(w.B, step, noiseStream))
		root.Counter = w.B.Rename(ops.Add(w.B, step, apart), "noise_counter")
	}
	if a := n.Attrs["seed"]; a != nil && a.GetType() == onnxpb.AttributeProto_INT { // Dropout's
		return root.Counter, 1<<41 | int(uint32(a.GetI()))
	}
	if a := n.Attr("seed", onnxpb.AttributeProto_FLOAT); a != nil {
		return root.Counter, 1<<40 | int(math.Float32bits(a.GetF()))
	}
	root.Dropouts++
	return root.Counter, root.Dropouts
}

// uniform is f32 numbers in [0,1). second tells apart two draws of one node.
func uniform(w *walk.Walker, n *model.Node, dims []int, second bool, counter *ir.Value, stream int) *ir.Value {
	if _, err := model.Elements(dims); err != nil {
		n.Fail("shape %v: %v", dims, err)
	}
	if second {
		stream |= 1 << 42
	}
	return ops.Rand(w.B, counter, stream, dims)
}

// randomType is the result's type: that of the operand for …Like, changed by the attributes shape and dtype.
func randomType(n *model.Node, in []*walk.Val) ir.Type {
	t := ir.Type{DType: dtype.F32, Dims: n.Ints("shape")}
	if len(in) > 0 {
		t = in[0].Type
	}
	if code := n.Int("dtype", 0); code != 0 {
		d, err := model.DTypeOf(int32(code))
		if err != nil {
			n.Fail("dtype: %v", err)
		}
		t = t.With(d)
	}
	return t
}

func importRandomUniform(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	t, low, high := randomType(n, in), n.Float("low", 0), n.Float("high", 1)
	if !t.DType.IsFloat() {
		n.Fail("dtype %s is not a float type", t.DType)
	}
	counter, stream := noise(w, n)
	u := uniform(w, n, t.Dims, false, counter, stream)
	return walk.Results(ops.Cast(w.B, ops.AddScalar(w.B, ops.MulScalar(w.B, u, high-low), low), t.DType))
}

// importRandomNormal turns two uniform numbers into a normal one (Box and Muller, 1958).
func importRandomNormal(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	t, b := randomType(n, in), w.B
	if !t.DType.IsFloat() {
		n.Fail("dtype %s is not a float type", t.DType)
	}
	counter, stream := noise(w, n)
	u, v := uniform(w, n, t.Dims, false, counter, stream), uniform(w, n, t.Dims, true, counter, stream)
	radius := ops.Sqrt(b, ops.MulScalar(b, ops.Log(b, ops.Sub(b, ops.ScalarLike(b, u, 1), u)), -2)) // 1-u is in (0,1]
	z := ops.Mul(b, radius, ops.Cos(b, ops.MulScalar(b, v, 2*math.Pi)))
	z = ops.AddScalar(b, ops.MulScalar(b, z, n.Float("scale", 1)), n.Float("mean", 0))
	return walk.Results(ops.Cast(b, z, t.DType))
}

// importBernoulli is 1 with the probability that its operand holds. No gradient passes, as in PyTorch.
func importBernoulli(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	p := w.Value(in[0])
	if !p.Type.DType.IsFloat() {
		n.Fail("operand 0 is %s, but must hold probabilities, which are floats", p.Type)
	}
	counter, stream := noise(w, n)
	u := uniform(w, n, p.Type.Dims, false, counter, stream)
	one := ops.Lt(w.B, ops.Cast(w.B, u, dtype.F64), ops.Cast(w.B, p, dtype.F64))
	return walk.Results(ops.Cast(w.B, one, randomType(n, in).DType))
}

// importMultinomial draws classes by the inverse of the cumulated probabilities of each row of log-probabilities,
// which need not be normalized.
func importMultinomial(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d, count := in[0].Type.Dims, n.Int("sample_size", 1)
	if len(d) != 2 || d[1] < 1 || count < 1 || count > model.MaxFold || !in[0].Type.DType.IsFloat() {
		n.Fail("cannot draw %d samples from %s: operand 0 must be floats [N,classes], and sample_size at least 1", count, in[0].Type)
	}
	to := dtype.I32
	if n.Int("dtype", 6) == int(onnxpb.TensorProto_INT64) {
		to = dtype.I64
	}
	b, dims := w.B, []int{d[0], count, d[1]}
	if _, err := model.Elements(dims); err != nil {
		n.Fail("%d samples: %v", count, err)
	}
	p := ops.Softmax(b, ops.Cast(b, w.Value(in[0]), dtype.F32), 1)
	upTo := ops.Cumsum(b, p, ops.CumsumAttrs{Dim: 1})
	counter, stream := noise(w, n)
	u := ops.Reshape(b, uniform(w, n, dims[:2], false, counter, stream), []int{d[0], count, 1})
	total := ops.SliceDim(b, upTo, 1, d[1]-1, 1) // 1, but for rounding
	u = ops.Mul(b, u, ops.Expand(b, ops.Reshape(b, total, []int{d[0], 1, 1}), u.Type.Dims))
	passed := ops.Ge(b, ops.Expand(b, u, dims), ops.Expand(b, ops.Reshape(b, upTo, []int{d[0], 1, d[1]}), dims))
	class := ops.ReduceSum(b, ops.Cast(b, passed, dtype.I64), 2)
	class = ops.Minimum(b, class, ops.ScalarLike(b, class, float64(d[1]-1)))
	return walk.Results(ops.Cast(b, ops.Reshape(b, class, dims[:2]), to))
}

// importDropout keeps the ratio: the op is active in training, whatever form the file has it in, and programs leave it
// out of evaluation. The mask is what becomes of ones.
func importDropout(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, ratio := w.Value(in[0]), dropoutRatio(w, n, in)
	if ratio == 0 {
		return walk.Results(x, ops.Full(w.B, maskType(n, x.Type), 1))
	}
	counter, stream := noise(w, n)
	y := ops.Dropout(w.B, x, counter, ratio, stream)
	if !n.Wants(1) {
		return walk.Results(y)
	}
	kept := ops.Dropout(w.B, ops.ScalarLike(w.B, x, 1), counter, ratio, stream)
	mask := ops.Ne(w.B, kept, ops.Zeros(w.B, kept.Type))
	return walk.Results(y, ops.Cast(w.B, mask, maskType(n, x.Type).DType))
}

// maskType is the type of Dropout's mask: bool since opset 10, before that the operand's.
func maskType(n *model.Node, x ir.Type) ir.Type {
	if n.Opset < 10 {
		return x
	}
	return x.With(dtype.Bool)
}

func dropoutRatio(w *walk.Walker, n *model.Node, in []*walk.Val) float64 {
	ratio := n.Float("ratio", 0.5)
	if n.Opset >= 12 {
		ratio = 0.5
		if a := MustKnow(w, n, in, 1); a != nil {
			if len(a.F) != 1 {
				n.Fail("the ratio is %s, but must be one float", a.Type)
			}
			ratio = model.Shortest(float32(a.F[0]))
		}
	}
	if !(ratio >= 0 && ratio < 1) {
		n.Fail("ratio %g is outside [0,1)", ratio)
	}
	return ratio
}
