package onnx

import (
	"math"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Operators of ONNX Runtime's domain com.microsoft, as its docs/ContribOperators.md describes them.
var contribRows = []row{
	{op: "com.microsoft.FusedMatMul", since: 1, min: 2, max: 2, rule: importFusedMatMul},
	{op: "com.microsoft.TransposeMatMul", since: 1, min: 2, max: 2, rule: importFusedMatMul},
	{op: "com.microsoft.FusedGemm", since: 1, min: 2, max: 3, rule: importFusedGemm},
	{op: "com.microsoft.FusedConv", since: 1, min: 2, max: 4, rule: importFusedConv},
	{op: "com.microsoft.Gelu", since: 1, min: 1, max: 1, rule: importBiasGelu(false)},
	{op: "com.microsoft.BiasGelu", since: 1, min: 2, max: 2, rule: importBiasGelu(false)},
	{op: "com.microsoft.FastGelu", since: 1, min: 1, max: 2, rule: importBiasGelu(true)},
	{op: "com.microsoft.QuickGelu", since: 1, min: 1, max: 1, rule: func(w *walker, n *node, in []*val) []*val {
		x := w.value(in[0])
		return outs(ops.Mul(w.b, x, ops.Sigmoid(w.b, ops.MulScalar(w.b, x, n.float("alpha", 1.702)))))
	}},
	{op: "com.microsoft.BiasSplitGelu", since: 1, min: 2, max: 2, rule: importBiasSplitGelu},
	{op: "com.microsoft.BiasAdd", since: 1, min: 3, max: 3, rule: mapN(ops.Add)},
	{op: "com.microsoft.BiasSoftmax", since: 1, min: 2, max: 2, rule: importBiasSoftmax},
	{op: "com.microsoft.Inverse", since: 1, min: 1, max: 1, rule: importInverse},
	{op: "com.microsoft.GroupNorm", since: 1, min: 3, max: 3, rule: importGroupNormNHWC},
	{op: "com.microsoft.SkipLayerNormalization", since: 1, min: 3, max: 5, rule: importSkipLayerNorm},
	{op: "com.microsoft.SkipSimplifiedLayerNormalization", since: 1, min: 3, max: 4, rule: importSkipRMSNorm},
	{op: "com.microsoft.EmbedLayerNormalization", since: 1, min: 1, max: 9, rule: importEmbedLayerNorm},
	{op: "com.microsoft.RotaryEmbedding", since: 1, min: 4, max: 4, rule: importRotaryMS},
	{op: "com.microsoft.MultiHeadAttention", since: 1, min: 1, max: 10, rule: importMultiHead},
	{op: "com.microsoft.GroupQueryAttention", since: 1, min: 1, max: 17, rule: importGroupQuery},
	{op: "com.microsoft.Attention", since: 1, min: 2, max: 7, rule: importPackedAttention},
}

// contribAliases are operators of the standard domain that com.microsoft has under the same name and meaning.
var contribAliases = strings.Fields("Trilu GatherND LayerNormalization SimplifiedLayerNormalization RMSNormalization " +
	"LinearAttention CausalConvWithState Range Pad")

// aliasRows gives the aliases the newest form of their originals in rows, also on the host.
func aliasRows(rows []row) []row {
	var out []row
	for _, name := range contribAliases {
		var newest *row
		for i, r := range rows {
			if r.op == name && (newest == nil || r.since > newest.since) {
				newest = &rows[i]
			}
		}
		if newest == nil {
			continue
		}
		r := *newest
		r.op, r.since = "com.microsoft."+name, 1
		out = append(out, r)
		if f := folders[name]; f != nil {
			folders[r.op] = f
		}
	}
	return out
}

// contribWeights lists the operands that mark a trained weight, for roles.
var contribWeights = map[string][]int{
	"com.microsoft.FusedMatMul": {0, 1}, "com.microsoft.TransposeMatMul": {0, 1}, "com.microsoft.FusedGemm": {0, 1, 2},
	"com.microsoft.FusedConv": {1, 2}, "com.microsoft.BiasGelu": {1}, "com.microsoft.FastGelu": {1}, "com.microsoft.BiasAdd": {1},
	"com.microsoft.BiasSplitGelu": {1}, "com.microsoft.GroupNorm": {1, 2}, "com.microsoft.SkipLayerNormalization": {2, 3, 4},
	"com.microsoft.SkipSimplifiedLayerNormalization": {2, 3}, "com.microsoft.EmbedLayerNormalization": {2, 3, 4, 5, 6},
	"com.microsoft.MultiHeadAttention": {3}, "com.microsoft.Attention": {1, 2}, "com.microsoft.GroupQueryAttention": {11, 14, 15},
	"CausalConvWithState": {1, 2}, "com.microsoft.CausalConvWithState": {1, 2}, "com.microsoft.LayerNormalization": {1, 2},
	"com.microsoft.SimplifiedLayerNormalization": {1}, "com.microsoft.RMSNormalization": {1},
}

// importFusedMatMul is alpha*a.b, each operand transposed in its last two dims (transA) or with its first dim moved
// before the last (transBatchA).
func importFusedMatMul(w *walker, n *node, in []*val) []*val {
	x := make([]*val, 2)
	for i, name := range []string{"A", "B"} {
		d := in[i].t.Dims
		swap, batch := n.int("trans"+name, 0) != 0, n.int("transBatch"+name, 0) != 0
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
				n.fail("transBatch%s of %s", name, in[i].t)
			}
			copy(perm, perm[1:last])
			perm[last-1] = 0
		}
		if swap {
			perm[last-1], perm[last] = perm[last], perm[last-1]
		}
		x[i] = outs(ops.Transpose(w.b, w.value(in[i]), perm))[0]
	}
	y := importMatMul(w, n, x)[0].v
	if alpha := n.float("alpha", 1); alpha != 1 {
		y = ops.MulScalar(w.b, y, alpha)
	}
	return outs(y)
}

