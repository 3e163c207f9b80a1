package recognize

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// places is what is known of the elements of an integer or bool value before data come: each lies from lo to hi. What is
// known to be one number has lo equal to hi. at is that number, or else a guess: the known part of a sum.
type places struct{ at, lo, hi []int64 }

// maxPlaces bounds the elements of a value that is looked into: the indices of a large batch, with room to spare.
const maxPlaces = 1 << 20

// moving are ops whose results are elements of operand 0 (concat: of all), whatever these are; of growing ones the results
// grow with the elements.
var (
	moving  = []*ir.Def{ops.ReshapeDef, ops.TransposeDef, ops.ExpandDef, ops.SliceDef, ops.ConcatDef}
	growing = []*ir.Def{ops.ReduceMaxDef, ops.ReduceMinDef}
)

// known reports whether element i is one number.
func (p *places) known(i int) bool { return p.lo[i] == p.hi[i] }

// placesOf says what is known of v, which no op changes afterwards; nil where v holds floats or is too large.
func (m *matcher) placesOf(v *ir.Value) *places {
	if p, ok := m.places[v]; ok {
		return p
	}
	p := m.findPlaces(v)
	m.places[v] = p
	return p
}

func (m *matcher) findPlaces(v *ir.Value) *places {
	n := v.Type.Elems()
	if d := v.Type.DType; !d.IsInt() && d != dtype.Bool || n > maxPlaces || n == 0 {
		return nil
	}
	lo, hi := rangeOf(v.Type.DType)
	if v.Op != nil && v.Op.Def == ops.ArgmaxDef {
		lo, hi = 0, int64(v.Op.In[0].Type.Dims[v.Op.Attrs.(ops.ArgmaxAttrs).Dim]-1)
	}
	if v.Op != nil && v.Op.Def == ops.TopKDef { // the second result: the first is what is looked through
		lo, hi = 0, int64(v.Op.In[0].Type.Dims[v.Op.Attrs.(ops.TopKAttrs).Dim]-1)
	}
	some := &places{make([]int64, n), slices.Repeat([]int64{lo}, n), slices.Repeat([]int64{hi}, n)}
	if v.Op == nil || len(v.Op.Out) > 1 || v.Op.Def.Rules.Eval == nil {
		return some
	}
	in, known := make([]*places, len(v.Op.In)), true
	for i, x := range v.Op.In {
		if x == nil {
			return some
		}
		if in[i] = m.placesOf(x); in[i] == nil {
			return some
		}
		known = known && slices.Equal(in[i].lo, in[i].hi)
	}
	eval := func(of func(p *places) []int64) []int64 { return evalInts(v.Op, in, of) }
	switch at := eval; {
	case known:
		x := at(func(p *places) []int64 { return p.lo })
		return &places{x, x, x}
	case slices.Contains(moving, v.Op.Def), slices.Contains(growing, v.Op.Def):
		return &places{at(func(p *places) []int64 { return p.at }), at(func(p *places) []int64 { return p.lo }),
			at(func(p *places) []int64 { return p.hi })}
	}
	join := joins[v.Op.Def]
	if join == nil {
		return some
	}
	for i := range n {
		x := make([]span, len(in))
		for k, p := range in {
			x[k] = span{p.at[i], p.lo[i], p.hi[i]}
		}
		s := join(v.Op, x)
		some.at[i] = s.at
		if s.lo >= lo && s.hi <= hi { // what may have overflown could be anything
			some.lo[i], some.hi[i] = s.lo, s.hi
		}
	}
	return some
}

// rangeOf is what a type holds; of u64, everything, for its upper half is negative here.
func rangeOf(d dtype.DType) (lo, hi int64) {
	switch d {
	case dtype.Bool:
		return 0, 1
	case dtype.I8:
		return math.MinInt8, math.MaxInt8
	case dtype.I16:
		return math.MinInt16, math.MaxInt16
	case dtype.I32:
		return math.MinInt32, math.MaxInt32
	case dtype.U8:
		return 0, math.MaxUint8
	case dtype.U16:
		return 0, math.MaxUint16
	case dtype.U32:
		return 0, math.MaxUint32
	}
	return math.MinInt64, math.MaxInt64
}

