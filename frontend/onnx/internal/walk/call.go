package walk

import (
	"fmt"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Limits on unrolling: a file of a few bytes may ask for any number of steps.
const (
	MaxUnrolledOps = 1 << 17 // operations that one Loop, Scan or recurrent node may come to
	maxSteps       = 1 << 20 // nodes of subgraphs that one import walks, each time they are walked
	maxOps         = 1 << 22 // operations of one import
)

// Body is the subgraph in an attribute that n must have.
func (w *Walker) Body(n *model.Node, attr string) *model.Body {
	if w.Depth >= model.MaxInline {
		n.Fail("graphs nest deeper than %d", model.MaxInline)
	}
	b, err := w.File.BodyOf(n, attr)
	if err != nil {
		panic(err)
	}
	if b == nil {
		n.Fail("attribute %q, a graph, is missing", attr)
	}
	return b
}

// Call walks a subgraph with args as its inputs; values of this graph are visible in it. With a gate, its results
// count only where the gate's condition holds.
func (w *Walker) Call(b *model.Body, g *Gate, args ...*Val) []*Val {
	w.Count(b.Node, 1+len(b.Nodes))
	sub := *w
	sub.Env, sub.Outer, sub.Gate, sub.Depth, sub.Nodes = map[string]*Val{}, w, g, w.Depth+1, b.Nodes
	for name, t := range b.Inits {
		x := w.inner[t]
		if x == nil {
			x = &Val{Type: t.Type, Init: t}
			w.inner[t] = x
		}
		sub.Env[name] = x
	}
	if len(args) != len(b.In) {
		b.Node.Fail("its subgraph has %d inputs, but %d are given", len(b.In), len(args))
	}
	for i, name := range b.In {
		sub.Env[name] = args[i]
		if g != nil {
			sub.Env[name] = sub.gated(args[i])
		}
	}
	for _, k := range b.Nodes {
		sub.Visit(k)
	}
	w.B.Loc = b.Node.Loc
	var out []*Val
	for _, o := range b.Out {
		x := sub.Lookup(o)
		if x == nil {
			b.Node.Fail("no node produces result %q of a subgraph", o)
		}
		out = append(out, x)
	}
	return out
}

// Count adds to the nodes of subgraphs that were walked: they may fold away, and still take time.
func (w *Walker) Count(n *model.Node, more int) {
	if *w.steps += more; *w.steps > maxSteps {
		n.Fail("the subgraphs of the file come to more than %d nodes once loops are unrolled", maxSteps)
	}
}

// Gate is a run-time condition under which a subgraph counts. What it reads from outside passes a gate op, which
// keeps the gradients of a branch that is not taken (they may be infinite or NaN) out of the rest of the model.
type Gate struct {
	cond *ir.Value // bool[]
	made map[*ir.Value]*Val
}

// NewGate begins a subgraph that counts where cond, a bool[], holds.
func NewGate(cond *ir.Value) *Gate { return &Gate{cond, map[*ir.Value]*Val{}} }

// gated is x as a subgraph with a gate reads it.
func (w *Walker) gated(x *Val) *Val {
	if x.IsSeq {
		out := &Val{IsSeq: true}
		for _, e := range x.Seq {
			out.Seq = append(out.Seq, w.gated(e))
		}
		return out
	}
	if x.Value == nil || x.Array != nil || x.Init != nil || !x.Type.DType.IsFloat() {
		return x
	}
	y := w.Gate.made[x.Value]
	if y == nil {
		y = Results(ops.Gate(w.B, w.Gate.cond, x.Value))[0]
		w.Gate.made[x.Value] = y
	}
	return y
}

// Choose is a where cond holds, else b: element by element for sequences. what names the two in errors.
func (w *Walker) Choose(n *model.Node, cond *ir.Value, a, b *Val, what string) *Val {
	switch {
	case a == b || a.None && b.None:
		return a
	case a.None != b.None || a.IsSeq != b.IsSeq || len(a.Seq) != len(b.Seq):
		n.Fail("%s are values of different kinds or lengths: which of them it is must be known when compiling%s", what, w.HintValue(&Val{Value: cond}))
	case a.IsSeq:
		out := &Val{IsSeq: true}
		for i := range a.Seq {
			out.Seq = append(out.Seq, w.Choose(n, cond, a.Seq[i], b.Seq[i], what))
		}
		return out
	case !a.Type.Equal(b.Type):
		n.Fail("%s are %s and %s, but must have the same type where the condition is not known when compiling%s", what, a.Type, b.Type, w.HintValue(&Val{Value: cond}))
	}
	x, y := w.Value(a), w.Value(b)
	if x == y {
		return a
	}
	return Results(ops.Where(w.B, ops.BroadcastTo(w.B, cond, x.Type.Dims), x, y))[0]
}

// Condition is operand x as a scalar condition: its contents when they are known, else a bool[] of the program.
func (w *Walker) Condition(n *model.Node, x *Val, what string) (truth, isKnown bool, cond *ir.Value) {
	if x.IsSeq || x.None || x.Type.DType != dtype.Bool || x.Type.Elems() != 1 {
		n.Fail("%s is %s, but must be one bool", what, Describe(x))
	}
	if a := w.Array(x); a != nil {
		return a.I[0] != 0, true, nil
	}
	v := w.Value(x)
	if len(v.Type.Dims) > 0 {
		v = ops.Reshape(w.B, v, nil)
	}
	return false, false, v
}

// Describe is a value's type for messages.
func Describe(x *Val) string {
	switch {
	case x.None:
		return "an optional that holds nothing"
	case x.IsSeq:
		return fmt.Sprintf("a sequence of %d", len(x.Seq))
	}
	return x.Type.String()
}
