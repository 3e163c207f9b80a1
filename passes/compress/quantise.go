package compress

import (
	"math"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// sparse sends the elements of largest size with their positions.
func (z *squeezer) sparse(g gradient) *ir.Value {
	b := z.b
	m, state := z.fed(g)
	n := m.Type.Elems()
	k := max(1, int(math.Ceil(z.o.Fraction*float64(n))))
	flat := ops.Reshape(b, m, []int{n})
	_, at := ops.TopK(b, ops.Abs(b, flat), ops.TopKAttrs{Dim: 0, K: k, Largest: true})
	values := b.Rename(ops.Gather(b, flat, at, 0), "top_"+g.param.Name)
	sent := at
	if n <= math.MaxInt32 {
		sent = ops.Cast(b, at, dtype.I32)
	}
	all := z.told(ops.AllGather(b, values, axis, 0, z.ranks), g, "the largest elements of the gradient")
	places := z.told(ops.AllGather(b, sent, axis, 0, z.ranks), g, "where the largest elements of the gradient are")
	if sent != at {
		places = ops.Cast(b, places, dtype.I64)
	}
	left := ops.Scatter(b, flat, at, ops.Zeros(b, values.Type), "")
	z.keep(state, ops.Reshape(b, left, m.Type.Dims))
	return z.back(g, ops.Reshape(b, ops.ScatterAdd(b, places, all, 0, n), m.Type.Dims))
}

// quantised sends bytes and a scale for each row; a vector is one row.
func (z *squeezer) quantised(g gradient) *ir.Value {
	b := z.b
	m, state := z.fed(g)
	dims := m.Type.Dims
	rows := 1
	if len(dims) > 1 {
		rows = dims[0]
	}
	flat := []int{rows, m.Type.Elems() / rows}
	x := ops.Reshape(b, m, flat)
	size := ops.ReduceMax(b, ops.Abs(b, x), 1) // [rows, 1]
	scale := b.Rename(ops.MulScalar(b, size, 1.0/127), "scale_"+g.param.Name)
	none := ops.Eq(b, scale, ops.Zeros(b, scale.Type))
	by := ops.Expand(b, ops.Where(b, none, ops.ScalarLike(b, scale, 1), scale), flat)
	q := ops.Clip(b, ops.Round(b, ops.Div(b, x, by)), -127, 127)
	own := ops.Mul(b, q, ops.Expand(b, scale, flat))
	z.keep(state, ops.Reshape(b, ops.Sub(b, x, own), dims))
	code := b.Rename(ops.Cast(b, q, dtype.I8), "int8_"+g.param.Name)
	gather := func(v *ir.Value, what string) *ir.Value {
		one := ops.Reshape(b, v, append([]int{1}, v.Type.Dims...))
		return z.told(ops.AllGather(b, one, axis, 0, z.ranks), g, what)
	}
	codes := gather(code, "the gradient in 8 bits")
	scales := gather(scale, "the scales of the gradient in 8 bits")
	parts := ops.Mul(b, ops.Cast(b, codes, dtype.F32), ops.Expand(b, scales, codes.Type.Dims))
	return z.back(g, ops.Reshape(b, ops.ReduceSum(b, parts, 0), dims))
}
