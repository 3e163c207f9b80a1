// Package join makes one launch of calls that do the same to different tensors: updates of all parameters, the sums of squares of
// all gradients. A launch takes some microseconds whatever it does, and a small one leaves most of a GPU idle. A call may be
// put off until the last of its kind, unless something in between touches the memory that it touches. So memory comes first: it is
// planned for calls as schedule made them, and joining takes none.
package join

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
	on, ok := c.Opt.On().(target.Joiner)
	if !ok {
		return nil
	}
	for _, f := range c.Module.Funcs {
		j := &joiner{c: c, on: on, groups: map[int]group.Group{}, out: []ir.Call{}, number: map[int]int{}}
		for _, g := range group.List(f) {
			j.groups[g.ID] = g
		}
		before := len(f.Calls)
		if err := j.run(f); err != nil {
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

// joiner goes through the calls of a function.
type joiner struct {
	c      *pass.Context
	on     target.Joiner
	groups map[int]group.Group
	open   []*batch    // in the order in which they will run: a later one may need what an earlier one makes
	out    []ir.Call   // those that are settled
	wait   []int       // what calls that were put off would have waited for
	number map[int]int // of a collective before, now
}

func (j *joiner) run(f *ir.Func) error {
	for i := range f.Calls {
		c := &f.Calls[i]
		if c.On != "" {
			j.flush(func(*batch) bool { return true })
			j.number[i] = len(j.out)
			j.emit(*c)
			continue
		}
		key, inOrder, err := j.key(c)
		if err != nil {
			return err
		}
		t := touches(c)
		if key != "" {
			j.add(*c, key, inOrder, t)
			continue
		}
		j.flush(func(o *batch) bool { return o.conflicts(&t) })
		j.emit(*c)
	}
	j.flush(func(*batch) bool { return true })
	for i := range j.out {
		wait := j.out[i].Wait
		for k, n := range wait {
			wait[k] = j.number[n]
		}
		slices.Sort(wait)
	}
	f.Calls = j.out
	return nil
}

// key is the target's for a call of a fused kernel; "" for any other.
func (j *joiner) key(c *ir.Call) (key string, inOrder bool, err error) {
	w := &c.Work[0]
	g := j.groups[w.Group]
	if kind := group.Impl(g.Ops[0]).Kind; kind == kir.Template || kind == kir.None {
		return "", false, nil
	}
	built, err := kernel.Of(g, w)
	if err != nil {
		return "", false, err
	}
	key, inOrder = j.on.Join(built.Kernel, built.At())
	return key, inOrder, nil
}

// add puts c off, with others of its key where there are any that it can go with.
func (j *joiner) add(c ir.Call, key string, inOrder bool, t touched) {
	var to *batch
	for i := len(j.open) - 1; i >= 0 && to == nil; i-- {
		o := j.open[i]
		if o.key == key && (inOrder || !o.conflicts(&t)) {
			to = o
		}
		if o.conflicts(&t) { // what runs before o must not need it
			break
		}
	}
	if to != nil && !j.c.May(slices.Concat(c.Work[0].Write, []*ir.Value{nil})[0], "it is launched with others of its kind") {
		to = nil
	}
	if to == nil {
		to = &batch{key: key}
		j.open = append(j.open, to)
	}
	j.wait = append(j.wait, c.Wait...)
	to.call.Work = append(to.call.Work, c.Work...)
	to.call.InOrder = inOrder && len(to.call.Work) > 1
	to.reads = append(to.reads, t.reads...)
	to.writes = append(to.writes, t.writes...)
}

// flush settles the open batches for which due holds, in their order, and those before them that they need.
func (j *joiner) flush(due func(*batch) bool) {
	now := make([]bool, len(j.open))
	for i := len(now) - 1; i >= 0; i-- {
		now[i] = due(j.open[i])
		for k := i + 1; k < len(now); k++ {
			now[i] = now[i] || now[k] && j.open[i].conflicts(&j.open[k].touched)
		}
	}
	open := j.open
	j.open = nil
	for i, o := range open {
		if now[i] {
			j.emit(o.call)
		} else {
			j.open = append(j.open, o)
		}
	}
}

// emit settles c, which waits for what calls that were put off would have waited for: no later than before.
func (j *joiner) emit(c ir.Call) {
	c.Wait = slices.Clone(c.Wait)
	for _, w := range j.wait {
		if !slices.Contains(c.Wait, w) {
			c.Wait = append(c.Wait, w)
		}
	}
	j.wait = nil
	j.out = append(j.out, c)
}
