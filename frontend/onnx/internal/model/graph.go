package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

const (
	MaxInline = 32      // calls within calls, and graphs within graphs
	maxNodes  = 1 << 20 // nodes of a graph once functions are inlined
	minNodes  = 1 << 16 // of them are always allowed; above, functions may multiply theirs inlineGrowth times
	maxParts  = 1 << 24 // operands, results and attributes of those nodes
	maxNames  = 1 << 28 // bytes of names that inlining makes
	MaxName   = 4096    // bytes in a name

	inlineGrowth = 64
)

// index checks the graph's names and lists its inputs, initializers and nodes, with functions inlined.
func (m *File) index() (err error) {
	defer ir.Recover(&err) // an attribute of the wrong type
	g := m.Proto.Graph
	m.Torch = readTorch(m.Proto)
	m.Inits = map[string]*Tensor{}
	m.hoist()
	for _, p := range g.Initializer {
		if err := m.addInitializer(p); err != nil {
			return err
		}
	}
	if err := m.densify(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i, in := range g.Input {
		if in.GetName() == "" {
			return fmt.Errorf("input %d has no name", i)
		}
		if err := wellNamed(in.GetName()); err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
		if seen[in.GetName()] {
			return fmt.Errorf("input %q is given twice", in.GetName())
		}
		seen[in.GetName()] = true
		if m.Inits[in.GetName()] == nil {
			m.InputInfos = append(m.InputInfos, in)
		} else if err := m.Inits[in.GetName()].declared(in); err != nil {
			return err
		}
	}
	if err := m.give(); err != nil {
		return err
	}
	in := m.inliner()
	if err := in.list(g.Node, scope{opset: m.standard}, 0); err != nil {
		return err
	}
	m.Nodes, m.bodies = in.out, map[bodyKey]*Body{}
	if err := m.adoptConstants(); err != nil {
		return err
	}
	m.Record = m.readRecord()
	m.Marks = m.readMarks()
	if m.Nodes, err = m.sorted(m.Nodes); err != nil {
		return err
	}
	if err := m.checkNames(seen); err != nil {
		return err
	}
	m.checkTraining()
	return m.findOutputs()
}

// addInitializer lists a tensor of the graph.
func (m *File) addInitializer(p *onnxpb.TensorProto) error {
	t, err := m.NewTensor(p)
	if err != nil {
		return err
	}
	if t.Name == "" || m.Inits[t.Name] != nil {
		return fmt.Errorf("initializer name %q is empty or given twice", t.Name)
	}
	if err := wellNamed(t.Name); err != nil {
		return fmt.Errorf("initializer: %w", err)
	}
	m.Inits[t.Name] = t
	m.InitList = append(m.InitList, t)
	return nil
}

// declared refuses an initializer that the list of inputs gives another type or other dims.
func (t *Tensor) declared(in *onnxpb.ValueInfoProto) error {
	typ := in.GetType().GetTensorType()
	if typ == nil {
		return nil
	}
	if e := typ.GetElemType(); e != 0 && e != t.Proto.GetDataType() {
		return fmt.Errorf("initializer %q holds elements of type %s and is declared as an input of type %s", t.Name,
			onnxpb.TensorProto_DataType(t.Proto.GetDataType()), onnxpb.TensorProto_DataType(e))
	}
	if typ.Shape == nil {
		return nil
	}
	want := make([]string, len(typ.Shape.Dim))
	differs := len(want) != len(t.Type.Dims)
	for i, d := range typ.Shape.Dim {
		want[i] = "?"
		if v, ok := d.Value.(*onnxpb.TensorShapeProto_Dimension_DimValue); ok {
			want[i] = fmt.Sprint(v.DimValue)
			differs = differs || int64(t.Type.Dims[i]) != v.DimValue
		}
	}
	if differs {
		return fmt.Errorf("initializer %q has dims %v and is declared as an input of dims [%s]", t.Name, t.Type.Dims, strings.Join(want, " "))
	}
	return nil
}

// findOutputs lists the results to compute: all of the graph's, or those that Options.Outputs names.
func (m *File) findOutputs() error {
	for _, o := range m.Proto.Graph.Output {
		m.OutputNames = append(m.OutputNames, o.GetName())
	}
	if len(m.Options.Outputs) > 0 {
		m.OutputNames = m.Options.Outputs
	}
	if len(m.OutputNames) == 0 {
		return errors.New("the graph has no output")
	}
	made := map[string]bool{}
	for _, n := range m.Nodes {
		for _, o := range n.Out {
			made[o] = true
		}
	}
	for _, in := range m.InputInfos {
		made[in.GetName()] = true
	}
	for _, o := range m.OutputNames {
		if !made[o] && m.Inits[o] == nil {
			return fmt.Errorf("no node produces output %q", o)
		}
	}
	return nil
}

// checkNames verifies that every value is made once and before it is read.
func (m *File) checkNames(defined map[string]bool) error {
	for name := range m.Inits {
		defined[name] = true
	}
	maker := map[string]*Node{}
	for _, n := range m.Nodes {
		for _, o := range n.Out {
			if o == "" {
				continue
			}
			if defined[o] || maker[o] != nil {
				return ir.Errorf(n.Located(), "result %q already exists: every value must be produced once", o)
			}
			maker[o] = n
		}
	}
	for _, n := range m.Nodes {
		for i, name := range n.In {
			if name == "" || defined[name] {
				continue
			}
			p := maker[name]
			switch {
			case p == nil:
				return ir.Errorf(n.Located(), "input %d is %q, which no node produces", i, name)
			case reaches(n, p, maker):
				return ir.Errorf(n.Located(), "input %d, %q, depends on this node's own result: the graph has a cycle",
					i, name)
			}
			return ir.Errorf(n.Located(), "input %d is %q, which node %q produces only later: the nodes are not sorted", i,
				name, p.Loc.Node)
		}
		for _, o := range n.Out {
			defined[o] = true
		}
	}
	return nil
}

// reaches reports whether a result of from is needed to compute to.
func reaches(from, to *Node, maker map[string]*Node) bool {
	seen := map[*Node]bool{}
	stack := []*Node{to}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if n == from {
			return true
		}
		if n == nil || seen[n] {
			continue
		}
		seen[n] = true
		for _, name := range n.In {
			stack = append(stack, maker[name])
		}
	}
	return false
}

