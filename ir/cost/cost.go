// Package cost counts what an op does: floating-point operations and bytes moved. Counts follow from the op's
// dimension rule, its kernel expression or its decomposition, so no op states its own cost.
package cost

import (
	"math"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Flops is the number of arithmetic operations of one execution: a multiplication and an addition count as two, a
// function such as exp as one. Views, copies, transfers and collectives count as none.
func Flops(op *ir.Op) int64 {
	r := &op.Def.Rules
	if r.Beside() {
		return 0
	}
	var impl kir.Impl
	if r.Impl != nil {
		impl = r.Impl(op)
	}
	switch impl.Kind {
	case kir.View, kir.Literal, kir.Assemble:
		return 0
	case kir.Pointwise:
		seen := map[*kir.Expr]bool{}
		n := 0
		for _, e := range impl.Expr {
			n += nodes(e, seen)
		}
		return int64(n) * int64(op.Out[0].Type.Elems())
	case kir.Reduce:
		return int64(op.In[0].Type.Elems())
	}
	if n, ok := contraction(op); ok && (r.Impl != nil || r.Decompose == nil) {
		return 2 * n // also of element types that have no template: the parts do the same products
	}
	if r.Decompose != nil {
		return parts(op)
	}
	return largest(op)
}

// nodes counts the distinct operations below e.
func nodes(e *kir.Expr, seen map[*kir.Expr]bool) int {
	if seen[e] {
		return 0
	}
	seen[e] = true
	n := 0
	for _, a := range e.Args {
		n += nodes(a, seen)
	}
	if f := kir.Lookup(e.Op); f == nil || f.Cost == kir.Free { // an operand, a literal or a position
		return n
	}
	return n + 1
}

// parts adds up the decomposition. An op that decomposes into its own kind (a gather along another dim) moves data.
func parts(op *ir.Op) int64 {
	f := &ir.Func{}
	b := ir.NewBuilder(f)
	b.Loc = ir.Loc{Node: "cost"}
	c := *op
	c.In = make([]*ir.Value, len(op.In))
	for i, v := range op.In {
		if v != nil {
			c.In[i] = b.Param(v.Name, v.Type, ir.Input)
		}
	}
	op.Def.Rules.Decompose(b, &c)
	var n int64
	for _, p := range f.Ops {
		if p.Def != op.Def {
			n += Flops(p)
		}
	}
	return n
}

// contraction is the number of products of a bilinear op (two float operands, one result). Its loops are those of
// any two of the three tensors; where the rule names a window's position and extent apart (conv), the two that
// name the fewest points tell.
func contraction(op *ir.Op) (int64, bool) {
	if len(op.In) < 2 || len(op.Out) != 1 || op.Def.Rules.Factors == nil ||
		!op.In[0].Type.DType.IsFloat() || !op.In[1].Type.DType.IsFloat() {
		return 0, false
	}
	r := op.Def.Rules.Factors(op)
	if r.IsEmpty() {
		return 0, false
	}
	pairs := [][2][]factor.Dim{{r.In[0], r.In[1]}, {r.In[0], r.Out[0]}, {r.In[1], r.Out[0]}}
	least := int64(math.MaxInt64)
	for _, p := range pairs {
		least = min(least, points(r, p[0], p[1]))
	}
	return least, true
}

// points is the product of the sizes of the factors of the given dims.
func points(r factor.Rule, sides ...[]factor.Dim) int64 {
	seen, n := map[int]bool{}, int64(1)
	for _, dims := range sides {
		for _, d := range dims {
			for _, id := range d {
				if !seen[id] {
					seen[id] = true
					n *= int64(r.Factors[id].Size)
				}
			}
		}
	}
	return n
}

func largest(op *ir.Op) int64 {
	n := 0
	for _, v := range append(append([]*ir.Value{}, op.In...), op.Out...) {
		if v != nil {
			n = max(n, v.Type.Elems())
		}
	}
	return int64(n)
}

// Bytes is what one execution reads and writes when nothing is fused: the bytes of distinct operands and of
// results. Views move nothing.
func Bytes(op *ir.Op) int64 {
	if r := &op.Def.Rules; r.Impl != nil {
		if k := r.Impl(op).Kind; k == kir.View || k == kir.Literal {
			return 0
		}
	}
	var n int64
	seen := map[*ir.Value]bool{nil: true}
	for _, list := range [][]*ir.Value{op.In, op.Out} {
		for _, v := range list {
			if !seen[v] {
				seen[v] = true
				n += int64(v.Type.Bytes())
			}
		}
	}
	return n
}

// FuncFlops adds Flops over a function.
func FuncFlops(f *ir.Func) int64 {
	var n int64
	for _, op := range f.Ops {
		n += Flops(op)
	}
	return n
}
