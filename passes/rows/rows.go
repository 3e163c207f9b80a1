// Package rows puts rows of the samples of a batch side by side.
//
// Samples need not lie along the leading dim within a graph: models on [T,B,C], by themselves or between two transposes, go through
// [T*B,C], and so do the gradients of their weights. There the rows of a sample are not side by side, so that no dim could be
// split by samples, over ranks or over time. Such rows are put into the order B*T where they come to be, and back where they are taken
// apart; what works on rows one by one, or adds them up, is the same in either order.
//
// That costs copies, so it is done only where the batch is split.
package rows

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/samples"
)

// Run rewrites all functions.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	if max(c.Opt.DP, 1)*max(c.Opt.Microbatches, 1) < 2 {
		return nil
	}
	for _, f := range c.Module.Funcs {
		var wanted []*ir.Value
		for _, r := range f.Results {
			wanted = append(wanted, r.Value)
		}
		if t := samples.Leading(f, wanted...); t != nil {
			rewrite(c, f, t)
		}
	}
	return nil
}

// turner rewrites a function.
type turner struct {
	f     *ir.Func
	b     *ir.Builder
	trace *samples.Trace

	now    map[*ir.Value]*ir.Value // what a value has become
	turned map[*ir.Value]bool      // values whose dims of T*B rows are in the order B*T now
}

func rewrite(c *pass.Context, f *ir.Func, t *samples.Trace) {
	l := &turner{f: f, trace: t, now: map[*ir.Value]*ir.Value{}, turned: map[*ir.Value]bool{}}
	if !slices.ContainsFunc(f.Ops, func(op *ir.Op) bool { return slices.ContainsFunc(op.Out, l.inner) }) {
		return
	}
	old := f.Ops
	l.b = ir.NewBuilder(f) // knows all names
	f.Ops = make([]*ir.Op, 0, len(old))
	for _, op := range old {
		l.b.Loc = c.Loc(op.Loc)
		l.op(op)
	}
	for i := range f.Results {
		f.Results[i].Value = l.plain(f.Results[i].Value)
	}
	f.DCE()
	if n := len(l.turned); n > 0 {
		c.Remark(nil, "@%s: %d values have the rows of each sample side by side, for a split of the batch", f.Name, n)
	}
}

// inner reports whether v has a dim in which samples lie within something else.
func (l *turner) inner(v *ir.Value) bool {
	for d := range v.Type.Dims {
		if p := l.parts(v, d); len(p) > 1 && p[0].Step == 0 && slices.ContainsFunc(p, isSamples) {
			return true
		}
	}
	return false
}

func isSamples(p samples.Part) bool { return p.Step > 0 }

func (l *turner) parts(v *ir.Value, d int) []samples.Part {
	if lay := l.trace.Layout(v); d < len(lay) {
		return lay[d]
	}
	return nil
}

// split are the sizes of the parts of each dim of v, and the order in which samples are in front of the others in each dim.
func (l *turner) split(v *ir.Value) (sizes, front []int) {
	for d, n := range v.Type.Dims {
		p := l.parts(v, d)
		if len(p) < 2 {
			front, sizes = append(front, len(sizes)), append(sizes, n)
			continue
		}
		var rest []int
		for _, q := range p {
			if isSamples(q) {
				front = append(front, len(sizes))
			} else {
				rest = append(rest, len(sizes))
			}
			sizes = append(sizes, q.Size)
		}
		front = append(front, rest...)
	}
	return sizes, front
}

// get is what v has become: with rows in the order B*T where it is turned.
func (l *turner) get(v *ir.Value) *ir.Value {
	if w := l.now[v]; w != nil {
		return w
	}
	return v
}

// apart is v with a dim for each part, in v's own order.
func (l *turner) apart(v *ir.Value) *ir.Value {
	sizes, front := l.split(v)
	if !l.turned[v] {
		return ops.Reshape(l.b, l.get(v), sizes)
	}
	turned := make([]int, len(sizes))
	for i, k := range front {
		turned[i] = sizes[k]
	}
	return l.transpose(ops.Reshape(l.b, l.get(v), turned), inverse(front))
}

// plain is v in its own order.
func (l *turner) plain(v *ir.Value) *ir.Value {
	if !l.turned[v] {
		return l.get(v)
	}
	return ops.Reshape(l.b, l.apart(v), v.Type.Dims)
}

// transpose puts the dims of x into the order perm: two that undo one another are none.
func (l *turner) transpose(x *ir.Value, perm []int) *ir.Value {
	if p := ops.Perm(x.Op); p != nil && slices.Equal(inverse(perm), p) {
		return x.Op.In[0]
	}
	return ops.Transpose(l.b, x, perm)
}

// inverse is the permutation that undoes perm.
func inverse(perm []int) []int {
	out := make([]int, len(perm))
	for i, p := range perm {
		out[p] = i
	}
	return out
}

