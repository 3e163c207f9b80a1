package onnx

import (
	"math"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var randomRows = []row{
	{op: "RandomUniform", since: 1, min: 0, max: 0, rule: importRandomUniform},
	{op: "RandomUniformLike", since: 1, min: 1, max: 1, rule: importRandomUniform},
	{op: "RandomNormal", since: 1, min: 0, max: 0, rule: importRandomNormal},
	{op: "RandomNormalLike", since: 1, min: 1, max: 1, rule: importRandomNormal},
	{op: "Bernoulli", since: 15, min: 1, max: 1, rule: importBernoulli},
	{op: "Multinomial", since: 7, min: 1, max: 1, rule: importMultinomial},
	{op: "Dropout", since: 1, min: 1, max: 1, rule: importDropout},
	{op: "Dropout", since: 12, min: 1, max: 3, rule: importDropout},
}

// NoiseSeed names the state, i64[] of 0 to 2^31-1, that tells apart the random numbers of runs of one program. A run sets it before
// its first step.
const NoiseSeed = "noise_seed"

// noiseStream is the hash function of steps that makes counters of runs differ; streams of nodes are below.
const noiseStream = 1 << 43

// noise numbers the model's sources of random numbers: each has a stream of its own, and new numbers in every step.
// A node's seed, when given, chooses its stream, so that two nodes with one seed draw the same numbers.
func (w *walker) noise(n *node) (counter *ir.Value, stream int) {
	root := w
	for root.outer != nil {
		root = root.outer
	}
	if root.counter == nil {
		step := w.b.Param("step", ir.T(dtype.I64), ir.State)
		seed := w.b.Param(NoiseSeed, ir.T(dtype.I64), ir.State)
		// With seed 0 the counter is the step. Others' are no shifts of it, so that no run has the numbers of another's later steps.
		apart := ops.Mul(w.b, seed, ops.RandBits(w.b, step, noiseStream))
		root.counter = w.b.Rename(ops.Add(w.b, step, apart), "noise_counter")
	}
	if a := n.attrs["seed"]; a != nil && a.GetType() == onnxpb.AttributeProto_INT { // Dropout's
		return root.counter, 1<<41 | int(uint32(a.GetI()))
	}
	if a := n.attr("seed", onnxpb.AttributeProto_FLOAT); a != nil {
		return root.counter, 1<<40 | int(math.Float32bits(a.GetF()))
	}
	root.dropouts++
	return root.counter, root.dropouts
}

// uniform is f32 numbers in [0,1). second tells apart two draws of one node.
func (w *walker) uniform(n *node, dims []int, second bool, counter *ir.Value, stream int) *ir.Value {
	if _, err := product(dims); err != nil {
		n.fail("shape %v: %v", dims, err)
	}
	if second {
		stream |= 1 << 42
	}
	return ops.Rand(w.b, counter, stream, dims)
}

// randomType is the result's type: that of the operand for …Like, changed by the attributes shape and dtype.
func (n *node) randomType(in []*val) ir.Type {
	t := ir.Type{DType: dtype.F32, Dims: n.ints("shape")}
	if len(in) > 0 {
		t = in[0].t
	}
	if code := n.int("dtype", 0); code != 0 {
		d, err := convertType(int32(code))
		if err != nil {
			n.fail("dtype: %v", err)
		}
		t = t.With(d)
	}
	return t
}

func importRandomUniform(w *walker, n *node, in []*val) []*val {
	t, low, high := n.randomType(in), n.float("low", 0), n.float("high", 1)
	if !t.DType.IsFloat() {
		n.fail("dtype %s is not a float type", t.DType)
	}
	counter, stream := w.noise(n)
	u := w.uniform(n, t.Dims, false, counter, stream)
	return outs(ops.Cast(w.b, ops.AddScalar(w.b, ops.MulScalar(w.b, u, high-low), low), t.DType))
}

// importRandomNormal turns two uniform numbers into a normal one (Box and Muller, 1958).
func importRandomNormal(w *walker, n *node, in []*val) []*val {
	t, b := n.randomType(in), w.b
	if !t.DType.IsFloat() {
		n.fail("dtype %s is not a float type", t.DType)
	}
	counter, stream := w.noise(n)
	u, v := w.uniform(n, t.Dims, false, counter, stream), w.uniform(n, t.Dims, true, counter, stream)
	radius := ops.Sqrt(b, ops.MulScalar(b, ops.Log(b, ops.Sub(b, ops.ScalarLike(b, u, 1), u)), -2)) // 1-u is in (0,1]
	z := ops.Mul(b, radius, ops.Cos(b, ops.MulScalar(b, v, 2*math.Pi)))
	z = ops.AddScalar(b, ops.MulScalar(b, z, n.float("scale", 1)), n.float("mean", 0))
	return outs(ops.Cast(b, z, t.DType))
}

// importBernoulli is 1 with the probability that its operand holds. No gradient passes, as in PyTorch.
func importBernoulli(w *walker, n *node, in []*val) []*val {
	p := w.value(in[0])
	if !p.Type.DType.IsFloat() {
		n.fail("operand 0 is %s, want probabilities", p.Type)
	}
	counter, stream := w.noise(n)
	u := w.uniform(n, p.Type.Dims, false, counter, stream)
	one := ops.Lt(w.b, ops.Cast(w.b, u, dtype.F64), ops.Cast(w.b, p, dtype.F64))
	return outs(ops.Cast(w.b, one, n.randomType(in).DType))
}

// importMultinomial draws classes by the inverse of the cumulated probabilities of each row of log-probabilities,
// which need not be normalized.
func importMultinomial(w *walker, n *node, in []*val) []*val {
	d, count := in[0].t.Dims, n.int("sample_size", 1)
	if len(d) != 2 || d[1] < 1 || count < 1 || count > maxFold || !in[0].t.DType.IsFloat() {
		n.fail("%d samples of %s: want floats [N,classes]", count, in[0].t)
	}
	to := dtype.I32
	if n.int("dtype", 6) == int(onnxpb.TensorProto_INT64) {
		to = dtype.I64
	}
	b, dims := w.b, []int{d[0], count, d[1]}
	if _, err := product(dims); err != nil {
		n.fail("%d samples: %v", count, err)
	}
	p := ops.Softmax(b, ops.Cast(b, w.value(in[0]), dtype.F32), 1)
	upTo := ops.Cumsum(b, p, ops.CumsumAttrs{Dim: 1})
	counter, stream := w.noise(n)
	u := ops.Reshape(b, w.uniform(n, dims[:2], false, counter, stream), []int{d[0], count, 1})
	total := ops.SliceDim(b, upTo, 1, d[1]-1, 1) // 1, but for rounding
	u = ops.Mul(b, u, ops.Expand(b, ops.Reshape(b, total, []int{d[0], 1, 1}), u.Type.Dims))
	passed := ops.Ge(b, ops.Expand(b, u, dims), ops.Expand(b, ops.Reshape(b, upTo, []int{d[0], 1, d[1]}), dims))
	class := ops.ReduceSum(b, ops.Cast(b, passed, dtype.I64), 2)
	class = ops.Minimum(b, class, ops.ScalarLike(b, class, float64(d[1]-1)))
	return outs(ops.Cast(b, ops.Reshape(b, class, dims[:2]), to))
}

// importDropout keeps the ratio: the op is active in training, whatever form the file has it in, and programs leave it
// out of evaluation. The mask is what becomes of ones.
func importDropout(w *walker, n *node, in []*val) []*val {
	x, ratio := w.value(in[0]), w.dropoutRatio(n, in)
	if ratio == 0 {
		return outs(x, ops.Full(w.b, n.maskType(x.Type), 1))
	}
	counter, stream := w.noise(n)
	y := ops.Dropout(w.b, x, counter, ratio, stream)
	if !n.wants(1) {
		return outs(y)
	}
	kept := ops.Dropout(w.b, ops.ScalarLike(w.b, x, 1), counter, ratio, stream)
	mask := ops.Ne(w.b, kept, ops.Zeros(w.b, kept.Type))
	return outs(y, ops.Cast(w.b, mask, n.maskType(x.Type).DType))
}

// maskType is the type of Dropout's mask: bool since opset 10, before that the operand's.
func (n *node) maskType(x ir.Type) ir.Type {
	if n.opset < 10 {
		return x
	}
	return x.With(dtype.Bool)
}

func (w *walker) dropoutRatio(n *node, in []*val) float64 {
	ratio := n.float("ratio", 0.5)
	if n.opset >= 12 {
		ratio = 0.5
		if a := w.known(n, in, 1); a != nil {
			if len(a.F) != 1 {
				n.fail("the ratio is %s, want one float", a.Type)
			}
			ratio = shortest(float32(a.F[0]))
		}
	}
	if !(ratio >= 0 && ratio < 1) {
		n.fail("ratio %g is outside [0,1)", ratio)
	}
	return ratio
}
