package optimizer

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// A table is a parameter whose rows are only looked up: its gradient is a sum of scatter_adds along dim 0. When a step looks up
// few of its rows, the gradient is kept as these rows and their numbers, and the update reads and writes nothing else. All
// of it is ordinary ops:
//
//	keys, at = top_k(all n look-ups)         the numbers in order, so that equal ones are neighbours
//	group    = cumsum(keys[i] != keys[i-1])  which of the distinct rows a key is
//	sums     = scatter add(0, group, rows)   the gradient by distinct row, zeros behind the last of them
//	each     = gather(sums, group)           the same for each key: equal keys have equal rows
//	next     = scatter same(p, keys, new)    takes the place of p
//
// A row that is looked up twice is computed twice, and written twice with the same bits: so the rules need no mask, and nothing
// has a size that depends on data. The 2-norm of the gradient is that of sums.
//
// Over ranks, keys and rows are gathered rather than a table summed up, because top_k and scatter need all of theirs. Every rank then
// adds up in the order of the global batch, as one rank does.

// sparseShare is how many times as many rows as look-ups a table must have for the sparse update: it passes over each row
// that is looked up some eight times, sorts, and reads and writes at random, where the dense one streams twice.
const sparseShare = 8

// Few reports whether n look-ups in a table of size rows are so few that its gradient stays sparse, where optimizer and layout allow it.
func Few(n, size int) bool { return n > 0 && n <= size/sparseShare }

// rows is the gradient of the rows that are looked up.
type rows struct {
	keys *ir.Value // i64[n], which rows, sorted
	sums *ir.Value // [n, ...] by distinct row
	each *ir.Value // [n, ...] by key

	group, byLookup *ir.Value // i64[n], the distinct row that each key, and each look-up, is of
}

// squared is what the norm of the gradient is made of.
func (g *grad) squared() *ir.Value {
	if g.rows != nil {
		return g.rows.sums
	}
	return g.sum
}

// each is the gradient as the rule sees it, still summed.
func (g *grad) each() *ir.Value {
	if g.rows != nil {
		return g.rows.each
	}
	return g.sum
}

// isTable reports whether rows of the parameter are looked up and nothing else is done with it.
func (r *run) isTable() bool { return r.grad.lookups != nil }

// spare finds out whether the parameter is a table, and whether its gradient can stay sparse.
func (u *updater) spare(g *grad) {
	if len(g.param.Type.Dims) < 2 {
		return
	}
	g.lookups = lookups(g.sum)
	if g.lookups == nil {
		if reason := u.notTable(g.sum); reason != "" {
			u.c.Remark(g.param, "has a dense gradient because %s", reason)
		}
		return
	}
	u.b.Loc = g.loc
	n, size := 0, g.param.Type.Dims[0]
	for _, op := range g.lookups {
		n += op.In[0].Type.Elems()
	}
	lazy := u.opt.Name == sparseAdamName
	few := Few(n, size)
	why := u.dense(g.param)
	switch {
	case !few && !lazy:
		return
	case why != "":
		u.c.Remark(g.param, "has a dense gradient, though a step looks up %d of its %d rows, because %s", n, size, why)
		if lazy {
			g.touched = u.lookedUp(g)
		}
		return
	}
	u.c.Remark(g.param, "has a sparse gradient: a step looks up %d of its %d rows, and the update touches no others", n, size)
	g.rows = u.gather(g)
	if lazy {
		g.touched = u.live(g)
	}
}

// lookups lists the scatter_adds that g sums up; nil when there is anything else in it.
func lookups(g *ir.Value) []*ir.Op {
	op := g.Op
	if op == nil {
		return nil
	}
	a, ok := op.Attrs.(ops.ScatterAddAttrs)
	switch {
	case ok && a.Dim == 0:
		return []*ir.Op{op}
	case op.Def.Rules.Adds:
		x, y := lookups(op.In[0]), lookups(op.In[1])
		if x != nil && y != nil {
			return append(x, y...)
		}
	}
	return nil
}

