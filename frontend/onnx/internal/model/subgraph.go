package model

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// bodyKey names a subgraph: an attribute of a node.
type bodyKey struct {
	n    *Node
	attr string
}

// Body is a subgraph, ready to be walked any number of times.
type Body struct {
	Node    *Node
	Nodes   []*Node // functions inlined
	Inits   map[string]*Tensor
	In, Out []string
	Types   []*onnxpb.TypeProto // declared types of the results; nil where there is none
}

// hoist moves the float initializers of subgraphs into the main graph, under their own names, where the names are free
// there: subgraphs see what is around them, so nothing changes, and weights that a converter put into the body of a loop
// are trained and exported like any other.
func (m *File) hoist() {
	g := m.Proto.Graph
	taken := map[string]bool{}
	for _, t := range g.Initializer {
		taken[t.GetName()] = true
	}
	for _, in := range g.Input {
		taken[in.GetName()] = true
	}
	var claim func(nodes []*onnxpb.NodeProto, f func(*onnxpb.GraphProto))
	claim = func(nodes []*onnxpb.NodeProto, f func(*onnxpb.GraphProto)) {
		for _, n := range nodes {
			for _, a := range n.Attribute {
				if a.G != nil {
					f(a.G)
					claim(a.G.Node, f)
				}
			}
			for _, o := range n.Output {
				taken[o] = true
			}
		}
	}
	claim(g.Node, func(sub *onnxpb.GraphProto) {
		for _, in := range sub.Input {
			taken[in.GetName()] = true
		}
	})
	claim(g.Node, func(sub *onnxpb.GraphProto) {
		own := map[string]int{}
		for _, t := range sub.Initializer {
			own[t.GetName()]++
		}
		sub.Initializer = slices.DeleteFunc(sub.Initializer, func(t *onnxpb.TensorProto) bool {
			d, err := DTypeOf(t.GetDataType())
			if err != nil || !d.IsFloat() || taken[t.GetName()] || own[t.GetName()] > 1 {
				return false
			}
			taken[t.GetName()] = true
			g.Initializer = append(g.Initializer, t)
			return true
		})
	})
}

// BodyOf prepares the subgraph in an attribute of n, once; nil when n has no such attribute.
func (m *File) BodyOf(n *Node, attr string) (*Body, error) {
	key := bodyKey{n, attr}
	if b := m.bodies[key]; b != nil {
		return b, nil
	}
	a := n.Attrs[attr]
	if a == nil || a.G == nil {
		return nil, nil
	}
	b := &Body{Node: n, Inits: map[string]*Tensor{}}
	for _, p := range a.G.Initializer {
		t, err := m.NewTensor(p)
		if err == nil {
			err = t.Bad
		}
		if err != nil {
			return nil, ir.Errorf(n.Located(), "initializer %q of a subgraph: %v", p.GetName(), err)
		}
		if t.Name == "" || b.Inits[n.Subst.Name(t.Name)] != nil {
			return nil, ir.Errorf(n.Located(), "initializer name %q of its graph %q is empty or given twice", t.Name, attr)
		}
		if t.Type.DType.IsFloat() && t.Type.Elems() > 1 {
			m.Warn("%q is an initializer of a subgraph of node %q and its name is used elsewhere, so it is a constant; move it to "+
				"the main graph to train it", t.Name, n.Loc.Node)
		}
		b.Inits[n.Subst.Name(t.Name)] = t
	}
	s := n.Subst
	s.loc = n.Loc
	inner := m.inliner()
	if err := inner.list(a.G.Node, s, 1); err != nil {
		return nil, err
	}
	nodes, err := m.sorted(inner.out)
	if err != nil {
		return nil, err
	}
	b.Nodes = nodes
	for _, in := range a.G.Input {
		b.In = append(b.In, n.Subst.Name(in.GetName()))
	}
	for _, o := range a.G.Output {
		b.Out, b.Types = append(b.Out, n.Subst.Name(o.GetName())), append(b.Types, o.Type)
	}
	m.bodies[key] = b
	return b, nil
}

// EachNode visits the nodes of the graph, each followed by those of its subgraphs.
func (m *File) EachNode(f func(*Node)) error {
	var visit func(nodes []*Node, depth int) error
	visit = func(nodes []*Node, depth int) error {
		if depth > MaxInline {
			return fmt.Errorf("graphs nest deeper than %d", MaxInline)
		}
		for _, n := range nodes {
			f(n)
			if n.Proto == nil {
				continue
			}
			for _, a := range n.Proto.Attribute { // in the file's order
				b, err := m.BodyOf(n, a.GetName())
				if err != nil {
					return err
				}
				if b == nil {
					continue
				}
				if err := visit(b.Nodes, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return visit(m.Nodes, 0)
}

// WithBodies is nodes, each followed by those of its body when it is a loop of some form.
func (m *File) WithBodies(nodes []*Node) ([]*Node, error) {
	var all []*Node
	for _, n := range nodes {
		all = append(all, n)
		b, err := m.BodyOf(n, "body")
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		inner, err := m.WithBodies(b.Nodes)
		if err != nil {
			return nil, err
		}
		all = append(all, inner...)
	}
	return all, nil
}
