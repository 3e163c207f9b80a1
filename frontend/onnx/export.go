package onnx

import (
	"fmt"
	"maps"
	"slices"

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
		return nil, fmt.Errorf("%s: export before import", m.Name)
	}
	e := &exporter{m: m, weights: weights, names: map[string]bool{}, made: map[*onnxpb.NodeProto]*onnxpb.NodeProto{}}
	e.proto, e.graph = *m.Proto, *m.Proto.Graph
	e.proto.Graph = &e.graph
	if err := e.run(inference); err != nil {
		return nil, m.located(err)
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
		p := e.m.roles.named[name]
		if p == nil {
			return fmt.Errorf("the model has no parameter %q", name)
		}
		if len(data) != p.Type.Bytes() {
			return fmt.Errorf("parameter %q is %s; %d bytes are given for it", name, p.Type, len(data))
		}
	}
	var inits []*onnxpb.TensorProto
	for _, t := range e.m.initList {
		if len(e.m.roles.uses[t.name]) > 0 && len(e.m.roles.unbound(t)) == 0 && !slices.Contains(e.m.outputs, t.name) {
			continue // all that read it get initializers of their own
		}
		e.names[t.name] = true
		n, err := e.initializer(t)
		if err != nil {
			return err
		}
		inits = append(inits, n)
	}
	for _, n := range e.m.nodes {
		for _, o := range n.out {
			e.names[o] = true
		}
	}
	byUse := map[string]string{} // name of the initializer for each parameter and layout
	for _, n := range e.m.nodes {
		for i := range n.in {
			s := e.m.roles.byUse[operand{n, i}]
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
	nodes := slices.DeleteFunc(slices.Clone(e.graph.Node), func(n *onnxpb.NodeProto) bool { return e.m.adopted[n] })
	for i, n := range nodes {
		if c := e.made[n]; c != nil {
			nodes[i] = c
		}
	}
	e.graph.Node = nodes
	return nil
}

// contents is what parameter p holds now, its adapter merged.
func (e *exporter) contents(p *Parameter) ([]byte, error) { return p.merged(e.weights) }

// laid brings the contents of s's parameters into the form of the operand.
func (e *exporter) laid(s *source) ([]byte, error) { return s.form.bytes(e.contents) }

// initializer is t with its data inside the file and, for a parameter, its new contents.
func (e *exporter) initializer(t *tensor) (*onnxpb.TensorProto, error) {
	s := e.m.roles.byName[t.name]
	external := t.proto.GetDataLocation() == onnxpb.TensorProto_EXTERNAL
	if s == nil || s.constant() {
		if !external {
			return t.proto, nil
		}
		data, err := t.bytes()
		return rawTensor(t.name, t.proto.GetDataType(), t.typ.Dims, data), err
	}
	data, err := e.laid(s)
	return rawTensor(t.name, t.proto.GetDataType(), t.typ.Dims, data), err
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
func (e *exporter) rewire(n *node, i int, s *source, byUse map[string]string) error {
	key, p := s.form.String(), s.param()
	name := byUse[key]
	if name == "" {
		if b := e.m.roles.byName[p.Name]; s.form.op == leaf && b != nil && b.form.op == leaf && b.param() == p {
			name = p.Name // the file has it by that name
		} else {
			data, err := e.laid(s)
			if err != nil {
				return err
			}
			name = e.fresh(p.Name + s.form.suffix())
			e.extra = append(e.extra, rawTensor(name, elementType(p.Type), s.form.typ.Dims, data))
		}
		byUse[key] = name
	}
	if n.subst.prefix != "" {
		return ir.Errorf(n.located(), "%q is a copy of its own inside a function, which cannot be exported", p.Name)
	}
	c := e.copied(n.proto)
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
	for n, d := range dtypes {
		if d == t.DType {
			return n
		}
	}
	return 0
}
