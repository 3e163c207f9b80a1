package onnx

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var normRows = []row{
	{op: "BatchNormalization", since: 7, min: 5, max: 5, rule: importBatchNorm},
	{op: "InstanceNormalization", since: 6, min: 3, max: 3, rule: importInstanceNorm},
	{op: "GroupNormalization", since: 18, min: 3, max: 3, rule: importGroupNorm},
	// Before opset 17: ONNX Runtime's, which became the standard one.
	{op: "LayerNormalization", since: 1, min: 2, max: 3, rule: importLayerNorm},
	{op: "RMSNormalization", since: 23, min: 2, max: 2, rule: importRMSNorm},
	{op: "SimplifiedLayerNormalization", since: 1, min: 2, max: 2, rule: importRMSNorm},
	{op: "Softmax", since: 1, min: 1, max: 1, rule: importSoftmax(ops.Softmax)},
	{op: "LogSoftmax", since: 1, min: 1, max: 1, rule: importSoftmax(ops.LogSoftmax)},
	{op: "LpNormalization", since: 1, min: 1, max: 1, rule: importLpNorm},
}

// uniformValue is the one value of all elements of x, when x is known to have one.
func (w *walker) uniformValue(x *val) (float64, bool) {
	a := w.array(x)
	if a == nil || len(a.F) == 0 || !w.scans(a) {
		return 0, false
	}
	for _, v := range a.F {
		if v != a.F[0] {
			return 0, false
		}
	}
	return a.F[0], true
}

// affine is y*scale + bias per channel of [N,C,…], without the steps that do nothing.
func (w *walker) affine(y *ir.Value, scale, bias *val) *ir.Value {
	if v, same := w.uniformValue(scale); !same || v != 1 {
		y = ops.Mul(w.b, y, w.perChannel(scale, y.Type.Dims))
	}
	if v, same := w.uniformValue(bias); !same || v != 0 {
		y = ops.Add(w.b, y, w.perChannel(bias, y.Type.Dims))
	}
	return y
}

// importInstanceNorm normalizes each [n,c] plane: a layer norm of the plane as one row.
func importInstanceNorm(w *walker, n *node, in []*val) []*val {
	d := in[0].t.Dims
	if n.fx.is("instance_norm") && n.fx.arg(3) != "" {
		w.m.warn("instance normalization %s keeps running statistics in PyTorch, which the file does not: evaluation normalizes by the "+
			"statistics of each sample, as training does", n.loc.Node)
	}
	if len(d) < 3 || !slices.Equal(in[1].t.Dims, d[1:2]) || !slices.Equal(in[2].t.Dims, d[1:2]) {
		n.fail("operands are %s, %s and %s: want [N,C,…], [C] and [C]", in[0].t, in[1].t, in[2].t)
	}
	return w.groups(n, in, d[1])
}

func importGroupNorm(w *walker, n *node, in []*val) []*val {
	d, groups := in[0].t.Dims, n.int("num_groups", 0)
	if len(d) < 2 || groups < 1 || groups > max(d[1], 1) || d[1]%groups != 0 {
		n.fail("%d groups of %s", groups, in[0].t)
	}
	if n.opset < 21 && groups != d[1] { // one scale a group, later one a channel
		each := func(x *val) *val {
			if !slices.Equal(x.t.Dims, []int{groups}) {
				n.fail("scale or bias is %s, want %d values", x.t, groups)
			}
			v := ops.Expand(w.b, ops.Reshape(w.b, w.value(x), []int{groups, 1}), []int{groups, d[1] / groups})
			return outs(ops.Reshape(w.b, v, d[1:2]))[0]
		}
		in = []*val{in[0], each(in[1]), each(in[2])}
	}
	if !slices.Equal(in[1].t.Dims, d[1:2]) || !slices.Equal(in[2].t.Dims, d[1:2]) {
		n.fail("scale %s and bias %s: want %d values", in[1].t, in[2].t, d[1])
	}
	return w.groups(n, in, groups)
}

// groups normalizes groups of channels of in[0], [N,C,…], and applies a scale and a shift per channel.
func (w *walker) groups(n *node, in []*val, groups int) []*val {
	t, d := in[0].t.DType, in[0].t.Dims
	if in[1].t.DType != t || in[2].t.DType != t {
		n.fail("operands are %s, %s and %s: want one element type", in[0].t, in[1].t, in[2].t)
	}
	x := ops.Reshape(w.b, w.wide(w.value(in[0])), []int{d[0], groups, ir.Product(d[1:]) / groups})
	y, _, _ := ops.LayerNorm(w.b, x, nil, nil, ops.NormAttrs{Eps: n.float("epsilon", 1e-5), Dims: 1})
	y = ops.Reshape(w.b, y, d)
	scale, bias := in[1], in[2]
	if y.Type.DType != t {
		scale, bias = outs(w.wide(w.value(scale)))[0], outs(w.wide(w.value(bias)))[0]
	}
	return outs(ops.Cast(w.b, w.affine(y, scale, bias), t))
}

