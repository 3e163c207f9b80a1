package onnx

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// val is a value of the graph during the walk: known on the host, computed by the program, or a sequence. An optional
// that holds something is what it holds.
type val struct {
	t     ir.Type
	arr   *ir.Array // contents, when known on the host
	init  *tensor   // an initializer that is a constant, decoded when its contents are asked for
	v     *ir.Value // in the program; made from arr when a node that is not folded needs it
	image *ir.Value // the numbers of a quantised value as floats that carry gradients; nil for none
	seq   []*val    // elements, of a sequence

	shrunk *ir.Tensor        // arr without its repetitions; nil before it is wanted
	consts map[int]*ir.Value // it in the program, by number of dims

	isSeq bool
	none  bool // an optional that holds nothing
}

// walker carries one import: it visits live nodes in order, folds what is known and emits the rest.
type walker struct {
	m      *Model
	r      *roles
	b      *ir.Builder
	env    map[string]*val
	outer  *walker // of the graph that encloses this subgraph; nil for the main graph
	gate   *gate   // of a subgraph that counts only under a condition; nil for others
	spent  *budget // by the whole import
	depth  int
	views  map[string]*ir.Value // parameters as nodes read them, by form
	padded map[int]bool         // values of --padding-idx that have found their table
	fixed  map[string]*val      // parameters that are constants, by form
	absent map[string]string    // results that rules do not make, and of which node
	steps  *int                 // nodes of subgraphs walked so far
	nodes  []*node              // of this graph, in order
	read   map[string]bool      // names that some node or output of the main graph reads; nil until somebody asks

	outputs []string // of the main graph, for each result of the program

	counter  *ir.Value // the step, for dropout; nil until the first one
	dropouts int
}

// Import builds func @forward: inputs, then parameters and buffers, then the ops of the graph; its results are
// the graph's outputs, named out0, out1, …. Unsupported operators are all reported before any work starts.
func (m *Model) Import() (*ir.Module, error) {
	res, err := m.importOnce()
	if err != nil {
		return nil, m.located(err)
	}
	return res.module, nil
}

// importResult keeps what an import decided, for Inspect.
type importResult struct {
	module  *ir.Module
	roles   *roles
	outputs []string // of the graph, for each result; elements of a sequence repeat its name
}

func (m *Model) importOnce() (*importResult, error) {
	if m.imported != nil {
		return m.imported, nil
	}
	live := m.liveNodes()
	if err := m.checkSupported(live); err != nil {
		return nil, err
	}
	if m.roles == nil { // decided once: names that it restores become inputs of nodes
		r, err := m.decideRoles()
		if err != nil {
			return nil, err
		}
		m.roles = r
	}
	r := m.roles
	dims, err := m.bindDims()
	if err != nil {
		return nil, err
	}
	f := &ir.Func{Name: "forward"}
	w := &walker{m: m, r: r, b: ir.NewBuilder(f), env: map[string]*val{}, spent: &budget{}, views: map[string]*ir.Value{},
		fixed: map[string]*val{}, padded: map[int]bool{}, absent: map[string]string{}, steps: new(int)}
	if err := w.run(live, dims); err != nil {
		return nil, err
	}
	if err := w.checkPadding(); err != nil {
		return nil, err
	}
	if err := w.addLoRA(); err != nil {
		return nil, err
	}
	f.DCE()
	w.settleNoise()
	w.dropUnused()
	w.tellUnread()
	m.imported = &importResult{module: &ir.Module{Funcs: []*ir.Func{f}}, roles: r, outputs: w.outputs}
	return m.imported, nil
}

// liveNodes lists, in order, the nodes that the outputs depend on.
func (m *Model) liveNodes() []*node {
	need := map[string]bool{}
	for _, o := range m.outputs {
		need[o] = true
	}
	var live []*node
	for i := len(m.nodes) - 1; i >= 0; i-- {
		n := m.nodes[i]
		if !slices.ContainsFunc(n.out, func(o string) bool { return need[o] }) {
			continue
		}
		live = append(live, n)
		for _, name := range n.in {
			need[name] = true
		}
		for _, name := range n.captured(0) {
			need[name] = true
		}
	}
	slices.Reverse(live)
	return live
}

