package arrays

import (
	"slices"
	"strconv"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

type reducer func(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value

var reduceRows = []walk.Row{
	{Op: "ReduceSum", Since: 1, Min: 1, Max: 2, Rule: importReduce(ops.ReduceSum)},
	{Op: "ReduceMean", Since: 1, Min: 1, Max: 2, Rule: importReduce(ops.ReduceMean)},
	{Op: "ReduceMax", Since: 1, Min: 1, Max: 2, Rule: importReduce(ops.ReduceMax)},
	{Op: "ReduceMin", Since: 1, Min: 1, Max: 2, Rule: importReduce(ops.ReduceMin)},
	{Op: "ReduceProd", Since: 1, Min: 1, Max: 2, Rule: importReduce(ops.ReduceProd)},
	{Op: "ReduceL1", Since: 1, Min: 1, Max: 2, Rule: importReduce(func(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
		return ops.ReduceSum(b, ops.Abs(b, x), dims...)
	})},
	{Op: "ReduceL2", Since: 1, Min: 1, Max: 2, Rule: importReduce(func(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
		return Root(b, ops.ReduceSum(b, ops.Square(b, x), dims...), 2)
	})},
	{Op: "ReduceSumSquare", Since: 1, Min: 1, Max: 2, Rule: importReduce(func(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
		return ops.ReduceSum(b, ops.Square(b, x), dims...)
	})},
	{Op: "ReduceLogSum", Since: 1, Min: 1, Max: 2, Rule: importReduce(func(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
		return ops.Log(b, ops.ReduceSum(b, x, dims...))
	})},
	{Op: "ReduceLogSumExp", Since: 1, Min: 1, Max: 2, Rule: importReduce(logSumExp)},
	{Op: "SoftmaxCrossEntropyLoss", Since: 12, Min: 2, Max: 3, Rule: importCrossEntropy},
	{Op: "NegativeLogLikelihoodLoss", Since: 12, Min: 2, Max: 3, Rule: importNLL},
}

// logSumExp subtracts the maximum first, so that nothing overflows.
func logSumExp(b *ir.Builder, x *ir.Value, dims ...int) *ir.Value {
	m := ops.ReduceMax(b, x, dims...)
	e := ops.Exp(b, ops.Sub(b, x, ops.Expand(b, m, x.Type.Dims)))
	return ops.Add(b, ops.Log(b, ops.ReduceSum(b, e, dims...)), m)
}

func importReduce(f reducer) walk.Rule {
	return func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		x, d := w.Value(in[0]), in[0].Type.Dims
		axes := fold.ReduceAxes(n, len(d), MustKnowInts(w, n, in, 1, "axes"))
		if kept := slices.Clone(d); x.Type.Elems() == 0 {
			for _, a := range axes {
				kept[a] = 1
			}
			if ir.Product(kept) > 0 {
				if n.Int("keepdims", 1) == 0 {
					kept = Without(kept, axes)
				}
				one := fold.OfNothing(n, x.Type.DType)
				return walk.Results(w.Spread(&walk.Val{Type: one.Type, Array: one}, kept))
			}
		}
		y := f(w.B, x, axes...)
		if n.Int("keepdims", 1) != 0 {
			return walk.Results(y)
		}
		return walk.Results(ops.Reshape(w.B, y, Without(y.Type.Dims, axes)))
	}
}

// Without is dims less the given ones.
func Without(dims, drop []int) []int {
	out := []int{}
	for i, d := range dims {
		if !slices.Contains(drop, i) {
			out = append(out, d)
		}
	}
	return out
}

// rowsOf brings scores [N,C,d…] to [R,C] and labels [N,d…] to [R].
func rowsOf(w *walk.Walker, n *model.Node, in []*walk.Val) (scores, labels *ir.Value) {
	d, l := in[0].Type.Dims, in[1].Type.Dims
	if len(d) < 2 || !slices.Equal(l, Without(d, []int{1})) || !in[1].Type.DType.IsInt() {
		n.Fail("scores are %s and labels %s, but must be [N,C,…] and integers [N,…]", in[0].Type, in[1].Type)
	}
	perm := []int{0}
	for i := 2; i < len(d); i++ {
		perm = append(perm, i)
	}
	x := ops.Transpose(w.B, w.Value(in[0]), append(perm, 1))
	rows := ir.Product(l)
	return ops.Reshape(w.B, x, []int{rows, d[1]}), ops.Reshape(w.B, w.Value(in[1]), []int{rows})
}

// importCrossEntropy is log softmax and negative log likelihood in one op per row. The default ignore index of
// PyTorch, -100, also serves for none: no class has it.
func importCrossEntropy(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	if n.Torch.Is("cross_entropy_loss") && len(n.Torch.Args) > 5 {
		if p, err := strconv.ParseFloat(n.Torch.Args[5], 64); err == nil && p != 0 {
			n.Fail("the exporter wrote this loss without its label smoothing of %g: export with gtc.export, which keeps it", p)
		}
	}
	x, t := rowsOf(w, n, in)
	ignore := n.Int("ignore_index", -100)
	loss := reduceLoss(w, n, in, ops.Xent(w.B, x, t, ignore), x, t)
	if !n.Wants(1) {
		return walk.Results(loss)
	}
	return walk.Results(loss, ops.LogSoftmax(w.B, w.Value(in[0]), 1))
}

func importNLL(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, t := rowsOf(w, n, in)
	valid := ops.Ne(w.B, t, ops.ScalarLike(w.B, t, float64(n.Int("ignore_index", -100))))
	safe := ops.Where(w.B, valid, t, ops.Zeros(w.B, t.Type))
	rows := t.Type.Dims[0]
	picked := ops.GatherElements(w.B, x, ops.Reshape(w.B, safe, []int{rows, 1}), 1)
	loss := ops.Neg(w.B, ops.Reshape(w.B, picked, []int{rows}))
	loss = ops.Where(w.B, valid, loss, ops.Zeros(w.B, loss.Type))
	return walk.Results(reduceLoss(w, n, in, loss, x, t))
}

// reduceLoss weights the rows' losses by class and reduces them as the node's reduction says. Ignored rows are
// zero already and do not count in the mean.
func reduceLoss(w *walk.Walker, n *model.Node, in []*walk.Val, loss, x, t *ir.Value) *ir.Value {
	valid := ops.Ne(w.B, t, ops.ScalarLike(w.B, t, float64(n.Int("ignore_index", -100))))
	weight := ops.Cast(w.B, valid, x.Type.DType)
	if len(in) > 2 && in[2] != nil {
		if !slices.Equal(in[2].Type.Dims, x.Type.Dims[1:]) {
			n.Fail("class weights are %s, but must have %d values", in[2].Type, x.Type.Dims[1])
		}
		safe := ops.Where(w.B, valid, t, ops.Zeros(w.B, t.Type))
		weight = ops.Mul(w.B, weight, ops.Gather(w.B, w.Value(in[2]), safe, 0))
		loss = ops.Mul(w.B, loss, weight)
	}
	switch mode := n.Str("reduction", "mean"); mode {
	case "none":
		return ops.Reshape(w.B, loss, in[1].Type.Dims)
	case "sum":
		return ops.Reshape(w.B, ops.ReduceSum(w.B, loss, 0), nil)
	case "mean":
		total, count := ops.ReduceSum(w.B, loss, 0), ops.ReduceSum(w.B, weight, 0)
		return ops.Reshape(w.B, ops.Div(w.B, total, count), nil)
	default:
		n.Fail("reduction is %q, but must be none, sum or mean", mode)
		return nil
	}
}