// wide is x in f32 when it is of half precision: statistics of rows are never computed in less (stash_type).
func (w *walker) wide(x *ir.Value) *ir.Value {
	if d := x.Type.DType; d == dtype.F16 || d == dtype.BF16 {
		return ops.Cast(w.b, x, dtype.F32)
	}
	return x
}

// normAxis is the first normalized dim of a LayerNormalization or RMSNormalization.
func normAxis(n *node, in []*val) int {
	d := in[0].t.Dims
	axis := n.dim(n.int("axis", -1), len(d))
	for i, x := range in[1:] {
		if x == nil {
			continue
		}
		if got, ok := broadcast(x.t.Dims, d); !ok || !slices.Equal(got, d) {
			n.fail("operand %d is %s, which does not broadcast to %v", i+1, x.t, d)
		}
	}
	return axis
}

// normParam is scale or shift x over the normalized dims; nil and false when it also differs along earlier dims.
func (w *walker) normParam(x *val, d []int, axis int) (*ir.Value, bool) {
	if x == nil {
		return nil, true
	}
	own := x.t.Dims
	for len(own) > len(d)-axis && own[0] == 1 {
		own = own[1:]
	}
	if len(own) > len(d)-axis {
		return nil, false
	}
	if len(own) < len(x.t.Dims) {
		x = outs(ops.Reshape(w.b, w.value(x), own))[0]
	}
	return w.wide(w.spread(x, d[axis:])), true
}

// normalized applies norm, which scales and shifts over the normalized dims, and what of scale and shift is left.
func (w *walker) normalized(in []*val, axis int, norm func(x, g, bias *ir.Value) []*ir.Value) []*val {
	d, t := in[0].t.Dims, in[0].t.DType
	in = slices.Concat(in, make([]*val, 3-len(in)))
	g, inside := w.normParam(in[1], d, axis)
	bias, shifts := w.normParam(in[2], d, axis)
	if !inside || !shifts {
		g, bias = nil, nil
	}
	res := norm(w.wide(w.value(in[0])), g, bias)
	if !inside || !shifts {
		res[0] = ops.Mul(w.b, res[0], w.wide(w.spread(in[1], d)))
		if in[2] != nil {
			res[0] = ops.Add(w.b, res[0], w.wide(w.spread(in[2], d)))
		}
	}
	res[0] = ops.Cast(w.b, res[0], t)
	return outs(res...)
}

func importLayerNorm(w *walker, n *node, in []*val) []*val {
	axis := normAxis(n, in)
	return w.normalized(in, axis, func(x, g, bias *ir.Value) []*ir.Value {
		y, mean, rstd := ops.LayerNorm(w.b, x, g, bias, ops.NormAttrs{Eps: n.float("epsilon", 1e-5), Dims: len(in[0].t.Dims) - axis})
		return []*ir.Value{y, n.stash(w.b, mean), n.stash(w.b, rstd)}
	})
}

// stash is saved statistics in the element type that stash_type names.
func (n *node) stash(b *ir.Builder, v *ir.Value) *ir.Value {
	d, err := convertType(int32(n.int("stash_type", 1)))
	if err != nil || !d.IsFloat() {
		n.fail("stash_type %d is no float type", n.int("stash_type", 1))
	}
	return ops.Cast(b, v, d)
}

func importRMSNorm(w *walker, n *node, in []*val) []*val {
	axis := normAxis(n, in)
	return w.normalized(in, axis, func(x, g, _ *ir.Value) []*ir.Value {
		y, rstd := ops.RMSNorm(w.b, x, g, ops.NormAttrs{Eps: n.float("epsilon", 1e-5), Dims: len(in[0].t.Dims) - axis})
		return []*ir.Value{y, n.stash(w.b, rstd)}
	})
}

// importSoftmax: before opset 13 the dims from axis on (1 when not given) are one row.
func importSoftmax(f func(*ir.Builder, *ir.Value, int) *ir.Value) rule {
	return func(w *walker, n *node, in []*val) []*val {
		x, d := w.value(in[0]), in[0].t.Dims
		if n.opset >= 13 {
			return outs(f(w.b, x, n.dim(n.int("axis", -1), len(d))))
		}
		axis := n.dim(n.int("axis", 1), len(d))
		flat := ops.Reshape(w.b, x, []int{ir.Product(d[:axis]), ir.Product(d[axis:])})
		return outs(ops.Reshape(w.b, f(w.b, flat, 1), d))
	}
}

func importLpNorm(w *walker, n *node, in []*val) []*val {
	x, axis := w.value(in[0]), n.dim(n.int("axis", -1), len(in[0].t.Dims))
	var norm *ir.Value
	switch p := n.int("p", 2); p {
	case 1:
		norm = ops.ReduceSum(w.b, ops.Abs(w.b, x), axis)
	case 2:
		norm = root(w.b, ops.ReduceSum(w.b, ops.Square(w.b, x), axis), 2)
	default:
		n.fail("p=%d is not supported", p)
	}
	zero := ops.Zeros(w.b, norm.Type) // a zero vector stays zero
	norm = ops.Where(w.b, ops.Eq(w.b, norm, zero), ops.ScalarLike(w.b, norm, 1), norm)
	return outs(ops.Div(w.b, x, ops.Expand(w.b, norm, x.Type.Dims)))
}