// notTable says why a gradient in which look-ups are summed up with something else is dense; "" when there are none in it.
func (u *updater) notTable(g *ir.Value) string {
	if g.Op == nil || !g.Op.Def.Rules.Adds {
		return ""
	}
	for i, v := range g.Op.In {
		if other := g.Op.In[1-i]; lookups(v) != nil && other.Op != nil {
			return "it is read by " + other.Op.Loc.Node + " as well as looked up"
		}
	}
	return ""
}

// dense says why the update of p must be dense; "" when only rows that are looked up change, and layout and target allow it.
func (u *updater) dense(p *ir.Value) string {
	o, c := u.opt, u.c.Opt
	switch {
	case c.TP > 1:
		return "--tp may split the table"
	case c.PP > 1:
		return "--pp sums gradients over micro-batches"
	case c.Microbatches > 1:
		return "gradients are summed over micro-batches"
	case c.Zero > 0:
		return "--zero splits gradients and state by rows of the table"
	case c.Reproducible:
		return "--reproducible sums gradients along its tree"
	case len(c.Shard) > 0:
		return "--shard may split the table"
	case c.GradComm.Compress != "" || c.GradComm.Period > 0 || c.GradComm.DType != "" && c.GradComm.DType != "f32":
		return "gradients are compressed, or not exchanged in each step"
	case u.decays(o, p):
		return "weight decay moves all rows"
	case o.Name == "sgd" && o.Momentum != 0:
		return "momentum moves all rows"
	case (o.Name == "adagrad" || o.Name == rowwiseName) && o.Eps == 0:
		return "without eps the rows that have no gradient become NaN"
	case !slices.Contains([]string{"sgd", "adagrad", rowwiseName, sparseAdamName}, o.Name):
		return o.Name + " moves all rows (--optimizer " + sparseAdamName + " does not)"
	}
	return ""
}

// gather puts the look-ups of all readers together, and adds up those of one row.
func (u *updater) gather(g *grad) *rows {
	b, size, inner := u.b, g.param.Type.Dims[0], g.param.Type.Dims[1:]
	keys, list := u.numbers(g), make([]*ir.Value, len(g.lookups))
	for i, op := range g.lookups {
		n := op.In[0].Type.Elems()
		list[i] = ops.Reshape(b, wide(b, op.In[1]), append([]int{n}, inner...))
	}
	upd := list[0]
	if len(list) > 1 {
		upd = ops.Concat(b, 0, list...)
	}
	n := keys.Type.Elems()
	count := ops.ScalarLike(b, keys, float64(size))
	keys = ops.Where(b, ops.Lt(b, keys, ops.ScalarLike(b, keys, 0)), ops.Add(b, keys, count), keys)
	sorted, at := ops.Sort(b, keys, 0, false)
	group := sorted
	if n > 1 {
		differs := ops.Ne(b, ops.SliceDim(b, sorted, 0, 1, n-1), ops.SliceDim(b, sorted, 0, 0, n-1))
		first := ops.Zeros(b, ir.T(dtype.I64, 1))
		group = ops.Cumsum(b, ops.Concat(b, 0, first, ops.Cast(b, differs, dtype.I64)), ops.CumsumAttrs{})
	} else {
		group = ops.Zeros(b, sorted.Type)
	}
	byLookup := ops.Scatter(b, ops.Zeros(b, group.Type), at, group, "same")
	sums := ops.Scatter(b, ops.Zeros(b, upd.Type), byLookup, upd, "add")
	r := &rows{keys: b.Rename(sorted, "rows_"+g.param.Name), sums: b.Rename(sums, "sums_"+g.param.Name)}
	r.each = b.Rename(ops.Gather(b, sums, group, 0), "d_rows_"+g.param.Name)
	r.group, r.byLookup = group, byLookup
	return r
}

// numbers are the numbers of the rows that are looked up, i64[n], one reader's after the other's.
func (u *updater) numbers(g *grad) *ir.Value {
	var list []*ir.Value
	for _, op := range g.lookups {
		list = append(list, ops.Reshape(u.b, ops.Cast(u.b, op.In[0], dtype.I64), []int{op.In[0].Type.Elems()}))
	}
	if len(list) == 1 {
		return list[0]
	}
	return ops.Concat(u.b, 0, list...)
}

