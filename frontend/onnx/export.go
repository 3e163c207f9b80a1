package onnx

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/roles"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// maxProto is the size that protobuf allows a message.
const maxProto = 1<<31 - 1

// Export encodes the model with other contents for its parameters and buffers, given by name as dense
// little-endian data of Parameter.Type (parameters that are not given keep the file's). Parameters that the
// exporter had merged, transposed or dropped get initializers of their own where they no longer agree with the
// file's. With inference, batch normalizations and dropouts take their inference form. Import must have succeeded.
func (m *Model) Export(weights map[string][]byte, inference bool) ([]byte, error) {
	if m.roles == nil {
		return nil, fmt.Errorf("%s: the model must be imported before it is exported", m.Name)
	}
	e := &exporter{m: m, weights: weights, names: map[string]bool{}, made: map[*onnxpb.NodeProto]*onnxpb.NodeProto{}}
	e.proto, e.graph = *m.Proto, *m.Proto.Graph
	e.proto.Graph = &e.graph
	if err := e.run(inference); err != nil {
		return nil, m.Located(err)
	}
	if size := e.proto.Size(); size > maxProto {
		return nil, fmt.Errorf("%s: %d bytes are more than an ONNX file without external data can hold", m.Name, size)
	}
	return e.proto.Marshal()
}

// exporter copies what it changes of the file's messages and shares the rest.
type exporter struct {
	m       *Model
	weights map[string][]byte
	proto   onnxpb.ModelProto
	graph   onnxpb.GraphProto
	names   map[string]bool // of values in the graph
	made    map[*onnxpb.NodeProto]*onnxpb.NodeProto
	extra   []*onnxpb.TensorProto
}

func (e *exporter) run(inference bool) error {
	for _, name := range slices.Sorted(maps.Keys(e.weights)) {
		data := e.weights[name]
		p := e.m.roles.Named[name]
		if p == nil {
			return fmt.Errorf("the model has no parameter %q", name)
		}
		if len(data) != p.Type.Bytes() {
			return fmt.Errorf("parameter %q is %s, but %d bytes are given for it", name, p.Type, len(data))
		}
	}
	var inits []*onnxpb.TensorProto
	for _, t := range e.m.InitList {
		if len(e.m.roles.Uses[t.Name]) > 0 && len(e.m.roles.Unbound(t)) == 0 && !slices.Contains(e.m.OutputNames, t.Name) {
			continue // all that read it get initializers of their own
		}
		e.names[t.Name] = true
		n, err := e.initializer(t)
		if err != nil {
			return err
		}
		inits = append(inits, n)
	}
	for _, n := range e.m.Nodes {
		for _, o := range n.Out {
			e.names[o] = true
		}
	}
	byUse := map[string]string{} // name of the initializer for each parameter and layout
	for _, n := range e.m.Nodes {
		for i := range n.In {
			s := e.m.roles.ByUse[model.Operand{Node: n, Index: i}]
			if s == nil {
				continue
			}
			if err := e.rewire(n, i, s, byUse); err != nil {
				return err
			}
		}
	}
	if inference {
		e.inferenceForm()
	}
	e.graph.Initializer = append(inits, e.extra...)
	nodes := slices.DeleteFunc(slices.Clone(e.graph.Node), func(n *onnxpb.NodeProto) bool { return e.m.Adopted[n] })
	for i, n := range nodes {
		if c := e.made[n]; c != nil {
			nodes[i] = c
		}
	}
	e.graph.Node = nodes
	return nil
}

// contents is what parameter p holds now.
func (e *exporter) contents(p *Parameter) ([]byte, error) {
	if data, ok := e.weights[p.Name]; ok {
		return data, nil
	}
	return p.Data()
}

// laid brings the contents of s's parameters into the form of the operand.
func (e *exporter) laid(s *roles.Source) ([]byte, error) { return s.Form.Bytes(e.contents) }

// initializer is t with its data inside the file and, for a parameter, its new contents.
func (e *exporter) initializer(t *model.Tensor) (*onnxpb.TensorProto, error) {
	s := e.m.roles.ByName[t.Name]
	external := t.Proto.GetDataLocation() == onnxpb.TensorProto_EXTERNAL
	if s == nil || s.Constant() {
		if !external {
			return t.Proto, nil
		}
		data, err := t.Bytes()
		return rawTensor(t.Name, t.Proto.GetDataType(), t.Type.Dims, data), err
	}
	data, err := e.laid(s)
	return rawTensor(t.Name, t.Proto.GetDataType(), t.Type.Dims, data), err
}

func rawTensor(name string, typ int32, dims []int, data []byte) *onnxpb.TensorProto {
	raw := onnxpb.Bytes(data)
	t := &onnxpb.TensorProto{Name: &name, DataType: &typ, RawData: &raw}
	for _, d := range dims {
		t.Dims = append(t.Dims, int64(d))
	}
	return t
}

// rewire makes operand i of n read an initializer of its own.
func (e *exporter) rewire(n *model.Node, i int, s *roles.Source, byUse map[string]string) error {
	key, p := s.Form.String(), s.Param()
	name := byUse[key]
	if name == "" {
		if b := e.m.roles.ByName[p.Name]; s.Form.Op == roles.Leaf && b != nil && b.Form.Op == roles.Leaf && b.Param() == p {
			name = p.Name // the file has it by that name
		} else {
			data, err := e.laid(s)
			if err != nil {
				return err
			}
			name = e.fresh(p.Name + s.Form.Suffix())
			e.extra = append(e.extra, rawTensor(name, elementType(p.Type), s.Form.Type.Dims, data))
		}
		byUse[key] = name
	}
	if n.Subst.Prefix != "" {
		return ir.Errorf(n.Located(), "%q is a copy of its own inside a function, which cannot be exported", p.Name)
	}
	c := e.copied(n.Proto)
	for len(c.Input) <= i {
		c.Input = append(c.Input, "")
	}
	c.Input[i] = name
	return nil
}

// fresh is a name that no value of the graph has.
func (e *exporter) fresh(base string) string {
	name := base
	for k := 1; e.names[name]; k++ {
		name = fmt.Sprintf("%s.%d", base, k)
	}
	e.names[name] = true
	return name
}

// copied is the node that replaces p, made when it is first changed.
func (e *exporter) copied(p *onnxpb.NodeProto) *onnxpb.NodeProto {
	c := e.made[p]
	if c == nil {
		shallow := *p
		c = &shallow
		c.Input, c.Output, c.Attribute = slices.Clone(p.Input), slices.Clone(p.Output), slices.Clone(p.Attribute)
		e.made[p] = c
	}
	return c
}

// inferenceForm undoes training_mode of the top-level nodes. What they return besides the result is dropped.
func (e *exporter) inferenceForm() {
	for _, p := range e.graph.Node {
		switch p.GetOpType() {
		case "BatchNormalization":
			c := e.copied(p)
			c.Output = c.Output[:min(1, len(c.Output))]
			c.Attribute = slices.DeleteFunc(c.Attribute, func(a *onnxpb.AttributeProto) bool {
				return a.GetName() == "training_mode"
			})
		case "Dropout":
			c := e.copied(p)
			c.Input = c.Input[:min(2, len(c.Input))]
			c.Output = c.Output[:min(1, len(c.Output))]
		}
	}
}

// elementType is the ONNX number of a tensor's element type.
func elementType(t ir.Type) int32 {
	for n, d := range model.DTypes {
		if d == t.DType {
			return n
		}
	}
	return 0
}
