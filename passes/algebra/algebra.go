// Package algebra holds the peephole rewrites that normalize and simplify share: identities, chains of
// shape ops, folding of small and of uniform constants. Each rule looks at one op and the makers of its
// operands, keeps values exactly (up to the rounding of folded constants) and never adds work.
package algebra

import (
	"math"
	"slices"

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
		n := c.Rewrite(f, Step)
		total += n
		if n == 0 {
			break
		}
	}
	return total
}

// Step is the rules for one op, for pass.Context.Rewrite.
func Step(b *ir.Builder, op *ir.Op) []*ir.Value {
	if len(op.Out) != 1 {
		return nil
	}
	if v := foldUniform(b, op); v != nil {
		return []*ir.Value{v}
	}
	if rule := rules[op.Def]; rule != nil {
		if v := rule(b, op); v != nil {
			return []*ir.Value{v}
		}
	}
	if v := foldSmall(b, op); v != nil {
		return []*ir.Value{v}
	}
	return nil
}

var rules map[*ir.Def]func(b *ir.Builder, op *ir.Op) *ir.Value

func init() {
	rules = map[*ir.Def]func(b *ir.Builder, op *ir.Op) *ir.Value{
		ops.ReshapeDef: reshape, ops.TransposeDef: transpose, ops.ExpandDef: expand, ops.SliceDef: slice,
		ops.PadDef: pad, ops.ConcatDef: concat, ops.CastDef: cast,
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
func Uniform(v *ir.Value) (float64, bool) {
	for v.Op != nil {
		switch v.Op.Def {
		case ops.ConstDef:
			t := v.Op.Attrs.(ops.ConstAttrs).Value
			if len(t.Data) != t.Type.Bytes() {
				return 0, false // known by hash only
			}
			return t.Uniform()
		case ops.ExpandDef, ops.ReshapeDef, ops.TransposeDef, ops.SliceDef:
			v = v.Op.In[0]
		default:
			return 0, false
		}
	}
	return 0, false
}

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

// exactInt bounds the integers that float64 holds exactly; larger ones are not folded.
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
		if !ok || !v.Type.DType.IsFloat() && math.Abs(u) > exactInt {
			return nil
		}
		vals[i] = u
	}
	switch op.Def {
	case ops.ConstDef:
		if u, ok := Uniform(out); ok && math.Abs(u) <= exactInt {
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
	} else if x = float64(got.I[0]); math.Abs(x) > exactInt {
		return nil
	}
	return ops.Full(b, out, x)
}

// foldSmall evaluates an op on small constants.
func foldSmall(b *ir.Builder, op *ir.Op) *ir.Value {
	r, out := &op.Def.Rules, op.Out[0].Type
	if len(op.In) == 0 || r.Eval == nil || r.Collective != "" || r.Effect || out.Elems() > maxFold {
		return nil
	}
	in := make([]*ir.Array, len(op.In))
	for i, v := range op.In {
		c := Made(v, ops.ConstDef)
		if c == nil {
			return nil
		}
		t := c.Attrs.(ops.ConstAttrs).Value
		if t.Type.Elems() > maxFold || len(t.Data) != t.Type.Bytes() {
			return nil
		}
		in[i] = t.Array()
	}
	if canonical(op.Out[0]) {
		return nil
	}
	return ops.Const(b, r.Eval(op, in)[0].Tensor())
}

func reshape(b *ir.Builder, op *ir.Op) *ir.Value {
	x, dims := op.In[0], op.Out[0].Type.Dims
	if slices.Equal(x.Type.Dims, dims) {
		return x
	}
	if r := Made(x, ops.ReshapeDef); r != nil {
		return ops.Reshape(b, r.In[0], dims)
	}
	return nil
}

func transpose(b *ir.Builder, op *ir.Op) *ir.Value {
	x, perm := op.In[0], op.Attrs.(ops.TransposeAttrs).Perm
	if slices.IsSorted(perm) {
		return x
	}
	if t := Made(x, ops.TransposeDef); t != nil {
		inner := t.Attrs.(ops.TransposeAttrs).Perm
		both := make([]int, len(perm))
		for i, p := range perm {
			both[i] = inner[p]
		}
		return ops.Transpose(b, t.In[0], both)
	}
	last := -1
	for _, p := range perm {
		if x.Type.Dims[p] != 1 {
			if p < last {
				return nil
			}
			last = p
		}
	}
	return ops.Reshape(b, x, op.Out[0].Type.Dims) // only dims of size 1 moved
}

func expand(b *ir.Builder, op *ir.Op) *ir.Value {
	x, dims := op.In[0], op.Out[0].Type.Dims
	if slices.Equal(x.Type.Dims, dims) {
		return x
	}
	if e := Made(x, ops.ExpandDef); e != nil {
		return ops.Expand(b, e.In[0], dims)
	}
	return nil
}

func slice(b *ir.Builder, op *ir.Op) *ir.Value {
	x, a := op.In[0], op.Attrs.(ops.SliceAttrs)
	if slices.Equal(x.Type.Dims, op.Out[0].Type.Dims) {
		return x // as many elements in each dim as there are: all of them, by step 1
	}
	if s := Made(x, ops.SliceDef); s != nil {
		in := s.Attrs.(ops.SliceAttrs)
		starts, steps := make([]int, len(a.Starts)), make([]int, len(a.Starts))
		for d := range starts {
			starts[d] = in.Starts[d] + a.Starts[d]*stepOf(in.Steps, d)
			steps[d] = stepOf(in.Steps, d) * stepOf(a.Steps, d)
		}
		return ops.Slice(b, s.In[0], starts, a.Sizes, steps)
	}
	if k := Made(x, ops.ConcatDef); k != nil {
		return sliceOfConcat(b, k, a)
	}
	return nil
}

func stepOf(steps []int, d int) int {
	if len(steps) == 0 {
		return 1
	}
	return steps[d]
}

// sliceOfConcat reads the one part that holds the whole slice, when there is one.
func sliceOfConcat(b *ir.Builder, k *ir.Op, a ops.SliceAttrs) *ir.Value {
	d := k.Attrs.(ops.ConcatAttrs).Dim
	if a.Sizes[d] == 0 {
		return nil
	}
	first := a.Starts[d]
	last := first + (a.Sizes[d]-1)*stepOf(a.Steps, d)
	at := 0
	for _, part := range k.In {
		n := part.Type.Dims[d]
		if first >= at && last < at+n {
			starts := slices.Clone(a.Starts)
			starts[d] -= at
			return ops.Slice(b, part, starts, a.Sizes, a.Steps)
		}
		at += n
	}
	return nil
}

func pad(_ *ir.Builder, op *ir.Op) *ir.Value {
	a := op.Attrs.(ops.PadAttrs)
	for _, l := range [][]int{a.Low, a.High, a.Interior} {
		if slices.ContainsFunc(l, func(n int) bool { return n != 0 }) {
			return nil
		}
	}
	return op.In[0]
}

// concat drops empty parts, and is x when the parts are the consecutive slices of x.
func concat(b *ir.Builder, op *ir.Op) *ir.Value {
	d := op.Attrs.(ops.ConcatAttrs).Dim
	parts := slices.DeleteFunc(slices.Clone(op.In), func(v *ir.Value) bool { return v.Type.Dims[d] == 0 })
	if len(parts) > 0 && len(parts) < len(op.In) || len(op.In) == 1 {
		return ops.Concat(b, d, parts...)
	}
	var whole *ir.Value
	at := 0
	for _, v := range op.In {
		s := Made(v, ops.SliceDef)
		if s == nil || whole != nil && s.In[0] != whole {
			return nil
		}
		whole = s.In[0]
		a := s.Attrs.(ops.SliceAttrs)
		for k, n := range a.Sizes {
			want, start := whole.Type.Dims[k], 0
			if k == d {
				want, start = n, at
			}
			if n != want || a.Starts[k] != start || stepOf(a.Steps, k) != 1 {
				return nil
			}
		}
		at += a.Sizes[d]
	}
	if whole != nil && at == whole.Type.Dims[d] {
		return whole
	}
	return nil
}

func cast(b *ir.Builder, op *ir.Op) *ir.Value {
	x, to := op.In[0], op.Out[0].Type.DType
	if x.Type.DType == to {
		return x
	}
	if k := Made(x, ops.CastDef); k != nil && lossless(k.In[0].Type.DType, x.Type.DType) {
		return ops.Cast(b, k.In[0], to)
	}
	return nil
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
		return 8*from.Size() <= digits[to] && (to == dtype.F32 || to == dtype.F64)
	case from.IsInt() && to.IsInt():
		signed := func(d dtype.DType) bool { return d <= dtype.I64 }
		return to.Size() > from.Size() && (signed(to) || !signed(from))
	}
	return false
}
