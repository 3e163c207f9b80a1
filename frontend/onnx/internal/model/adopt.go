package model

import (
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// Some converters (Paddle's, MXNet's, sklearn's, older Keras') write weights as Constant nodes: tensors of the model like
// any initializer.

// adoptConstants takes the tensors of Constant nodes that are used as weights for initializers. PyTorch's exporters write
// all weights as initializers, so that their Constant nodes are constants of the program.
func (m *File) adoptConstants() error {
	if strings.Contains(strings.ToLower(m.Proto.GetProducerName()), "pytorch") || m.Torch.Known() || MetaValue(m.Proto.MetadataProps, KeyParameters) != "" {
		return nil
	}
	readers := map[string][]Operand{}
	maker := map[string]*Node{}
	for _, n := range m.Nodes {
		for i, name := range n.In {
			readers[name] = append(readers[name], Operand{n, i})
		}
		for _, o := range n.Out {
			maker[o] = n
		}
	}
	kept := m.Nodes[:0:0]
	for _, n := range m.Nodes {
		t, err := m.constantTensor(n)
		if err != nil {
			return err
		}
		if t == nil || !slices.ContainsFunc(readers[n.Out[0]], func(u Operand) bool { return m.asWeight(u, t, readers, maker, 0) }) {
			kept = append(kept, n)
			continue
		}
		if m.Adopted == nil {
			m.Adopted = map[*onnxpb.NodeProto]bool{}
		}
		m.Adopted[n.Proto] = true
		m.Inits[t.Name] = t
		m.InitList = append(m.InitList, t)
	}
	m.Nodes = kept
	return nil
}

// constantTensor is the tensor of a top-level Constant node with more than one float, else nil.
func (m *File) constantTensor(n *Node) (*Tensor, error) {
	if n.Op != "Constant" || len(n.Out) != 1 || n.Out[0] == "" || n.Subst.Prefix != "" || m.Inits[n.Out[0]] != nil {
		return nil, nil
	}
	a := n.Attrs["value"]
	if a == nil || a.T == nil {
		return nil, nil
	}
	p := *a.T
	p.Name = &n.Out[0]
	t, err := m.NewTensor(&p)
	if err != nil {
		return nil, err
	}
	if t.Bad != nil || !t.Type.DType.IsFloat() || t.Type.Elems() < 2 {
		return nil, nil
	}
	return t, nil
}

// asWeight reports whether operand u, or what its node makes of it by moving elements, is a weight or bias.
func (m *File) asWeight(u Operand, t *Tensor, readers map[string][]Operand, maker map[string]*Node, depth int) bool {
	if IsStatistic(u) || WeightUse(u) != "" && (u.Node.Op != "Gather" || len(t.Type.Dims) == 2) || m.addsBias(u, maker) {
		return true
	}
	switch u.Node.Op {
	case "Transpose", "Reshape", "Identity", "Cast", "Unsqueeze", "Squeeze":
		return depth < 4 && u.Index == 0 && len(u.Node.Out) > 0 && slices.ContainsFunc(readers[u.Node.Out[0]], func(v Operand) bool {
			return m.asWeight(v, t, readers, maker, depth+1)
		})
	}
	return false
}

// addsBias reports whether u is added to the result of a product with a weight.
func (m *File) addsBias(u Operand, maker map[string]*Node) bool {
	if u.Node.Op != "Add" || len(u.Node.In) != 2 {
		return false
	}
	p := maker[u.Node.In[1-u.Index]]
	return p != nil && (p.Op == "MatMul" || p.Op == "Gemm" || p.Op == "Conv" || p.Op == "ConvTranspose")
}
