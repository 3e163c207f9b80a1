// Package simplify removes work that differentiation and the optimizer left behind.
//
// # Design
//
// In each function, until nothing changes: the peephole rules of passes/algebra; transposes taken into the
// matmul that reads or makes them (a GEMM reads either order at no cost); equal ops with equal operands
// computed once; ops without a use dropped. Each is one walk with a hash table, so the cost is linear in the
// number of ops. Then, where the gradient of a cross entropy is already known before the loss is (it is the
// sample weight, or a constant), xent and xent_grad become one op that reads the logits once.
//
// Random ops are functions of seed and counter here, so they are shared like any other.
package simplify

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/algebra"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// maxRounds bounds the repetition; two or three rounds are usual.
const maxRounds = 8

// Run simplifies every function.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	for _, f := range c.Module.Funcs {
		f.DCE()
		openGates(c, f)
		for range maxRounds {
			if algebra.Peephole(c, f)+matmuls(c, f)+shareEqual(c, f) == 0 {
				break
			}
		}
		if joinXent(c, f) > 0 {
			algebra.Peephole(c, f)
			shareEqual(c, f)
		}
	}
	return nil
}

// openGates drops the gates of branches: they have done their work once gradients are made.
func openGates(c *pass.Context, f *ir.Func) {
	c.Rewrite(f, func(_ *ir.Builder, op *ir.Op) []*ir.Value {
		if op.Def != ops.GateDef {
			return nil
		}
		return op.In[1:]
	})
}

// shareEqual makes equal ops on equal operands one (common subexpressions).
func shareEqual(c *pass.Context, f *ir.Func) int {
	seen := map[string]*ir.Op{}
	ids := map[*ir.Value]int{}
	id := func(v *ir.Value) int {
		if v == nil {
			return -1
		}
		n, ok := ids[v]
		if !ok {
			n = len(ids)
			ids[v] = n
		}
		return n
	}
	return c.Improve(f, func(_ *ir.Builder, op *ir.Op) []*ir.Value {
		r := &op.Def.Rules
		if r.Effect || r.Collective != "" || len(op.Out) == 0 {
			return nil
		}
		key := keyOf(op, id)
		if first := seen[key]; first != nil {
			return first.Out
		}
		seen[key] = op
		return nil
	})
}

// commutes lists the ops whose two operands may change places.
var commutes = map[*ir.Def]bool{
	ops.AddDef: true, ops.MulDef: true, ops.MaximumDef: true, ops.MinimumDef: true,
	ops.AndDef: true, ops.OrDef: true, ops.XorDef: true, ops.EqDef: true, ops.NeDef: true,
}

// keyOf is a text that two ops share exactly when they compute the same.
func keyOf(op *ir.Op, id func(*ir.Value) int) string {
	var b strings.Builder
	b.WriteString(op.Def.Name)
	if len(op.In) == 2 && commutes[op.Def] {
		x, y := id(op.In[0]), id(op.In[1])
		fmt.Fprintf(&b, " %d %d", min(x, y), max(x, y))
	} else {
		for _, v := range op.In {
			fmt.Fprintf(&b, " %d", id(v))
		}
	}
	if op.Attrs == nil {
		return b.String()
	}
	a := reflect.ValueOf(op.Attrs)
	for i := range a.NumField() {
		if t, ok := a.Field(i).Interface().(*ir.Tensor); ok && t != nil {
			fmt.Fprintf(&b, "|%s %s", t.Type, t.Hash())
		} else {
			fmt.Fprintf(&b, "|%v", a.Field(i).Interface())
		}
	}
	return b.String()
}

// swapsLastTwo reports whether perm exchanges the last two dims and nothing else.
func swapsLastTwo(perm []int) bool {
	n := len(perm)
	if n < 2 {
		return false
	}
	for i, p := range perm {
		want := i
		switch i {
		case n - 2:
			want = n - 1
		case n - 1:
			want = n - 2
		}
		if p != want {
			return false
		}
	}
	return true
}

// lastTwoSwapped is what v is the last-two-dims transpose of, nil when it is no such transpose.
func lastTwoSwapped(v *ir.Value) *ir.Value {
	t := algebra.Made(v, ops.TransposeDef)
	if t == nil || !swapsLastTwo(t.Attrs.(ops.TransposeAttrs).Perm) {
		return nil
	}
	return t.In[0]
}

// matmuls takes transposes into matmul: of an operand always, of the result when nothing else reads it.
func matmuls(c *pass.Context, f *ir.Func) int {
	uses := f.Uses()
	for _, r := range f.Results {
		uses[r.Value] = append(uses[r.Value], nil)
	}
	return c.Improve(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
		switch op.Def {
		case ops.MatMulDef:
			a := op.Attrs.(ops.MatMulAttrs)
			x, y := lastTwoSwapped(op.In[0]), lastTwoSwapped(op.In[1])
			if x == nil && y == nil {
				return nil
			}
			if x != nil {
				a.TransA = !a.TransA
			} else {
				x = op.In[0]
			}
			if y != nil {
				a.TransB = !a.TransB
			} else {
				y = op.In[1]
			}
			return []*ir.Value{ops.MatMulOf(b, a, x, y, biasOf(op))}
		case ops.TransposeDef:
			m := algebra.Made(op.In[0], ops.MatMulDef)
			if m == nil || len(uses[op.In[0]]) != 1 || !swapsLastTwo(op.Attrs.(ops.TransposeAttrs).Perm) ||
				biasOf(m) != nil || len(m.In[0].Type.Dims) != len(m.In[1].Type.Dims) {
				return nil
			}
			a := m.Attrs.(ops.MatMulAttrs)
			a.TransA, a.TransB = !a.TransB, !a.TransA
			return []*ir.Value{ops.MatMulOf(b, a, m.In[1], m.In[0], nil)}
		}
		return nil
	})
}

func biasOf(op *ir.Op) *ir.Value {
	if len(op.In) > 2 {
		return op.In[2]
	}
	return nil
}
