package recognize

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// remainders are those of the elements of an integer value after division by n, from 0 to n-1, as far as they are known before data
// come and no sum overflows; -1 of other elements, and nil where none is known.
func (m *matcher) remainders(v *ir.Value, n int64) []int64 {
	p := m.placesOf(v)
	if p == nil {
		return nil
	}
	out := slices.Repeat([]int64{-1}, len(p.lo))
	if op := v.Op; op != nil && len(op.Out) == 1 && !slices.Equal(p.lo, p.hi) {
		if made := m.madeRemainders(op, n); made != nil {
			out = made
		}
	}
	some := false
	for i := range out {
		if p.known(i) {
			out[i] = ((p.lo[i] % n) + n) % n
		}
		some = some || out[i] >= 0
	}
	if !some {
		return nil
	}
	return out
}

// madeRemainders follows an op to its operands.
func (m *matcher) madeRemainders(op *ir.Op, n int64) []int64 {
	var in [][]int64
	for _, x := range op.In {
		r := m.remainders(x, n)
		if r == nil {
			r = slices.Repeat([]int64{-1}, x.Type.Elems())
		}
		in = append(in, r)
	}
	var join func(x []int64) int64
	switch op.Def {
	case ops.ReshapeDef, ops.TransposeDef, ops.ExpandDef, ops.SliceDef, ops.ConcatDef:
		var arrays []*ir.Array
		for i, x := range op.In {
			arrays = append(arrays, &ir.Array{Type: x.Type, I: in[i]})
		}
		return op.Def.Rules.Eval(op, arrays)[0].I
	case ops.CastDef:
		if x := op.In[0].Type.DType; !x.IsInt() || x.Size() > op.Out[0].Type.DType.Size() || !op.Out[0].Type.DType.IsInt() {
			return nil
		}
		return in[0]
	case ops.AddDef:
		join = func(x []int64) int64 { return both(x, (x[0]+x[1])%n) }
	case ops.SubDef:
		join = func(x []int64) int64 { return both(x, (x[0]-x[1]+n)%n) }
	case ops.MulDef:
		join = func(x []int64) int64 {
			if x[0] == 0 || x[1] == 0 {
				return 0
			}
			return both(x, x[0]*x[1]%n)
		}
	case ops.WhereDef:
		join = func(x []int64) int64 {
			if x[1] != x[2] {
				return -1
			}
			return x[1]
		}
	default:
		return nil
	}
	out := make([]int64, op.Out[0].Type.Elems())
	for i := range out {
		x := make([]int64, len(in))
		for k := range in {
			x[k] = in[k][i]
		}
		out[i] = join(x)
	}
	return out
}

// both is y where both operands are known.
func both(x []int64, y int64) int64 {
	if x[0] < 0 || x[1] < 0 {
		return -1
	}
	return y
}
