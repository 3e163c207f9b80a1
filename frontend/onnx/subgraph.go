package onnx

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Limits on unrolling: a file of a few bytes may ask for any number of steps.
const (
	maxUnrolledOps = 1 << 17 // operations that one Loop, Scan or recurrent node may come to
	maxSteps       = 1 << 20 // nodes of subgraphs that one import walks, each time they are walked
	maxOps         = 1 << 22 // operations of one import
)

// bodyKey names a subgraph: an attribute of a node.
type bodyKey struct {
	n    *node
	attr string
}

// body is a subgraph, ready to be walked any number of times.
type body struct {
	n       *node
	nodes   []*node // functions inlined
	inits   map[string]*val
	in, out []string
	types   []*onnxpb.TypeProto // declared types of the results; nil where there is none
}

// hoist moves the float initializers of subgraphs into the main graph, under their own names, where the names are free
// there: subgraphs see what is around them, so nothing changes, and weights that a converter put into the body of a loop
// are trained and exported like any other.
func (m *Model) hoist() {
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
			d, err := convertType(t.GetDataType())
			if err != nil || !d.IsFloat() || taken[t.GetName()] || own[t.GetName()] > 1 {
				return false
			}
			taken[t.GetName()] = true
			g.Initializer = append(g.Initializer, t)
			return true
		})
	})
}

// bodyOf prepares the subgraph in an attribute of n, once; nil when n has no such attribute.
func (m *Model) bodyOf(n *node, attr string) (*body, error) {
	key := bodyKey{n, attr}
	if b := m.bodies[key]; b != nil {
		return b, nil
	}
	a := n.attrs[attr]
	if a == nil || a.G == nil {
		return nil, nil
	}
	b := &body{n: n, inits: map[string]*val{}}
	for _, p := range a.G.Initializer {
		t, err := m.newTensor(p)
		if err == nil {
			err = t.bad
		}
		if err != nil {
			return nil, ir.Errorf(n.located(), "initializer %q of a subgraph: %v", p.GetName(), err)
		}
		if t.name == "" || b.inits[n.subst.name(t.name)] != nil {
			return nil, ir.Errorf(n.located(), "initializer name %q of its graph %q is empty or given twice", t.name, attr)
		}
		if t.typ.DType.IsFloat() && t.typ.Elems() > 1 {
			m.warn("%q is an initializer of a subgraph of node %q and its name is used elsewhere, so it is a constant; move it to "+
				"the main graph to train it", t.name, n.loc.Node)
		}
		b.inits[n.subst.name(t.name)] = &val{t: t.typ, init: t}
	}
	s := n.subst
	s.loc = n.loc
	inner := m.inliner()
	if err := inner.list(a.G.Node, s, 1); err != nil {
		return nil, err
	}
	nodes, err := m.sorted(inner.out)
	if err != nil {
		return nil, err
	}
	b.nodes = nodes
	for _, in := range a.G.Input {
		b.in = append(b.in, n.subst.name(in.GetName()))
	}
	for _, o := range a.G.Output {
		b.out, b.types = append(b.out, n.subst.name(o.GetName())), append(b.types, o.Type)
	}
	m.bodies[key] = b
	return b, nil
}