// evalInts runs an op on integers in place of its operands.
func evalInts(op *ir.Op, in []*places, of func(p *places) []int64) []int64 {
	var x []*ir.Array
	for i, v := range op.In {
		x = append(x, &ir.Array{Type: v.Type, I: of(in[i])})
	}
	return op.Def.Rules.Eval(op, x)[0].I
}

// span is one element of places.
type span struct{ at, lo, hi int64 }

// whole is the span of which nothing is known but a guess.
func whole(at int64) span { return span{at, math.MinInt64, math.MaxInt64} }

// joins tell what is known of an element of a pointwise result.
var joins = map[*ir.Def]func(op *ir.Op, x []span) span{
	ops.CastDef: func(op *ir.Op, x []span) span {
		if op.Out[0].Type.DType == dtype.Bool {
			return truth(x[0].lo > 0 || x[0].hi < 0, x[0].lo == 0 && x[0].hi == 0)
		}
		return x[0]
	},
	ops.AddDef: func(_ *ir.Op, x []span) span { return sum(x[0], x[1]) },
	ops.SubDef: func(_ *ir.Op, x []span) span {
		if x[1].lo == math.MinInt64 {
			return whole(x[0].at - x[1].at)
		}
		return sum(x[0], span{-x[1].at, -x[1].hi, -x[1].lo})
	},
	ops.MulDef: func(_ *ir.Op, x []span) span { return times(x[0], x[1]) },
	ops.MinimumDef: func(_ *ir.Op, x []span) span {
		return span{x[0].at, min(x[0].lo, x[1].lo), min(x[0].hi, x[1].hi)}
	},
	ops.MaximumDef: func(_ *ir.Op, x []span) span {
		return span{x[0].at, max(x[0].lo, x[1].lo), max(x[0].hi, x[1].hi)}
	},
	ops.ModDef: func(op *ir.Op, x []span) span {
		n := x[1].lo
		switch {
		case n != x[1].hi || n <= 0:
			return whole(x[0].at)
		case x[0].lo >= 0 && x[0].hi < n:
			return x[0]
		case op.Attrs.(ops.ModAttrs).Fmod && x[0].lo < 0:
			return span{x[0].at, 1 - n, n - 1}
		}
		return span{x[0].at, 0, n - 1}
	},
	ops.WhereDef: func(_ *ir.Op, x []span) span {
		switch c, y, z := x[0], x[1], x[2]; {
		case c.lo == 1:
			return y
		case c.hi == 0:
			return z
		default: // where an index counts from the end, the lesser is the guess
			return span{min(y.at, z.at), min(y.lo, z.lo), max(y.hi, z.hi)}
		}
	},
	ops.LtDef: func(_ *ir.Op, x []span) span { return truth(x[0].hi < x[1].lo, x[0].lo >= x[1].hi) },
	ops.LeDef: func(_ *ir.Op, x []span) span { return truth(x[0].hi <= x[1].lo, x[0].lo > x[1].hi) },
	ops.GtDef: func(_ *ir.Op, x []span) span { return truth(x[0].lo > x[1].hi, x[0].hi <= x[1].lo) },
	ops.GeDef: func(_ *ir.Op, x []span) span { return truth(x[0].lo >= x[1].hi, x[0].hi < x[1].lo) },
}

// truth is a bool that holds for certain, or not for certain, or neither.
func truth(yes, no bool) span {
	switch {
	case yes:
		return span{1, 1, 1}
	case no:
		return span{0, 0, 0}
	}
	return span{0, 0, 1}
}

// sum is x + y, of which nothing is known where it may overflow.
func sum(x, y span) span {
	lo, hi := x.lo+y.lo, x.hi+y.hi
	if (lo > x.lo) != (y.lo > 0) || (hi > x.hi) != (y.hi > 0) {
		return whole(x.at + y.at)
	}
	return span{x.at + y.at, lo, hi}
}

// times is x * y, of which nothing is known where it may overflow.
func times(x, y span) span {
	s := span{at: x.at * y.at, lo: math.MaxInt64, hi: math.MinInt64}
	for _, a := range []int64{x.lo, x.hi} {
		for _, b := range []int64{y.lo, y.hi} {
			p := a * b
			if math.Abs(float64(a)*float64(b)) >= 1<<62 {
				return whole(s.at)
			}
			s.lo, s.hi = min(s.lo, p), max(s.hi, p)
		}
	}
	return s
}