// captured lists the names of the enclosing graph that n's subgraphs may read.
func (n *node) captured(depth int) []string {
	var out []string
	if y := n.attrs["y"]; y != nil && n.op == gradientOp {
		out = append(out, n.subst.name(string(y.S))) // Gradient names the result it differentiates
	}
	for _, a := range n.attrs {
		for _, g := range append(slices.Clone(a.Graphs), a.G) {
			if g == nil || depth > maxInline {
				continue
			}
			for _, o := range g.Output {
				out = append(out, n.subst.name(o.GetName()))
			}
			for _, p := range g.Node {
				for _, name := range p.Input {
					out = append(out, n.subst.name(name))
				}
				inner := &node{op: p.GetDomain() + "." + p.GetOpType(), attrs: map[string]*onnxpb.AttributeProto{}, subst: n.subst}
				for _, b := range p.Attribute {
					inner.attrs[b.GetName()] = b
				}
				out = append(out, inner.captured(depth+1)...)
			}
		}
	}
	return out
}

// run declares inputs and parameters, visits the nodes and records the results.
func (w *walker) run(live []*node, dims map[string]int) (err error) {
	defer func() { // a fault of ours must not take a server down with it, whatever the file holds
		if r := recover(); r != nil {
			err = fmt.Errorf("BUG: at node %s (%s): %v\n%s", w.b.Loc, w.b.Loc.OpType, r, debug.Stack())
		}
	}()
	defer ir.Recover(&err)
	if err := w.declareInputs(dims); err != nil {
		return err
	}
	if err := w.declareParams(); err != nil {
		return err
	}
	w.nodes = live
	for _, n := range live {
		w.visit(n)
	}
	for _, name := range w.m.outputs {
		w.b.Loc = ir.Loc{Node: name, OpType: "output"}
		if x := w.lookup(name); x != nil {
			if err := w.m.asDeclared(name, x); err != nil {
				return err
			}
			w.result(name, x)
			continue
		}
		maker := w.absent[name]
		return fmt.Errorf("output %q is a result of node %q that gtc does not compute", name, maker)
	}
	return nil
}

// result makes x a result of the program, or, when it is a sequence, each of its elements.
func (w *walker) result(name string, x *val) {
	switch {
	case x.none:
	case x.isSeq:
		for _, e := range x.seq {
			w.result(name, e)
		}
	default:
		w.b.Result(fmt.Sprintf("out%d", len(w.outputs)), w.value(x))
		w.outputs = append(w.outputs, name)
	}
}

func (w *walker) declareInputs(dims map[string]int) error {
	for _, in := range w.m.inputs {
		if c := w.m.opts.Fixed[in.GetName()]; c != nil {
			w.env[in.GetName()] = &val{t: c.Type, arr: c.Array()}
			continue
		}
		if c := w.m.opts.Contents[in.GetName()]; c != nil {
			w.env[in.GetName()] = w.contents(in.GetName(), c)
			continue
		}
		t, err := w.m.inputType(in, dims)
		if err != nil {
			return err
		}
		v := w.b.Param(in.GetName(), t, ir.Input)
		w.env[in.GetName()] = &val{t: t, v: v}
	}
	return nil
}

// declareParams makes a function parameter of each parameter and buffer, with its initial contents.
func (w *walker) declareParams() error {
	for _, p := range w.r.params {
		if p.Role == RoleConstant {
			continue
		}
		var data []byte
		if !p.absent {
			var err error
			if data, err = p.data(); err != nil {
				return err
			}
		}
		role := ir.Param
		if p.Role == RoleBuffer {
			role = ir.Buffer
		}
		p.value = w.b.Param(p.Name, p.Type, role)
		p.value.Init = &ir.Tensor{Type: p.Type, Data: data}
	}
	return nil
}

