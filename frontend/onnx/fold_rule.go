package onnx

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// foldByRule evaluates, on the host, what a rule emits for known operands: an operator that is imported as a
// composition needs no second implementation. It is for operators whose evaluation takes time linear, or nearly so,
// in the elements that it touches.
func foldByRule(r rule) folder {
	return func(n *node, in []*ir.Array) []*ir.Array {
		w := &walker{b: ir.NewBuilder(&ir.Func{Name: "fold"}), env: map[string]*val{}, spent: n.spent, steps: new(int), views: map[string]*ir.Value{},
			absent: map[string]string{}}
		w.b.Loc = n.loc
		vals := make([]*val, len(in))
		for i, a := range in {
			if a != nil {
				vals[i] = &val{t: a.Type, arr: a}
			}
		}
		made := r(w, n, vals)
		known := map[*ir.Value]*ir.Array{}
		total := 0
		for i := 0; i < len(w.b.F.Ops); i++ {
			op := w.b.F.Ops[i]
			if total += n.foldOp(w.b, op, known); total > 2*maxFold {
				panic(tooLarge{ir.Errorf(n.located(), "evaluating it at import would take more than %d elements", 2*maxFold)})
			}
		}
		out := make([]*ir.Array, len(made))
		for i, x := range made {
			switch {
			case x.arr != nil:
				out[i] = x.arr
			default:
				out[i] = known[x.v]
			}
		}
		return out
	}
}

// foldOp evaluates one op into known and gives the elements it made. The parts of an op without Eval are appended to
// the function, and evaluated before it is done.
func (n *node) foldOp(b *ir.Builder, op *ir.Op, known map[*ir.Value]*ir.Array) int {
	in, total := make([]*ir.Array, len(op.In)), 0
	for i, v := range op.In {
		if v != nil {
			in[i] = known[v]
		}
	}
	for _, v := range op.Out {
		n.claim(v.Type)
		total += v.Type.Elems()
	}
	if c, ok := op.Attrs.(ops.ConstAttrs); ok {
		known[op.Out[0]] = c.Value.Array()
		return total
	}
	if op.Def.Rules.Eval != nil {
		for i, a := range op.Def.Rules.Eval(op, in) {
			known[op.Out[i]] = settle(a)
		}
		return total
	}
	first := len(b.F.Ops)
	made := op.Def.Rules.Decompose(b, op)
	parts := append([]*ir.Op(nil), b.F.Ops[first:]...)
	b.F.Ops = b.F.Ops[:first]
	for _, p := range parts {
		total += n.foldOp(b, p, known)
	}
	for i, v := range made {
		known[op.Out[i]] = known[v]
	}
	return total
}
