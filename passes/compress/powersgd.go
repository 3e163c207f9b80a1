package compress

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// factors is a gradient on its way through PowerSGD.
type factors struct {
	gradient
	m     *ir.Value // [rows, cols]: this rank's part of the mean gradient with its error
	p     *ir.Value // [rows, rank], reduced
	query *ir.Value // state: Q of the step before
	state *ir.Value // state: the error
}

// project makes the first half: P = all_reduce(M Q). It is nil for a gradient that stays as it is: a vector, or a matrix whose
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
	m.query = z.state(queryState, g.param, ir.T(dtype.F32, cols, rank))
	for _, axes := range g.op.Out[0].Sharding.Dims {
		m.query.Sharding.Partial = append(m.query.Sharding.Partial, axes...) // each part of a split matrix has its own
	}
	p := ops.MatMul(z.b, m.m, z.query(m, cols, rank))
	m.p = z.told(ops.AllReduce(z.b, axis, "sum", z.b.Rename(p, "p_"+g.param.Name))[0], g, "PowerSGD: M Q of the gradient")
	return m
}

// query is the Q to begin with: that of the step before, with a random column where it has none (at first, and where the
// gradient had a lower rank).
func (z *squeezer) query(m *factors, cols, rank int) *ir.Value {
	b := z.b
	if z.seed == nil {
		z.seed = b.Rename(ops.Zeros(b, ir.T(dtype.I64)), "powersgd_seed")
		if step := z.f.Param("step"); step != nil && step.Type.Equal(z.seed.Type) {
			z.seed = step // another column each time
		}
	}
	random := ops.AddScalar(b, ops.Rand(b, z.seed, seedOf(m.param.Name), []int{cols, rank}), -0.5)
	size := ops.ReduceMax(b, ops.Abs(b, m.query), 0) // [1, rank]
	none := ops.Eq(b, size, ops.Zeros(b, size.Type))
	return ops.Where(b, ops.Expand(b, none, m.query.Type.Dims), random, m.query)
}

// seedOf tells the random streams of parameters apart (FNV-1a, 31 bits).
func seedOf(name string) int {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return int(h &^ (1 << 31))
}

// finish makes the second half, for all matrices that are ready before the first result is wanted, so that their small
// messages go together.
func (z *squeezer) finish(list []*factors, place map[*ir.Op]int, subst map[*ir.Value]*ir.Value) {
	for len(list) > 0 {
		until := z.firstReader(list, place)
		n := 0
		for n < len(list) && place[list[n].op] < until {
			n++
		}
		n = max(n, 1)
		last := place[list[n-1].op]
		mark := len(z.f.Ops)
		qs := make([]*ir.Value, n)
		ps := make([]*ir.Value, n)
		for i, m := range list[:n] {
			z.b.Loc = z.c.Loc(m.op.Loc)
			ps[i] = z.orthonormal(m.p)
			q := ops.MatMulT(z.b, m.m, ps[i], true, false)
			qs[i] = z.told(ops.AllReduce(z.b, axis, "sum", z.b.Rename(q, "q_"+m.param.Name))[0], m.gradient, "PowerSGD: Mᵀ P of the gradient")
		}
		for i, m := range list[:n] {
			z.b.Loc = z.c.Loc(m.op.Loc)
			mean := ops.MatMulT(z.b, ps[i], qs[i], false, true)
			dims := m.state.Type.Dims
			next := ops.Sub(z.b, m.m, ops.MulScalar(z.b, mean, 1/float64(z.ranks)))
			z.keep(m.state, ops.Reshape(z.b, next, dims))
			z.b.Update(m.query, qs[i])
			subst[m.op.Out[0]] = z.named(z.back(m.gradient, ops.Reshape(z.b, mean, dims)), m.op.Out[0])
		}
		z.at(mark, place, last)
		list = list[n:]
	}
}

// firstReader is the place of the first op that reads the gradient of one of list.
func (z *squeezer) firstReader(list []*factors, place map[*ir.Op]int) int {
	wanted := map[*ir.Value]bool{}
	for _, m := range list {
		wanted[m.op.Out[0]] = true
	}
	first := len(place)
	for _, op := range z.f.Ops {
		for _, v := range op.In {
			if wanted[v] {
				first = min(first, place[op])
			}
		}
	}
	return first
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
