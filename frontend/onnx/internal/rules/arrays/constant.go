package arrays

import (
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var flowRows = []walk.Row{
	{Op: "Constant", Since: 1, Min: 0, Max: 0, Rule: importConstant},
	{Op: "ConstantOfShape", Since: 9, Min: 1, Max: 1, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		one, dims := fold.ConstantValue(n), fold.Ints(n, MustKnow(w, n, in, 0))
		if _, err := model.Elements(dims); err != nil {
			n.Fail("shape %v: %v", dims, err)
		}
		scalar := fold.View(one, nil)[0]
		return walk.Results(w.Spread(&walk.Val{Type: scalar.Type, Array: scalar}, dims))
	}},
	{Op: "Shape", Since: 1, Min: 1, Max: 1, Rule: importShape},
	{Op: "Size", Since: 1, Min: 1, Max: 1, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		return walk.Known(&ir.Array{Type: ir.T(dtype.I64), I: []int64{int64(in[0].Type.Elems())}})
	}},
	{Op: "Identity", Since: 1, Min: 1, Max: 1, Seq: true, Rule: importIdentity},
}

func importShape(_ *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d := in[0].Type.Dims
	start, end := n.Int("start", 0), n.Int("end", len(d))
	c := fold.CutOf(len(d), start, end, 1)
	out := ir.NewArray(ir.T(dtype.I64, c.Count))
	for i := range out.I {
		out.I[i] = int64(d[c.Start+i])
	}
	return walk.Known(out)
}

func importConstant(_ *walk.Walker, n *model.Node, _ []*walk.Val) []*walk.Val {
	typ := func(name string, t onnxpb.AttributeProto_AttributeType) *onnxpb.AttributeProto {
		return n.Attr(name, t)
	}
	if a := typ("value", onnxpb.AttributeProto_TENSOR); a != nil {
		return walk.Known(n.TensorAttr(a))
	}
	if a := typ("value_int", onnxpb.AttributeProto_INT); a != nil {
		return walk.Known(&ir.Array{Type: ir.T(dtype.I64), I: []int64{a.GetI()}})
	}
	if a := typ("value_ints", onnxpb.AttributeProto_INTS); a != nil {
		return walk.Known(&ir.Array{Type: ir.T(dtype.I64, len(a.Ints)), I: append([]int64{}, a.Ints...)})
	}
	if a := typ("value_float", onnxpb.AttributeProto_FLOAT); a != nil {
		return walk.Known(&ir.Array{Type: ir.T(dtype.F32), F: []float64{float64(a.GetF())}})
	}
	if a := typ("value_floats", onnxpb.AttributeProto_FLOATS); a != nil {
		out := ir.NewArray(ir.T(dtype.F32, len(a.Floats)))
		for i, f := range a.Floats {
			out.F[i] = float64(f)
		}
		return walk.Known(out)
	}
	n.Fail("it has no value of a kind that gtc supports (tensor, int, ints, float, floats)")
	return nil
}

// importIdentity gives its operand on. The dynamo exporter writes PyTorch's detach as an Identity too: no gradient passes it.
func importIdentity(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	if x := in[0]; (n.Torch.Is("detach") || model.MetaValue(n.Proto.MetadataProps, model.KeyDetach) != "") && x.Type.DType.IsFloat() && w.Array(x) == nil {
		return walk.Results(ops.Detach(w.B, w.Value(x)))
	}
	return in
}
