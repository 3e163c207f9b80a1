package onnx

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var flowRows = []row{
	{op: "Constant", since: 1, min: 0, max: 0, rule: importConstant},
	{op: "ConstantOfShape", since: 9, min: 1, max: 1, rule: func(w *walker, n *node, in []*val) []*val {
		one, dims := n.constantValue(), toInts(n, w.known(n, in, 0))
		if _, err := product(dims); err != nil {
			n.fail("shape %v: %v", dims, err)
		}
		scalar := view(one, nil)[0]
		return outs(w.spread(&val{t: scalar.Type, arr: scalar}, dims))
	}},
	{op: "Shape", since: 1, min: 1, max: 1, rule: importShape},
	{op: "Size", since: 1, min: 1, max: 1, rule: func(w *walker, n *node, in []*val) []*val {
		return known(&ir.Array{Type: ir.T(i64), I: []int64{int64(in[0].t.Elems())}})
	}},
	{op: "Identity", since: 1, min: 1, max: 1, seq: true, rule: func(_ *walker, _ *node, in []*val) []*val { return in }},
	{op: "If", since: 1, min: 1, max: 1, rule: importIf},
	{op: "SequenceConstruct", since: 11, min: 1, max: -1, seq: true, rule: func(_ *walker, n *node, in []*val) []*val {
		if slices.Contains(in, nil) {
			n.fail("an operand is left out")
		}
		return []*val{{isSeq: true, seq: in}}
	}},
	{op: "SequenceEmpty", since: 11, min: 0, max: 0, seq: true, rule: func(*walker, *node, []*val) []*val {
		return []*val{{isSeq: true}}
	}},
	{op: "SequenceAt", since: 11, min: 2, max: 2, seq: true, rule: func(w *walker, n *node, in []*val) []*val {
		i := wrap(n, int64(scalarInt(n, w.known(n, in, 1))), len(n.sequence(in[0])))
		return []*val{in[0].seq[i]}
	}},
	{op: "SequenceInsert", since: 11, min: 2, max: 3, seq: true, rule: importSequenceInsert},
	{op: "SequenceLength", since: 11, min: 1, max: 1, seq: true, rule: func(_ *walker, n *node, in []*val) []*val {
		return known(&ir.Array{Type: ir.T(i64), I: []int64{int64(len(n.sequence(in[0])))}})
	}},
	{op: "SplitToSequence", since: 11, min: 1, max: 2, seq: true, rule: importSplitToSequence},
	{op: "ConcatFromSequence", since: 11, min: 1, max: 1, seq: true, rule: importConcatFromSequence},
}

func known(a *ir.Array) []*val { return []*val{{t: a.Type, arr: a}} }

// sequence is the elements of a sequence operand.
func (n *node) sequence(x *val) []*val {
	if !x.isSeq {
		n.fail("operand is %s, want a sequence", x.t)
	}
	return x.seq
}

func importShape(_ *walker, n *node, in []*val) []*val {
	d := in[0].t.Dims
	start, end := n.int("start", 0), n.int("end", len(d))
	c := cutOf(len(d), start, end, 1)
	out := ir.NewArray(ir.T(i64, c.count))
	for i := range out.I {
		out.I[i] = int64(d[c.start+i])
	}
	return known(out)
}

func importConstant(_ *walker, n *node, _ []*val) []*val {
	typ := func(name string, t onnxpb.AttributeProto_AttributeType) *onnxpb.AttributeProto {
		return n.attr(name, t)
	}
	if a := typ("value", onnxpb.AttributeProto_TENSOR); a != nil {
		return known(n.tensorAttr(a))
	}
	if a := typ("value_int", onnxpb.AttributeProto_INT); a != nil {
		return known(&ir.Array{Type: ir.T(i64), I: []int64{a.GetI()}})
	}
	if a := typ("value_ints", onnxpb.AttributeProto_INTS); a != nil {
		return known(&ir.Array{Type: ir.T(i64, len(a.Ints)), I: append([]int64{}, a.Ints...)})
	}
	if a := typ("value_float", onnxpb.AttributeProto_FLOAT); a != nil {
		return known(&ir.Array{Type: ir.T(dtype.F32), F: []float64{float64(a.GetF())}})
	}
	if a := typ("value_floats", onnxpb.AttributeProto_FLOATS); a != nil {
		out := ir.NewArray(ir.T(dtype.F32, len(a.Floats)))
		for i, f := range a.Floats {
			out.F[i] = float64(f)
		}
		return known(out)
	}
	n.fail("a constant without a value that gtc knows (tensor, int, ints, float, floats)")
	return nil
}