func functionKey(domain, name, overload string) string {
	return StandardDomain(domain) + "\x00" + name + "\x00" + overload
}

// StandardDomain is d, "" for the standard domain under its other name.
func StandardDomain(d string) string {
	if d == "ai.onnx" {
		return ""
	}
	return d
}

// scope says how names and attributes of a function body map to those of its caller.
type scope struct {
	opset  int64
	Prefix string            // put before names that the body makes; "" for the main graph
	names  map[string]string // parameters of the function
	attrs  map[string]*onnxpb.AttributeProto
	loc    ir.Loc // of the call, for body nodes without a place of their own
}

// Name is what n, a name in the body, is called in the main graph.
func (s scope) Name(n string) string {
	if n == "" || s.Prefix == "" {
		return n
	}
	if to, ok := s.names[n]; ok {
		return to
	}
	return s.Prefix + n
}

// inliner flattens nodes, replacing calls of model-local functions by their bodies.
type inliner struct {
	functions map[string]*onnxpb.FunctionProto
	limit     int // of visited
	visited   int // nodes seen, calls included: empty functions that call one another also end
	parts     int // operands, results and attributes of the nodes
	names     int // bytes of names made
	out       []*Node
}

// inliner goes on from what was inlined before, so that the limits hold for the file as a whole.
func (m *File) inliner() *inliner {
	if m.inlined == nil {
		m.inlined = &inliner{functions: map[string]*onnxpb.FunctionProto{}}
		for _, f := range m.Proto.Functions {
			m.inlined.functions[functionKey(f.GetDomain(), f.GetName(), f.GetOverload())] = f
			m.inlined.limit += inlineGrowth * nodesIn(f.Node)
		}
		m.inlined.limit = min(max(m.inlined.limit, minNodes)+nodesIn(m.Proto.Graph.Node), maxNodes)
	}
	m.inlined.out = nil
	return m.inlined
}