// eachNode visits the nodes of the graph, each followed by those of its subgraphs.
func (m *Model) eachNode(f func(*node)) error {
	var visit func(nodes []*node, depth int) error
	visit = func(nodes []*node, depth int) error {
		if depth > maxInline {
			return fmt.Errorf("graphs nest deeper than %d", maxInline)
		}
		for _, n := range nodes {
			f(n)
			if n.proto == nil {
				continue
			}
			for _, a := range n.proto.Attribute { // in the file's order
				b, err := m.bodyOf(n, a.GetName())
				if err != nil {
					return err
				}
				if b == nil {
					continue
				}
				if err := visit(b.nodes, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return visit(m.nodes, 0)
}

// withBodies is nodes, each followed by those of its body when it is a loop of some form.
func (m *Model) withBodies(nodes []*node) ([]*node, error) {
	var all []*node
	for _, n := range nodes {
		all = append(all, n)
		b, err := m.bodyOf(n, "body")
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		inner, err := m.withBodies(b.nodes)
		if err != nil {
			return nil, err
		}
		all = append(all, inner...)
	}
	return all, nil
}

// body is the subgraph in an attribute that n must have.
func (w *walker) body(n *node, attr string) *body {
	if w.depth >= maxInline {
		n.fail("graphs nest deeper than %d", maxInline)
	}
	b, err := w.m.bodyOf(n, attr)
	if err != nil {
		panic(err)
	}
	if b == nil {
		n.fail("attribute %q, a graph, is missing", attr)
	}
	return b
}

// call walks a subgraph with args as its inputs; values of this graph are visible in it. With a gate, its results
// count only where the gate's condition holds.
func (w *walker) call(b *body, g *gate, args ...*val) []*val {
	w.count(b.n, 1+len(b.nodes))
	sub := *w
	sub.env, sub.outer, sub.gate, sub.depth, sub.nodes = map[string]*val{}, w, g, w.depth+1, b.nodes
	for name, x := range b.inits {
		sub.env[name] = x
	}
	if len(args) != len(b.in) {
		b.n.fail("its subgraph has %d inputs, %d are given", len(b.in), len(args))
	}
	for i, name := range b.in {
		sub.env[name] = args[i]
		if g != nil {
			sub.env[name] = sub.gated(args[i])
		}
	}
	for _, k := range b.nodes {
		sub.visit(k)
	}
	w.b.Loc = b.n.loc
	var out []*val
	for _, o := range b.out {
		x := sub.lookup(o)
		if x == nil {
			b.n.fail("result %q of a subgraph is made by nothing", o)
		}
		out = append(out, x)
	}
	return out
}

// count adds to the nodes of subgraphs that were walked: they may fold away, and still take time.
func (w *walker) count(n *node, more int) {
	if *w.steps += more; *w.steps > maxSteps {
		n.fail("the subgraphs of the file come to more than %d nodes once loops are unrolled", maxSteps)
	}
}

// gate is a run-time condition under which a subgraph counts. What it reads from outside passes a gate op, which
// keeps the gradients of a branch that is not taken (they may be infinite or NaN) out of the rest of the model.
type gate struct {
	cond *ir.Value // bool[]
	made map[*ir.Value]*val
}

func newGate(cond *ir.Value) *gate { return &gate{cond, map[*ir.Value]*val{}} }

// gated is x as a subgraph with a gate reads it.
func (w *walker) gated(x *val) *val {
	if x.isSeq {
		out := &val{isSeq: true}
		for _, e := range x.seq {
			out.seq = append(out.seq, w.gated(e))
		}
		return out
	}
	if x.v == nil || x.arr != nil || x.init != nil || !x.t.DType.IsFloat() {
		return x
	}
	y := w.gate.made[x.v]
	if y == nil {
		y = outs(ops.Gate(w.b, w.gate.cond, x.v))[0]
		w.gate.made[x.v] = y
	}
	return y
}

// choose is a where cond holds, else b: element by element for sequences. what names the two in errors.
func (w *walker) choose(n *node, cond *ir.Value, a, b *val, what string) *val {
	switch {
	case a == b || a.none && b.none:
		return a
	case a.none != b.none || a.isSeq != b.isSeq || len(a.seq) != len(b.seq):
		n.fail("%s are a different kind of value or of different length: which one it is must be known when compiling%s", what, w.hintValue(&val{v: cond}))
	case a.isSeq:
		out := &val{isSeq: true}
		for i := range a.seq {
			out.seq = append(out.seq, w.choose(n, cond, a.seq[i], b.seq[i], what))
		}
		return out
	case !a.t.Equal(b.t):
		n.fail("%s are %s and %s: under a condition of run time both must have one type%s", what, a.t, b.t, w.hintValue(&val{v: cond}))
	}
	x, y := w.value(a), w.value(b)
	if x == y {
		return a
	}
	return outs(ops.Where(w.b, ops.BroadcastTo(w.b, cond, x.Type.Dims), x, y))[0]
}

// condition is operand x as a scalar condition: its contents when they are known, else a bool[] of the program.
func (w *walker) condition(n *node, x *val, what string) (truth, isKnown bool, cond *ir.Value) {
	if x.isSeq || x.none || x.t.DType != boolean || x.t.Elems() != 1 {
		n.fail("%s is %s: want one bool", what, describe(x))
	}
	if a := w.array(x); a != nil {
		return a.I[0] != 0, true, nil
	}
	v := w.value(x)
	if len(v.Type.Dims) > 0 {
		v = ops.Reshape(w.b, v, nil)
	}
	return false, false, v
}

// describe is a value's type for messages.
func describe(x *val) string {
	switch {
	case x.none:
		return "an optional that holds nothing"
	case x.isSeq:
		return fmt.Sprintf("a sequence of %d", len(x.seq))
	}
	return x.t.String()
}
