package layout

import (
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

var two = mesh.Mesh{Axes: []mesh.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}}

// partial is a sum over dp.
var partial = mesh.Sharding{Partial: []string{"dp"}}

// TestPartial: a sum over ranks stays one through an op that is linear in it, and is finished before any other.
func TestPartial(t *testing.T) {
	f32, i64 := ir.T(dtype.F32, 4, 6), ir.T(dtype.I64, 4, 6)
	for _, c := range []struct {
		name string
		in   []ir.Type
		sums []bool // which operands are sums; the others are whole
		emit func(b *ir.Builder, x []*ir.Value) *ir.Value
		want bool // the result is one
	}{
		{"neg", []ir.Type{f32}, []bool{true}, func(b *ir.Builder, x []*ir.Value) *ir.Value { return ops.Neg(b, x[0]) }, true},
		{"relu", []ir.Type{f32}, []bool{true}, func(b *ir.Builder, x []*ir.Value) *ir.Value { return ops.Relu(b, x[0]) }, false},
		{"sum of two", []ir.Type{f32, f32}, []bool{true, true}, func(b *ir.Builder, x []*ir.Value) *ir.Value { return ops.Add(b, x[0], x[1]) }, true},
		{"one and something else", []ir.Type{f32, f32}, []bool{true, false}, func(b *ir.Builder, x []*ir.Value) *ir.Value { return ops.Add(b, x[0], x[1]) }, false},
		{"by a constant", []ir.Type{f32}, []bool{true}, func(b *ir.Builder, x []*ir.Value) *ir.Value { return ops.MulScalar(b, x[0], 3) }, true},
		{"by a value", []ir.Type{f32, f32}, []bool{true, false}, func(b *ir.Builder, x []*ir.Value) *ir.Value { return ops.Mul(b, x[0], x[1]) }, false},
		{"by another sum", []ir.Type{f32, f32}, []bool{true, true}, func(b *ir.Builder, x []*ir.Value) *ir.Value { return ops.Mul(b, x[0], x[1]) }, false},
		{"over a constant", []ir.Type{f32}, []bool{true}, func(b *ir.Builder, x []*ir.Value) *ir.Value { return ops.Div(b, x[0], ops.ScalarLike(b, x[0], 3)) }, true},
		{"integers over a constant, which truncates", []ir.Type{i64}, []bool{true}, func(b *ir.Builder, x []*ir.Value) *ir.Value {
			return ops.Div(b, x[0], ops.ScalarLike(b, x[0], 3))
		}, false},
		{"a constant over it", []ir.Type{f32}, []bool{true}, func(b *ir.Builder, x []*ir.Value) *ir.Value { return ops.Div(b, ops.ScalarLike(b, x[0], 3), x[0]) }, false},
		{"to half precision", []ir.Type{f32}, []bool{true}, func(b *ir.Builder, x []*ir.Value) *ir.Value { return ops.Cast(b, x[0], dtype.BF16) }, true},
		{"to 8 bits, which round too much", []ir.Type{f32}, []bool{true}, func(b *ir.Builder, x []*ir.Value) *ir.Value { return ops.Cast(b, x[0], dtype.F8E4M3) }, false},
		{"to integers", []ir.Type{f32}, []bool{true}, func(b *ir.Builder, x []*ir.Value) *ir.Value { return ops.Cast(b, x[0], dtype.I64) }, false},
		{"between zeros", []ir.Type{f32}, []bool{true}, func(b *ir.Builder, x []*ir.Value) *ir.Value {
			return ops.Pad(b, x[0], []int{1, 0}, []int{0, 0}, nil, 0)
		}, true},
		{"between ones", []ir.Type{f32}, []bool{true}, func(b *ir.Builder, x []*ir.Value) *ir.Value {
			return ops.Pad(b, x[0], []int{1, 0}, []int{0, 0}, nil, 1)
		}, false},
		{"repeated, which makes the message larger", []ir.Type{ir.T(dtype.F32, 4, 1)}, []bool{true}, func(b *ir.Builder, x []*ir.Value) *ir.Value {
			return ops.Expand(b, x[0], []int{4, 6})
		}, false},
		{"chosen by what is whole", []ir.Type{f32.With(dtype.Bool), f32, f32}, []bool{false, true, true}, func(b *ir.Builder, x []*ir.Value) *ir.Value {
			return ops.Where(b, x[0], x[1], x[2])
		}, true},
		{"chosen, or something else", []ir.Type{f32.With(dtype.Bool), f32, f32}, []bool{false, true, false}, func(b *ir.Builder, x []*ir.Value) *ir.Value {
			return ops.Where(b, x[0], x[1], x[2])
		}, false},
		{"in a product, which reads it many times", []ir.Type{f32, ir.T(dtype.F32, 6, 2)}, []bool{true, false}, func(b *ir.Builder, x []*ir.Value) *ir.Value {
			return ops.MatMul(b, x[0], x[1])
		}, false},
	} {
		b := ir.NewBuilder(&ir.Func{Name: "f"})
		var x []*ir.Value
		for _, typ := range c.in {
			x = append(x, b.Param("x", typ, ir.Input))
		}
		op := c.emit(b, x).Op
		in := make([]mesh.Sharding, len(op.In))
		for i, v := range op.In {
			if k := slices.Index(x, v); k >= 0 && c.sums[k] {
				in[i] = partial
			}
		}
		p := Of(two, op, in, nil)
		if got := len(p.Out[0].Partial) > 0; got != c.want {
			t.Errorf("%s: %s is a sum over ranks: %v, want %v", c.name, op, got, c.want)
		}
		for i, s := range p.In {
			if len(s.Partial) > 0 && !c.want {
				t.Errorf("%s: operand %d stays a sum over ranks", c.name, i)
			}
		}
	}
}

// TestAffine: of what is not summed up, an op adds some to sums, which must be shared out, and multiplies sums by the rest.
func TestAffine(t *testing.T) {
	b := ir.NewBuilder(&ir.Func{Name: "f"})
	x, y, c := b.Param("x", ir.T(dtype.F32, 4), ir.Input), b.Param("y", ir.T(dtype.F32, 4), ir.Input), b.Param("c", ir.T(dtype.Bool, 4), ir.Input)
	for _, k := range []struct {
		v            *ir.Value
		total, added []int
		affine       bool
	}{
		{ops.Add(b, x, y), []int{0}, []int{0, 1}, true},
		{ops.Mul(b, x, y), []int{1}, nil, true},
		{ops.Mul(b, x, y), []int{0, 1}, nil, false},
		{ops.Div(b, x, y), []int{0}, nil, true},
		{ops.Div(b, x, y), []int{1}, nil, false},
		{ops.Where(b, c, x, y), []int{1}, []int{1, 2}, true},
		{ops.Where(b, c, x, y), []int{0}, []int{1, 2}, false},
		{ops.Concat(b, 0, x, y), []int{1}, []int{0, 1}, true},
		{ops.Exp(b, x), []int{0}, nil, false},
	} {
		op := k.v.Op
		if got := Affine(op, func(i int) bool { return slices.Contains(k.total, i) }); got != k.affine {
			t.Errorf("%s is affine in operands %v: %v, want %v", op, k.total, got, k.affine)
		}
		for i := range op.In {
			if got, want := Added(op, i), slices.Contains(k.added, i); got != want {
				t.Errorf("%s adds operand %d: %v, want %v", op, i, got, want)
			}
		}
	}
}