// activate applies the activation that a fused operator names, with its parameters.
func (w *walker) activate(n *node, x *ir.Value, name string, param func(i int, def float64) float64) *ir.Value {
	switch name {
	case "":
		return x
	case "Relu":
		return ops.Relu(w.b, x)
	case "Tanh":
		return ops.Tanh(w.b, x)
	case "Sigmoid":
		return ops.Sigmoid(w.b, x)
	case "LeakyRelu":
		return ops.LeakyRelu(w.b, x, param(0, 0.01))
	case "Elu":
		return ops.Elu(w.b, x, param(0, 1))
	case "HardSigmoid":
		return hardSigmoid(w.b, x, param(0, 0.2), param(1, 0.5))
	case "Clip":
		return ops.Clip(w.b, x, param(0, math.Inf(-1)), param(1, math.Inf(1)))
	case "Softplus":
		return ops.Softplus(w.b, x)
	case "Softsign":
		return softsign(w.b, x)
	}
	n.fail("activation %q is not supported", name)
	return nil
}

func importFusedGemm(w *walker, n *node, in []*val) []*val {
	names := []string{"activation_alpha", "activation_beta", "activation_gamma"}
	return outs(w.activate(n, importGemm(w, n, in)[0].v, n.str("activation", ""), func(i int, def float64) float64 {
		return n.float(names[i], def)
	}))
}

func importFusedConv(w *walker, n *node, in []*val) []*val {
	y := importConv(w, n, in[:min(len(in), 3)])[0].v
	if len(in) > 3 && in[3] != nil {
		y = ops.Add(w.b, y, w.spread(in[3], y.Type.Dims))
	}
	var params []float32
	if a := n.attr("activation_params", onnxpb.AttributeProto_FLOATS); a != nil {
		params = a.Floats
	}
	return outs(w.activate(n, y, n.str("activation", ""), func(i int, def float64) float64 {
		if i < len(params) {
			return shortest(params[i])
		}
		return def
	}))
}

// importInverse is the transposed cofactors of each matrix over its determinant.
func importInverse(w *walker, n *node, in []*val) []*val {
	b, d := w.b, in[0].t.Dims
	k := len(d)
	if k < 2 || d[k-1] != d[k-2] || !in[0].t.DType.IsFloat() {
		n.fail("operand 0 is %s, want float matrices of as many rows as columns", in[0].t)
	}
	x := w.wide(w.value(in[0]))
	perm := ops.AllDims(x)
	perm[k-1], perm[k-2] = k-2, k-1
	det := ops.Reshape(b, ops.Det(b, x), slices.Concat(d[:k-2], []int{1, 1}))
	y := ops.Div(b, ops.Transpose(b, ops.Cofactor(b, x), perm), ops.BroadcastTo(b, det, d))
	return outs(ops.Cast(b, y, in[0].t.DType))
}

