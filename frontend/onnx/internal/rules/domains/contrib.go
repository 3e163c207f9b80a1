package domains

import (
	"math"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/arrays"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/layers"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Operators of ONNX Runtime's domain com.microsoft, as its docs/ContribOperators.md describes them.
var contribRows = []walk.Row{
	{Op: "com.microsoft.FusedMatMul", Since: 1, Min: 2, Max: 2, Rule: importFusedMatMul},
	{Op: "com.microsoft.TransposeMatMul", Since: 1, Min: 2, Max: 2, Rule: importFusedMatMul},
	{Op: "com.microsoft.FusedGemm", Since: 1, Min: 2, Max: 3, Rule: importFusedGemm},
	{Op: "com.microsoft.FusedConv", Since: 1, Min: 2, Max: 4, Rule: importFusedConv},
	{Op: "com.microsoft.Gelu", Since: 1, Min: 1, Max: 1, Rule: importBiasGelu(false)},
	{Op: "com.microsoft.BiasGelu", Since: 1, Min: 2, Max: 2, Rule: importBiasGelu(false)},
	{Op: "com.microsoft.FastGelu", Since: 1, Min: 1, Max: 2, Rule: importBiasGelu(true)},
	{Op: "com.microsoft.QuickGelu", Since: 1, Min: 1, Max: 1, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		x := w.Value(in[0])
		return walk.Results(ops.Mul(w.B, x, ops.Sigmoid(w.B, ops.MulScalar(w.B, x, n.Float("alpha", 1.702)))))
	}},
	{Op: "com.microsoft.BiasSplitGelu", Since: 1, Min: 2, Max: 2, Rule: importBiasSplitGelu},
	{Op: "com.microsoft.BiasAdd", Since: 1, Min: 3, Max: 3, Rule: arrays.MapN(ops.Add)},
	{Op: "com.microsoft.BiasSoftmax", Since: 1, Min: 2, Max: 2, Rule: importBiasSoftmax},
	{Op: "com.microsoft.Inverse", Since: 1, Min: 1, Max: 1, Rule: importInverse},
	{Op: "com.microsoft.GroupNorm", Since: 1, Min: 3, Max: 3, Rule: importGroupNormNHWC},
	{Op: "com.microsoft.SkipLayerNormalization", Since: 1, Min: 3, Max: 5, Rule: importSkipLayerNorm},
	{Op: "com.microsoft.SkipSimplifiedLayerNormalization", Since: 1, Min: 3, Max: 4, Rule: importSkipRMSNorm},
	{Op: "com.microsoft.EmbedLayerNormalization", Since: 1, Min: 1, Max: 9, Rule: importEmbedLayerNorm},
	{Op: "com.microsoft.RotaryEmbedding", Since: 1, Min: 4, Max: 4, Rule: importRotaryMS},
	{Op: "com.microsoft.MultiHeadAttention", Since: 1, Min: 1, Max: 10, Rule: importMultiHead},
	{Op: "com.microsoft.GroupQueryAttention", Since: 1, Min: 1, Max: 17, Rule: importGroupQuery},
	{Op: "com.microsoft.Attention", Since: 1, Min: 2, Max: 7, Rule: importPackedAttention},
}

// contribAliases are operators of the standard domain that com.microsoft has under the same name and meaning.
var contribAliases = strings.Fields("Trilu GatherND LayerNormalization SimplifiedLayerNormalization RMSNormalization " +
	"LinearAttention CausalConvWithState Range Pad")

// Aliases gives the aliases the newest form of their originals in rows, also on the host.
func Aliases(rows []walk.Row) []walk.Row {
	var out []walk.Row
	for _, name := range contribAliases {
		var newest *walk.Row
		for i, r := range rows {
			if r.Op == name && (newest == nil || r.Since > newest.Since) {
				newest = &rows[i]
			}
		}
		if newest == nil {
			continue
		}
		r := *newest
		r.Op, r.Since = "com.microsoft."+name, 1
		out = append(out, r)
		if f := fold.Funcs[name]; f != nil {
			fold.Funcs[r.Op] = f
		}
	}
	return out
}

