package flow

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/arrays"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Sequences and optionals exist only while a file is imported: they are lists of values and nothing is left of them in
// the program.
var sequenceRows = []walk.Row{
	{Op: "SequenceConstruct", Since: 11, Min: 1, Max: -1, Seq: true, Rule: func(_ *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		for i, x := range in {
			if x.IsSeq || x.None {
				n.Fail("operand %d is %s, but must be a tensor", i, walk.Describe(x))
			}
		}
		return []*walk.Val{{IsSeq: true, Seq: in}}
	}},
	{Op: "SequenceEmpty", Since: 11, Min: 0, Max: 0, Seq: true, Rule: func(*walk.Walker, *model.Node, []*walk.Val) []*walk.Val {
		return []*walk.Val{{IsSeq: true}}
	}},
	{Op: "SequenceAt", Since: 11, Min: 2, Max: 2, Seq: true, Rule: importSequenceAt},
	{Op: "SequenceInsert", Since: 11, Min: 2, Max: 3, Seq: true, Rule: importSequenceInsert},
	{Op: "SequenceErase", Since: 11, Min: 1, Max: 2, Seq: true, Rule: func(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		seq := sequence(n, in[0])
		at := position(w, n, in, 1, len(seq)-1, len(seq))
		return []*walk.Val{{IsSeq: true, Seq: slices.Delete(slices.Clone(seq), at, at+1)}}
	}},
	{Op: "SequenceLength", Since: 11, Min: 1, Max: 1, Seq: true, Rule: func(_ *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		return walk.Known(&ir.Array{Type: ir.T(dtype.I64), I: []int64{int64(len(sequence(n, in[0])))}})
	}},
	{Op: "SequenceMap", Since: 17, Min: 1, Max: model.MaxName, Seq: true, Rule: importSequenceMap},
	{Op: "SplitToSequence", Since: 11, Min: 1, Max: 2, Rule: importSplitToSequence},
	{Op: "ConcatFromSequence", Since: 11, Min: 1, Max: 1, Seq: true, Rule: importConcatFromSequence},

	{Op: "Optional", Since: 15, Min: 0, Max: 1, Seq: true, Rule: func(_ *walk.Walker, _ *model.Node, in []*walk.Val) []*walk.Val {
		if len(in) == 0 || in[0] == nil {
			return []*walk.Val{{None: true}}
		}
		return in
	}},
	{Op: "OptionalGetElement", Since: 15, Min: 1, Max: 1, Seq: true, Rule: func(_ *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
		if in[0].None {
			n.Fail("the optional holds nothing")
		}
		return in
	}},
	{Op: "OptionalHasElement", Since: 15, Min: 0, Max: 1, Seq: true, Rule: func(_ *walk.Walker, _ *model.Node, in []*walk.Val) []*walk.Val {
		has := len(in) > 0 && in[0] != nil && !in[0].None
		return walk.Known(&ir.Array{Type: ir.T(dtype.Bool), I: []int64{int64(fold.BoolInt(has))}})
	}},
}

// sequence is the elements of a sequence operand.
func sequence(n *model.Node, x *walk.Val) []*walk.Val {
	if !x.IsSeq {
		n.Fail("the operand is %s, but must be a sequence", walk.Describe(x))
	}
	return x.Seq
}

// position is the place in operand i, counted from the end when negative, below size; def when it is left out.
func position(w *walk.Walker, n *model.Node, in []*walk.Val, i, def, size int) int {
	at := def
	if a := arrays.MustKnow(w, n, in, i); a != nil {
		if at = fold.Int(n, a); at < 0 {
			at += size
		}
	}
	if at < 0 || at >= size {
		n.Fail("position %d is outside a sequence of length %d", at, size)
	}
	return at
}

// importSequenceAt takes an element; a position of run time gathers from the stacked elements, which must then be of
// one type.
func importSequenceAt(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	seq := sequence(n, in[0])
	if w.Array(in[1]) != nil || len(seq) == 0 {
		return []*walk.Val{seq[position(w, n, in, 1, 0, len(seq))]}
	}
	all := w.Value(stack(w, n, seq, 0, nil))
	index := ops.Reshape(w.B, w.Value(in[1]), nil)
	return walk.Results(ops.Gather(w.B, all, index, 0))
}

func importSequenceInsert(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	seq := sequence(n, in[0])
	at := len(seq)
	if a := arrays.MustKnow(w, n, in, 2); a != nil {
		if at = fold.Int(n, a); at < 0 {
			at += len(seq)
		}
	}
	if at < 0 || at > len(seq) || len(seq) >= model.MaxName {
		n.Fail("nothing can be inserted at position %d of a sequence of length %d", at, len(seq))
	}
	return []*walk.Val{{IsSeq: true, Seq: slices.Insert(slices.Clone(seq), at, in[1])}}
}

