package onnx

import (
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Opsets 1 to 6 (2017) differ from 7 in how operands broadcast and where attributes are. Their nodes are raised to opset 7
// when they are listed; what depends on operands' shapes is done when the node is visited. Sources: Changelog.md of
// ONNX, versions 1, 2, 4, 5 and 6 of each operator.

// opset1 are the operators of the first opset that later ones define anew, so that their rows begin later than they do.
const opset1 = " Abs Add And AveragePool BatchNormalization Cast Ceil Clip Concat Div Dropout Elu Equal Exp Floor GRU Gemm Greater " +
	"HardSigmoid InstanceNormalization LSTM LeakyRelu Less Log Max Mean Min Mul Neg Not Or PRelu Pad Pow RNN Reciprocal Relu Reshape " +
	"Selu Sigmoid Slice Split Sqrt Squeeze Sub Sum Tanh Tile Unsqueeze Upsample Xor "

// firstOpset is the first opset in which op can be used, whose first row in the table begins with since.
func firstOpset(op string, since int64) int64 {
	if strings.Contains(opset1, " "+op+" ") {
		return 1
	}
	return max(1, since)
}

// raised gives n in the form of opset 7 or later, preceded by constants that it needs.
func raised(n *node) []*node {
	if n.op == "Upsample" && n.opset < 9 {
		return raiseUpsample(n)
	}
	if n.opset >= 7 {
		return []*node{n}
	}
	n.from, n.opset = n.opset, 7
	delete(n.attrs, "consumed_inputs") // said which operands may be overwritten
	switch n.op {
	case "BatchNormalization":
		if n.int("is_test", 0) == 0 {
			n.setInt("training_mode", 1)
		}
	case "Dropout":
		if n.int("is_test", 0) != 0 {
			n.op = "Identity"
		}
	case "Pad":
		if p := n.attrs["paddings"]; p != nil {
			n.attrs["pads"] = p
		}
	case "Concat":
		if n.from < 4 && n.attrs["axis"] == nil {
			n.setInt("axis", 1)
		}
	case "Selu":
		if n.from < 6 {
			n.setFloat("alpha", 1.6732)
			n.setFloat("gamma", 1.0507)
		}
	case "LpPool", "GlobalLpPool":
		if a := n.attrs["p"]; a != nil && a.GetType() == onnxpb.AttributeProto_FLOAT {
			n.setInt("p", int(a.GetF()))
		}
	case "Split":
		if n.has(1) {
			n.opset = 13
		}
	case "ThresholdedRelu": // experimental then, in the form that it kept
		n.opset = 10
	case "Reshape":
		if n.from < 5 && !n.has(1) {
			typ, shape := int32(7), n.attr("shape", onnxpb.AttributeProto_INTS)
			if shape == nil || len(n.in) != 1 {
				n.fail("has %d inputs and no shape", len(n.in))
			}
			return n.after(&onnxpb.TensorProto{DataType: &typ, Int64Data: shape.Ints}, "shape", len(shape.Ints))
		}
	}
	return []*node{n}
}

func (n *node) setInt(name string, v int) {
	i, typ := int64(v), onnxpb.AttributeProto_INT
	n.attrs[name] = &onnxpb.AttributeProto{Name: &name, Type: &typ, I: &i}
}

// setFloat sets an attribute that is absent.
func (n *node) setFloat(name string, v float32) {
	if n.attrs[name] == nil {
		typ := onnxpb.AttributeProto_FLOAT
		n.attrs[name] = &onnxpb.AttributeProto{Name: &name, Type: &typ, F: &v}
	}
}

// after gives a Constant node that makes t, a list which later became an operand, and n with it as the second operand.
func (n *node) after(t *onnxpb.TensorProto, attr string, size int) []*node {
	name, typ := "value", onnxpb.AttributeProto_TENSOR
	t.Dims = []int64{int64(size)}
	k := &node{op: "Constant", opset: 9, out: []string{n.loc.Node + "/" + attr}, loc: n.loc, proto: n.proto, subst: n.subst,
		attrs: map[string]*onnxpb.AttributeProto{name: {Name: &name, Type: &typ, T: t}}}
	n.in = []string{n.in[0], k.out[0]}
	return []*node{k, n}
}

// raiseUpsample turns the scales of Upsample before opset 9 from attributes into an operand.
func raiseUpsample(n *node) []*node {
	var scales []float32
	if a := n.attr("scales", onnxpb.AttributeProto_FLOATS); a != nil {
		scales = a.Floats
	} else {
		scales = []float32{1, 1, float32(n.float("height_scale", 1)), float32(n.float("width_scale", 1))}
	}
	if n.from, n.opset = n.opset, 9; len(n.in) != 1 {
		n.fail("has %d inputs, 1 is wanted", len(n.in))
	}
	typ := int32(1)
	return n.after(&onnxpb.TensorProto{DataType: &typ, FloatData: scales}, "scales", len(scales))
}

// axisBroadcast are the operators whose second operand, before opset 7, is repeated to the first's dims when broadcast is
// set, its own dims beginning at axis.
var axisBroadcast = []string{"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater"}

// aligned brings operands of a node from before opset 7 to the form that the later operator wants.
func (w *walker) aligned(n *node, in []*val) []*val {
	switch {
	case n.from == 0 || len(in) < 2 || in[0] == nil || in[1] == nil:
		return in
	case slices.Contains(axisBroadcast, n.op):
		if n.int("broadcast", 0) == 0 {
			if len(in[0].t.Dims) != 0 && !slices.Equal(in[0].t.Dims, in[1].t.Dims) {
				n.fail("operands are %s and %s: dims must agree without broadcast", in[0].t, in[1].t)
			}
			return in
		}
		if n.attrs["axis"] != nil {
			return []*val{in[0], w.placed(n, in[1], in[0].t.Dims, n.int("axis", 0))}
		}
	case n.op == "PRelu" && len(in[0].t.Dims) > 1 && len(in[1].t.Dims) == 1 && in[1].t.Elems() > 1:
		return []*val{in[0], w.placed(n, in[1], in[0].t.Dims, 1)} // one slope per channel
	case n.op == "Tile" && len(in) == 3 && in[2] != nil:
		return w.tiles(n, in)
	}
	return in
}

// placed reshapes x so that its dims lie at those of dims from axis on.
func (w *walker) placed(n *node, x *val, dims []int, axis int) *val {
	axis = n.dim(axis, len(dims))
	if axis+len(x.t.Dims) > len(dims) {
		n.fail("operand 1 is %s: it does not fit into %v from axis %d on", x.t, dims, axis)
	}
	d := append(slices.Repeat([]int{1}, axis), x.t.Dims...)
	d = append(d, slices.Repeat([]int{1}, len(dims)-len(d))...)
	d = d[axis:] // leading ones need not be written
	if a := w.array(x); a != nil {
		return &val{t: ir.Type{DType: x.t.DType, Dims: d}, arr: &ir.Array{Type: ir.Type{DType: x.t.DType, Dims: d}, F: a.F, I: a.I}}
	}
	return outs(ops.Reshape(w.b, w.value(x), d))[0]
}

// tiles gives the operands of Tile from those of its first form: a number of copies, and the axis to make them along.
func (w *walker) tiles(n *node, in []*val) []*val {
	count, axis := w.array(in[1]), w.array(in[2])
	if count == nil || axis == nil || count.Type.Elems() != 1 || axis.Type.Elems() != 1 {
		n.fail("the number of tiles and the axis must be known when compiling%s", w.hintValue(in[1:]...))
	}
	number := func(a *ir.Array) int64 {
		if a.F != nil {
			return int64(a.F[0])
		}
		return a.I[0]
	}
	repeats := ir.NewArray(ir.T(dtype.I64, len(in[0].t.Dims)))
	for i := range repeats.I {
		repeats.I[i] = 1
	}
	repeats.I[n.dim(int(number(axis)), len(in[0].t.Dims))] = number(count)
	return []*val{in[0], {t: repeats.Type, arr: repeats}}
}