// importFusedMatMul is alpha*a.b, each operand transposed in its last two dims (transA) or with its first dim moved
// before the last (transBatchA).
func importFusedMatMul(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x := make([]*walk.Val, 2)
	for i, name := range []string{"A", "B"} {
		d := in[i].Type.Dims
		swap, batch := n.Int("trans"+name, 0) != 0, n.Int("transBatch"+name, 0) != 0
		if x[i] = in[i]; len(d) < 2 || !swap && !batch {
			continue
		}
		perm := make([]int, len(d))
		for k := range perm {
			perm[k] = k
		}
		last := len(d) - 1
		if batch {
			if len(d) < 3 {
				n.Fail("transBatch%[1]s needs at least three dimensions, but %[1]s is %[2]s", name, in[i].Type)
			}
			copy(perm, perm[1:last])
			perm[last-1] = 0
		}
		if swap {
			perm[last-1], perm[last] = perm[last], perm[last-1]
		}
		x[i] = walk.Results(ops.Transpose(w.B, w.Value(in[i]), perm))[0]
	}
	y := layers.ImportMatMul(w, n, x)[0].Value
	if alpha := n.Float("alpha", 1); alpha != 1 {
		y = ops.MulScalar(w.B, y, alpha)
	}
	return walk.Results(y)
}

// activate applies the activation that a fused operator names, with its parameters.
func activate(w *walk.Walker, n *model.Node, x *ir.Value, name string, param func(i int, def float64) float64) *ir.Value {
	switch name {
	case "":
		return x
	case "Relu":
		return ops.Relu(w.B, x)
	case "Tanh":
		return ops.Tanh(w.B, x)
	case "Sigmoid":
		return ops.Sigmoid(w.B, x)
	case "LeakyRelu":
		return ops.LeakyRelu(w.B, x, param(0, 0.01))
	case "Elu":
		return ops.Elu(w.B, x, param(0, 1))
	case "HardSigmoid":
		return layers.HardSigmoid(w.B, x, param(0, 0.2), param(1, 0.5))
	case "Clip":
		return ops.Clip(w.B, x, param(0, math.Inf(-1)), param(1, math.Inf(1)))
	case "Softplus":
		return ops.Softplus(w.B, x)
	case "Softsign":
		return layers.Softsign(w.B, x)
	}
	n.Fail("activation %q is not supported", name)
	return nil
}

func importFusedGemm(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	names := []string{"activation_alpha", "activation_beta", "activation_gamma"}
	return walk.Results(activate(w, n, layers.ImportGemm(w, n, in)[0].Value, n.Str("activation", ""), func(i int, def float64) float64 {
		return n.Float(names[i], def)
	}))
}

func importFusedConv(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	y := layers.ImportConv(w, n, in[:min(len(in), 3)])[0].Value
	if len(in) > 3 && in[3] != nil {
		y = ops.Add(w.B, y, w.Spread(in[3], y.Type.Dims))
	}
	var params []float32
	if a := n.Attr("activation_params", onnxpb.AttributeProto_FLOATS); a != nil {
		params = a.Floats
	}
	return walk.Results(activate(w, n, y, n.Str("activation", ""), func(i int, def float64) float64 {
		if i < len(params) {
			return model.Shortest(params[i])
		}
		return def
	}))
}

// importInverse is the transposed cofactors of each matrix over its determinant.
func importInverse(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	b, d := w.B, in[0].Type.Dims
	k := len(d)
	if k < 2 || d[k-1] != d[k-2] || !in[0].Type.DType.IsFloat() {
		n.Fail("operand 0 is %s, but must be square float matrices", in[0].Type)
	}
	x := layers.Wide(w, w.Value(in[0]))
	perm := ops.AllDims(x)
	perm[k-1], perm[k-2] = k-2, k-1
	det := ops.Reshape(b, ops.Det(b, x), slices.Concat(d[:k-2], []int{1, 1}))
	y := ops.Div(b, ops.Transpose(b, ops.Cofactor(b, x), perm), ops.BroadcastTo(b, det, d))
	return walk.Results(ops.Cast(b, y, in[0].Type.DType))
}

func importBiasGelu(tanh bool) walk.Rule {
	return func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		if len(in) > 1 && in[1] != nil {
			in = arrays.MapN(ops.Add)(w, n, in)
		}
		return walk.Results(ops.Gelu(w.B, w.Value(in[0]), tanh))
	}
}

