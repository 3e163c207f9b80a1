package onnxgo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gogo/protobuf/proto"
	"gorgonia.org/tensor"

	gtconnx "github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// microsoft is the domain of operators that the default one lacks.
const microsoft = "com.microsoft"

// leaves sorts the nodes that no operation makes into inputs and weights.
func (g *Graph) leaves() (inputs, weights []*Node) {
	read := map[*Node]bool{}
	for _, c := range g.calls {
		for _, n := range c.in {
			read[n] = true
		}
	}
	for id := range int64(len(g.byID)) {
		n := g.byID[id]
		if n.made || n.name == "" || n.t == nil && !read[n] {
			continue
		}
		input := n.set
		if g.bound != nil {
			input = slices.Contains(g.bound.Input, id)
		}
		if input {
			inputs = append(inputs, n)
		} else if read[n] {
			weights = append(weights, n)
		}
	}
	return inputs, weights
}

// outputs are the model's, or the values that nothing reads.
func (g *Graph) outputs() []*Node {
	var out []*Node
	if g.bound != nil {
		for _, id := range g.bound.Output {
			out = append(out, g.byID[id])
		}
		return out
	}
	read := map[*Node]bool{}
	for _, c := range g.calls {
		for _, n := range c.in {
			read[n] = true
		}
	}
	for _, c := range g.calls {
		for _, n := range c.out {
			if !read[n] && n.name != "" {
				out = append(out, n)
			}
		}
	}
	return out
}

// model writes the graph as ONNX. batch, when positive, replaces the leading dim of every input.
func (g *Graph) model(batch int) ([]byte, error) {
	inputs, weights := g.leaves()
	name := "onnx-go"
	gp := &onnxpb.GraphProto{Name: &name}
	for _, n := range inputs {
		e, err := protoType(n.t)
		if err != nil {
			return nil, fmt.Errorf("onnxgo: input %q: %w: set one with SetInput", n.name, err)
		}
		dims := n.t.Shape().Clone()
		if batch > 0 && len(dims) > 0 {
			dims[0] = batch
		}
		gp.Input = append(gp.Input, valueInfo(n.name, e, dims))
	}
	for _, n := range weights {
		if n.t == nil {
			return nil, fmt.Errorf("onnxgo: %q has no contents: no operation makes it, and no tensor was set", n.name)
		}
		p, err := toProto(n.name, n.t)
		if err != nil {
			return nil, fmt.Errorf("onnxgo: %q: %w", n.name, err)
		}
		gp.Initializer = append(gp.Initializer, p)
	}
	usesMicrosoft, known := false, gtconnx.Operators()
	for i := range g.calls {
		p, err := g.calls[i].proto(i, known)
		if err != nil {
			return nil, err
		}
		usesMicrosoft = usesMicrosoft || p.Domain != nil
		gp.Node = append(gp.Node, p)
	}
	for _, n := range g.outputs() {
		gp.Output = append(gp.Output, &onnxpb.ValueInfoProto{Name: proto.String(n.name)})
	}
	version, producer := int64(8), "onnx-go"
	mp := &onnxpb.ModelProto{IrVersion: &version, ProducerName: &producer, Graph: gp,
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: proto.String(""), Version: &g.opt.Opset}}}
	if usesMicrosoft {
		mp.OpsetImport = append(mp.OpsetImport, &onnxpb.OperatorSetIdProto{Domain: proto.String(microsoft), Version: proto.Int64(1)})
	}
	return mp.Marshal()
}

func valueInfo(name string, e *element, dims []int) *onnxpb.ValueInfoProto {
	code := int32(e.onnx)
	t := &onnxpb.TypeProto_Tensor{ElemType: &code, Shape: &onnxpb.TensorShapeProto{}}
	for _, d := range dims {
		t.Shape.Dim = append(t.Shape.Dim, &onnxpb.TensorShapeProto_Dimension{
			Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(d)}})
	}
	return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: t}}}
}

// proto is the operation as node i of the file; known are the names of all operators, sorted.
func (c *call) proto(i int, known []string) (*onnxpb.NodeProto, error) {
	p := &onnxpb.NodeProto{OpType: proto.String(c.op.Name), Name: proto.String(fmt.Sprintf("%s_%d", c.op.Name, i))}
	has := func(name string) bool { _, found := slices.BinarySearch(known, name); return found }
	if !has(c.op.Name) && has(microsoft+"."+c.op.Name) {
		p.Domain = proto.String(microsoft)
	}
	for _, n := range c.in {
		p.Input = append(p.Input, n.name)
	}
	for _, n := range c.out {
		p.Output = append(p.Output, n.name)
	}
	for name, v := range c.op.Attributes {
		a, err := attribute(name, v)
		if err != nil {
			return nil, fmt.Errorf("onnxgo: node %q (%s): attribute %q: %w", p.GetName(), c.op.Name, name, err)
		}
		p.Attribute = append(p.Attribute, a)
	}
	slices.SortFunc(p.Attribute, func(a, b *onnxpb.AttributeProto) int { return strings.Compare(a.GetName(), b.GetName()) })
	return p, nil
}

// attribute stores an attribute of onnx-go's in ONNX's form.
func attribute(name string, v any) (*onnxpb.AttributeProto, error) {
	a := &onnxpb.AttributeProto{Name: &name}
	typ := onnxpb.AttributeProto_UNDEFINED
	switch v := v.(type) {
	case float32:
		a.F, typ = &v, onnxpb.AttributeProto_FLOAT
	case int64:
		a.I, typ = &v, onnxpb.AttributeProto_INT
	case string:
		a.S, typ = []byte(v), onnxpb.AttributeProto_STRING
	case []float32:
		a.Floats, typ = v, onnxpb.AttributeProto_FLOATS
	case []int64:
		a.Ints, typ = v, onnxpb.AttributeProto_INTS
	case []string:
		for _, s := range v {
			a.Strings = append(a.Strings, []byte(s))
		}
		typ = onnxpb.AttributeProto_STRINGS
	case tensor.Tensor:
		t, err := toProto("", v)
		if err != nil {
			return nil, err
		}
		a.T, typ = t, onnxpb.AttributeProto_TENSOR
	case struct{}: // of undefined type: as if absent
		return a, nil
	default:
		return nil, fmt.Errorf("a %T cannot be an attribute", v)
	}
	a.Type = &typ
	return a, nil
}