// importIf runs the branch that a known condition chooses; both branches of a run-time choice would have to be
// differentiated, which gtc does not do.
func importIf(w *walker, n *node, in []*val) []*val {
	cond := w.array(in[0])
	if cond == nil || cond.I == nil || len(cond.I) != 1 {
		n.fail("the condition depends on the model's inputs or parameters; only known conditions are supported")
	}
	name := "else_branch"
	if cond.I[0] != 0 {
		name = "then_branch"
	}
	a := n.attr(name, onnxpb.AttributeProto_GRAPH)
	if a == nil || a.G == nil {
		n.fail("attribute %q is missing", name)
	}
	return w.subgraph(n, a.G)
}

// subgraph walks a graph inside this one; its values are visible there and its results returned.
func (w *walker) subgraph(n *node, g *onnxpb.GraphProto) []*val {
	if w.depth >= maxInline {
		n.fail("graphs nest deeper than %d", maxInline)
	}
	sub := &walker{m: w.m, r: w.r, b: w.b, env: map[string]*val{}, outer: w, folded: w.folded, depth: w.depth + 1, views: w.views,
		absent: w.absent}
	for _, p := range g.Initializer {
		t, err := w.m.newTensor(p)
		if err != nil || t.bad != nil {
			n.fail("initializer %q of a subgraph: %v", p.GetName(), err)
		}
		sub.env[n.subst.name(t.name)] = &val{t: t.typ, init: t}
	}
	s := n.subst
	s.loc, s.opset = n.loc, n.opset
	inner := inliner{m: w.m, functions: map[string]*onnxpb.FunctionProto{}, visited: w.m.visited}
	for _, f := range w.m.Proto.Functions {
		inner.functions[functionKey(f.GetDomain(), f.GetName(), f.GetOverload())] = f
	}
	if err := inner.list(g.Node, s, w.depth); err != nil {
		n.fail("%v", err)
	}
	w.m.visited = inner.visited
	for _, k := range inner.out {
		sub.visit(k)
	}
	var out []*val
	for _, o := range g.Output {
		x := sub.lookup(n.subst.name(o.GetName()))
		if x == nil {
			n.fail("result %q of a subgraph is made by nothing", o.GetName())
		}
		out = append(out, x)
	}
	w.b.Loc = n.loc
	return out
}

func importSequenceInsert(w *walker, n *node, in []*val) []*val {
	seq := n.sequence(in[0])
	at := len(seq)
	if in := in[2:]; len(in) > 0 && in[0] != nil {
		at = scalarInt(n, w.array(in[0]))
		if at < 0 {
			at += len(seq)
		}
	}
	if at < 0 || at > len(seq) || len(seq) >= maxName {
		n.fail("position %d in a sequence of %d", at, len(seq))
	}
	return []*val{{isSeq: true, seq: slices.Insert(slices.Clone(seq), at, in[1])}}
}

func importSplitToSequence(w *walker, n *node, in []*val) []*val {
	d := in[0].t.Dims
	axis := n.dim(n.int("axis", 0), len(d))
	var sizes []int
	drop := false
	switch s := w.known(n, in, 1); {
	case s == nil:
		if d[axis] > maxName {
			n.fail("splits a dimension of %d into single elements", d[axis])
		}
		sizes, drop = slices.Repeat([]int{1}, d[axis]), n.int("keepdims", 1) == 0
	case len(s.Type.Dims) == 0:
		size := scalarInt(n, s)
		if size < 1 || d[axis]/size > maxName {
			n.fail("splits a dimension of %d into parts of %d", d[axis], size)
		}
		for left := d[axis]; left > 0; left -= size {
			sizes = append(sizes, min(size, left))
		}
	default:
		sizes = splitSizes(n, d[axis], toInts(n, s), 0)
	}
	seq := &val{isSeq: true}
	if a := w.array(in[0]); a != nil {
		for _, p := range splitArray(n, a, axis, sizes) {
			if drop {
				p = view(p, without(p.Type.Dims, []int{axis}))[0]
			}
			seq.seq = append(seq.seq, known(p)[0])
		}
		return []*val{seq}
	}
	for _, p := range w.parts(w.value(in[0]), axis, sizes) {
		if drop {
			p = ops.Reshape(w.b, p, without(p.Type.Dims, []int{axis}))
		}
		seq.seq = append(seq.seq, outs(p)[0])
	}
	return []*val{seq}
}

func importConcatFromSequence(w *walker, n *node, in []*val) []*val {
	seq := n.sequence(in[0])
	if len(seq) == 0 {
		n.fail("the sequence is empty")
	}
	axis, stack := n.int("axis", 0), n.int("new_axis", 0) != 0
	rank := len(seq[0].t.Dims)
	axis = n.dim(axis, rank+boolInt(stack))
	var xs []*ir.Value
	for _, x := range seq {
		v := w.value(x)
		if len(v.Type.Dims) != rank {
			n.fail("the sequence holds %s and %s", seq[0].t, v.Type)
		}
		if stack {
			v = ops.Reshape(w.b, v, slices.Insert(slices.Clone(v.Type.Dims), axis, 1))
		}
		xs = append(xs, v)
	}
	return outs(ops.Concat(w.b, axis, xs...))
}
