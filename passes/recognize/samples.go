package recognize

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Indices that say "sample b, place i of it": x[arange(B), i] (one column of the vectors is the vector's own position), and
// rows of a table of all samples, b*T + i, or i*B + b where time comes first. They become places in each sample, of which every rank and micro-batch reads
// its own; the column is dropped, for as a constant it would number the samples of the whole batch.
//
// A column means its own sample whatever i is, for a negative i counts from the end of the sample. A row b*T + i does only
// where i is from 0 to T-1: -1 is a row of the sample before. Where that is proven (an argmax, a remainder, clipped or
// known numbers), nothing is lost, and a short last batch can be filled up. A row i*B + b is of sample b for every i. Where it is not, ranks of dp gather the whole table and mean what one rank means; only
// micro-batches, which could not run at all, take each sample's rows, and a row of another sample ends the program.

// pair is a dim of the table together with the dim of the indices (their vectors' dim left out) at which it is read. In
// flat tables the dim is taken apart into samples and the size places of each, or the other way round where samples are inner;
// otherwise size is 0. open is whether rows may be other samples', as far as is known.
type pair struct {
	table, lead, size int
	open, inner       bool
}

// perSample rewrites a gather_nd, scatter_nd or gather whose indices pair samples. Tables of parameters stay as they are.
func (m *matcher) perSample(b *ir.Builder, op *ir.Op) []*ir.Value {
	s := &sampler{m: m, b: b, op: op, x: op.In[0]}
	if s.suits() {
		if y := s.pairUp(); y != nil {
			return []*ir.Value{y}
		}
	}
	if op.Def == ops.GatherNDDef && op.Attrs.(ops.GatherNDAttrs).Batch == 0 && m.sources(op.In[1]) == 0 {
		return op.Def.Rules.Decompose(b, op) // indices are known: their sums are folded
	}
	if op.Def == ops.ScatterNDDef && op.Attrs.(ops.ScatterNDAttrs).Batch == 0 {
		return op.Def.Rules.Decompose(b, op)
	}
	return nil
}

// suits reports whether the op may pair samples, and reads its form.
func (s *sampler) suits() bool {
	from, idx := s.m.sources(s.x), s.op.In[1].Type.Dims
	if s.depth = 1; s.op.Def != ops.GatherDef && len(idx) > 0 {
		s.lead, s.depth = idx[:len(idx)-1], idx[len(idx)-1]
	}
	switch a := s.op.Attrs.(type) {
	case ops.GatherAttrs:
		if s.lead = idx; a.Dim != 0 || a.NoGrad != 0 || from&fromData == 0 {
			return false
		}
	case ops.GatherNDAttrs:
		if a.Batch > 0 || from&fromData == 0 {
			return false
		}
	case ops.ScatterNDAttrs:
		if a.Batch > 0 || from == fromParams {
			return false
		}
		s.reduce, s.upd = a.Reduce, s.op.In[2]
	}
	return s.depth > 0 && ir.Product(s.lead) > 0 && s.x.Type.Elems() > 0
}

// What a value is made of.
const (
	fromData = 1 << iota
	fromParams
)

// sources says what v is made of: fromData, fromParams, both or neither.
func (m *matcher) sources(v *ir.Value) int {
	if v.Op == nil {
		if v.Role == ir.Input {
			return fromData
		}
		return fromParams
	}
	if n, ok := m.made[v]; ok {
		return n
	}
	n := 0
	for _, x := range v.Op.In {
		if x != nil {
			n |= m.sources(x)
		}
	}
	m.made[v] = n
	return n
}

// sampler rewrites one op.
type sampler struct {
	m      *matcher
	b      *ir.Builder
	op     *ir.Op
	x      *ir.Value // the table
	upd    *ir.Value // of a scatter
	reduce string
	lead   []int // dims of the indices, without that of the vectors
	depth  int   // of a vector
	pairs  []pair
}

// pairUp finds what pairs, and rewrites the op; nil where nothing does.
func (s *sampler) pairUp() *ir.Value {
	p := s.m.placesOf(s.op.In[1])
	if p == nil {
		return nil
	}
	for k := range s.depth {
		s.pairColumn(p, k)
	}
	for k := range s.depth {
		if !s.paired(k) && len(s.pairs) == 0 && !s.pairStrided(k) {
			s.pairRows(p, k)
		}
	}
	if len(s.pairs) == 0 || s.depth == len(s.pairs) && !s.someFlat() && len(s.pairs) < len(s.lead) {
		return nil
	}
	return s.rewrite()
}

func (s *sampler) someFlat() bool {
	return slices.ContainsFunc(s.pairs, func(p pair) bool { return p.size > 0 })
}

func (s *sampler) paired(k int) bool {
	return slices.ContainsFunc(s.pairs, func(p pair) bool { return p.table == k })
}

func (s *sampler) taken(d int) bool {
	return slices.ContainsFunc(s.pairs, func(p pair) bool { return p.lead == d })
}

// coordinates calls f with the index along dim d of lead of every vector, and where column k of it is.
func (s *sampler) coordinates(d, k int, f func(at, place int) bool) bool {
	inner := ir.Product(s.lead[d+1:])
	for v := range ir.Product(s.lead) {
		if !f(v/inner%s.lead[d], v*s.depth+k) {
			return false
		}
	}
	return true
}

// pairColumn pairs dim k of the table where column k of all vectors is known to be their position along a dim.
func (s *sampler) pairColumn(p *places, k int) {
	size := s.x.Type.Dims[k]
	for d, n := range s.lead {
		if n != size || n == 1 || s.taken(d) {
			continue
		}
		if s.coordinates(d, k, func(at, place int) bool { return p.known(place) && p.lo[place] == int64(at) }) {
			s.pairs = append(s.pairs, pair{table: k, lead: d})
			return
		}
	}
}

// pairRows pairs dim k, of B samples with T rows each, where column k of all vectors is their position along a dim of B,
// or in B equal parts of a sole dim, times T, plus something from 0 to T-1. With micro-batches, something that may be so.
func (s *sampler) pairRows(p *places, k int) {
	size, whole := s.x.Type.Dims[k], s.lead
	fits := func(d int, open bool) bool {
		rows := int64(size / max(s.lead[d], 1))
		if s.lead[d] < 2 || size%s.lead[d] != 0 || rows < 2 || s.taken(d) {
			return false
		}
		return s.coordinates(d, k, func(at, place int) bool {
			first := int64(at) * rows
			if open {
				return -rows < p.at[place]-first && p.at[place]-first < rows
			}
			return first <= p.lo[place] && p.hi[place] < first+rows
		})
	}
	for _, open := range []bool{false, true} {
		if open && s.m.c.Opt.Microbatches < 2 {
			break
		}
		for d := range whole {
			if s.lead = whole; fits(d, open) {
				s.pairs = append(s.pairs, pair{table: k, lead: d, size: size / whole[d], open: open})
				return
			}
		}
		for _, n := range s.parts(size) {
			if s.lead = []int{n, whole[0] / n}; fits(0, open) {
				s.pairs = append(s.pairs, pair{table: k, size: size / n, open: open})
				return
			}
		}
	}
	s.lead = whole
}

// pairStrided pairs dim k, of T rows with B samples each, where column k of all vectors is their position along a dim of B, plus a
// multiple of B, of a table that was made of [T,B,…].
func (s *sampler) pairStrided(k int) bool {
	r, size := s.x.Op, s.x.Type.Dims[k]
	if k > 0 || r == nil || r.Def != ops.ReshapeDef {
		return false
	}
	for d, n := range s.lead {
		if n < 2 || size%n != 0 || size/n < 2 || !ends(r.In[0].Type.Dims, size/n, n) || s.taken(d) {
			continue
		}
		rest := s.m.remainders(s.op.In[1], int64(n))
		if rest != nil && s.coordinates(d, k, func(at, place int) bool { return rest[place] == int64(at) }) {
			s.pairs = append(s.pairs, pair{table: k, lead: d, size: size / n, inner: true})
			return true
		}
	}
	return false
}

// ends reports whether some of the first dims make up outer, and the next of them that are not 1 are inner.
func ends(dims []int, outer, inner int) bool {
	wide := slices.DeleteFunc(slices.Clone(dims), func(n int) bool { return n == 1 })
	for i := 1; i < len(wide); i++ {
		if ir.Product(wide[:i]) == outer {
			return wide[i] == inner
		}
	}
	return false
}

// parts are the numbers of samples into which a sole dim of the indices may be divided for a table of size rows, the
// likeliest first.
func (s *sampler) parts(size int) []int {
	if len(s.lead) != 1 {
		return nil
	}
	var out []int
	for n := s.lead[0] / 2; n > 1; n-- {
		if s.lead[0]%n == 0 && size%n == 0 {
			out = append(out, n)
		}
	}
	if r := s.x.Op; r != nil && r.Def == ops.ReshapeDef && len(r.In[0].Type.Dims) > 1 { // samples as they were before
		if n := r.In[0].Type.Dims[0]; n > 1 && s.lead[0]%n == 0 {
			out = slices.Insert(out, 0, n)
		}
	}
	return out
}

// rewrite makes the op one with the paired dims before the others, which it shares with the indices.
func (s *sampler) rewrite() *ir.Value {
	b := s.b
	x, order := s.table()
	var front, behind []int // of the indices
	for _, p := range s.pairs {
		front = append(front, p.lead)
	}
	for d := range s.lead {
		if !slices.Contains(front, d) {
			behind = append(behind, d)
		}
	}
	lead := slices.Concat(front, behind)
	idx := s.indices(lead)
	n, rest := len(s.pairs), len(s.x.Type.Dims)-s.depth
	s.m.c.Remark(s.op.Out[0], "reads and writes places of each sample (dim %d of %%%s), for its indices name the sample that they are of",
		s.pairs[0].table, s.x.Name)
	if i := slices.IndexFunc(s.pairs, func(p pair) bool { return p.open }); i >= 0 {
		s.m.c.Remark(s.op.Out[0], "warning: nothing proves that the indices of %q are those of the %d rows of each sample; with micro-batches one of "+
			"another sample is out of range, and ends the program", s.op.Loc.Node, s.pairs[i].size)
	}
	if s.upd == nil {
		y := x
		if idx != nil {
			y = ops.GatherND(b, x, idx, n)
		}
		y = ops.Transpose(b, y, inverse(append(slices.Clone(lead), counted(len(lead), rest)...)))
		return ops.Reshape(b, y, s.op.Out[0].Type.Dims)
	}
	upd := ops.Reshape(b, s.upd, slices.Concat(s.lead, s.x.Type.Dims[s.depth:]))
	upd = ops.Transpose(b, upd, append(slices.Clone(lead), counted(len(lead), rest)...))
	var y *ir.Value
	if idx != nil {
		y = ops.ScatterND(b, x, idx, upd, n, s.reduce)
	} else if y = s.joinAll(x, upd); y == nil {
		return nil
	}
	return ops.Reshape(b, ops.Transpose(b, y, inverse(order)), s.x.Type.Dims)
}

// joinAll is a scatter of one row to each place, in order.
func (s *sampler) joinAll(x, upd *ir.Value) *ir.Value {
	switch s.reduce {
	case "":
		return upd
	case "add":
		return ops.Add(s.b, x, upd)
	case "mul":
		return ops.Mul(s.b, x, upd)
	}
	return nil
}

// table is the table with its paired dims in front, and the order in which its dims are then.
func (s *sampler) table() (*ir.Value, []int) {
	dims := s.x.Type.Dims
	place := make([]int, len(s.pairs)) // in the dims with flat ones taken apart
	var apart, others []int
	for d, n := range dims {
		i := slices.IndexFunc(s.pairs, func(p pair) bool { return p.table == d })
		if i < 0 {
			others, apart = append(others, len(apart)), append(apart, n)
			continue
		}
		place[i] = len(apart)
		switch size := s.pairs[i].size; {
		case size == 0:
			apart = append(apart, n)
		case s.pairs[i].inner:
			place[i]++
			others, apart = append(others, len(apart)), append(apart, size, n/size)
		default:
			others, apart = append(others, len(apart)+1), append(apart, n/size, size)
		}
	}
	order := slices.Concat(place, others)
	return ops.Transpose(s.b, ops.Reshape(s.b, s.x, apart), order), order
}

// indices are the columns that stay, in the order lead of their dims; nil where none does.
func (s *sampler) indices(lead []int) *ir.Value {
	b := s.b
	all := ops.Reshape(b, ops.Cast(b, s.op.In[1], dtype.I64), slices.Concat(s.lead, []int{s.depth}))
	last := len(s.lead)
	var columns []*ir.Value
	for k := range s.depth {
		i := slices.IndexFunc(s.pairs, func(p pair) bool { return p.table == k })
		if i >= 0 && s.pairs[i].size == 0 {
			continue
		}
		c := ops.SliceDim(b, all, last, k, 1)
		if i >= 0 {
			c = s.own(c, s.pairs[i])
		}
		columns = append(columns, c)
	}
	if len(columns) == 0 {
		return nil
	}
	idx := columns[0]
	if len(columns) > 1 {
		idx = ops.Concat(b, last, columns...)
	}
	return ops.Transpose(b, idx, append(slices.Clone(lead), last))
}

// own brings rows of the table of all samples to those of each sample. What may be no row of the sample becomes one
// behind its last, which is an error where it is used.
func (s *sampler) own(rows *ir.Value, p pair) *ir.Value {
	b := s.b
	if p.inner {
		return s.ownStrided(rows, p)
	}
	first := ops.MulScalar(b, ops.Iota(b, dtype.I64, rows.Type.Dims, p.lead), float64(p.size))
	if !p.open {
		return ops.Sub(b, rows, first)
	}
	total := ops.ScalarLike(b, rows, float64(s.x.Type.Dims[p.table]))
	fromEnd := ops.Lt(b, rows, ops.ScalarLike(b, rows, 0)) // of the whole table
	own := ops.Sub(b, ops.Where(b, fromEnd, ops.Add(b, rows, total), rows), first)
	return ops.Where(b, ops.Lt(b, own, ops.ScalarLike(b, own, 0)), ops.ScalarLike(b, own, float64(p.size)), own)
}

// ownStrided is own where samples are inner. What is no multiple of their number apart, after an overflow, becomes a row behind the last.
func (s *sampler) ownStrided(rows *ir.Value, p pair) *ir.Value {
	b := s.b
	total := s.x.Type.Dims[p.table]
	n := ops.ScalarLike(b, rows, float64(total/p.size))
	zero := ops.ScalarLike(b, rows, 0)
	fromEnd := ops.Lt(b, rows, zero)
	at := ops.Where(b, fromEnd, ops.Add(b, rows, ops.ScalarLike(b, rows, float64(total))), rows)
	at = ops.Sub(b, at, ops.Iota(b, dtype.I64, rows.Type.Dims, p.lead))
	bad := ops.Or(b, ops.Lt(b, at, zero), ops.Ne(b, ops.Mod(b, at, n), zero))
	return ops.Where(b, bad, ops.ScalarLike(b, at, float64(p.size)), ops.Div(b, at, n))
}

// counted are n numbers from start on.
func counted(start, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = start + i
	}
	return out
}

// inverse is the permutation that undoes perm.
func inverse(perm []int) []int {
	out := make([]int, len(perm))
	for i, p := range perm {
		out[p] = i
	}
	return out
}
