// Package grad is reverse accumulation over straight-line programs, shared by the autodiff pass and by the importer of
// ONNX's Gradient operator.
//
// Nothing is overwritten in the IR, so the rule of an op may read any of its operands and results. The caller visits
// ops last to first; the gradient of a value is the sum of what its readers contributed.
package grad

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Spread adds to active the float values that depend on one already in it through ops that have gradients. The ops come
// in the order of the program.
func Spread(active map[*ir.Value]bool, program []*ir.Op) {
	for _, op := range program {
		r := &op.Def.Rules
		if r.VJP == nil && (r.Decompose == nil || r.NoGrad != "") || !Any(active, op.In) {
			continue
		}
		for _, v := range op.Out {
			if v.Type.DType.IsFloat() {
				active[v] = true
			}
		}
	}
}

// Any reports whether one of vs is in the set.
func Any(set map[*ir.Value]bool, vs []*ir.Value) bool {
	for _, v := range vs {
		if set[v] {
			return true
		}
	}
	return false
}

// Reverse is one reverse accumulation.
type Reverse struct {
	b      *ir.Builder
	active map[*ir.Value]bool
	parts  map[*ir.Value][]*ir.Value // contributions to the gradient of a value, in order of arrival
	named  func(g, v *ir.Value)
}

// New starts an accumulation that emits at b and follows the active values only. named, when not nil, is called with the
// gradient of each value each time it is asked for, so that it can be given a name.
func New(b *ir.Builder, active map[*ir.Value]bool, named func(g, v *ir.Value)) *Reverse {
	return &Reverse{b: b, active: active, parts: map[*ir.Value][]*ir.Value{}, named: named}
}

// Add contributes g, of v's type, to the gradient of v.
func (r *Reverse) Add(v, g *ir.Value) { r.parts[v] = append(r.parts[v], g) }

// Of is the gradient of v as contributed so far, nil when there is none.
func (r *Reverse) Of(v *ir.Value) *ir.Value {
	parts := r.parts[v]
	if len(parts) == 0 {
		return nil
	}
	g := parts[0]
	for _, p := range parts[1:] {
		g = ops.Add(r.b, g, p)
	}
	r.parts[v] = []*ir.Value{g}
	if r.named != nil {
		r.named(g, v)
	}
	return g
}

// Step passes the gradients of op's results on to its operands. All readers of the results must have been visited. An op
// without a rule of its own is decomposed, after the fact, and its parts are differentiated. It fails, with op's place,
// where an operand that matters has no gradient.
func (r *Reverse) Step(op *ir.Op) error {
	dy, any := make([]*ir.Value, len(op.Out)), false
	for i, v := range op.Out {
		if dy[i] = r.Of(v); dy[i] != nil {
			any = true
		}
	}
	if !any || !Any(r.active, op.In) {
		return nil
	}
	rules := &op.Def.Rules
	if rules.VJP == nil {
		return r.through(op, dy)
	}
	for i, g := range rules.VJP(r.b, op, dy) {
		v := op.In[i]
		switch {
		case !r.active[v]:
		case g == nil:
			return ir.Errorf(op.Loc, "%s has no gradient for operand %d, %q, which depends on a trained parameter",
				op.Def.Name, i, v.Name).Note("freeze the parameter, or rewrite the model without this dependence")
		case !g.Type.Equal(v.Type):
			return fmt.Errorf("BUG: the VJP of %s gives %s for operand %d of type %s", op.Def.Name, g.Type, i, v.Type)
		default:
			r.Add(v, g)
		}
	}
	return nil
}

// through differentiates the parts of an op that has no rule of its own.
func (r *Reverse) through(op *ir.Op, dy []*ir.Value) error {
	if op.Def.Rules.Decompose == nil || op.Def.Rules.NoGrad != "" {
		return fmt.Errorf("BUG: %s has neither a VJP nor a decomposition nor a reason", op.Def.Name)
	}
	start := len(r.b.F.Ops)
	out := op.Def.Rules.Decompose(r.b, op)
	parts := append([]*ir.Op{}, r.b.F.Ops[start:]...)
	Spread(r.active, parts)
	for i, g := range dy {
		if g != nil && out[i] != nil {
			r.Add(out[i], g)
		}
	}
	for i := len(parts) - 1; i >= 0; i-- {
		if err := r.Step(parts[i]); err != nil {
			return err
		}
	}
	return nil
}
