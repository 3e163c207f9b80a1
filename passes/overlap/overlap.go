// Package overlap decides when collectives run: gradients are reduced in a few large messages while the backward
// pass goes on.
//
// # Design
//
// spmd left an all_reduce right behind each value that is reduced. Those of one axis, operator and element type
// are put together, in the order in which their operands are ready, until a bucket holds Options.BucketBytes; the
// bucket runs right behind its last operand, with everything that comes later beside it, as in PyTorch's
// DistributedDataParallel (Li et al. 2020, arXiv:2006.15704). A bucket also ends before the first op that reads a
// result of it. What is needed while others are still being made (statistics in the middle of the forward pass)
// stays out of the buckets, so that it never waits for one; it goes together only with the like that is made right
// beside it. Gathers of parameters that ranks have in parts are issued ahead of need: see prefetch.go. The order is
// fixed, so results are bit for bit the same in every run.
package overlap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Sizes of buckets in bytes: DistributedDataParallel's, and the least that is worth a message.
const (
	maxBucket = 25 << 20
	minBucket = 64 << 10
)

// nearby is how many ops a reduction that is soon needed may wait for the next.
const nearby = 24

// Run buckets the collectives of every function. After it the order of ops is the order of execution.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	for _, f := range c.Module.Funcs {
		sink(f)
		prefetch(c, f)
		bucket(c, f)
	}
	return nil
}

// reduce is an all_reduce that may join a bucket.
type reduce struct {
	op       *ir.Op
	ready    int // position of the op; its operand is made right before
	deadline int // position of the first op that reads a result
	bytes    int
}

// kind is what all members of a bucket share.
func (r reduce) kind() any {
	return [2]any{r.op.Attrs, r.op.In[0].Type.DType}
}

// find lists the reductions in order.
func find(f *ir.Func) []reduce {
	var list []reduce
	at := map[*ir.Op]int{}
	for i, op := range f.Ops {
		if op.Def.Rules.Each && len(op.In) == 1 {
			at[op] = len(list)
			list = append(list, reduce{op, i, len(f.Ops), op.In[0].Type.Bytes()})
		}
		for _, v := range op.In {
			if v == nil || v.Op == nil {
				continue
			}
			if k, ok := at[v.Op]; ok {
				list[k].deadline = min(list[k].deadline, i)
			}
		}
	}
	return list
}

// bucket joins the reductions of f.
func bucket(c *pass.Context, f *ir.Func) {
	list := find(f)
	if len(list) == 0 {
		return
	}
	lastReady, total := list[len(list)-1].ready, 0
	var urgent, late []reduce
	for _, r := range list {
		if r.deadline < lastReady {
			urgent = append(urgent, r)
			continue
		}
		late = append(late, r)
		total += r.bytes
	}
	limit := c.Opt.BucketBytes
	if limit <= 0 {
		limit = max(min(maxBucket, total/4), minBucket)
	}
	for _, b := range fill(urgent, minBucket, nearby) {
		join(c, f, b)
	}
	buckets := fill(late, limit, len(f.Ops))
	for i, b := range buckets {
		join(c, f, b)
		bytes := 0
		for _, r := range b {
			bytes += r.bytes
		}
		c.Remark(nil, "@%s bucket %d of %d: %d tensors, %d bytes over %s, from %%%s on", f.Name, i+1, len(buckets), len(b), bytes, ops.Axis(b[0].op), b[len(b)-1].op.In[0].Name)
	}
}

// fill deals reductions into buckets that are closed when they hold limit bytes, when their first result is needed,
// or when the next reduction is more than span ops behind the first.
func fill(list []reduce, limit, span int) [][]reduce {
	var buckets [][]reduce
	open := map[any]int{} // kind -> bucket
	for _, r := range list {
		k, ok := open[r.kind()]
		if ok {
			b := buckets[k]
			size, deadline := 0, r.deadline
			for _, q := range b {
				size, deadline = size+q.bytes, min(deadline, q.deadline)
			}
			ok = size < limit && r.ready < deadline && r.ready-b[0].ready <= span
		}
		if !ok {
			k = len(buckets)
			buckets = append(buckets, nil)
			open[r.kind()] = k
		}
		buckets[k] = append(buckets[k], r)
	}
	return buckets
}

// join makes one op of the reductions, in the place of the last.
func join(c *pass.Context, f *ir.Func, b []reduce) {
	if len(b) < 2 || !c.May(b[0].op.Out[0], "%d reductions become one", len(b)) {
		return
	}
	last := b[len(b)-1].op
	one := &ir.Op{Def: last.Def, Attrs: last.Attrs, Loc: c.Loc(last.Loc)}
	var why []string
	for i, r := range b {
		if w := r.op.Why; w != "" && !slices.Contains(why, w) {
			why = append(why, w)
		}
		v := r.op.Out[0]
		v.Op, v.Index = one, i
		one.In, one.Out = append(one.In, r.op.In[0]), append(one.Out, v)
	}
	one.Why = reasons(why)
	kept := make([]*ir.Op, 0, len(f.Ops))
	for _, op := range f.Ops {
		switch {
		case op == last:
			kept = append(kept, one)
		case !slices.ContainsFunc(b, func(r reduce) bool { return r.op == op }):
			kept = append(kept, op)
		}
	}
	f.Ops = kept
}

// reasons puts those of a bucket's members together; where there are many, the first tell enough.
func reasons(list []string) string {
	const most = 3
	if len(list) > most {
		return strings.Join(list[:most], "; ") + fmt.Sprintf("; and %d more like these", len(list)-most)
	}
	return strings.Join(list, "; ")
}
