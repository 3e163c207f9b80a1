package onnxgo

import (
	"fmt"
	"math"
	"os"
	"slices"

	onnx "github.com/owulveryck/onnx-go"
	"gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/simple"
	"gorgonia.org/tensor"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// DefaultOpset is the operator set that a model is taken to be written for when nobody says: the newest that onnx-go
// v0.5.0 was made for.
const DefaultOpset = 11

// Options are the choices of a Graph; the zero value has useful defaults.
type Options struct {
	Opset   int64  // version of the default operator set; 0 is DefaultOpset
	Dir     string // where programs are built; "" is a temporary folder
	Threads int    // threads that a program uses; 0 is all processors
}

// Graph is a computation graph that onnx-go fills and gtc compiles. It satisfies onnx.Backend and onnx-go's
// backend.ComputationBackend. Its methods must not be called from several goroutines at once.
type Graph struct {
	*simple.WeightedDirectedGraph
	opt     Options
	byID    map[int64]*Node
	pending []graph.WeightedEdge // edges that came since the last operation
	calls   []call
	bound   *onnx.Model
	dir     string
	own     bool   // dir is temporary
	built   string // what the program in infers was built for
	infers  string // its folder
}

// call is one operation: attributes, operands and results in order.
type call struct {
	op      onnx.Operation
	in, out []*Node
}

// Node is a value of the graph. It satisfies graph.Node, onnx.Namer and onnx.DataCarrier.
type Node struct {
	id    int64
	name  string
	t     tensor.Tensor
	g     *Graph
	made  bool // by an operation
	times int  // how often its tensor was set
	set   bool // its tensor was set after the last operation came, so it is data and no weight
}

// New makes an empty graph, to be given to onnx.NewModel.
func New(opt Options) *Graph {
	if opt.Opset == 0 {
		opt.Opset = DefaultOpset
	}
	return &Graph{WeightedDirectedGraph: simple.NewWeightedDirectedGraph(0, math.Inf(1)), opt: opt, byID: map[int64]*Node{}}
}

// Load decodes an ONNX file with onnx-go into a new graph, with the opset that the file names. The error is onnx-go's, or
// says that the file is no ONNX model.
func Load(data []byte, opt ...Options) (*onnx.Model, *Graph, error) {
	var o Options
	if len(opt) > 0 {
		o = opt[0]
	}
	var p onnxpb.ModelProto
	if err := p.Unmarshal(data); err != nil {
		return nil, nil, fmt.Errorf("onnxgo: not an ONNX model: %w", err)
	}
	for _, s := range p.OpsetImport {
		if s.GetDomain() == "" || s.GetDomain() == "ai.onnx" {
			o.Opset = s.GetVersion()
		}
	}
	g := New(o)
	m := onnx.NewModel(g)
	if err := m.UnmarshalBinary(data); err != nil {
		return nil, nil, fmt.Errorf("onnxgo: %w", err)
	}
	g.Bind(m)
	return m, g, nil
}

// LoadFile is Load of a file.
func LoadFile(path string, opt ...Options) (*onnx.Model, *Graph, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	return Load(data, opt...)
}

// Bind tells the graph which of its nodes are the model's inputs and outputs; Load does it. Without it the inputs are the
// nodes whose tensors are set after decoding, and the outputs the values that nothing reads.
func (g *Graph) Bind(m *onnx.Model) { g.bound = m }

// Close removes the temporary folder.
func (g *Graph) Close() error {
	if !g.own {
		return nil
	}
	dir := g.dir
	g.own, g.dir, g.built, g.infers = false, "", "", ""
	return os.RemoveAll(dir)
}

// NewNode makes a node that AddNode will add. Numbers are given in order, as onnx.Model.SetInput assumes.
func (g *Graph) NewNode() graph.Node { return &Node{id: int64(len(g.byID)), g: g} }

// AddNode adds a node of NewNode's.
func (g *Graph) AddNode(n graph.Node) {
	g.WeightedDirectedGraph.AddNode(n)
	g.byID[n.ID()] = n.(*Node)
}

// SetWeightedEdge records that e.From() is computed from e.To(), its operand number e.Weight(). A node may read another
// several times, which the graph itself does not keep.
func (g *Graph) SetWeightedEdge(e graph.WeightedEdge) {
	g.pending = append(g.pending, e)
	if e.From().ID() != e.To().ID() {
		g.WeightedDirectedGraph.SetWeightedEdge(e)
	}
}

// ApplyOperation records an operation whose results are the nodes given and whose operands the edges told of before.
func (g *Graph) ApplyOperation(op onnx.Operation, results ...graph.Node) error {
	edges := g.pending
	g.pending = nil
	if len(results) == 0 {
		return fmt.Errorf("onnxgo: operation %q has no result", op.Name)
	}
	c := call{op: op}
	for _, r := range results {
		n, ok := r.(*Node)
		if !ok || n.g != g {
			return fmt.Errorf("onnxgo: operation %q has a result that is not a node of this graph", op.Name)
		}
		n.made = n.name != ""
		c.out = append(c.out, n)
	}
	// Every result has all edges; those of the first are enough.
	edges = slices.DeleteFunc(edges, func(e graph.WeightedEdge) bool { return e.From().ID() != results[0].ID() })
	slices.SortStableFunc(edges, func(a, b graph.WeightedEdge) int { return int(a.Weight() - b.Weight()) })
	for _, e := range edges {
		if i := int(e.Weight()); i == len(c.in) { // an empty name that two results share brings its edges twice
			c.in = append(c.in, e.To().(*Node))
		}
	}
	if len(c.in) == 1 && c.in[0].t == nil && !c.in[0].made && op.Name != "Identity" && inputless[op.Name] {
		c.in = nil // the operand that onnx-go invents for an operation without any
	}
	g.calls = append(g.calls, c)
	for _, n := range g.byID { // what was set until now came from the file
		n.set = false
	}
	return nil
}

// inputless are the operators that have no operands, for which onnx-go invents one.
var inputless = map[string]bool{"Constant": true, "RandomNormal": true, "RandomUniform": true}

// ID is the node's number.
func (n *Node) ID() int64 { return n.id }

// SetName names the value.
func (n *Node) SetName(name string) { n.name = name }

// GetName is the value's name in the file.
func (n *Node) GetName() string { return n.name }

// SetTensor gives the node contents: an input's data, or a weight. A weight whose elements the caller changes in place
// must be set again, or Run goes on with the old ones.
func (n *Node) SetTensor(t tensor.Tensor) error {
	if _, err := protoType(t); err != nil {
		return fmt.Errorf("onnxgo: %q: %w", n.name, err)
	}
	n.t, n.set, n.times = t, true, n.times+1
	return nil
}

// GetTensor is the contents; nil before they are known.
func (n *Node) GetTensor() tensor.Tensor { return n.t }
