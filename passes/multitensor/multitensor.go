// Package multitensor makes one launch of calls that do the same to different tensors, as multi-tensor apply does: updates of all
// parameters, the sums of squares of all gradients. A launch takes some microseconds whatever it does, and a small one leaves most of a GPU idle. A call may be
// put off until the last of its kind, unless something in between touches the memory that it touches. So memory comes first: it is
// planned for calls as schedule made them, and joining takes none.
package multitensor

import (
	"slices"

	"github.com/gtc-compiler/gtc/codegen/kernel"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/target"
)

// Run joins the calls of every function, on targets that launch several kernels at once.
func Run(c *pass.Context) error {
	on, ok := c.Opt.On().(target.MultiTensor)
	if !ok {
		return nil
	}
	for _, f := range c.Module.Funcs {
		b := &batcher{c: c, on: on, groups: map[int]group.Group{}, out: []ir.Call{}, number: map[int]int{}}
		for _, g := range group.List(f) {
			b.groups[g.ID] = g
		}
		before := len(f.Calls)
		if err := b.run(f); err != nil {
			return err
		}
		if len(f.Calls) < before {
			c.Remark(nil, "@%s has %d calls in place of %d", f.Name, len(f.Calls), before)
		}
	}
	return nil
}

// span is a part of the arena, in bytes.
type span struct{ from, to int }

// touched is what a call reads and writes.
type touched struct{ reads, writes []span }

func overlap(a, b []span) bool {
	return slices.ContainsFunc(a, func(x span) bool {
		return slices.ContainsFunc(b, func(y span) bool { return x.from < y.to && y.from < x.to })
	})
}

// conflicts reports whether a and b must stay in their order.
func (a *touched) conflicts(b *touched) bool {
	return overlap(a.writes, b.writes) || overlap(a.writes, b.reads) || overlap(a.reads, b.writes)
}

// touches is the memory of what a call reads and writes.
func touches(c *ir.Call) touched {
	spans := func(list []*ir.Value) []span {
		var out []span
		for _, v := range list {
			if v.Within != nil {
				v = v.Within
			}
			out = append(out, span{v.Offset, v.Offset + v.Type.Bytes()})
		}
		return out
	}
	return touched{spans(c.Work[0].Read), spans(c.Work[0].Write)}
}

// batch is calls of one key that are put off.
type batch struct {
	key  string
	call ir.Call
	touched
}

// batcher goes through the calls of a function.
type batcher struct {
	c      *pass.Context
	on     target.MultiTensor
	groups map[int]group.Group
	open   []*batch    // in the order in which they will run: a later one may need what an earlier one makes
	out    []ir.Call   // those that are settled
	wait   []int       // what calls that were put off would have waited for
	number map[int]int // of a collective before, now
}

func (b *batcher) run(f *ir.Func) error {
	for i := range f.Calls {
		c := &f.Calls[i]
		if c.On != "" {
			b.flush(func(*batch) bool { return true })
			b.number[i] = len(b.out)
			b.emit(*c)
			continue
		}
		key, inOrder, err := b.key(c)
		if err != nil {
			return err
		}
		t := touches(c)
		if key != "" {
			b.add(*c, key, inOrder, t)
			continue
		}
		b.flush(func(o *batch) bool { return o.conflicts(&t) })
		b.emit(*c)
	}
	b.flush(func(*batch) bool { return true })
	for i := range b.out {
		wait := b.out[i].Wait
		for k, n := range wait {
			wait[k] = b.number[n]
		}
		slices.Sort(wait)
	}
	f.Calls = b.out
	return nil
}

// key is the target's for a call of a fused kernel; "" for any other.
func (b *batcher) key(c *ir.Call) (key string, inOrder bool, err error) {
	w := &c.Work[0]
	g := b.groups[w.Group]
	if kind := group.Impl(g.Ops[0]).Kind; kind == kir.Template || kind == kir.None {
		return "", false, nil
	}
	built, err := kernel.Of(g, w)
	if err != nil {
		return "", false, err
	}
	key, inOrder = b.on.BatchKey(built.Kernel, built.At())
	return key, inOrder, nil
}

// add puts c off, with others of its key where there are any that it can go with.
func (b *batcher) add(c ir.Call, key string, inOrder bool, t touched) {
	var to *batch
	for i := len(b.open) - 1; i >= 0 && to == nil; i-- {
		o := b.open[i]
		if o.key == key && (inOrder || !o.conflicts(&t)) {
			to = o
		}
		if o.conflicts(&t) { // what runs before o must not need it
			break
		}
	}
	if to != nil && !b.c.May(slices.Concat(c.Work[0].Write, []*ir.Value{nil})[0], "it is launched with others of its kind") {
		to = nil
	}
	if to == nil {
		to = &batch{key: key}
		b.open = append(b.open, to)
	}
	b.wait = append(b.wait, c.Wait...)
	to.call.Work = append(to.call.Work, c.Work...)
	to.call.InOrder = inOrder && len(to.call.Work) > 1
	to.reads = append(to.reads, t.reads...)
	to.writes = append(to.writes, t.writes...)
}

// flush settles the open batches for which due holds, in their order, and those before them that they need.
func (b *batcher) flush(due func(*batch) bool) {
	now := make([]bool, len(b.open))
	for i := len(now) - 1; i >= 0; i-- {
		now[i] = due(b.open[i])
		for k := i + 1; k < len(now); k++ {
			now[i] = now[i] || now[k] && b.open[i].conflicts(&b.open[k].touched)
		}
	}
	open := b.open
	b.open = nil
	for i, o := range open {
		if now[i] {
			b.emit(o.call)
		} else {
			b.open = append(b.open, o)
		}
	}
}

// emit settles c, which waits for what calls that were put off would have waited for: no later than before.
func (b *batcher) emit(c ir.Call) {
	c.Wait = slices.Clone(c.Wait)
	for _, w := range b.wait {
		if !slices.Contains(c.Wait, w) {
			c.Wait = append(c.Wait, w)
		}
	}
	b.wait = nil
	b.out = append(b.out, c)
}
