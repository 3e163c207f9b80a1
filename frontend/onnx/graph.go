package onnx

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

const (
	maxInline = 32      // calls within calls, and graphs within graphs
	maxNodes  = 1 << 20 // nodes of a graph once functions are inlined
	minNodes  = 1 << 16 // of them are always allowed; above, functions may multiply theirs inlineGrowth times
	maxParts  = 1 << 24 // operands, results and attributes of those nodes
	maxNames  = 1 << 28 // bytes of names that inlining makes
	maxName   = 4096    // bytes in a name

	inlineGrowth = 64
)

// index checks the graph's names and lists its inputs, initializers and nodes, with functions inlined.
func (m *Model) index() (err error) {
	defer ir.Recover(&err) // an attribute of the wrong type
	g := m.Proto.Graph
	m.torch = readTorch(m.Proto)
	m.inits = map[string]*tensor{}
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
		if m.inits[in.GetName()] == nil {
			m.inputs = append(m.inputs, in)
		} else if err := m.inits[in.GetName()].declared(in); err != nil {
			return err
		}
	}
	if err := m.give(); err != nil {
		return err
	}
	in := m.inliner()
	if err := in.list(g.Node, scope{opset: m.opset}, 0); err != nil {
		return err
	}
	m.nodes, m.bodies = in.out, map[bodyKey]*body{}
	if err := m.adoptConstants(); err != nil {
		return err
	}
	m.record = m.readRecord()
	m.marks = m.readMarks()
	if m.nodes, err = m.sorted(m.nodes); err != nil {
		return err
	}
	if err := m.checkNames(seen); err != nil {
		return err
	}
	m.checkTraining()
	return m.findOutputs()
}

// addInitializer lists a tensor of the graph.
func (m *Model) addInitializer(p *onnxpb.TensorProto) error {
	t, err := m.newTensor(p)
	if err != nil {
		return err
	}
	if t.name == "" || m.inits[t.name] != nil {
		return fmt.Errorf("initializer name %q is empty or given twice", t.name)
	}
	if err := wellNamed(t.name); err != nil {
		return fmt.Errorf("initializer: %w", err)
	}
	m.inits[t.name] = t
	m.initList = append(m.initList, t)
	return nil
}

// declared refuses an initializer that the list of inputs gives another type or other dims.
func (t *tensor) declared(in *onnxpb.ValueInfoProto) error {
	typ := in.GetType().GetTensorType()
	if typ == nil {
		return nil
	}
	if e := typ.GetElemType(); e != 0 && e != t.proto.GetDataType() {
		return fmt.Errorf("initializer %q holds elements of type %s and is declared as an input of type %s", t.name,
			onnxpb.TensorProto_DataType(t.proto.GetDataType()), onnxpb.TensorProto_DataType(e))
	}
	if typ.Shape == nil {
		return nil
	}
	want := make([]string, len(typ.Shape.Dim))
	differs := len(want) != len(t.typ.Dims)
	for i, d := range typ.Shape.Dim {
		want[i] = "?"
		if v, ok := d.Value.(*onnxpb.TensorShapeProto_Dimension_DimValue); ok {
			want[i] = fmt.Sprint(v.DimValue)
			differs = differs || int64(t.typ.Dims[i]) != v.DimValue
		}
	}
	if differs {
		return fmt.Errorf("initializer %q has dims %v and is declared as an input of dims [%s]", t.name, t.typ.Dims, strings.Join(want, " "))
	}
	return nil
}

// findOutputs lists the results to compute: all of the graph's, or those that Options.Outputs names.
func (m *Model) findOutputs() error {
	for _, o := range m.Proto.Graph.Output {
		m.outputs = append(m.outputs, o.GetName())
	}
	if len(m.opts.Outputs) > 0 {
		m.outputs = m.opts.Outputs
	}
	if len(m.outputs) == 0 {
		return errors.New("the graph has no output")
	}
	made := map[string]bool{}
	for _, n := range m.nodes {
		for _, o := range n.out {
			made[o] = true
		}
	}
	for _, in := range m.inputs {
		made[in.GetName()] = true
	}
	for _, o := range m.outputs {
		if !made[o] && m.inits[o] == nil {
			return fmt.Errorf("output %q is made by no node", o)
		}
	}
	return nil
}

