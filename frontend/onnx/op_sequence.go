package onnx

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Sequences and optionals exist only while a file is imported: they are lists of values and nothing is left of them in
// the program.
var sequenceRows = []row{
	{op: "SequenceConstruct", since: 11, min: 1, max: -1, seq: true, rule: func(_ *walker, n *node, in []*val) []*val {
		for i, x := range in {
			if x.isSeq || x.none {
				n.fail("operand %d is %s, want a tensor", i, describe(x))
			}
		}
		return []*val{{isSeq: true, seq: in}}
	}},
	{op: "SequenceEmpty", since: 11, min: 0, max: 0, seq: true, rule: func(*walker, *node, []*val) []*val {
		return []*val{{isSeq: true}}
	}},
	{op: "SequenceAt", since: 11, min: 2, max: 2, seq: true, rule: importSequenceAt},
	{op: "SequenceInsert", since: 11, min: 2, max: 3, seq: true, rule: importSequenceInsert},
	{op: "SequenceErase", since: 11, min: 1, max: 2, seq: true, rule: func(w *walker, n *node, in []*val) []*val {
		seq := n.sequence(in[0])
		at := w.position(n, in, 1, len(seq)-1, len(seq))
		return []*val{{isSeq: true, seq: slices.Delete(slices.Clone(seq), at, at+1)}}
	}},
	{op: "SequenceLength", since: 11, min: 1, max: 1, seq: true, rule: func(_ *walker, n *node, in []*val) []*val {
		return known(&ir.Array{Type: ir.T(i64), I: []int64{int64(len(n.sequence(in[0])))}})
	}},
	{op: "SequenceMap", since: 17, min: 1, max: maxName, seq: true, rule: importSequenceMap},
	{op: "SplitToSequence", since: 11, min: 1, max: 2, rule: importSplitToSequence},
	{op: "ConcatFromSequence", since: 11, min: 1, max: 1, seq: true, rule: importConcatFromSequence},

	{op: "Optional", since: 15, min: 0, max: 1, seq: true, rule: func(_ *walker, _ *node, in []*val) []*val {
		if len(in) == 0 || in[0] == nil {
			return []*val{{none: true}}
		}
		return in
	}},
	{op: "OptionalGetElement", since: 15, min: 1, max: 1, seq: true, rule: func(_ *walker, n *node, in []*val) []*val {
		if in[0].none {
			n.fail("the optional holds nothing")
		}
		return in
	}},
	{op: "OptionalHasElement", since: 15, min: 0, max: 1, seq: true, rule: func(_ *walker, _ *node, in []*val) []*val {
		has := len(in) > 0 && in[0] != nil && !in[0].none
		return known(&ir.Array{Type: ir.T(boolean), I: []int64{int64(boolInt(has))}})
	}},
}

// sequence is the elements of a sequence operand.
func (n *node) sequence(x *val) []*val {
	if !x.isSeq {
		n.fail("operand is %s, want a sequence", describe(x))
	}
	return x.seq
}

// position is the place in operand i, counted from the end when negative, below size; def when it is left out.
func (w *walker) position(n *node, in []*val, i, def, size int) int {
	at := def
	if a := w.known(n, in, i); a != nil {
		if at = scalarInt(n, a); at < 0 {
			at += size
		}
	}
	if at < 0 || at >= size {
		n.fail("position %d is outside a sequence of %d", at, size)
	}
	return at
}

// importSequenceAt takes an element; a position of run time gathers from the stacked elements, which must then be of
// one type.
func importSequenceAt(w *walker, n *node, in []*val) []*val {
	seq := n.sequence(in[0])
	if w.array(in[1]) != nil || len(seq) == 0 {
		return []*val{seq[w.position(n, in, 1, 0, len(seq))]}
	}
	all := w.value(w.stack(n, seq, 0, nil))
	index := ops.Reshape(w.b, w.value(in[1]), nil)
	return outs(ops.Gather(w.b, all, index, 0))
}

func importSequenceInsert(w *walker, n *node, in []*val) []*val {
	seq := n.sequence(in[0])
	at := len(seq)
	if a := w.known(n, in, 2); a != nil {
		if at = scalarInt(n, a); at < 0 {
			at += len(seq)
		}
	}
	if at < 0 || at > len(seq) || len(seq) >= maxName {
		n.fail("position %d in a sequence of %d", at, len(seq))
	}
	return []*val{{isSeq: true, seq: slices.Insert(slices.Clone(seq), at, in[1])}}
}

// importSequenceMap walks its body once for each element of the first sequence; further operands are sequences as
// long, or tensors given to every call.
func importSequenceMap(w *walker, n *node, in []*val) []*val {
	b, start := w.body(n, "body"), len(w.b.F.Ops)
	size := len(n.sequence(in[0]))
	out := make([]*val, len(b.out))
	for k := range out {
		out[k] = &val{isSeq: true}
	}
	for i := range size {
		args := make([]*val, len(in))
		for k, x := range in {
			switch {
			case x == nil:
				n.fail("operand %d is left out", k)
			case !x.isSeq:
				args[k] = x
			case len(x.seq) != size:
				n.fail("operand %d is a sequence of %d, the first one has %d", k, len(x.seq), size)
			default:
				args[k] = x.seq[i]
			}
		}
		for k, y := range w.call(b, nil, args...) {
			out[k].seq = append(out[k].seq, y)
		}
		w.bound(n, start)
	}
	return out
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

// arrays is the contents of all of xs when they are known and not too large together, else nil.
func (w *walker) arrays(xs []*val) []*ir.Array {
	out, total := make([]*ir.Array, len(xs)), 0
	for i, x := range xs {
		out[i] = w.array(x)
		if total += x.t.Elems(); out[i] == nil || total > maxFold {
			return nil
		}
	}
	return out
}

// importConcatFromSequence joins the elements along a dim of theirs, or along a new one.
func importConcatFromSequence(w *walker, n *node, in []*val) []*val {
	seq := n.sequence(in[0])
	if len(seq) == 0 {
		n.fail("the sequence is empty")
	}
	if n.attrs["axis"] == nil {
		n.fail("attribute \"axis\" is missing")
	}
	axis := n.int("axis", 0)
	if n.int("new_axis", 0) != 0 {
		return []*val{w.stack(n, seq, axis, nil)}
	}
	rank := len(seq[0].t.Dims)
	axis = n.dim(axis, rank)
	if arrays := w.arrays(seq); arrays != nil {
		return known(foldConcat(n, arrays)[0])
	}
	var xs []*ir.Value
	for _, x := range seq {
		if x.isSeq || x.none || len(x.t.Dims) != rank {
			n.fail("the sequence holds %s and %s", describe(seq[0]), describe(x))
		}
		if x.t.Dims[axis] > 0 {
			xs = append(xs, w.value(x))
		}
	}
	if len(xs) == 0 {
		return seq[:1]
	}
	return outs(ops.Concat(w.b, axis, xs...))
}
