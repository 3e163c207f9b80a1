// Package algebra holds the peephole rewrites that normalize and simplify share: identities, chains of
// shape ops, folding of small and of uniform constants. Each rule looks at one op and the makers of its
// operands, keeps values exactly (up to the rounding of folded constants) and never adds work.
package algebra

import (
	"math"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// maxRounds bounds the repetition of Peephole; chains are followed within a round, so few are needed.
const maxRounds = 8

// maxFold is the number of elements up to which constants are folded by evaluation.
const maxFold = 64

// Peephole applies the rules to f until none does, and returns how many rewrites there were.
func Peephole(c *pass.Context, f *ir.Func) int {
	total := 0
	for range maxRounds {
		n := c.Improve(f, func(b *ir.Builder, op *ir.Op) []*ir.Value { return step(c, b, op) })
		total += n
		if n == 0 {
			break
		}
	}
	return total
}

// step is the rules for one op, for pass.Context.Improve.
func step(c *pass.Context, b *ir.Builder, op *ir.Op) []*ir.Value {
	if len(op.Out) != 1 {
		return nil
	}
	if v := foldUniform(b, op); v != nil {
		return []*ir.Value{v}
	}
	if v := overNothing(b, op); v != nil {
		return []*ir.Value{v}
	}
	if rule := rules[op.Def]; rule != nil {
		if v := rule(b, op); v != nil {
			return []*ir.Value{v}
		}
	}
	if v := foldSmall(c, b, op); v != nil {
		return []*ir.Value{v}
	}
	return nil
}

var rules map[*ir.Def]func(b *ir.Builder, op *ir.Op) *ir.Value

func init() {
	rules = map[*ir.Def]func(b *ir.Builder, op *ir.Op) *ir.Value{
		ops.ReshapeDef: reshape, ops.TransposeDef: transpose, ops.ExpandDef: expand, ops.SliceDef: slice,
		ops.PadDef: pad, ops.ConcatDef: concat, ops.CastDef: cast, ops.GatherDef: gather,
		ops.AddDef: add, ops.SubDef: sub, ops.MulDef: mul, ops.DivDef: div, ops.PowDef: pow, ops.NegDef: neg,
		ops.RecipDef: recip, ops.WhereDef: where, ops.AndDef: and, ops.OrDef: or, ops.NotDef: not,
		ops.ReduceSumDef: reduce, ops.ReduceMaxDef: reduce, ops.ReduceMinDef: reduce, ops.ReduceProdDef: reduce,
	}
}

// Made is the op that makes v when it is of kind d, else nil.
func Made(v *ir.Value, d *ir.Def) *ir.Op {
	if v != nil && v.Op != nil && v.Op.Def == d {
		return v.Op
	}
	return nil
}

// Uniform reports the one number that every element of v is, when v is a constant seen through shape ops.
func Uniform(v *ir.Value) (float64, bool) { return ops.Uniform(v) }

// Is reports whether every element of v is the constant x.
func Is(v *ir.Value, x float64) bool {
	u, ok := Uniform(v)
	return ok && u == x && !(u == 0 && math.Signbit(u))
}

// canonical reports whether v is already one element, expanded at most once.
func canonical(v *ir.Value) bool {
	if e := Made(v, ops.ExpandDef); e != nil {
		v = e.In[0]
	}
	return Made(v, ops.ConstDef) != nil && v.Type.Elems() == 1
}

// exactInt is where integers begin of which several are one float64: those from it on are not folded.
const exactInt = 1 << 53

// foldUniform makes an op on uniform constants one uniform constant.
func foldUniform(b *ir.Builder, op *ir.Op) *ir.Value {
	out := op.Out[0]
	if out.Type.Elems() == 0 || canonical(out) {
		return nil
	}
	vals := make([]float64, len(op.In))
	for i, v := range op.In {
		if v == nil {
			return nil
		}
		u, ok := Uniform(v)
		if !ok || !v.Type.DType.IsFloat() && math.Abs(u) >= exactInt {
			return nil
		}
		vals[i] = u
	}
	switch op.Def {
	case ops.ConstDef:
		if u, ok := Uniform(out); ok && math.Abs(u) < exactInt {
			return ops.Full(b, out.Type, u)
		}
	case ops.ReshapeDef, ops.TransposeDef, ops.SliceDef, ops.ExpandDef, ops.ReduceMaxDef, ops.ReduceMinDef:
		return ops.Full(b, out.Type, vals[0])
	case ops.ReduceSumDef:
		n := float64(op.In[0].Type.Elems() / out.Type.Elems())
		return ops.Full(b, out.Type, vals[0]*n)
	default:
		return foldPointwise(b, op, vals)
	}
	return nil
}

// foldPointwise evaluates an elementwise op once, on one element.
func foldPointwise(b *ir.Builder, op *ir.Op, vals []float64) *ir.Value {
	r := &op.Def.Rules
	if r.Impl == nil || r.Eval == nil || len(vals) == 0 || r.Impl(op).Kind != kir.Pointwise {
		return nil
	}
	out := op.Out[0].Type
	one := *op
	in := make([]*ir.Array, len(vals))
	one.In = make([]*ir.Value, len(vals))
	for i, x := range vals {
		t := ir.T(op.In[i].Type.DType)
		one.In[i] = &ir.Value{Type: t}
		in[i] = ir.NewArray(t)
		if in[i].F != nil {
			in[i].F[0] = x
		} else {
			in[i].I[0] = int64(x)
		}
	}
	one.Out = []*ir.Value{{Type: ir.T(out.DType)}}
	got := r.Eval(&one, in)[0]
	x := 0.0
	if got.F != nil {
		x = got.F[0]
	} else if x = float64(got.I[0]); math.Abs(x) >= exactInt {
		return nil
	}
	return ops.Full(b, out, x)
}

// foldSmall evaluates an op on small constants. What is small is so for a batch of any size: else the same model would have other
// ops for a larger one.
func foldSmall(c *pass.Context, b *ir.Builder, op *ir.Op) *ir.Value {
	r, most := &op.Def.Rules, op.Out[0].Type.Elems()
	if len(op.In) == 0 || r.Eval == nil || r.Collective != "" || r.Effect {
		return nil
	}
	literals := make([]*ir.Tensor, len(op.In))
	for i, v := range op.In {
		made := Made(v, ops.ConstDef)
		if made == nil {
			return nil
		}
		t := made.Attrs.(ops.ConstAttrs).Value
		if len(t.Data) != t.Type.Bytes() {
			return nil
		}
		literals[i], most = t, max(most, t.Type.Elems())
	}
	if c.Unfolded(op.Out[0], most > maxFold) || canonical(op.Out[0]) {
		return nil
	}
	in := make([]*ir.Array, len(literals))
	for i, t := range literals {
		in[i] = t.Array()
	}
	return ops.Const(b, r.Eval(op, in)[0].Tensor())
}

func cast(b *ir.Builder, op *ir.Op) *ir.Value {
	x, to := op.In[0], op.Out[0].Type.DType
	if x.Type.DType == to {
		return x
	}
	if k := Made(x, ops.CastDef); k != nil && lossless(k.In[0].Type.DType, x.Type.DType) {
		return ops.Cast(b, k.In[0], to)
	}
	return narrowed(b, op)
}

// lossless reports whether every value of type from is one of type to.
func lossless(from, to dtype.DType) bool {
	digits := map[dtype.DType]int{dtype.F64: 53, dtype.F32: 24, dtype.F16: 11, dtype.BF16: 8}
	switch {
	case from == to || from == dtype.Bool:
		return true
	case to == dtype.Bool:
		return false
	case from.IsFloat() && to.IsFloat():
		return to == dtype.F64 || to == dtype.F32 && from != dtype.F64
	case from.IsInt() && to.IsFloat():
		return from.Bits() <= digits[to] && (to == dtype.F32 || to == dtype.F64)
	case from.IsInt() && to.IsInt():
		return to.Bits() > from.Bits() && (to.Signed() || !from.Signed())
	}
	return false
}
