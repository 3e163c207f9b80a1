package ops

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Scalar is a constant without dims, v rounded to type d.
func Scalar(b *ir.Builder, d dtype.DType, v float64) *ir.Value {
	return Const(b, scalarTensor(ir.T(d), v))
}

// scalarTensor is a one-element tensor of type t.
func scalarTensor(t ir.Type, v float64) *ir.Tensor {
	if t.DType.IsFloat() {
		return ir.Floats(t, v)
	}
	return ir.Ints(t, int64(v))
}

// Full is v in every element of type t: a constant of one element, expanded.
func Full(b *ir.Builder, t ir.Type, v float64) *ir.Value {
	c := Const(b, scalarTensor(ir.T(t.DType, filled(len(t.Dims), 1)...), v))
	return Expand(b, c, t.Dims)
}

// ScalarLike is v in x's element type and dims.
func ScalarLike(b *ir.Builder, x *ir.Value, v float64) *ir.Value { return Full(b, x.Type, v) }

// BroadcastDims is the common shape of two under numpy's rules; ok is false when there is none.
func BroadcastDims(x, y []int) (dims []int, ok bool) {
	n := max(len(x), len(y))
	dims = make([]int, n)
	for i := range n {
		p, q := 1, 1
		if k := i - (n - len(x)); k >= 0 {
			p = x[k]
		}
		if k := i - (n - len(y)); k >= 0 {
			q = y[k]
		}
		switch {
		case p == q || q == 1:
			dims[i] = p
		case p == 1:
			dims[i] = q
		default:
			return nil, false
		}
	}
	return dims, true
}

// BroadcastTo repeats x to dims under numpy's rules (leading dims are added, size 1 repeats).
func BroadcastTo(b *ir.Builder, x *ir.Value, dims []int) *ir.Value {
	if got, ok := BroadcastDims(x.Type.Dims, dims); !ok || !slices.Equal(got, dims) {
		panic(ir.Errorf(b.Loc, "%q %s does not broadcast to %v", x.Name, x.Type, dims))
	}
	lead := filled(len(dims)-len(x.Type.Dims), 1)
	return Expand(b, Reshape(b, x, append(lead, x.Type.Dims...)), dims)
}

// Broadcast2 repeats x and y to their common shape under numpy's rules.
func Broadcast2(b *ir.Builder, x, y *ir.Value) (*ir.Value, *ir.Value) {
	dims, ok := BroadcastDims(x.Type.Dims, y.Type.Dims)
	if !ok {
		panic(ir.Errorf(b.Loc, "shapes %v and %v do not broadcast", x.Type.Dims, y.Type.Dims).
			Note("the operands are %q and %q", x.Name, y.Name))
	}
	return BroadcastTo(b, x, dims), BroadcastTo(b, y, dims)
}

// AddScalar is x + v.
func AddScalar(b *ir.Builder, x *ir.Value, v float64) *ir.Value {
	return Add(b, x, ScalarLike(b, x, v))
}

// MulScalar is x * v.
func MulScalar(b *ir.Builder, x *ir.Value, v float64) *ir.Value {
	return Mul(b, x, ScalarLike(b, x, v))
}

// Square is x * x.
func Square(b *ir.Builder, x *ir.Value) *ir.Value { return Mul(b, x, x) }

// Zeros is a tensor of zeros of type t.
func Zeros(b *ir.Builder, t ir.Type) *ir.Value { return Full(b, t, 0) }
