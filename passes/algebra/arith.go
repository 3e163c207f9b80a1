package algebra

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

func isZero(v *ir.Value) bool {
	u, ok := Uniform(v)
	return ok && u == 0
}

func add(b *ir.Builder, op *ir.Op) *ir.Value {
	x, y := op.In[0], op.In[1]
	switch {
	case isZero(y):
		return x
	case isZero(x):
		return y
	}
	if v := addPadded(b, op); v != nil {
		return v
	}
	if n := Made(y, ops.NegDef); n != nil {
		return ops.Sub(b, x, n.In[0])
	}
	if n := Made(x, ops.NegDef); n != nil {
		return ops.Sub(b, y, n.In[0])
	}
	return nil
}

func sub(b *ir.Builder, op *ir.Op) *ir.Value {
	x, y := op.In[0], op.In[1]
	switch {
	case isZero(y):
		return x
	case isZero(x) && x.Type.DType.IsFloat():
		return ops.Neg(b, y)
	}
	if n := Made(y, ops.NegDef); n != nil {
		return ops.Add(b, x, n.In[0])
	}
	return nil
}

// mul drops factors of 1, takes constants together, and divides where a reciprocal was to be multiplied.
func mul(b *ir.Builder, op *ir.Op) *ir.Value {
	x, y := op.In[0], op.In[1]
	if _, ok := Uniform(x); ok {
		x, y = y, x
	}
	u, ok := Uniform(y)
	if !ok {
		return nil
	}
	switch {
	case u == 1:
		return x
	case u == -1 && x.Type.DType.IsFloat():
		return ops.Neg(b, x)
	case !x.Type.DType.IsFloat():
		return nil
	}
	if m := Made(x, ops.MulDef); m != nil {
		for i, v := range m.In {
			if w, ok := Uniform(v); ok && safeProduct(u, w) {
				return ops.MulScalar(b, m.In[1-i], u*w)
			}
		}
	}
	if n := Made(x, ops.NegDef); n != nil {
		return ops.MulScalar(b, n.In[0], -u)
	}
	return nil
}

// safeProduct reports whether multiplying by u*w once is as good as by u and then by w: nothing over- or
// underflows an f32 on the way.
func safeProduct(u, w float64) bool {
	p := math.Abs(u * w)
	return p > 1e-30 && p < 1e30 && math.Abs(u) < 1e30 && math.Abs(w) < 1e30
}

func div(b *ir.Builder, op *ir.Op) *ir.Value {
	x, y := op.In[0], op.In[1]
	if !x.Type.DType.IsFloat() {
		return nil
	}
	if Is(x, 1) {
		return ops.Recip(b, y)
	}
	if u, ok := Uniform(y); ok {
		if u == 1 {
			return x
		}
		if frac, _ := math.Frexp(u); math.Abs(frac) == 0.5 { // a power of two: its reciprocal is exact
			return ops.MulScalar(b, x, 1/u)
		}
	}
	return nil
}

func recip(b *ir.Builder, op *ir.Op) *ir.Value {
	if s := Made(op.In[0], ops.SqrtDef); s != nil {
		return ops.Rsqrt(b, s.In[0])
	}
	if r := Made(op.In[0], ops.RsqrtDef); r != nil {
		return ops.Sqrt(b, r.In[0])
	}
	return nil
}

// pow spells out the exponents that models use.
func pow(b *ir.Builder, op *ir.Op) *ir.Value {
	x := op.In[0]
	e, ok := Uniform(op.In[1])
	if !ok || !x.Type.DType.IsFloat() {
		return nil
	}
	switch e {
	case 1:
		return x
	case 2:
		return ops.Square(b, x)
	case 3:
		return ops.Mul(b, ops.Square(b, x), x)
	case 0.5:
		return ops.Sqrt(b, x)
	case -0.5:
		return ops.Rsqrt(b, x)
	case -1:
		return ops.Recip(b, x)
	}
	return nil
}

func neg(_ *ir.Builder, op *ir.Op) *ir.Value {
	if n := Made(op.In[0], ops.NegDef); n != nil {
		return n.In[0]
	}
	return nil
}

func where(_ *ir.Builder, op *ir.Op) *ir.Value {
	if op.In[1] == op.In[2] {
		return op.In[1]
	}
	if u, ok := Uniform(op.In[0]); ok {
		if u != 0 {
			return op.In[1]
		}
		return op.In[2]
	}
	return nil
}

func and(_ *ir.Builder, op *ir.Op) *ir.Value { return logic(op, 1) }

func or(_ *ir.Builder, op *ir.Op) *ir.Value { return logic(op, 0) }

// logic simplifies a bool op of which neutral is the neutral element and its opposite the absorbing one.
func logic(op *ir.Op, neutral float64) *ir.Value {
	if op.In[0] == op.In[1] {
		return op.In[0]
	}
	for i, v := range op.In {
		if u, ok := Uniform(v); ok {
			if u == neutral {
				return op.In[1-i]
			}
			return v
		}
	}
	return nil
}

func not(_ *ir.Builder, op *ir.Op) *ir.Value {
	if n := Made(op.In[0], ops.NotDef); n != nil {
		return n.In[0]
	}
	return nil
}

// reduce drops dims of size 1 from a reduction and joins a reduction of the same kind.
func reduce(b *ir.Builder, op *ir.Op) *ir.Value {
	x, dims := op.In[0], op.Attrs.(ops.ReduceAttrs).Dims
	real := slices.DeleteFunc(slices.Clone(dims), func(d int) bool { return x.Type.Dims[d] == 1 })
	if r := Made(x, op.Def); r != nil && len(real) > 0 {
		real = append(real, r.Attrs.(ops.ReduceAttrs).Dims...)
		slices.Sort(real)
		real = slices.Compact(real)
		return b.Emit(op.Def, ops.ReduceAttrs{Dims: real}, r.In[0])
	}
	if len(real) < len(dims) {
		if len(real) == 0 {
			return x
		}
		return b.Emit(op.Def, ops.ReduceAttrs{Dims: real}, x)
	}
	return nil
}

// overNothing is a sum or product whose operand has no elements: zeros, ones, or the bias alone. No kernel has a loop
// for it.
func overNothing(b *ir.Builder, op *ir.Op) *ir.Value {
	t := op.Out[0].Type
	if t.Elems() == 0 || !slices.ContainsFunc(op.In, func(v *ir.Value) bool { return v != nil && v.Type.Elems() == 0 }) {
		return nil
	}
	switch op.Def {
	case ops.ReduceSumDef, ops.ScatterAddDef, ops.ScatterElementsAddDef:
		return ops.Zeros(b, t)
	case ops.ReduceProdDef:
		return ops.Full(b, t, 1)
	case ops.MatMulDef:
		if len(op.In) < 3 {
			return ops.Zeros(b, t)
		}
		bias := op.In[2]
		bias = ops.Reshape(b, bias, slices.Concat(slices.Repeat([]int{1}, len(t.Dims)-len(bias.Type.Dims)), bias.Type.Dims))
		return ops.Expand(b, bias, t.Dims)
	}
	return nil
}