// nodesIn counts nodes with those of their subgraphs.
func nodesIn(nodes []*onnxpb.NodeProto) int {
	count := len(nodes)
	for _, p := range nodes {
		for _, a := range p.Attribute {
			count += nodesIn(a.GetG().GetNode())
			for _, g := range a.Graphs {
				count += nodesIn(g.GetNode())
			}
		}
	}
	return count
}

func (in *inliner) list(nodes []*onnxpb.NodeProto, s scope, depth int) error {
	if depth > MaxInline {
		return fmt.Errorf("functions call one another more than %d deep, at last from %s: is one recursive?", MaxInline, s.loc)
	}
	for _, p := range nodes {
		if in.visited++; in.visited > in.limit {
			return fmt.Errorf("more than %d nodes once functions are inlined", in.limit)
		}
		if err := in.charge(p, s); err != nil {
			return err
		}
		n, err := s.node(p, len(in.out))
		if err != nil {
			return err
		}
		f := in.functions[functionKey(p.GetDomain(), p.GetOpType(), p.GetOverload())]
		if f == nil {
			switch d := StandardDomain(p.GetDomain()); {
			case d != "":
				n.Op = d + "." + n.Op
			case s.opset == 0:
				return ir.Errorf(ir.Loc{Node: n.Loc.Node, OpType: n.Op}, "the file imports no standard operator set "+
					"(opset_import has no entry for the default domain), which this operator belongs to")
			}
			if s.opset == 0 {
				n.Opset = MaxOpset // operators of other domains follow the newest rules
			}
			in.out = append(in.out, raised(n)...)
			continue
		}
		if err := in.call(n, f, depth); err != nil {
			return err
		}
	}
	return nil
}

// charge counts what one node of scope s takes, so that functions which call functions cannot multiply a small file.
func (in *inliner) charge(p *onnxpb.NodeProto, s scope) error {
	in.parts += len(p.Input) + len(p.Output) + len(p.Attribute)
	if in.parts > maxParts {
		return fmt.Errorf("the nodes have more than %d operands, results and attributes once functions are inlined", maxParts)
	}
	if s.Prefix == "" {
		return nil
	}
	for _, names := range [][]string{p.Input, p.Output} {
		for _, name := range names {
			in.names += len(s.Prefix) + len(name)
		}
	}
	for _, m := range p.MetadataProps {
		in.names += len(m.GetValue()) // it is read for each copy
	}
	if in.names > maxNames {
		return fmt.Errorf("names come to more than %d bytes once functions are inlined", maxNames)
	}
	return nil
}