// checkNames verifies that every value is made once and before it is read.
func (m *Model) checkNames(defined map[string]bool) error {
	for name := range m.inits {
		defined[name] = true
	}
	maker := map[string]*node{}
	for _, n := range m.nodes {
		for _, o := range n.out {
			if o == "" {
				continue
			}
			if defined[o] || maker[o] != nil {
				return ir.Errorf(n.located(), "result %q already exists: every value is made once", o)
			}
			maker[o] = n
		}
	}
	for _, n := range m.nodes {
		for i, name := range n.in {
			if name == "" || defined[name] {
				continue
			}
			p := maker[name]
			switch {
			case p == nil:
				return ir.Errorf(n.located(), "input %d is %q, which nothing makes", i, name)
			case reaches(n, p, maker):
				return ir.Errorf(n.located(), "input %d, %q, depends on this node's own result: the graph has a cycle",
					i, name)
			}
			return ir.Errorf(n.located(), "input %d is %q, which node %q makes only later: nodes are not sorted", i,
				name, p.loc.Node)
		}
		for _, o := range n.out {
			defined[o] = true
		}
	}
	return nil
}

// reaches reports whether a result of from is needed to compute to.
func reaches(from, to *node, maker map[string]*node) bool {
	seen := map[*node]bool{}
	stack := []*node{to}
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
		for _, name := range n.in {
			stack = append(stack, maker[name])
		}
	}
	return false
}

func functionKey(domain, name, overload string) string {
	return standardDomain(domain) + "\x00" + name + "\x00" + overload
}

func standardDomain(d string) string {
	if d == "ai.onnx" {
		return ""
	}
	return d
}

// scope says how names and attributes of a function body map to those of its caller.
type scope struct {
	opset  int64
	prefix string            // put before names that the body makes; "" for the main graph
	names  map[string]string // parameters of the function
	attrs  map[string]*onnxpb.AttributeProto
	loc    ir.Loc // of the call, for body nodes without a place of their own
}

func (s scope) name(n string) string {
	if n == "" || s.prefix == "" {
		return n
	}
	if to, ok := s.names[n]; ok {
		return to
	}
	return s.prefix + n
}

// inliner flattens nodes, replacing calls of model-local functions by their bodies.
type inliner struct {
	functions map[string]*onnxpb.FunctionProto
	limit     int // of visited
	visited   int // nodes seen, calls included: empty functions that call one another also end
	parts     int // operands, results and attributes of the nodes
	names     int // bytes of names made
	out       []*node
}