// read is the tensor p, a parameter or state, or its rows that are looked up.
func (r *run) read(p *ir.Value) *ir.Value {
	v := p
	if r.grad.rows != nil {
		v = ops.Gather(r.b, p, r.grad.rows.keys, 0)
	}
	r.from[v] = p
	return v
}

// write makes next the new contents of what old was read of.
func (r *run) write(old, next *ir.Value) {
	b, to := r.b, r.from[old]
	if t := r.grad.touched; t != nil {
		dims := slices.Repeat([]int{1}, len(next.Type.Dims))
		dims[0] = t.Type.Dims[0]
		next = ops.Where(b, ops.Expand(b, ops.Reshape(b, t, dims), next.Type.Dims), next, old)
	}
	next = r.unless(old, next)
	if r.grad.rows != nil {
		next = ops.Scatter(b, to, r.grad.rows.keys, next, "same")
	}
	b.Update(to, b.Rename(next, to.Name+".next"))
}

// live says of each key whether a look-up of that row counts, bool[n]: rows that only samples that fill up a short batch, or
// the padding index, look up are not touched.
func (u *updater) live(g *grad) *ir.Value {
	b, counts := u.b, u.counts(g)
	found := ops.Scatter(b, ops.Zeros(b, counts.Type), g.rows.byLookup, counts, "max")
	found = ops.Gather(b, found, g.rows.group, 0)
	return ops.Gt(b, found, ops.ScalarLike(b, found, 0))
}

// lookedUp says the same of each row of the table, for a dense update.
func (u *updater) lookedUp(g *grad) *ir.Value {
	b := u.b
	var total *ir.Value
	for _, op := range g.lookups {
		n := ops.ScatterAdd(b, op.In[0], u.count(g, op), 0, g.param.Type.Dims[0])
		if total == nil {
			total = n
		} else {
			total = ops.Add(b, total, n)
		}
	}
	return ops.Gt(b, total, ops.ScalarLike(b, total, 0))
}

// counts is 1 for each look-up that counts, else 0: f32[n].
func (u *updater) counts(g *grad) *ir.Value {
	var list []*ir.Value
	for _, op := range g.lookups {
		list = append(list, ops.Reshape(u.b, u.count(g, op), []int{op.In[0].Type.Elems()}))
	}
	if len(list) == 1 {
		return list[0]
	}
	return ops.Concat(u.b, 0, list...)
}

// count is 1 for each look-up of one reader that counts, else 0: f32, in the dims of its indices.
func (u *updater) count(g *grad, scatter *ir.Op) *ir.Value {
	b, idx := u.b, scatter.In[0]
	one := ops.Full(b, ir.T(dtype.F32, idx.Type.Dims...), 1)
	if w := u.f.Param(abi.SampleWeight); w != nil && w.Role == ir.Weight && bySample(idx, w.Type.Dims[0]) {
		batch := w.Type.Dims[0]
		real := ops.Cast(b, ops.Gt(b, w, ops.ScalarLike(b, w, 0)), dtype.F32)
		one = ops.Expand(b, ops.Reshape(b, real, []int{batch, 1}), []int{batch, idx.Type.Elems() / batch})
		one = ops.Reshape(b, one, idx.Type.Dims)
	}
	for _, op := range u.f.Ops {
		a, ok := op.Attrs.(ops.GatherAttrs)
		if ok && op.In[0] == g.param && op.In[1] == idx && a.NoGrad > 0 {
			pad := ops.Eq(b, idx, ops.ScalarLike(b, idx, float64(a.NoGrad-1)))
			one = ops.Where(b, pad, ops.ScalarLike(b, one, 0), one)
			break
		}
	}
	return one
}

// bySample reports whether v is read from the data, with the samples of the batch in its leading dim, or is made of that element
// by element, so that each sample has as many elements of v in a row.
func bySample(v *ir.Value, batch int) bool {
	for v.Op != nil {
		if m := v.Moved(); m != ir.Keeps && m != ir.Casts {
			return false
		}
		v = v.Op.In[0]
	}
	return v.Role == ir.Input && len(v.Type.Dims) > 0 && v.Type.Dims[0] == batch
}