func (in *inliner) call(n *Node, f *onnxpb.FunctionProto, depth int) error {
	s := scope{names: map[string]string{}, attrs: map[string]*onnxpb.AttributeProto{}, loc: n.Loc, opset: n.Subst.opset}
	s.Prefix = fmt.Sprintf("%s/%d/", n.Loc.Node, len(in.out))
	if depth > 0 { // calls at the start of bodies have the same place as their callers
		s.Prefix = fmt.Sprintf("%s/%d.%d/", n.Loc.Node, len(in.out), in.visited)
	}
	if in.parts += len(f.Input) + len(f.Output) + len(f.AttributeProto); in.parts > maxParts {
		return fmt.Errorf("calls of functions pass more than %d operands, results and attributes", maxParts)
	}
	if len(f.OpsetImport) > 0 {
		v, err := defaultOpset(f.OpsetImport)
		if err != nil {
			return ir.Errorf(n.Located(), "function %q: %v", f.GetName(), err)
		}
		if v > 0 {
			s.opset = v
		}
	}
	if len(n.In) > len(f.Input) || len(n.Out) > len(f.Output) {
		return ir.Errorf(n.Located(), "it calls function %q with %d inputs and %d results, but the function has %d and %d",
			f.GetName(), len(n.In), len(n.Out), len(f.Input), len(f.Output))
	}
	for i, p := range f.Input {
		s.names[p] = ""
		if i < len(n.In) {
			s.names[p] = n.In[i]
		}
	}
	for i, p := range f.Output {
		if i < len(n.Out) && n.Out[i] != "" {
			if _, both := s.names[p]; both {
				return ir.Errorf(n.Located(), "function %q returns its input %q unchanged", f.GetName(), p)
			}
			s.names[p] = n.Out[i]
		}
	}
	for _, a := range f.AttributeProto {
		s.attrs[a.GetName()] = a
	}
	for name, a := range n.Attrs {
		s.attrs[name] = a
	}
	return in.list(f.Node, s, depth+1)
}

// node makes a flat node from p as seen from scope s; index names it when p has no name.
func (s scope) node(p *onnxpb.NodeProto, index int) (*Node, error) {
	name := p.GetName()
	if name == "" {
		for _, o := range p.Output {
			if o != "" {
				name = o
				break
			}
		}
	}
	if name == "" {
		name = fmt.Sprintf("%s_%d", p.GetOpType(), index)
	}
	n := &Node{Op: p.GetOpType(), Opset: s.opset, Subst: s, Proto: p, Attrs: map[string]*onnxpb.AttributeProto{}}
	n.Loc = locate(name, n.Op, p.MetadataProps)
	if n.Loc.File == "" && s.loc.File != "" {
		n.Loc.File, n.Loc.Line, n.Loc.Func = s.loc.File, s.loc.Line, s.loc.Func
	}
	n.Torch = parseFx(MetaValue(p.MetadataProps, KeyFx))
	n.Rule = MetaValue(p.MetadataProps, keyRule)
	if scopes := foldedFrom(MetaValue(p.MetadataProps, keyScopes)); len(scopes) > 1 {
		n.Module = scopes[len(scopes)-2] // the last one is the operation
	}
	for _, v := range slices.Concat(p.Input, p.Output, []string{name}) {
		if len(v) > MaxName {
			return nil, ir.Errorf(ir.Loc{OpType: n.Op}, "a name has %d bytes, more than the %d allowed", len(v), MaxName)
		}
	}
	for _, v := range slices.Concat(p.Input, p.Output) {
		if err := wellNamed(v); err != nil {
			return nil, ir.Errorf(n.Located(), "%v", err)
		}
	}
	for _, v := range p.Input {
		n.In = append(n.In, s.Name(v))
	}
	for _, v := range p.Output {
		n.Out = append(n.Out, s.Name(v))
	}
	for _, a := range p.Attribute {
		if n.Attrs[a.GetName()] != nil {
			return nil, ir.Errorf(n.Located(), "attribute %q is given twice", a.GetName())
		}
		if kinds := values(a); len(kinds) > 1 {
			return nil, ir.Errorf(n.Located(), "attribute %q has more than one value: %s", a.GetName(), strings.Join(kinds, " and "))
		}
		if ref := a.GetRefAttrName(); ref != "" {
			if s.attrs == nil {
				return nil, ir.Errorf(n.Located(), "attribute %q refers to attribute %q of a function, but the node is in none",
					a.GetName(), ref)
			}
			given := s.attrs[ref]
			if given == nil {
				continue // the default of the operator holds
			}
			n.Attrs[a.GetName()] = given
			continue
		}
		n.Attrs[a.GetName()] = a
	}
	return n, nil
}