func importBiasGelu(tanh bool) rule {
	return func(w *walker, n *node, in []*val) []*val {
		if len(in) > 1 && in[1] != nil {
			in = mapN(ops.Add)(w, n, in)
		}
		return outs(ops.Gelu(w.b, w.value(in[0]), tanh))
	}
}

// importBiasSplitGelu is left*gelu(right) of the two halves of x + bias.
func importBiasSplitGelu(w *walker, n *node, in []*val) []*val {
	y := mapN(ops.Add)(w, n, in)[0].v
	last := len(y.Type.Dims) - 1
	if last < 0 || y.Type.Dims[last]%2 != 0 {
		n.fail("%s has no two halves", y.Type)
	}
	half := y.Type.Dims[last] / 2
	left, right := ops.SliceDim(w.b, y, last, 0, half), ops.SliceDim(w.b, y, last, half, half)
	return outs(ops.Mul(w.b, left, ops.Gelu(w.b, right, false)))
}

// importBiasSoftmax adds a bias, repeated along its dims of 1 and either missing outer dims or the dims before axis, and
// takes the softmax over the dims from axis on.
func importBiasSoftmax(w *walker, n *node, in []*val) []*val {
	d, bias := in[0].t.Dims, in[1]
	axis := n.dim(n.int("axis", 1), len(d))
	if n.int("is_inner_broadcast", 0) != 0 && len(bias.t.Dims) != len(d) {
		k := len(d) - len(bias.t.Dims) // the bias has the outer and the softmax's dims, not those between
		outer := len(bias.t.Dims) - (len(d) - axis)
		if k < 0 || outer < 0 {
			n.fail("the bias is %s for %s", bias.t, in[0].t)
		}
		dims := slices.Concat(bias.t.Dims[:outer], slices.Repeat([]int{1}, k), bias.t.Dims[outer:])
		bias = outs(ops.Reshape(w.b, w.value(bias), dims))[0]
	}
	x, y := w.pair(n, in[0], bias)
	if !slices.Equal(x.Type.Dims, d) {
		n.fail("the bias is %s for %s", in[1].t, in[0].t)
	}
	rows := ops.Reshape(w.b, ops.Add(w.b, x, y), []int{ir.Product(d[:axis]), ir.Product(d[axis:])})
	return outs(ops.Reshape(w.b, ops.Softmax(w.b, rows, 1), d))
}

// importGroupNormNHWC normalizes groups of channels, the last dim unless channels_last is 0; activation 1 is SiLU.
func importGroupNormNHWC(w *walker, n *node, in []*val) []*val {
	b, d := w.b, in[0].t.Dims
	last := n.int("channels_last", 1) != 0
	if len(d) < 2 {
		n.fail("operand 0 is %s: want a batch and channels", in[0].t)
	}
	x, back := in[0], ops.AllDims(w.value(in[0]))
	if last {
		perm := slices.Concat([]int{0, len(d) - 1}, back[1:len(d)-1])
		x = outs(ops.Transpose(b, w.value(in[0]), perm))[0]
		for i, p := range perm {
			back[p] = i
		}
	}
	c, groups := x.t.Dims[1], n.int("groups", 0)
	for i := range 2 {
		if !slices.Equal(in[1+i].t.Dims, []int{c}) {
			n.fail("scale %s and shift %s: want %d values", in[1].t, in[2].t, c)
		}
	}
	if groups < 1 || groups > max(c, 1) || c%groups != 0 {
		n.fail("%d groups of %s", groups, in[0].t)
	}
	t := x.t.DType
	same := func(v *val) *val { return outs(ops.Cast(b, w.value(v), t))[0] }
	y := w.groups(n, []*val{x, same(in[1]), same(in[2])}, groups)[0].v
	if last {
		y = ops.Transpose(b, y, back)
	}
	switch act := n.int("activation", 0); act {
	case 0:
	case 1:
		y = ops.Silu(b, y)
	default:
		n.fail("activation %d is neither 0 nor 1", act)
	}
	return outs(y)
}