// importSequenceMap walks its body once for each element of the first sequence; further operands are sequences as
// long, or tensors given to every call.
func importSequenceMap(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	b, start := w.Body(n, "body"), len(w.B.F.Ops)
	size := len(sequence(n, in[0]))
	out := make([]*walk.Val, len(b.Out))
	for k := range out {
		out[k] = &walk.Val{IsSeq: true}
	}
	for i := range size {
		args := make([]*walk.Val, len(in))
		for k, x := range in {
			switch {
			case x == nil:
				n.Fail("operand %d is left out", k)
			case !x.IsSeq:
				args[k] = x
			case len(x.Seq) != size:
				n.Fail("operand %d is a sequence of length %d, but the first one has length %d", k, len(x.Seq), size)
			default:
				args[k] = x.Seq[i]
			}
		}
		for k, y := range w.Call(b, nil, args...) {
			out[k].Seq = append(out[k].Seq, y)
		}
		Bound(w, n, start)
	}
	return out
}

func importSplitToSequence(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	d := in[0].Type.Dims
	axis := n.Dim(n.Int("axis", 0), len(d))
	var sizes []int
	drop := false
	switch s := arrays.MustKnow(w, n, in, 1); {
	case s == nil:
		if d[axis] > model.MaxName {
			n.Fail("a dimension of size %d has too many elements to split into single ones", d[axis])
		}
		sizes, drop = slices.Repeat([]int{1}, d[axis]), n.Int("keepdims", 1) == 0
	case len(s.Type.Dims) == 0:
		size := fold.Int(n, s)
		if size < 1 || d[axis]/size > model.MaxName {
			n.Fail("a dimension of size %d cannot be split into parts of %d: a part must be at least 1, and there are too many if it is small", d[axis], size)
		}
		for left := d[axis]; left > 0; left -= size {
			sizes = append(sizes, min(size, left))
		}
	default:
		sizes = fold.SplitSizes(n, d[axis], fold.Ints(n, s), 0)
	}
	seq := &walk.Val{IsSeq: true}
	if a := w.Array(in[0]); a != nil {
		for _, p := range fold.Split(n, a, axis, sizes) {
			if drop {
				p = fold.View(p, arrays.Without(p.Type.Dims, []int{axis}))[0]
			}
			seq.Seq = append(seq.Seq, walk.Known(p)[0])
		}
		return []*walk.Val{seq}
	}
	for _, p := range arrays.Parts(w, w.Value(in[0]), axis, sizes) {
		if drop {
			p = ops.Reshape(w.B, p, arrays.Without(p.Type.Dims, []int{axis}))
		}
		seq.Seq = append(seq.Seq, walk.Results(p)[0])
	}
	return []*walk.Val{seq}
}

// allKnown is the contents of all of xs when they are known and not too large together, else nil.
func allKnown(w *walk.Walker, xs []*walk.Val) []*ir.Array {
	out, total := make([]*ir.Array, len(xs)), 0
	for i, x := range xs {
		out[i] = w.Array(x)
		if total += x.Type.Elems(); out[i] == nil || total > model.MaxFold {
			return nil
		}
	}
	return out
}

// importConcatFromSequence joins the elements along a dim of theirs, or along a new one.
func importConcatFromSequence(w *walk.Walker, n *model.Node, in []*walk.Val) []*walk.Val {
	seq := sequence(n, in[0])
	if len(seq) == 0 {
		n.Fail("the sequence is empty")
	}
	if n.Attrs["axis"] == nil {
		n.Fail("attribute \"axis\" is missing")
	}
	axis := n.Int("axis", 0)
	if n.Int("new_axis", 0) != 0 {
		return []*walk.Val{stack(w, n, seq, axis, nil)}
	}
	rank := len(seq[0].Type.Dims)
	axis = n.Dim(axis, rank)
	if arrays := allKnown(w, seq); arrays != nil {
		return walk.Known(fold.Concat(n, arrays)[0])
	}
	var xs []*ir.Value
	for _, x := range seq {
		if x.IsSeq || x.None || len(x.Type.Dims) != rank {
			n.Fail("the sequence holds %s and %s, which cannot be joined", walk.Describe(seq[0]), walk.Describe(x))
		}
		if x.Type.Dims[axis] > 0 {
			xs = append(xs, w.Value(x))
		}
	}
	if len(xs) == 0 {
		return seq[:1]
	}
	return walk.Results(ops.Concat(w.B, axis, xs...))
}