// dropUnused removes parameters that no op reads (inputs stay: the data is keyed by them).
func (w *walker) dropUnused() {
	f := w.b.F
	uses := f.Uses()
	result, kept := map[*ir.Value]bool{}, map[*ir.Value]bool{}
	for _, r := range f.Results {
		result[r.Value], result[r.Updates] = true, true
	}
	f.Params = slices.DeleteFunc(f.Params, func(p *ir.Value) bool {
		return p.Role != ir.Input && len(uses[p]) == 0 && !result[p]
	})
	for i, p := range f.Params {
		p.Index, kept[p] = i, true
	}
	for _, p := range w.r.params {
		p.used = p.value != nil && kept[p.value]
	}
}

// tellUnread warns of inputs that nothing reads: data for them has no effect, and an exporter that took two for one, such as
// labels=input_ids, leaves one of them so.
func (w *walker) tellUnread() {
	uses, result := w.b.F.Uses(), map[*ir.Value]bool{}
	for _, r := range w.b.F.Results {
		result[r.Value] = true
	}
	for _, p := range w.b.F.Params {
		if p.Role == ir.Input && len(uses[p]) == 0 && !result[p] {
			w.m.warn("nothing reads input %q: what is given for it has no effect. Was the model exported with one tensor for two of its inputs (labels=input_ids)? Give each a tensor of its own", p.Name)
		}
	}
}

// lookup finds a value by name in this graph or those around it; nil when there is none.
func (w *walker) lookup(name string) *val {
	if x := w.env[name]; x != nil {
		return x
	}
	if w.outer != nil {
		x := w.outer.lookup(name)
		if x != nil && w.gate != nil {
			x = w.gated(x)
		}
		return x
	}
	t := w.m.inits[name]
	if t == nil {
		return nil
	}
	if t.bad != nil {
		panic(ir.Errorf(w.b.Loc, "%v", t.bad))
	}
	if s := w.r.byName[name]; s != nil && !s.constant() {
		return w.sourceVal(s)
	}
	return w.constant(name, t)
}

// constant is an initializer that is not trained, the same value whenever it is read.
func (w *walker) constant(name string, t *tensor) *val {
	root := w
	for root.outer != nil {
		root = root.outer
	}
	x := root.env[name]
	if x == nil {
		x = &val{t: t.typ, init: t}
		root.env[name] = x
	}
	return x
}

// sourceVal is what a source gives, built once. Constants stay known on the host.
func (w *walker) sourceVal(s *source) *val {
	p := s.param()
	if s.constant() {
		key := s.form.String()
		if w.fixed[key] == nil {
			data, err := s.form.bytes((*Parameter).contents)
			if err != nil {
				panic(ir.Errorf(w.b.Loc, "%v", err))
			}
			w.fixed[key] = &val{t: s.form.typ, init: &tensor{name: p.Name, typ: s.form.typ, data: data}}
		}
		return w.fixed[key]
	}
	if s.form.op == leaf {
		return &val{t: p.Type, v: p.value}
	}
	key := s.form.String()
	if made := w.views[key]; made != nil {
		return &val{t: made.Type, v: made}
	}
	v := s.form.emit(w)
	if v != p.value {
		v = w.b.Rename(v, p.Name+s.form.suffix())
	}
	w.views[key] = v
	return &val{t: v.Type, v: v}
}

// inputsOf gathers a node's operands; nil for those left out.
func (w *walker) inputsOf(n *node) []*val {
	in := make([]*val, len(n.in))
	for i, name := range n.in {
		if name == "" {
			continue
		}
		if s := w.r.byUse[operand{n, i}]; s != nil {
			in[i] = w.sourceVal(s)
			for g := w; g != nil; g = g.outer {
				if g.gate != nil {
					in[i] = g.gated(in[i])
				}
			}
		} else {
			in[i] = w.lookup(name)
		}
		if in[i] == nil {
			if maker := w.absent[name]; maker != "" {
				n.fail("input %d is %q, a result of node %q that gtc does not compute", i, name, maker)
			}
			n.fail("input %d is %q, which nothing makes", i, name)
		}
	}
	return in
}