// importBiasSplitGelu is left*gelu(right) of the two halves of x + bias.
func importBiasSplitGelu(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	y := arrays.MapN(ops.Add)(w, n, in)[0].Value
	last := len(y.Type.Dims) - 1
	if last < 0 || y.Type.Dims[last]%2 != 0 {
		n.Fail("the sum is %s, whose last dimension cannot be split into two halves", y.Type)
	}
	half := y.Type.Dims[last] / 2
	left, right := ops.SliceDim(w.B, y, last, 0, half), ops.SliceDim(w.B, y, last, half, half)
	return walk.Results(ops.Mul(w.B, left, ops.Gelu(w.B, right, false)))
}

// importBiasSoftmax adds a bias, repeated along its dims of 1 and either missing outer dims or the dims before axis, and
// takes the softmax over the dims from axis on.
func importBiasSoftmax(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d, bias := in[0].Type.Dims, in[1]
	axis := n.Dim(n.Int("axis", 1), len(d))
	if n.Int("is_inner_broadcast", 0) != 0 && len(bias.Type.Dims) != len(d) {
		k := len(d) - len(bias.Type.Dims) // the bias has the outer and the softmax's dims, not those between
		outer := len(bias.Type.Dims) - (len(d) - axis)
		if k < 0 || outer < 0 {
			n.Fail("the bias is %s, which does not fit operand 0, %s", bias.Type, in[0].Type)
		}
		dims := slices.Concat(bias.Type.Dims[:outer], slices.Repeat([]int{1}, k), bias.Type.Dims[outer:])
		bias = walk.Results(ops.Reshape(w.B, w.Value(bias), dims))[0]
	}
	x, y := arrays.Pair(w, n, in[0], bias)
	if !slices.Equal(x.Type.Dims, d) {
		n.Fail("the bias is %s, which does not fit operand 0, %s", in[1].Type, in[0].Type)
	}
	rows := ops.Reshape(w.B, ops.Add(w.B, x, y), []int{ir.Product(d[:axis]), ir.Product(d[axis:])})
	return walk.Results(ops.Reshape(w.B, ops.Softmax(w.B, rows, 1), d))
}

// importGroupNormNHWC normalizes groups of channels, the last dim unless channels_last is 0; activation 1 is SiLU.
func importGroupNormNHWC(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	b, d := w.B, in[0].Type.Dims
	last := n.Int("channels_last", 1) != 0
	if len(d) < 2 {
		n.Fail("operand 0 is %s, but must have a batch and a channel dimension", in[0].Type)
	}
	x, back := in[0], ops.AllDims(w.Value(in[0]))
	if last {
		perm := slices.Concat([]int{0, len(d) - 1}, back[1:len(d)-1])
		x = walk.Results(ops.Transpose(b, w.Value(in[0]), perm))[0]
		for i, p := range perm {
			back[p] = i
		}
	}
	c, groups := x.Type.Dims[1], n.Int("groups", 0)
	for i := range 2 {
		if !slices.Equal(in[1+i].Type.Dims, []int{c}) {
			n.Fail("scale is %s and shift %s, but must have %d values each", in[1].Type, in[2].Type, c)
		}
	}
	if groups < 1 || groups > max(c, 1) || c%groups != 0 {
		n.Fail("groups is %d, which must divide the channels of operand 0, %s", groups, in[0].Type)
	}
	t := x.Type.DType
	same := func(v *walk.Val) *walk.Val { return walk.Results(ops.Cast(b, w.Value(v), t))[0] }
	y := layers.Groups(w, n, []*walk.Val{x, same(in[1]), same(in[2])}, groups)[0].Value
	if last {
		y = ops.Transpose(b, y, back)
	}
	switch act := n.Int("activation", 0); act {
	case 0:
	case 1:
		y = ops.Silu(b, y)
	default:
		n.Fail("activation is %d, but must be 0 (none) or 1 (silu)", act)
	}
	return walk.Results(y)
}

