package walk

import (
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// FoldByRule evaluates, on the host, what a rule emits for known operands: an operator that is imported as a
// composition needs no second implementation. It is for operators whose evaluation takes time linear, or nearly so,
// in the elements that it touches.
func FoldByRule(r Rule) fold.Func {
	return func(n *model.Node, in []*ir.Array) []*ir.Array {
		w := &Walker{B: ir.NewBuilder(&ir.Func{Name: "fold"}), Env: map[string]*Val{}, spent: n.Spent, steps: new(int), views: map[string]*ir.Value{},
			absent: map[string]string{}}
		w.B.Loc = n.Loc
		vals := make([]*Val, len(in))
		for i, a := range in {
			if a != nil {
				vals[i] = &Val{Type: a.Type, Array: a}
			}
		}
		made := r(w, n, vals)
		known := map[*ir.Value]*ir.Array{}
		total := 0
		for i := 0; i < len(w.B.F.Ops); i++ {
			op := w.B.F.Ops[i]
			if total += foldOp(n, w.B, op, known); total > 2*model.MaxFold {
				panic(model.TooLarge{Err: ir.Errorf(n.Located(), "evaluating it at import would take more than %d elements", 2*model.MaxFold)})
			}
		}
		out := make([]*ir.Array, len(made))
		for i, x := range made {
			switch {
			case x.Array != nil:
				out[i] = x.Array
			default:
				out[i] = known[x.Value]
			}
		}
		return out
	}
}

// foldOp evaluates one op into known and gives the elements it made. The parts of an op without Eval are appended to
// the function, and evaluated before it is done.
func foldOp(n *model.Node, b *ir.Builder, op *ir.Op, known map[*ir.Value]*ir.Array) int {
	in, total := make([]*ir.Array, len(op.In)), 0
	for i, v := range op.In {
		if v != nil {
			in[i] = known[v]
		}
	}
	for _, v := range op.Out {
		n.Claim(v.Type)
		total += v.Type.Elems()
	}
	if c, ok := op.Attrs.(ops.ConstAttrs); ok {
		known[op.Out[0]] = c.Value.Array()
		return total
	}
	if op.Def.Rules.Eval != nil {
		for i, a := range op.Def.Rules.Eval(op, in) {
			known[op.Out[i]] = fold.Settle(a)
		}
		return total
	}
	first := len(b.F.Ops)
	made := op.Def.Rules.Decompose(b, op)
	parts := append([]*ir.Op(nil), b.F.Ops[first:]...)
	b.F.Ops = b.F.Ops[:first]
	for _, p := range parts {
		total += foldOp(n, b, p, known)
	}
	for i, v := range made {
		known[op.Out[i]] = known[v]
	}
	return total
}
