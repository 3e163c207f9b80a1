package onnx

import (
	"slices"
	"strconv"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

type reducer func(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value

var reduceRows = []row{
	{op: "ReduceSum", since: 1, min: 1, max: 2, rule: importReduce(ops.ReduceSum)},
	{op: "ReduceMean", since: 1, min: 1, max: 2, rule: importReduce(ops.ReduceMean)},
	{op: "ReduceMax", since: 1, min: 1, max: 2, rule: importReduce(ops.ReduceMax)},
	{op: "ReduceMin", since: 1, min: 1, max: 2, rule: importReduce(ops.ReduceMin)},
	{op: "ReduceProd", since: 1, min: 1, max: 2, rule: importReduce(ops.ReduceProd)},
	{op: "ReduceL1", since: 1, min: 1, max: 2, rule: importReduce(func(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
		return ops.ReduceSum(b, ops.Abs(b, x), dims...)
	})},
	{op: "ReduceL2", since: 1, min: 1, max: 2, rule: importReduce(func(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
		return root(b, ops.ReduceSum(b, ops.Square(b, x), dims...), 2)
	})},
	{op: "ReduceSumSquare", since: 1, min: 1, max: 2, rule: importReduce(func(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
		return ops.ReduceSum(b, ops.Square(b, x), dims...)
	})},
	{op: "ReduceLogSum", since: 1, min: 1, max: 2, rule: importReduce(func(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
		return ops.Log(b, ops.ReduceSum(b, x, dims...))
	})},
	{op: "ReduceLogSumExp", since: 1, min: 1, max: 2, rule: importReduce(logSumExp)},
	{op: "SoftmaxCrossEntropyLoss", since: 12, min: 2, max: 3, rule: importCrossEntropy},
	{op: "NegativeLogLikelihoodLoss", since: 12, min: 2, max: 3, rule: importNLL},
}

// logSumExp subtracts the maximum first, so that nothing overflows.
func logSumExp(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
	m := ops.ReduceMax(b, x, dims...)
	e := ops.Exp(b, ops.Sub(b, x, ops.Expand(b, m, x.Type.Dims)))
	return ops.Add(b, ops.Log(b, ops.ReduceSum(b, e, dims...)), m)
}

func importReduce(f reducer) rule {
	return func(w *walker, n *node, in []*val) []*val {
		x, d := w.value(in[0]), in[0].t.Dims
		axes := reduceAxes(n, len(d), w.knownInts(n, in, 1, "axes"))
		if kept := slices.Clone(d); x.Type.Elems() == 0 {
			for _, a := range axes {
				kept[a] = 1
			}
			if ir.Product(kept) > 0 {
				if n.int("keepdims", 1) == 0 {
					kept = without(kept, axes)
				}
				one := n.ofNothing(x.Type.DType)
				return outs(w.spread(&val{t: one.Type, arr: one}, kept))
			}
		}
		y := f(w.b, x, axes...)
		if n.int("keepdims", 1) != 0 {
			return outs(y)
		}
		return outs(ops.Reshape(w.b, y, without(y.Type.Dims, axes)))
	}
}

// without is dims less the given ones.
func without(dims, drop []int) []int {
	out := []int{}
	for i, d := range dims {
		if !slices.Contains(drop, i) {
			out = append(out, d)
		}
	}
	return out
}

// rowsOf brings scores [N,C,d…] to [R,C] and labels [N,d…] to [R].
func (w *walker) rowsOf(n *node, in []*val) (scores, labels *ir.Value) {
	d, l := in[0].t.Dims, in[1].t.Dims
	if len(d) < 2 || !slices.Equal(l, without(d, []int{1})) || !in[1].t.DType.IsInt() {
		n.fail("scores are %s, labels %s: want [N,C,…] and integers [N,…]", in[0].t, in[1].t)
	}
	perm := []int{0}
	for i := 2; i < len(d); i++ {
		perm = append(perm, i)
	}
	x := ops.Transpose(w.b, w.value(in[0]), append(perm, 1))
	rows := ir.Product(l)
	return ops.Reshape(w.b, x, []int{rows, d[1]}), ops.Reshape(w.b, w.value(in[1]), []int{rows})
}

// importCrossEntropy is log softmax and negative log likelihood in one op per row. The default ignore index of
// PyTorch, -100, also serves for none: no class has it.
func importCrossEntropy(w *walker, n *node, in []*val) []*val {
	if n.fx.is("cross_entropy_loss") && len(n.fx.args) > 5 {
		if p, err := strconv.ParseFloat(n.fx.args[5], 64); err == nil && p != 0 {
			n.fail("the exporter wrote this loss without its label smoothing of %g: export with gtc.export, which keeps it", p)
		}
	}
	x, t := w.rowsOf(n, in)
	ignore := n.int("ignore_index", -100)
	loss := w.reduceLoss(n, in, ops.Xent(w.b, x, t, ignore), x, t)
	if !n.wants(1) {
		return outs(loss)
	}
	return outs(loss, ops.LogSoftmax(w.b, w.value(in[0]), 1))
}

func importNLL(w *walker, n *node, in []*val) []*val {
	x, t := w.rowsOf(n, in)
	valid := ops.Ne(w.b, t, ops.ScalarLike(w.b, t, float64(n.int("ignore_index", -100))))
	safe := ops.Where(w.b, valid, t, ops.Zeros(w.b, t.Type))
	rows := t.Type.Dims[0]
	picked := ops.GatherElements(w.b, x, ops.Reshape(w.b, safe, []int{rows, 1}), 1)
	loss := ops.Neg(w.b, ops.Reshape(w.b, picked, []int{rows}))
	loss = ops.Where(w.b, valid, loss, ops.Zeros(w.b, loss.Type))
	return outs(w.reduceLoss(n, in, loss, x, t))
}

// reduceLoss weights the rows' losses by class and reduces them as the node's reduction says. Ignored rows are
// zero already and do not count in the mean.
func (w *walker) reduceLoss(n *node, in []*val, loss, x, t *ir.Value) *ir.Value {
	valid := ops.Ne(w.b, t, ops.ScalarLike(w.b, t, float64(n.int("ignore_index", -100))))
	weight := ops.Cast(w.b, valid, x.Type.DType)
	if len(in) > 2 && in[2] != nil {
		if !slices.Equal(in[2].t.Dims, x.Type.Dims[1:]) {
			n.fail("class weights are %s, want %d values", in[2].t, x.Type.Dims[1])
		}
		safe := ops.Where(w.b, valid, t, ops.Zeros(w.b, t.Type))
		weight = ops.Mul(w.b, weight, ops.Gather(w.b, w.value(in[2]), safe, 0))
		loss = ops.Mul(w.b, loss, weight)
	}
	switch mode := n.str("reduction", "mean"); mode {
	case "none":
		return ops.Reshape(w.b, loss, in[1].t.Dims)
	case "sum":
		return ops.Reshape(w.b, ops.ReduceSum(w.b, loss, 0), nil)
	case "mean":
		total, count := ops.ReduceSum(w.b, loss, 0), ops.ReduceSum(w.b, weight, 0)
		return ops.Reshape(w.b, ops.Div(w.b, total, count), nil)
	default:
		n.fail("reduction %q", mode)
		return nil
	}
}

// i64 is the element type of shapes and indices.
const i64 = dtype.I64