// inliner goes on from what was inlined before, so that the limits hold for the file as a whole.
func (m *Model) inliner() *inliner {
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
	if depth > maxInline {
		return fmt.Errorf("functions call one another more than %d deep, at last from %s: is one recursive?", maxInline, s.loc)
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
			switch d := standardDomain(p.GetDomain()); {
			case d != "":
				n.op = d + "." + n.op
			case s.opset == 0:
				return ir.Errorf(ir.Loc{Node: n.loc.Node, OpType: n.op}, "the file imports no standard operator set "+
					"(opset_import has no entry for the default domain), which this operator belongs to")
			}
			if s.opset == 0 {
				n.opset = maxOpset // operators of other domains follow the newest rules
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
	if s.prefix == "" {
		return nil
	}
	for _, names := range [][]string{p.Input, p.Output} {
		for _, name := range names {
			in.names += len(s.prefix) + len(name)
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

func (in *inliner) call(n *node, f *onnxpb.FunctionProto, depth int) error {
	s := scope{names: map[string]string{}, attrs: map[string]*onnxpb.AttributeProto{}, loc: n.loc, opset: n.subst.opset}
	s.prefix = fmt.Sprintf("%s/%d/", n.loc.Node, len(in.out))
	if depth > 0 { // calls at the start of bodies have the same place as their callers
		s.prefix = fmt.Sprintf("%s/%d.%d/", n.loc.Node, len(in.out), in.visited)
	}
	if in.parts += len(f.Input) + len(f.Output) + len(f.AttributeProto); in.parts > maxParts {
		return fmt.Errorf("calls of functions pass more than %d operands, results and attributes", maxParts)
	}
	if len(f.OpsetImport) > 0 {
		v, err := defaultOpset(f.OpsetImport)
		if err != nil {
			return ir.Errorf(n.located(), "function %q: %v", f.GetName(), err)
		}
		if v > 0 {
			s.opset = v
		}
	}
	if len(n.in) > len(f.Input) || len(n.out) > len(f.Output) {
		return ir.Errorf(n.located(), "calls function %q with %d inputs and %d results; it has %d and %d",
			f.GetName(), len(n.in), len(n.out), len(f.Input), len(f.Output))
	}
	for i, p := range f.Input {
		s.names[p] = ""
		if i < len(n.in) {
			s.names[p] = n.in[i]
		}
	}
	for i, p := range f.Output {
		if i < len(n.out) && n.out[i] != "" {
			if _, both := s.names[p]; both {
				return ir.Errorf(n.located(), "function %q returns its input %q unchanged", f.GetName(), p)
			}
			s.names[p] = n.out[i]
		}
	}
	for _, a := range f.AttributeProto {
		s.attrs[a.GetName()] = a
	}
	for name, a := range n.attrs {
		s.attrs[name] = a
	}
	return in.list(f.Node, s, depth+1)
}

// node makes a flat node from p as seen from scope s; index names it when p has no name.
func (s scope) node(p *onnxpb.NodeProto, index int) (*node, error) {
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
	n := &node{op: p.GetOpType(), opset: s.opset, subst: s, proto: p, attrs: map[string]*onnxpb.AttributeProto{}}
	n.loc = locate(name, n.op, p.MetadataProps)
	if n.loc.File == "" && s.loc.File != "" {
		n.loc.File, n.loc.Line, n.loc.Func = s.loc.File, s.loc.Line, s.loc.Func
	}
	n.fx = parseFx(metaValue(p.MetadataProps, keyFx))
	n.rule = metaValue(p.MetadataProps, keyRule)
	if scopes := foldedFrom(metaValue(p.MetadataProps, keyScopes)); len(scopes) > 1 {
		n.module = scopes[len(scopes)-2] // the last one is the operation
	}
	for _, v := range slices.Concat(p.Input, p.Output, []string{name}) {
		if len(v) > maxName {
			return nil, ir.Errorf(ir.Loc{OpType: n.op}, "a name of %d bytes is longer than %d", len(v), maxName)
		}
	}
	for _, v := range slices.Concat(p.Input, p.Output) {
		if err := wellNamed(v); err != nil {
			return nil, ir.Errorf(n.located(), "%v", err)
		}
	}
	for _, v := range p.Input {
		n.in = append(n.in, s.name(v))
	}
	for _, v := range p.Output {
		n.out = append(n.out, s.name(v))
	}
	for _, a := range p.Attribute {
		if n.attrs[a.GetName()] != nil {
			return nil, ir.Errorf(n.located(), "attribute %q is given twice", a.GetName())
		}
		if kinds := values(a); len(kinds) > 1 {
			return nil, ir.Errorf(n.located(), "attribute %q has more than one value: %s", a.GetName(), strings.Join(kinds, " and "))
		}
		if ref := a.GetRefAttrName(); ref != "" {
			if s.attrs == nil {
				return nil, ir.Errorf(n.located(), "attribute %q refers to attribute %q of a function, but the node is in none",
					a.GetName(), ref)
			}
			given := s.attrs[ref]
			if given == nil {
				continue // the default of the operator holds
			}
			n.attrs[a.GetName()] = given
			continue
		}
		n.attrs[a.GetName()] = a
	}
	return n, nil
}
