package compress

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// sparse sends the elements of largest size with their positions.
func (z *squeezer) sparse(g gradient) *message {
	b := z.b
	m, state := z.fed(g)
	n := m.Type.Elems()
	k := max(1, int(math.Ceil(z.o.Fraction*float64(n))))
	flat := ops.Reshape(b, m, []int{n})
	_, at := ops.TopK(b, ops.Abs(b, flat), ops.TopKAttrs{Dim: 0, K: k, Largest: true})
	values := b.Rename(ops.Gather(b, flat, at, 0), "top_"+g.param.Name)
	sent := at
	if !z.huge() {
		sent = ops.Cast(b, at, dtype.I32)
	}
	left := ops.Scatter(b, flat, at, ops.Zeros(b, values.Type), "")
	z.keep(state, ops.Reshape(b, left, m.Type.Dims))
	return &message{g, []*ir.Value{values, sent}, func(all []*ir.Value) *ir.Value {
		found, places := ops.Reshape(b, all[0], []int{z.ranks * k}), ops.Reshape(b, all[1], []int{z.ranks * k})
		if places.Type.DType != dtype.I64 {
			places = ops.Cast(b, places, dtype.I64)
		}
		return z.back(g, ops.Reshape(b, ops.ScatterAdd(b, places, found, 0, n), m.Type.Dims))
	}}
}

// huge reports whether some gradient has more elements than 32 bits count: places of one message have one type.
func (z *squeezer) huge() bool {
	return slices.ContainsFunc(z.grads, func(g gradient) bool { return g.op.In[0].Type.Elems() > math.MaxInt32 })
}

// quantised sends bytes and a scale for each row; a vector is one row.
func (z *squeezer) quantised(g gradient) *message {
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
	send := []*ir.Value{ops.Reshape(b, code, []int{m.Type.Elems()}), ops.Reshape(b, scale, []int{rows})}
	return &message{g, send, func(all []*ir.Value) *ir.Value {
		codes := ops.Reshape(b, all[0], append([]int{z.ranks}, flat...))
		scales := ops.Reshape(b, all[1], []int{z.ranks, rows, 1})
		parts := ops.Mul(b, ops.Cast(b, codes, dtype.F32), ops.Expand(b, scales, codes.Type.Dims))
		return z.back(g, ops.Reshape(b, ops.ReduceSum(b, parts, 0), dims))
	}}
}
