// Package deepen makes deep models of shallow ones: it repeats a layer of an ONNX graph. What compiling costs as models get
// deeper is measured, and tested, on the results.
package deepen

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// Layer says where in a graph the layer to repeat is: a stretch of its nodes, in file order.
type Layer struct {
	First string // result of the layer's first node
	Last  string // result of its last node, which the next layer reads
	Carry string // what the layer reads of the one before it
	Mark  string // in the names of its initializers, with the layer's number in place of %d: ".h.%d"
	Index int    // that number
}

// GPT2 is the second and last layer of gpt2_tiny, as PyTorch's dynamo exporter writes it (with and without optimization).
var GPT2 = Layer{First: "layer_norm_2", Last: "add_13", Carry: "add_8", Mark: ".h.%d", Index: 1}

// Repeat returns the ONNX file data with layer l repeated until the model has n layers, l's number and those before it
// counted. Each copy has its own initializers, of other values, so that nothing takes them for tied.
func Repeat(data []byte, l Layer, n int) ([]byte, error) {
	m := &onnxpb.ModelProto{}
	if err := m.Unmarshal(data); err != nil {
		return nil, err
	}
	g := m.Graph
	if g == nil {
		return nil, fmt.Errorf("the model has no graph")
	}
	makes := func(name string) int {
		return slices.IndexFunc(g.Node, func(x *onnxpb.NodeProto) bool { return slices.Contains(x.Output, name) })
	}
	from, to := makes(l.First), makes(l.Last)
	if from < 0 || to < from || makes(l.Carry) < 0 {
		return nil, fmt.Errorf("the graph has no layer from %q to %q after %q", l.First, l.Last, l.Carry)
	}
	sign(g, &l, n)
	layer, after := slices.Clone(g.Node[from:to+1]), slices.Clone(g.Node[to+1:])
	g.Node = g.Node[:to+1]
	carry, own := l.Last, slices.Clone(g.Initializer)
	for i := l.Index + 1; i < n; i++ {
		c, err := newCopier(g, &l, layer, own, i)
		if err != nil {
			return nil, err
		}
		c.names[l.Carry] = carry
		for _, x := range layer {
			y, err := c.node(x)
			if err != nil {
				return nil, err
			}
			g.Node = append(g.Node, y)
		}
		carry = c.names[l.Last]
	}
	for _, x := range after {
		for k, in := range x.Input {
			if in == l.Last {
				x.Input[k] = carry
			}
		}
	}
	g.Node = append(g.Node, after...)
	return m.Marshal()
}

// rename gives the layer's names in a text another number, as PyTorch writes them: .h.1 in modules, _h_1 in variables.
func (l *Layer) rename(index int) *strings.Replacer {
	old, to := fmt.Sprintf(l.Mark, l.Index), fmt.Sprintf(l.Mark, index)
	flat := func(s string) string { return strings.ReplaceAll(s, ".", "_") }
	return strings.NewReplacer(old, to, flat(old), flat(to))
}

// sign adds the copies' parameters to the signature that the exporter leaves in the graph's metadata.
func sign(g *onnxpb.GraphProto, l *Layer, n int) {
	mark := fmt.Sprintf(l.Mark, l.Index)
	for _, p := range g.MetadataProps {
		var out []string
		for _, line := range strings.Split(p.GetValue(), "\n") {
			out = append(out, line)
			for i := l.Index + 1; i < n && strings.Contains(line, mark); i++ {
				out = append(out, l.rename(i).Replace(line))
			}
		}
		text := strings.Join(out, "\n")
		p.Value = &text
	}
}

// copier copies the nodes of a layer.
type copier struct {
	names  map[string]string // what a name is called in the copy
	rename *strings.Replacer
	suffix string
}

// newCopier renames all that belongs to the layer, and adds copies of those of its initializers, which are among inits, to g.
func newCopier(g *onnxpb.GraphProto, l *Layer, layer []*onnxpb.NodeProto, inits []*onnxpb.TensorProto, index int) (*copier, error) {
	c := &copier{names: map[string]string{}, rename: l.rename(index), suffix: fmt.Sprintf(".copy%d", index)}
	for _, x := range layer {
		for _, out := range x.Output {
			if out != "" {
				c.names[out] = out + c.suffix
			}
		}
	}
	for _, t := range inits {
		name := c.rename.Replace(t.GetName())
		if name == t.GetName() {
			continue
		}
		c.names[t.GetName()] = name
		y, err := perturbed(t, 1+float32(index)/1024)
		if err != nil {
			return nil, err
		}
		y.Name = &name
		g.Initializer = append(g.Initializer, y)
	}
	return c, nil
}

// perturbed is a copy of t with its values, when they are float32, multiplied by a factor.
func perturbed(t *onnxpb.TensorProto, by float32) (*onnxpb.TensorProto, error) {
	text, err := t.Marshal()
	if err != nil {
		return nil, err
	}
	y := &onnxpb.TensorProto{}
	if err := y.Unmarshal(text); err != nil {
		return nil, err
	}
	if y.RawData != nil && y.GetDataType() == int32(onnxpb.TensorProto_FLOAT) {
		b := onnxpb.Bytes(slices.Clone(*y.RawData))
		for i := 0; i+4 <= len(b); i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(b[i:])) * by
			binary.LittleEndian.PutUint32(b[i:], math.Float32bits(v))
		}
		y.RawData = &b
	}
	return y, nil
}

// node copies one node.
func (c *copier) node(x *onnxpb.NodeProto) (*onnxpb.NodeProto, error) {
	text, err := x.Marshal()
	if err != nil {
		return nil, err
	}
	y := &onnxpb.NodeProto{}
	if err := y.Unmarshal(text); err != nil {
		return nil, err
	}
	name := y.GetName() + c.suffix
	y.Name = &name
	for _, p := range y.MetadataProps {
		text := c.rename.Replace(p.GetValue())
		p.Value = &text
	}
	for _, list := range [][]string{y.Input, y.Output} {
		for i, v := range list {
			if to, ok := c.names[v]; ok {
				list[i] = to
			}
		}
	}
	return y, nil
}
