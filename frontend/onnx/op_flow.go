package onnx

import (
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

var flowRows = []row{
	{op: "Constant", since: 1, min: 0, max: 0, rule: importConstant},
	{op: "ConstantOfShape", since: 9, min: 1, max: 1, rule: func(w *walker, n *node, in []*val) []*val {
		one, dims := n.constantValue(), toInts(n, w.known(n, in, 0))
		if _, err := product(dims); err != nil {
			n.fail("shape %v: %v", dims, err)
		}
		scalar := view(one, nil)[0]
		return outs(w.spread(&val{t: scalar.Type, arr: scalar}, dims))
	}},
	{op: "Shape", since: 1, min: 1, max: 1, rule: importShape},
	{op: "Size", since: 1, min: 1, max: 1, rule: func(w *walker, n *node, in []*val) []*val {
		return known(&ir.Array{Type: ir.T(i64), I: []int64{int64(in[0].t.Elems())}})
	}},
	{op: "Identity", since: 1, min: 1, max: 1, seq: true, rule: importIdentity},
}

func known(a *ir.Array) []*val { return []*val{{t: a.Type, arr: a}} }

func importShape(_ *walker, n *node, in []*val) []*val {
	d := in[0].t.Dims
	start, end := n.int("start", 0), n.int("end", len(d))
	c := cutOf(len(d), start, end, 1)
	out := ir.NewArray(ir.T(i64, c.count))
	for i := range out.I {
		out.I[i] = int64(d[c.start+i])
	}
	return known(out)
}

func importConstant(_ *walker, n *node, _ []*val) []*val {
	typ := func(name string, t onnxpb.AttributeProto_AttributeType) *onnxpb.AttributeProto {
		return n.attr(name, t)
	}
	if a := typ("value", onnxpb.AttributeProto_TENSOR); a != nil {
		return known(n.tensorAttr(a))
	}
	if a := typ("value_int", onnxpb.AttributeProto_INT); a != nil {
		return known(&ir.Array{Type: ir.T(i64), I: []int64{a.GetI()}})
	}
	if a := typ("value_ints", onnxpb.AttributeProto_INTS); a != nil {
		return known(&ir.Array{Type: ir.T(i64, len(a.Ints)), I: append([]int64{}, a.Ints...)})
	}
	if a := typ("value_float", onnxpb.AttributeProto_FLOAT); a != nil {
		return known(&ir.Array{Type: ir.T(dtype.F32), F: []float64{float64(a.GetF())}})
	}
	if a := typ("value_floats", onnxpb.AttributeProto_FLOATS); a != nil {
		out := ir.NewArray(ir.T(dtype.F32, len(a.Floats)))
		for i, f := range a.Floats {
			out.F[i] = float64(f)
		}
		return known(out)
	}
	n.fail("a constant without a value that gtc knows (tensor, int, ints, float, floats)")
	return nil
}