// op puts an op behind the others, on operands in either order.
func (l *turner) op(op *ir.Op) {
	turned := slices.ContainsFunc(op.In, func(v *ir.Value) bool { return l.turned[v] })
	makes := slices.ContainsFunc(op.Out, l.inner)
	switch {
	case (turned || makes) && op.Move() == ir.Keeps && l.reshape(op):
		return
	case turned && !op.Draws() && l.along(op):
		return
	}
	for i, v := range op.In {
		if v != nil {
			op.In[i] = l.plain(v)
		}
	}
	l.f.Ops = append(l.f.Ops, op)
}

// reshape makes rows in the order B*T, or takes them apart.
func (l *turner) reshape(op *ir.Op) bool {
	in, out := op.In[0], op.Out[0]
	x := l.apart(in)
	sizes, front := l.split(out)
	if !l.inner(out) {
		l.now[out] = ops.Reshape(l.b, x, out.Type.Dims)
		return true
	}
	y := l.transpose(ops.Reshape(l.b, x, sizes), front)
	l.now[out], l.turned[out] = ops.Reshape(l.b, y, out.Type.Dims), true
	return true
}

// along leaves an op as it is on turned operands, where its loops over turned dims run over the rows in any order.
func (l *turner) along(op *ir.Op) bool {
	if op.Def.Rules.Factors == nil {
		return false
	}
	rule := op.Def.Rules.Factors(op)
	if len(rule.In) != len(op.In) || len(rule.Out) != len(op.Out) {
		return false
	}
	orders := map[int][]samples.Part{} // of factors, the parts in the old order
	for i, v := range op.In {
		if v == nil || !l.turned[v] {
			continue
		}
		for d, list := range rule.In[i] {
			p := l.parts(v, d)
			if len(p) < 2 || !slices.ContainsFunc(p, isSamples) {
				continue
			}
			if len(list) != 1 || !anyOrder(rule.Factors[list[0]].Kind) || orders[list[0]] != nil && !sameOrder(orders[list[0]], p) {
				return false
			}
			orders[list[0]] = p
		}
	}
	turns := func(list factor.Dim) bool {
		return slices.ContainsFunc(list, func(f int) bool { return orders[f] != nil })
	}
	for i, dims := range rule.In {
		for d, list := range dims {
			if turns(list) && (len(list) != 1 || l.turned[op.In[i]] && !sameOrder(orders[list[0]], l.parts(op.In[i], d))) {
				return false
			}
		}
	}
	for i, v := range op.Out {
		for d, list := range rule.Out[i] {
			if turns(list) != (len(l.parts(v, d)) > 1 && slices.ContainsFunc(l.parts(v, d), isSamples)) {
				return false
			}
			if turns(list) && (len(list) != 1 || !sameOrder(orders[list[0]], l.parts(v, d))) {
				return false
			}
		}
	}
	l.follow(op, rule, orders)
	return true
}

// sameOrder compares the parts of dims, whatever is zero in them.
func sameOrder(a, b []samples.Part) bool {
	return slices.EqualFunc(a, b, func(p, q samples.Part) bool { return p.Size == q.Size && p.Step == q.Step })
}

func anyOrder(k factor.Kind) bool {
	return k == factor.Free || k == factor.Sum || k == factor.Max || k == factor.Min || k == factor.Prod
}

// follow puts op behind the others, with the factors of orders in the new order in all operands.
func (l *turner) follow(op *ir.Op, rule factor.Rule, orders map[int][]samples.Part) {
	for i, v := range op.In {
		if v == nil {
			continue
		}
		in := l.get(v)
		for d, list := range rule.In[i] {
			if !l.turned[v] && len(list) == 1 && orders[list[0]] != nil && !l.trace.Uniform(v, d) {
				in = l.rows(in, d, orders[list[0]])
			}
		}
		op.In[i] = in
	}
	for i, v := range op.Out {
		for _, list := range rule.Out[i] {
			l.turned[v] = l.turned[v] || len(list) == 1 && orders[list[0]] != nil
		}
	}
	l.f.Ops = append(l.f.Ops, op)
}

// rows puts the rows of dim d of x, which is not turned, into the new order.
func (l *turner) rows(x *ir.Value, d int, p []samples.Part) *ir.Value {
	dims := x.Type.Dims
	sizes := slices.Clone(dims[:d])
	var front, rest []int
	for i, q := range p {
		if isSamples(q) {
			front = append(front, d+i)
		} else {
			rest = append(rest, d+i)
		}
		sizes = append(sizes, q.Size)
	}
	perm := make([]int, d)
	for i := range perm {
		perm[i] = i
	}
	perm = slices.Concat(perm, front, rest)
	for _, n := range dims[d+1:] {
		perm, sizes = append(perm, len(sizes)), append(sizes, n)
	}
	return ops.Reshape(l.b, l.transpose(ops.Reshape(l.b, x, sizes), perm), dims)
}
