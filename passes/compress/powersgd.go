package compress

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// factors is a gradient on its way through PowerSGD.
type factors struct {
	gradient
	m     *ir.Value // [rows, cols]: this rank's part of the mean gradient with its error
	p     *ir.Value // [rows, rank]: M Q, of this rank at first, then of all
	query *ir.Value // state: Q of the step before
	state *ir.Value // state: the error
}

// project makes M Q. It is nil for a gradient that stays as it is: a vector, or a matrix whose
// factors are no smaller.
func (z *squeezer) project(g gradient) *factors {
	dims := g.op.In[0].Type.Dims
	if len(dims) < 2 {
		return nil
	}
	rows := dims[0]
	cols := ir.Product(dims[1:])
	rank := min(z.o.Rank, rows, cols)
	if rank*(rows+cols) >= rows*cols {
		z.c.Remark(g.op.Out[0], "is not compressed: factors of rank %d would be as large as the %d by %d matrix", rank, rows, cols)
		return nil
	}
	m := &factors{gradient: g}
	var whole *ir.Value
	whole, m.state = z.fed(g)
	m.m = ops.Reshape(z.b, whole, []int{rows, cols})
	m.query = z.state(abi.KindQuery, g.param, ir.T(dtype.F32, cols, rank))
	for _, axes := range g.op.Out[0].Sharding.Dims {
		m.query.Sharding.Partial = append(m.query.Sharding.Partial, axes...) // each part of a split matrix has its own
	}
	p := ops.MatMul(z.b, m.m, z.query(m, cols, rank))
	m.p = z.b.Rename(p, "p_"+g.param.Name)
	return m
}

// querySeed is that of all random Q: matrices of one shape may start alike, and then share their kernels.
const querySeed = 20190531

// query is the Q to begin with: that of the step before, with a random column where it has none (at first, and where the
// gradient had a lower rank).
func (z *squeezer) query(m *factors, cols, rank int) *ir.Value {
	b := z.b
	if z.seed == nil {
		z.seed = b.Rename(ops.Zeros(b, ir.T(dtype.I64)), "powersgd_seed")
		if step := z.f.Param(abi.StepCount); step != nil && step.Type.Equal(z.seed.Type) {
			z.seed = step // another column each time
		}
	}
	random := ops.AddScalar(b, ops.Rand(b, z.seed, querySeed, []int{cols, rank}), -0.5)
	size := ops.ReduceMax(b, ops.Abs(b, m.query), 0) // [1, rank]
	none := ops.Eq(b, size, ops.Zeros(b, size.Type))
	return ops.Where(b, ops.Expand(b, none, m.query.Type.Dims), random, m.query)
}

// maxFactors is how many bytes of factors, or of elements, travel in one message.
const maxFactors = 25 << 20

// finish makes the rest: the factors of many matrices travel together, those of Q when the first gradient is wanted.
func (z *squeezer) finish(list []*factors, place map[*ir.Op]int, wanted map[*ir.Value]int, subst map[*ir.Value]*ir.Value) {
	until := len(place)
	var groups [][]*factors
	bytes := 0
	for _, m := range list {
		if at, ok := wanted[m.op.Out[0]]; ok {
			until = min(until, at)
		}
		size := m.p.Type.Bytes() + m.query.Type.Bytes()
		if bytes += size; groups == nil || bytes > maxFactors {
			groups, bytes = append(groups, nil), size
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], m)
	}
	for _, g := range groups {
		mark := len(z.f.Ops)
		ps := make([]*ir.Value, len(g))
		for i, m := range g {
			ps[i] = m.p
		}
		for i, p := range z.together(ps, g, "PowerSGD: M Q of the gradients") {
			g[i].p = p
		}
		z.at(mark, place, place[g[len(g)-1].op])
	}
	mark := len(z.f.Ops)
	var qs []*ir.Value
	for _, g := range groups {
		own := make([]*ir.Value, len(g))
		for i, m := range g {
			z.b.Loc = z.c.Loc(m.op.Loc)
			m.p = z.orthonormal(m.p)
			own[i] = z.b.Rename(ops.MatMulT(z.b, m.m, m.p, true, false), "q_"+m.param.Name)
		}
		qs = append(qs, z.together(own, g, "PowerSGD: Mᵀ P of the gradients")...)
	}
	for i, m := range list {
		z.b.Loc = z.c.Loc(m.op.Loc)
		mean := ops.MatMulT(z.b, m.p, qs[i], false, true)
		dims := m.state.Type.Dims
		next := ops.Sub(z.b, m.m, ops.MulScalar(z.b, mean, 1/float64(z.ranks)))
		z.keep(m.state, ops.Reshape(z.b, next, dims))
		z.b.Update(m.query, z.unlessEmpty(m.query, qs[i]))
		subst[m.op.Out[0]] = z.named(z.back(m.gradient, ops.Reshape(z.b, mean, dims)), m.op.Out[0])
	}
	z.at(mark, place, until)
}

// together reduces a factor of each member of g in one message.
func (z *squeezer) together(list []*ir.Value, g []*factors, what string) []*ir.Value {
	z.b.Loc = z.c.Loc(g[0].op.Loc)
	out := ops.AllReduce(z.b, axis, "sum", list...)
	out[0].Op.Why = fmt.Sprintf("%s of %d parameters, from %s on", what, len(g), g[0].param.Name)
	return out
}

// least is how much of a column must be left, relative to its length before, for its direction to mean anything in f32.
const least = 1e-5

// orthonormal makes the columns of p orthonormal (modified Gram-Schmidt). A column that depends on those before becomes
// zeros, so that it adds nothing; it gets a random start in the next step.
func (z *squeezer) orthonormal(p *ir.Value) *ir.Value {
	b := z.b
	rank := p.Type.Dims[1]
	norms := ops.ReduceSum(b, ops.Square(b, p), 0) // [1, rank]: squared lengths before
	rest := p
	var done []*ir.Value
	for j := range rank {
		col := ops.SliceDim(b, rest, 1, 0, 1)
		left := ops.ReduceSum(b, ops.Square(b, col), 0)
		floor := ops.MulScalar(b, ops.SliceDim(b, norms, 1, j, 1), least*least)
		gone := ops.Le(b, left, floor)
		scale := ops.Where(b, gone, ops.Zeros(b, left.Type), ops.Rsqrt(b, ops.Where(b, gone, ops.ScalarLike(b, left, 1), left)))
		q := ops.Mul(b, col, ops.Expand(b, scale, col.Type.Dims))
		done = append(done, q)
		if j+1 < rank {
			rest = ops.SliceDim(b, rest, 1, 1, rank-j-1)
			rest = ops.Sub(b, rest, ops.MatMul(b, q, ops.MatMulT(b, q, rest, true, false)))
		}
	}
	return ops.Concat(b, 1, done...)
}
