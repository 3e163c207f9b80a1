package onnx

import (
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// Some converters (Paddle's, MXNet's, sklearn's, older Keras') write weights as Constant nodes: tensors of the model like
// any initializer.

// adoptConstants takes the tensors of Constant nodes that are used as weights for initializers. PyTorch's exporters write
// all weights as initializers, so that their Constant nodes are constants of the program.
func (m *Model) adoptConstants() error {
	if strings.Contains(strings.ToLower(m.Proto.GetProducerName()), "pytorch") || m.torch.known() || metaValue(m.Proto.MetadataProps, keyParameters) != "" {
		return nil
	}
	readers := map[string][]operand{}
	maker := map[string]*node{}
	for _, n := range m.nodes {
		for i, name := range n.in {
			readers[name] = append(readers[name], operand{n, i})
		}
		for _, o := range n.out {
			maker[o] = n
		}
	}
	kept := m.nodes[:0:0]
	for _, n := range m.nodes {
		t, err := m.constantTensor(n)
		if err != nil {
			return err
		}
		if t == nil || !slices.ContainsFunc(readers[n.out[0]], func(u operand) bool { return m.asWeight(u, t, readers, maker, 0) }) {
			kept = append(kept, n)
			continue
		}
		if m.adopted == nil {
			m.adopted = map[*onnxpb.NodeProto]bool{}
		}
		m.adopted[n.proto] = true
		m.inits[t.name] = t
		m.initList = append(m.initList, t)
	}
	m.nodes = kept
	return nil
}

// constantTensor is the tensor of a top-level Constant node with more than one float, else nil.
func (m *Model) constantTensor(n *node) (*tensor, error) {
	if n.op != "Constant" || len(n.out) != 1 || n.out[0] == "" || n.subst.prefix != "" || m.inits[n.out[0]] != nil {
		return nil, nil
	}
	a := n.attrs["value"]
	if a == nil || a.T == nil {
		return nil, nil
	}
	p := *a.T
	p.Name = &n.out[0]
	t, err := m.newTensor(&p)
	if err != nil {
		return nil, err
	}
	if t.bad != nil || !t.typ.DType.IsFloat() || t.typ.Elems() < 2 {
		return nil, nil
	}
	return t, nil
}

// asWeight reports whether operand u, or what its node makes of it by moving elements, is a weight or bias.
func (m *Model) asWeight(u operand, t *tensor, readers map[string][]operand, maker map[string]*node, depth int) bool {
	if isStatistic(u) || weightUse(u) != "" && (u.n.op != "Gather" || len(t.typ.Dims) == 2) || m.addsBias(u, maker) {
		return true
	}
	switch u.n.op {
	case "Transpose", "Reshape", "Identity", "Cast", "Unsqueeze", "Squeeze":
		return depth < 4 && u.i == 0 && len(u.n.out) > 0 && slices.ContainsFunc(readers[u.n.out[0]], func(v operand) bool {
			return m.asWeight(v, t, readers, maker, depth+1)
		})
	}
	return false
}

// addsBias reports whether u is added to the result of a product with a weight.
func (m *Model) addsBias(u operand, maker map[string]*node) bool {
	if u.n.op != "Add" || len(u.n.in) != 2 {
		return false
	}
	p := maker[u.n.in[1-u.i]]
	return p != nil && (p.op == "MatMul" || p.op == "Gemm" || p.op == "Conv" || p.op == "ConvTranspose")
}

// scalarBias reports whether one-element tensor t is the bias of a layer with a single output: it is added to the product
// with a weight that has one column or filter.
func (r *roles) scalarBias(t *tensor, uses []operand) bool {
	if len(t.typ.Dims) == 0 || t.typ.Elems() != 1 {
		return false
	}
	for _, u := range uses {
		if u.n.op != "Add" || len(u.n.in) != 2 {
			continue
		}
		p := r.maker(u.n.in[1-u.i])
		if p == nil {
			continue
		}
		w := r.m.inits[p.input(1)]
		if w == nil || len(w.typ.Dims) < 2 {
			continue
		}
		last := w.typ.Dims[len(w.typ.Dims)-1]
		if p.op == "Gemm" && p.int("transB", 0) != 0 || p.op == "Conv" {
			last = w.typ.Dims[0]
		}
		if (p.op == "MatMul" || p.op == "Gemm" || p.op == "Conv") && last == 1 {
			return true
		}
	}
	return false
}

// maker is the node that makes a value, nil for inputs and initializers.
func (r *roles) maker(name string) *node {
	if r.makers == nil {
		r.makers = map[string]*node{}
		for _, n := range r.m.nodes {
			for _, o := range n.out {
				r.makers[o] = n
			}
		}
	}
	return r.makers[name]
}
