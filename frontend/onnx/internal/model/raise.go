package model

import "github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"

// raised gives n in the form of opset 7 or later, preceded by constants that it needs.
func raised(n *Node) []*Node {
	if n.Op == "Upsample" && n.Opset < 9 {
		return raiseUpsample(n)
	}
	if n.Opset >= 7 {
		return []*Node{n}
	}
	n.From, n.Opset = n.Opset, 7
	delete(n.Attrs, "consumed_inputs") // said which operands may be overwritten
	switch n.Op {
	case "BatchNormalization":
		if n.Int("is_test", 0) == 0 {
			n.setInt("training_mode", 1)
		}
	case "Dropout":
		if n.Int("is_test", 0) != 0 {
			n.Op = "Identity"
		}
	case "Pad":
		if p := n.Attrs["paddings"]; p != nil {
			n.Attrs["pads"] = p
		}
	case "Concat":
		if n.From < 4 && n.Attrs["axis"] == nil {
			n.setInt("axis", 1)
		}
	case "Selu":
		if n.From < 6 {
			n.setFloat("alpha", 1.6732)
			n.setFloat("gamma", 1.0507)
		}
	case "LpPool", "GlobalLpPool":
		if a := n.Attrs["p"]; a != nil && a.GetType() == onnxpb.AttributeProto_FLOAT {
			n.setInt("p", int(a.GetF()))
		}
	case "Split":
		if n.Has(1) {
			n.Opset = 13
		}
	case "ThresholdedRelu": // experimental then, in the form that it kept
		n.Opset = 10
	case "Reshape":
		if n.From < 5 && !n.Has(1) {
			typ, shape := int32(7), n.Attr("shape", onnxpb.AttributeProto_INTS)
			if shape == nil || len(n.In) != 1 {
				n.Fail("it has %d inputs and no attribute \"shape\": before opset 5 Reshape needs one input and that attribute", len(n.In))
			}
			return n.after(&onnxpb.TensorProto{DataType: &typ, Int64Data: shape.Ints}, "shape", len(shape.Ints))
		}
	}
	return []*Node{n}
}

// raiseUpsample turns the scales of Upsample before opset 9 from attributes into an operand.
func raiseUpsample(n *Node) []*Node {
	var scales []float32
	if a := n.Attr("scales", onnxpb.AttributeProto_FLOATS); a != nil {
		scales = a.Floats
	} else {
		scales = []float32{1, 1, float32(n.Float("height_scale", 1)), float32(n.Float("width_scale", 1))}
	}
	if n.From, n.Opset = n.Opset, 9; len(n.In) != 1 {
		n.Fail("it has %d inputs, but must have one", len(n.In))
	}
	typ := int32(1)
	return n.after(&onnxpb.TensorProto{DataType: &typ, FloatData: scales}, "scales", len(scales))
}

func (n *Node) setInt(name string, v int) {
	i, typ := int64(v), onnxpb.AttributeProto_INT
	n.Attrs[name] = &onnxpb.AttributeProto{Name: &name, Type: &typ, I: &i}
}

// setFloat sets an attribute that is absent.
func (n *Node) setFloat(name string, v float32) {
	if n.Attrs[name] == nil {
		typ := onnxpb.AttributeProto_FLOAT
		n.Attrs[name] = &onnxpb.AttributeProto{Name: &name, Type: &typ, F: &v}
	}
}

// after gives a Constant node that makes t, a list which later became an operand, and n with it as the second operand.
func (n *Node) after(t *onnxpb.TensorProto, attr string, size int) []*Node {
	name, typ := "value", onnxpb.AttributeProto_TENSOR
	t.Dims = []int64{int64(size)}
	k := &Node{Op: "Constant", Opset: 9, Out: []string{n.Loc.Node + "/" + attr}, Loc: n.Loc, Proto: n.Proto, Subst: n.Subst,
		Attrs: map[string]*onnxpb.AttributeProto{name: {Name: &name, Type: &typ, T: t}}}
	n.In = []string{n.In[0], k.Out[0]}
	return []*Node{k, n}
}
