package layers

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/arrays"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var normRows = []walk.Row{
	{Op: "BatchNormalization", Since: 7, Min: 5, Max: 5, Rule: importBatchNorm},
	{Op: "InstanceNormalization", Since: 6, Min: 3, Max: 3, Rule: importInstanceNorm},
	{Op: "GroupNormalization", Since: 18, Min: 3, Max: 3, Rule: importGroupNorm},
	// Before opset 17: ONNX Runtime's, which became the standard one.
	{Op: "LayerNormalization", Since: 1, Min: 2, Max: 3, Rule: importLayerNorm},
	{Op: "RMSNormalization", Since: 23, Min: 2, Max: 2, Rule: importRMSNorm},
	{Op: "SimplifiedLayerNormalization", Since: 1, Min: 2, Max: 2, Rule: importRMSNorm},
	{Op: "Softmax", Since: 1, Min: 1, Max: 1, Rule: importSoftmax(ops.Softmax)},
	{Op: "LogSoftmax", Since: 1, Min: 1, Max: 1, Rule: importSoftmax(ops.LogSoftmax)},
	{Op: "LpNormalization", Since: 1, Min: 1, Max: 1, Rule: importLpNorm},
}

// uniformValue is the one value of all elements of x, when x is known to have one.
func uniformValue(w *walk.Walker, x *walk.Val) (float64, bool) {
	a := w.Array(x)
	if a == nil || len(a.F) == 0 || !w.Scans(a) {
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
func affine(w *walk.Walker, y *ir.Value, scale, bias *walk.Val) *ir.Value {
	if v, same := uniformValue(w, scale); !same || v != 1 {
		y = ops.Mul(w.B, y, perChannel(w, scale, y.Type.Dims))
	}
	if v, same := uniformValue(w, bias); !same || v != 0 {
		y = ops.Add(w.B, y, perChannel(w, bias, y.Type.Dims))
	}
	return y
}

// importInstanceNorm normalizes each [n,c] plane: a layer norm of the plane as one row.
func importInstanceNorm(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d := in[0].Type.Dims
	if n.Torch.Is("instance_norm") && n.Torch.Arg(3) != "" {
		w.File.Warn("instance normalization %s keeps running statistics in PyTorch, which the file does not: evaluation normalizes by the "+
			"statistics of each sample, as training does", n.Loc.Node)
	}
	if len(d) < 3 || !slices.Equal(in[1].Type.Dims, d[1:2]) || !slices.Equal(in[2].Type.Dims, d[1:2]) {
		n.Fail("operands are %s, %s and %s, but must be [N,C,…], [C] and [C]", in[0].Type, in[1].Type, in[2].Type)
	}
	return Groups(w, n, in, d[1])
}

func importGroupNorm(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d, groups := in[0].Type.Dims, n.Int("num_groups", 0)
	if len(d) < 2 || groups < 1 || groups > max(d[1], 1) || d[1]%groups != 0 {
		n.Fail("num_groups is %d, which must divide the channels of operand 0, %s", groups, in[0].Type)
	}
	if n.Opset < 21 && groups != d[1] { // one scale a group, later one a channel
		each := func(x *walk.Val) *walk.Val {
			if !slices.Equal(x.Type.Dims, []int{groups}) {
				n.Fail("scale or bias is %s, but must have %d values", x.Type, groups)
			}
			v := ops.Expand(w.B, ops.Reshape(w.B, w.Value(x), []int{groups, 1}), []int{groups, d[1] / groups})
			return walk.Results(ops.Reshape(w.B, v, d[1:2]))[0]
		}
		in = []*walk.Val{in[0], each(in[1]), each(in[2])}
	}
	if !slices.Equal(in[1].Type.Dims, d[1:2]) || !slices.Equal(in[2].Type.Dims, d[1:2]) {
		n.Fail("scale is %s and bias %s, but must have %d values each", in[1].Type, in[2].Type, d[1])
	}
	return Groups(w, n, in, groups)
}

// Groups normalizes groups of channels of in[0], [N,C,…], and applies a scale and a shift per channel.
func Groups(w *walk.Walker, n *model.Node, in []*walk.Val, groups int) []*walk.Val {
	t, d := in[0].Type.DType, in[0].Type.Dims
	if in[1].Type.DType != t || in[2].Type.DType != t {
		n.Fail("operands are %s, %s and %s, but must have one element type", in[0].Type, in[1].Type, in[2].Type)
	}
	x := ops.Reshape(w.B, Wide(w, w.Value(in[0])), []int{d[0], groups, ir.Product(d[1:]) / groups})
	y, _, _ := ops.LayerNorm(w.B, x, nil, nil, ops.NormAttrs{Eps: n.Float("epsilon", 1e-5), Dims: 1})
	y = ops.Reshape(w.B, y, d)
	scale, bias := in[1], in[2]
	if y.Type.DType != t {
		scale, bias = walk.Results(Wide(w, w.Value(scale)))[0], walk.Results(Wide(w, w.Value(bias)))[0]
	}
	return walk.Results(ops.Cast(w.B, affine(w, y, scale, bias), t))
}

// Wide is x in f32 when it is of half precision: statistics of rows are never computed in less (stash_type).
func Wide(w *walk.Walker, x *ir.Value) *ir.Value {
	if d := x.Type.DType; d == dtype.F16 || d == dtype.BF16 {
		return ops.Cast(w.B, x, dtype.F32)
	}
	return x
}

// NormAxis is the first normalized dim of a LayerNormalization or RMSNormalization.
func NormAxis(n *model.Node, in []*walk.Val) int {
	d := in[0].Type.Dims
	axis := n.Dim(n.Int("axis", -1), len(d))
	for i, x := range in[1:] {
		if x == nil {
			continue
		}
		if got, ok := fold.Broadcast(x.Type.Dims, d); !ok || !slices.Equal(got, d) {
			n.Fail("operand %d is %s, which does not broadcast to %v", i+1, x.Type, d)
		}
	}
	return axis
}

// normParam is scale or shift x over the normalized dims; nil and false when it also differs along earlier dims.
func normParam(w *walk.Walker, x *walk.Val, d []int, axis int) (*ir.Value, bool) {
	if x == nil {
		return nil, true
	}
	own := x.Type.Dims
	for len(own) > len(d)-axis && own[0] == 1 {
		own = own[1:]
	}
	if len(own) > len(d)-axis {
		return nil, false
	}
	if len(own) < len(x.Type.Dims) {
		x = walk.Results(ops.Reshape(w.B, w.Value(x), own))[0]
	}
	return Wide(w, w.Spread(x, d[axis:])), true
}

// Normalized applies norm, which scales and shifts over the normalized dims, and what of scale and shift is left.
func Normalized(w *walk.Walker, in []*walk.Val, axis int, norm func(x, g, bias *ir.Value) []*ir.Value) []*walk.Val {
	d, t := in[0].Type.Dims, in[0].Type.DType
	in = slices.Concat(in, make([]*walk.Val, 3-len(in)))
	g, inside := normParam(w, in[1], d, axis)
	bias, shifts := normParam(w, in[2], d, axis)
	if !inside || !shifts {
		g, bias = nil, nil
	}
	res := norm(Wide(w, w.Value(in[0])), g, bias)
	if !inside || !shifts {
		res[0] = ops.Mul(w.B, res[0], Wide(w, w.Spread(in[1], d)))
		if in[2] != nil {
			res[0] = ops.Add(w.B, res[0], Wide(w, w.Spread(in[2], d)))
		}
	}
	res[0] = ops.Cast(w.B, res[0], t)
	return walk.Results(res...)
}

func importLayerNorm(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	axis := NormAxis(n, in)
	return Normalized(w, in, axis, func(x, g, bias *ir.Value) []*ir.Value {
		y, mean, rstd := ops.LayerNorm(w.B, x, g, bias, ops.NormAttrs{Eps: n.Float("epsilon", 1e-5), Dims: len(in[0].Type.Dims) - axis})
		return []*ir.Value{y, stash(n, w.B, mean), stash(n, w.B, rstd)}
	})
}

// stash is saved statistics in the element type that stash_type names.
func stash(n *model.Node, b *ir.Builder, v *ir.Value) *ir.Value {
	d, err := model.DTypeOf(int32(n.Int("stash_type", 1)))
	if err != nil || !d.IsFloat() {
		n.Fail("stash_type %d is not a supported float type", n.Int("stash_type", 1))
	}
	return ops.Cast(b, v, d)
}

func importRMSNorm(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	axis := NormAxis(n, in)
	return Normalized(w, in, axis, func(x, g, _ *ir.Value) []*ir.Value {
		y, rstd := ops.RMSNorm(w.B, x, g, ops.NormAttrs{Eps: n.Float("epsilon", 1e-5), Dims: len(in[0].Type.Dims) - axis})
		return []*ir.Value{y, stash(n, w.B, rstd)}
	})
}

// importSoftmax: before opset 13 the dims from axis on (1 when not given) are one row.
func importSoftmax(f func(*ir.Builder, *ir.Value, int) *ir.Value) walk.Rule {
	return func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		x, d := w.Value(in[0]), in[0].Type.Dims
		if n.Opset >= 13 {
			return walk.Results(f(w.B, x, n.Dim(n.Int("axis", -1), len(d))))
		}
		axis := n.Dim(n.Int("axis", 1), len(d))
		flat := ops.Reshape(w.B, x, []int{ir.Product(d[:axis]), ir.Product(d[axis:])})
		return walk.Results(ops.Reshape(w.B, f(w.B, flat, 1), d))
	}
}

func importLpNorm(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	x, axis := w.Value(in[0]), n.Dim(n.Int("axis", -1), len(in[0].Type.Dims))
	var norm *ir.Value
	switch p := n.Int("p", 2); p {
	case 1:
		norm = ops.ReduceSum(w.B, ops.Abs(w.B, x), axis)
	case 2:
		norm = arrays.Root(w.B, ops.ReduceSum(w.B, ops.Square(w.B, x), axis), 2)
	default:
		n.Fail("p=%d is not supported", p)
	}
	zero := ops.Zeros(w.B, norm.Type) // a zero vector stays zero
	norm = ops.Where(w.B, ops.Eq(w.B, norm, zero), ops.ScalarLike(w.B, norm, 1), norm)
	return walk.Results(ops.Div(w.B, x, ops.Expand(w.B, norm, x.Type.Dims)))
}