// skipSum is input + skip + bias: skip may lack the batch or repeat it, the bias is of the last dim.
func (w *walker) skipSum(n *node, in []*val, bias int) *val {
	terms := []*val{in[0], in[1]}
	if bias < len(in) && in[bias] != nil {
		terms = append(terms, in[bias])
	}
	sum := mapN(ops.Add)(w, n, terms)[0]
	if !slices.Equal(sum.t.Dims, in[0].t.Dims) {
		n.fail("input is %s, skip %s", in[0].t, in[1].t)
	}
	return sum
}

func importSkipLayerNorm(w *walker, n *node, in []*val) []*val {
	in = slices.Concat(in, make([]*val, 5-len(in)))
	sum := w.skipSum(n, in, 4)
	eps := n.float("epsilon", 1e-12)
	axis := normAxis(n, []*val{sum, in[2], in[3]})
	out := w.normalized([]*val{sum, in[2], in[3]}, axis, func(x, g, bias *ir.Value) []*ir.Value {
		y, mean, rstd := ops.LayerNorm(w.b, x, g, bias, ops.NormAttrs{Eps: eps, Dims: 1})
		return []*ir.Value{y, mean, rstd}
	})
	return append(out, sum)
}

func importSkipRMSNorm(w *walker, n *node, in []*val) []*val {
	sum := w.skipSum(n, in, 3)
	axis := normAxis(n, []*val{sum, in[2]})
	out := w.normalized([]*val{sum, in[2]}, axis, func(x, g, _ *ir.Value) []*ir.Value {
		y, rstd := ops.RMSNorm(w.b, x, g, ops.NormAttrs{Eps: n.float("epsilon", 1e-5), Dims: 1})
		return []*ir.Value{y, nil, rstd}
	})
	return append(out, sum)
}

// importEmbedLayerNorm sums embeddings of words, positions and segments and normalizes them; mask_index counts the mask's
// ones in each sample.
func importEmbedLayerNorm(w *walker, n *node, in []*val) []*val {
	b := w.b
	in = slices.Concat(in, make([]*val, 9-len(in)))
	for _, i := range []int{2, 3, 5, 6} {
		if in[i] == nil {
			n.fail("operand %d is left out", i)
		}
	}
	d := in[0].t.Dims
	if len(d) != 2 || !in[0].t.DType.IsInt() {
		n.fail("the ids are %s: want integers [batch,sequence]", in[0].t)
	}
	table := func(t, ids int) *ir.Value {
		if len(in[t].t.Dims) != 2 {
			n.fail("operand %d is %s: want a table", t, in[t].t)
		}
		if in[ids] == nil { // positions 0, 1, …
			if in[t].t.Dims[0] < d[1] {
				n.fail("operand %d is %s for a sequence of %d", t, in[t].t, d[1])
			}
			rows := ops.SliceDim(b, w.value(in[t]), 0, 0, d[1])
			return ops.BroadcastTo(b, rows, []int{d[0], d[1], in[t].t.Dims[1]})
		}
		v := ops.Gather(b, w.value(in[t]), w.value(in[ids]), 0)
		return ops.BroadcastTo(b, v, []int{d[0], d[1], in[t].t.Dims[1]})
	}
	sum := ops.Add(b, table(2, 0), table(3, 8))
	if (in[1] == nil) != (in[4] == nil) {
		n.fail("segment ids and their table come together")
	}
	if in[1] != nil {
		sum = ops.Add(b, sum, table(4, 1))
	}
	x := []*val{outs(sum)[0], in[5], in[6]}
	axis := normAxis(n, x)
	out := w.normalized(x, axis, func(x, g, bias *ir.Value) []*ir.Value {
		y, _, _ := ops.LayerNorm(b, x, g, bias, ops.NormAttrs{Eps: n.float("epsilon", 1e-12), Dims: 1})
		return []*ir.Value{y}
	})
	count := ops.Zeros(b, ir.T(dtype.I32, d[0]))
	if in[7] != nil {
		ones := ops.Cast(b, ops.Ne(b, w.value(in[7]), ops.Zeros(b, in[7].t)), dtype.I32)
		count = ops.Reshape(b, ops.ReduceSum(b, ones, 1), d[:1])
	}
	return append(out, outs(count, sum)...)
}