// visit folds or emits one node and binds its results.
func (w *walker) visit(n *node) {
	w.b.Loc = n.loc
	row, why := lookup(n)
	if row == nil {
		n.fail("the operator cannot be imported%s", why)
	}
	in := w.aligned(n, w.inputsOf(n))
	for i := range row.min {
		if i >= len(in) || in[i] == nil {
			n.fail("has %d inputs, %d are required", len(in), row.min)
		}
	}
	if row.max < 0 && slices.Contains(in, nil) {
		n.fail("one of its operands is left out")
	}
	if row.max >= 0 && len(in) > row.max {
		n.fail("has %d inputs, at most %d are allowed", len(in), row.max)
	}
	n.spent = w.spent
	if n.spent.visits++; n.spent.visits > maxVisits {
		n.fail("the graph and its loops come to more than %d nodes", maxVisits)
	}
	start := len(w.b.F.Ops)
	if start > maxOps {
		n.fail("the graph comes to more than %d operations", maxOps)
	}
	out := w.fold(n, in)
	if out == nil {
		if row.rule == nil {
			n.fail("the shape of its result depends on what its operands hold, which must be known when compiling: %s", w.unknown(n, in))
		}
		w.noSequences(n, row, in)
		out = w.emit(n, row, in)
	}
	for i, name := range n.out {
		if name == "" {
			continue
		}
		if i >= len(out) || out[i] == nil {
			w.absent[name] = n.loc.Node
			continue
		}
		w.env[name] = out[i]
		if v := out[i].v; v != nil && v.Op != nil && opIndex(w.b.F, v.Op, start) {
			w.b.Rename(v, name)
		}
	}
}

// opIndex reports whether op was emitted at or after start.
func opIndex(f *ir.Func, op *ir.Op, start int) bool { return slices.Contains(f.Ops[start:], op) }

// emit runs the row's rule and gives the location of errors that rise inside op constructors its opset.
func (w *walker) emit(n *node, row *row, in []*val) []*val {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *ir.Error:
			r.Loc = n.located()
			panic(r)
		case tooLarge:
			panic(r.err)
		default:
			panic(r)
		}
	}()
	if out := w.move(n, row, in); out != nil {
		return out
	}
	return row.rule(w, n, in)
}

func (w *walker) noSequences(n *node, row *row, in []*val) {
	for i, x := range in {
		switch {
		case x == nil || row.seq:
		case x.isSeq:
			n.fail("input %d is a sequence", i)
		case x.none:
			n.fail("input %d is an optional that holds nothing", i)
		}
	}
}

// unknown names the operands whose contents are not known at import.
func (w *walker) unknown(n *node, in []*val) string {
	var names []string
	for i, x := range in {
		if x != nil && x.arr == nil && x.init == nil {
			names = append(names, fmt.Sprintf("%q", n.in[i]))
		}
	}
	return strings.Join(names, ", ") + " depends on the model's inputs or parameters" + w.hintValue(in...)
}

// fold evaluates n on the host when all its operands are known; nil when it cannot.
func (w *walker) fold(n *node, in []*val) (out []*val) {
	f := folders[n.op]
	if f == nil || len(in) == 0 {
		return nil
	}
	arrays := make([]*ir.Array, len(in))
	for i, x := range in {
		if x == nil {
			continue
		}
		if arrays[i] = w.array(x); arrays[i] == nil {
			return nil
		}
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case tooLarge:
			if row, _ := lookup(n); row == nil || row.rule == nil {
				panic(r.err)
			}
			out = nil
		default:
			panic(r)
		}
	}()
	for _, a := range arrays {
		if a != nil {
			n.work(a.Type.Elems())
		}
	}
	for _, a := range f(n, arrays) {
		out = append(out, &val{t: a.Type, arr: a})
	}
	return out
}
