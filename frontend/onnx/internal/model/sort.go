package model

import (
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// sorted is nodes in an order in which each comes after those whose results it reads, itself or in its subgraphs: the
// order of the file where that is one, else the order that departs from it least. ONNX asks for sorted nodes, but ONNX
// Runtime does not, and tools write others. A cycle is an error.
func (m *File) sorted(nodes []*Node) ([]*Node, error) {
	maker := map[string]int{}
	for i, n := range nodes {
		for _, o := range n.Out {
			if _, twice := maker[o]; o != "" && !twice { // checkNames refuses the second
				maker[o] = i
			}
		}
	}
	needs, inOrder := make([][]int, len(nodes)), true
	for i, n := range nodes {
		for _, name := range slices.Concat(n.In, n.around()) {
			if p, ok := maker[name]; ok {
				needs[i], inOrder = append(needs[i], p), inOrder && p < i
			}
		}
	}
	if inOrder {
		return nodes, nil
	}
	order, cycle := depthFirst(needs)
	if cycle != nil {
		for _, i := range cycle { // what looks like one, where a node reads the input
			for _, o := range nodes[i].Out {
				if slices.ContainsFunc(m.InputInfos, func(in *onnxpb.ValueInfoProto) bool { return in.GetName() == o }) || m.Inits[o] != nil {
					return nil, ir.Errorf(nodes[i].Located(), "result %q already exists, as an input: every value must be produced once", o)
				}
			}
		}
		var names []string
		for _, i := range cycle[:min(len(cycle), 8)] {
			names = append(names, printable.Line(nodes[i].Loc.Node))
		}
		if len(cycle) > len(names) {
			names = append(names, "…")
		}
		return nil, ir.Errorf(nodes[cycle[0]].Located(), "depends on this node's own result: the graph has a cycle, %s",
			strings.Join(append(names, names[0]), " reads "))
	}
	out := make([]*Node, len(nodes))
	for i, at := range order {
		out[i] = nodes[at]
	}
	m.Warn("the nodes of the file are not sorted; they are computed in an order in which every value is made before it is read")
	return out, nil
}

// depthFirst orders 0 to len(needs)-1 such that each comes after what it needs; where there is no such order it gives a cycle,
// each element of which needs the next and the last the first. The stack is its own, as chains may be a million long.
func depthFirst(needs [][]int) (order, cycle []int) {
	next := make([]int, len(needs)) // of needs[i], to look at; len+1 is done
	for root := range needs {
		stack := []int{}
		if next[root] == 0 {
			stack = append(stack, root)
		}
		open := map[int]bool{root: true}
		for len(stack) > 0 {
			i := stack[len(stack)-1]
			if next[i] >= len(needs[i]) {
				next[i] = len(needs[i]) + 1
				order, stack = append(order, i), stack[:len(stack)-1]
				delete(open, i)
				continue
			}
			p := needs[i][next[i]]
			next[i]++
			switch {
			case next[p] > len(needs[p]):
			case open[p]:
				return nil, slices.Clone(stack[slices.Index(stack, p):])
			default:
				open[p] = true
				stack = append(stack, p)
			}
		}
	}
	return order, nil
}

// around lists the names that the subgraphs of n read and do not make themselves.
func (n *Node) around() []string {
	names := n.Captured(0)
	if len(names) == 0 {
		return nil
	}
	own := map[string]bool{}
	var visit func(attrs []*onnxpb.AttributeProto, depth int)
	visit = func(attrs []*onnxpb.AttributeProto, depth int) {
		for _, a := range attrs {
			for _, g := range append(slices.Clone(a.Graphs), a.G) {
				if g == nil || depth > MaxInline {
					continue
				}
				for _, in := range g.Input {
					own[n.Subst.Name(in.GetName())] = true
				}
				for _, t := range g.Initializer {
					own[n.Subst.Name(t.GetName())] = true
				}
				for _, p := range g.Node {
					for _, o := range p.Output {
						own[n.Subst.Name(o)] = true
					}
					visit(p.Attribute, depth+1)
				}
			}
		}
	}
	for _, a := range n.Attrs {
		visit([]*onnxpb.AttributeProto{a}, 0)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return own[name] })
	slices.Sort(names)
	return slices.Compact(names)
}

// Captured lists the names of the enclosing graph that n's subgraphs may read.
func (n *Node) Captured(depth int) []string {
	var out []string
	if y := n.Attrs["y"]; y != nil && n.Op == GradientOp {
		out = append(out, n.Subst.Name(string(y.S))) // Gradient names the result it differentiates
	}
	for _, a := range n.Attrs {
		for _, g := range append(slices.Clone(a.Graphs), a.G) {
			if g == nil || depth > MaxInline {
				continue
			}
			for _, o := range g.Output {
				out = append(out, n.Subst.Name(o.GetName()))
			}
			for _, p := range g.Node {
				for _, name := range p.Input {
					out = append(out, n.Subst.Name(name))
				}
				inner := &Node{Op: p.GetDomain() + "." + p.GetOpType(), Attrs: map[string]*onnxpb.AttributeProto{}, Subst: n.Subst}
				for _, b := range p.Attribute {
					inner.Attrs[b.GetName()] = b
				}
				out = append(out, inner.Captured(depth+1)...)
			}
		}
	}
	return out
}

// LiveNodes lists, in order, the nodes that the outputs depend on.
func (m *File) LiveNodes() []*Node {
	need := map[string]bool{}
	for _, o := range m.OutputNames {
		need[o] = true
	}
	var live []*Node
	for i := len(m.Nodes) - 1; i >= 0; i-- {
		n := m.Nodes[i]
		if !slices.ContainsFunc(n.Out, func(o string) bool { return need[o] }) {
			continue
		}
		live = append(live, n)
		for _, name := range n.In {
			need[name] = true
		}
		for _, name := range n.Captured(0) {
			need[name] = true
		}
	}
	slices.Reverse(live)
	return live
}
