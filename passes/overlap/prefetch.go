package overlap

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// fetch is an all_gather of a parameter that ranks have in parts.
type fetch struct {
	chain []*ir.Op // what makes it of the parameter, in order; the last is the all_gather
	first int      // position of the first op that reads it
	bytes int      // of the whole
}

// prefetch issues the all_gathers of parameters ahead of their readers, so that they travel while others are computed
// with. One is always on its way while that before it is computed with; more are only as long as all of them that wait
// take no more than window bytes. So a rank never holds more than about two of the largest, like FSDP2, which gathers one
// layer ahead: what ZeRO-3 saves is not given back by copies that wait. The order of the messages stays the same.
func prefetch(c *pass.Context, f *ir.Func) {
	list := fetches(f)
	if len(list) < 2 {
		return
	}
	limit := window(c, list)
	worst := 0
	before := map[int][]*ir.Op{}
	moved := map[*ir.Op]bool{}
	ahead := 0
	for k, g := range list {
		wait, j := g.bytes, max(k-1, 0)
		for j > 0 && wait+list[j].bytes <= limit {
			wait += list[j].bytes
			j--
		}
		worst = max(worst, wait)
		if j < k {
			ahead++
		}
		for _, op := range g.chain {
			if !moved[op] {
				moved[op] = true
				before[list[j].first] = append(before[list[j].first], op)
			}
		}
	}
	out := make([]*ir.Op, 0, len(f.Ops))
	for i, op := range f.Ops {
		out = append(out, before[i]...)
		if !moved[op] {
			out = append(out, op)
		}
	}
	f.Ops = out
	c.Remark(nil, "@%s gathers %d parameters, %d of them ahead of need, with at most %d bytes waiting", f.Name, len(list), ahead, worst)
}

// window is how many bytes may wait: as many as the typical large parameter has, so that several small ones (biases, norms)
// go with it. Half of all bytes belong to parameters of at most that size: one huge table does not make it wide. It is
// never more than a bucket.
func window(c *pass.Context, list []fetch) int {
	sizes, total := make([]int, len(list)), 0
	for i, g := range list {
		sizes[i] = g.bytes
		total += g.bytes
	}
	slices.Sort(sizes)
	typical, seen := 0, 0
	for _, n := range sizes {
		if typical = n; 2*(seen+n) >= total {
			break
		}
		seen += n
	}
	if c.Opt.BucketBytes > 0 {
		return min(c.Opt.BucketBytes, typical)
	}
	return min(maxBucket, typical)
}

// fetches lists the all_gathers of parameters, in the order of their first readers.
func fetches(f *ir.Func) []fetch {
	var list []fetch
	at := map[*ir.Op]int{}
	for i, op := range f.Ops {
		for _, v := range op.In {
			if v == nil || v.Op == nil {
				continue
			}
			if k, ok := at[v.Op]; ok {
				list[k].first = min(list[k].first, i)
			}
		}
		if op.Def.Rules.Collective == "" || op.Move() != ir.Joins {
			continue
		}
		if chain := ofParam(op); chain != nil {
			at[op] = len(list)
			list = append(list, fetch{chain, len(f.Ops), op.Out[0].Type.Bytes()})
		}
	}
	list = slices.DeleteFunc(list, func(g fetch) bool { return g.first == len(f.Ops) })
	slices.SortStableFunc(list, func(a, b fetch) int { return a.first - b.first })
	return list
}

// ofParam is what makes op of a parameter by views alone, op included; nil when it is made of something else.
func ofParam(op *ir.Op) []*ir.Op {
	chain := []*ir.Op{op}
	for {
		v := chain[0].In[0]
		switch {
		case v.Op == nil && (v.Role == ir.Param || v.Role == ir.Buffer):
			return chain
		case !v.Moved().Whole():
			return nil
		}
		chain = slices.Insert(chain, 0, v.Op)
	}
}