// skipSum is input + skip + bias: skip may lack the batch or repeat it, the bias is of the last dim.
func skipSum(w *walk.Walker, n *model.Node, in []*walk.Val, bias int) *walk.Val {
	terms := []*walk.Val{in[0], in[1]}
	if bias < len(in) && in[bias] != nil {
		terms = append(terms, in[bias])
	}
	sum := arrays.MapN(ops.Add)(w, n, terms)[0]
	if !slices.Equal(sum.Type.Dims, in[0].Type.Dims) {
		n.Fail("skip is %[2]s, which does not broadcast to the input, %[1]s", in[0].Type, in[1].Type)
	}
	return sum
}

func importSkipLayerNorm(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	in = slices.Concat(in, make([]*walk.Val, 5-len(in)))
	sum := skipSum(w, n, in, 4)
	eps := n.Float("epsilon", 1e-12)
	axis := layers.NormAxis(n, []*walk.Val{sum, in[2], in[3]})
	out := layers.Normalized(w, []*walk.Val{sum, in[2], in[3]}, axis, func(x, g, bias *ir.Value) []*ir.Value {
		y, mean, rstd := ops.LayerNorm(w.B, x, g, bias, ops.NormAttrs{Eps: eps, Dims: 1})
		return []*ir.Value{y, mean, rstd}
	})
	return append(out, sum)
}

func importSkipRMSNorm(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	sum := skipSum(w, n, in, 3)
	axis := layers.NormAxis(n, []*walk.Val{sum, in[2]})
	out := layers.Normalized(w, []*walk.Val{sum, in[2]}, axis, func(x, g, _ *ir.Value) []*ir.Value {
		y, rstd := ops.RMSNorm(w.B, x, g, ops.NormAttrs{Eps: n.Float("epsilon", 1e-5), Dims: 1})
		return []*ir.Value{y, nil, rstd}
	})
	return append(out, sum)
}

// importEmbedLayerNorm sums embeddings of words, positions and segments and normalizes them; mask_index counts the mask's
// ones in each sample.
func importEmbedLayerNorm(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	b := w.B
	in = slices.Concat(in, make([]*walk.Val, 9-len(in)))
	for _, i := range []int{2, 3, 5, 6} {
		if in[i] == nil {
			n.Fail("operand %d is left out", i)
		}
	}
	d := in[0].Type.Dims
	if len(d) != 2 || !in[0].Type.DType.IsInt() {
		n.Fail("the ids are %s, but must be integers [batch,sequence]", in[0].Type)
	}
	table := func(t, ids int) *ir.Value {
		if len(in[t].Type.Dims) != 2 {
			n.Fail("operand %d is %s, but must be a table of two dimensions", t, in[t].Type)
		}
		if in[ids] == nil { // positions 0, 1, …
			if in[t].Type.Dims[0] < d[1] {
				n.Fail("operand %d is %s, which has too few rows for a sequence of length %d", t, in[t].Type, d[1])
			}
			rows := ops.SliceDim(b, w.Value(in[t]), 0, 0, d[1])
			return ops.BroadcastTo(b, rows, []int{d[0], d[1], in[t].Type.Dims[1]})
		}
		v := ops.Gather(b, w.Value(in[t]), w.Value(in[ids]), 0)
		return ops.BroadcastTo(b, v, []int{d[0], d[1], in[t].Type.Dims[1]})
	}
	sum := ops.Add(b, table(2, 0), table(3, 8))
	if (in[1] == nil) != (in[4] == nil) {
		n.Fail("segment ids and their table must be given together")
	}
	if in[1] != nil {
		sum = ops.Add(b, sum, table(4, 1))
	}
	x := []*walk.Val{walk.Results(sum)[0], in[5], in[6]}
	axis := layers.NormAxis(n, x)
	out := layers.Normalized(w, x, axis, func(x, g, bias *ir.Value) []*ir.Value {
		y, _, _ := ops.LayerNorm(b, x, g, bias, ops.NormAttrs{Eps: n.Float("epsilon", 1e-12), Dims: 1})
		return []*ir.Value{y}
	})
	count := ops.Zeros(b, ir.T(dtype.I32, d[0]))
	if in[7] != nil {
		ones := ops.Cast(b, ops.Ne(b, w.Value(in[7]), ops.Zeros(b, in[7].Type)), dtype.I32)
		count = ops.Reshape(b, ops.ReduceSum(b, ones, 1), d[:1])
	}
	return append(out, walk.Results(count, sum)...)
}
