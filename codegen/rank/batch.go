package rank

import (
	"fmt"
	"slices"

	gpuprint "github.com/gtc-compiler/gtc/codegen/cuda"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
)

// A launch takes some microseconds whatever it does, and a small one leaves most of a GPU idle. Calls that do the same to
// different tensors (updates of all parameters, the sums of squares of all gradients) become one launch here: a call may be put
// off until the last of its kind, unless something in between touches the memory that it touches.

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

// touches is the memory of what w reads and writes.
func touches(w *ir.Work) touched {
	var t touched
	for _, v := range w.Read {
		t.reads = append(t.reads, spanOf(v))
	}
	for _, v := range w.Write {
		t.writes = append(t.writes, spanOf(v))
	}
	return t
}

func spanOf(v *ir.Value) span {
	if v.Within != nil {
		v = v.Within
	}
	return span{v.Offset, v.Offset + v.Type.Bytes()}
}

// batch is calls of one key that are put off.
type batch struct {
	key   string
	calls []call
	touched
}

// batcher goes through the calls of a function.
type batcher struct {
	g    *generator
	open []*batch // in the order in which they will be emitted: a later one may need what an earlier one makes
	out  []call
	wait []int // what calls that were put off would have waited for
	err  error
}

// batched joins calls. Waits go by the number of a collective's call, which batcher keeps in old: it becomes a new number.
func (g *generator) batched(calls []call) ([]call, error) {
	b := &batcher{g: g}
	number := map[int]int{}
	for i, c := range calls {
		switch {
		case c.comm != nil:
			b.flush(func(*batch) bool { return true })
			number[i] = len(b.out)
			b.emit(c)
		case c.kernel != nil && c.key != "":
			b.add(c)
		default:
			b.flush(func(o *batch) bool { return o.conflicts(&c.touched) })
			b.emit(c)
		}
	}
	b.flush(func(*batch) bool { return true })
	for i := range b.out {
		for j, w := range b.out[i].wait {
			b.out[i].wait[j] = number[w]
		}
		slices.Sort(b.out[i].wait)
	}
	return b.out, b.err
}

// add puts c off, with others of its key where there are any that it can go with.
func (b *batcher) add(c call) {
	var to *batch
	for i := len(b.open) - 1; i >= 0 && to == nil; i-- {
		o := b.open[i]
		if o.key == c.key && (c.key == gpuprint.Scalars || !o.conflicts(&c.touched)) {
			to = o
		}
		if o.conflicts(&c.touched) { // what is emitted before o must not need it
			break
		}
	}
	if to == nil {
		to = &batch{key: c.key}
		b.open = append(b.open, to)
	}
	b.wait = append(b.wait, c.wait...)
	c.wait = nil
	to.calls = append(to.calls, c)
	to.reads = append(to.reads, c.reads...)
	to.writes = append(to.writes, c.writes...)
}

// flush emits the open batches for which due holds, in their order, and those before them that they need.
func (b *batcher) flush(due func(*batch) bool) {
	now := make([]bool, len(b.open))
	for i := len(now) - 1; i >= 0; i-- {
		now[i] = due(b.open[i])
		for j := i + 1; j < len(now); j++ {
			now[i] = now[i] || now[j] && b.open[i].conflicts(&b.open[j].touched)
		}
	}
	open := b.open
	b.open = nil
	for i, o := range open {
		if !now[i] {
			b.open = append(b.open, o)
			continue
		}
		c, err := b.g.joined(o.calls)
		b.fail(err)
		b.emit(c)
	}
}

func (b *batcher) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *batcher) emit(c call) {
	if c.kernel != nil && c.launches == nil {
		b.fail(b.g.single(&c))
	}
	for _, w := range b.wait {
		if !slices.Contains(c.wait, w) {
			c.wait = append(slices.Clone(c.wait), w)
		}
	}
	b.wait = nil
	b.out = append(b.out, c)
}

// joined is one call that does what all do.
func (g *generator) joined(calls []call) (call, error) {
	c := calls[0]
	if len(calls) == 1 {
		return c, nil
	}
	var list []gpuprint.Call
	c.out = nil
	for _, o := range calls {
		list = append(list, o.gpuCall())
		c.out = append(c.out, o.out...)
	}
	if c.key == gpuprint.Scalars {
		kernels, err := gpuprint.InOrder("numbers", list)
		if err != nil {
			return c, err
		}
		c.args = nil
		return c, g.launched(&c, kernels, 0)
	}
	kernels, work, err := gpuprint.Many(c.describe, list)
	if err != nil {
		return c, err
	}
	return c, g.launched(&c, kernels, work)
}

// single prints a fused kernel that is launched alone.
func (g *generator) single(c *call) error {
	kernels, work, err := gpuprint.Kernels(c.describe, c.kernel)
	if err != nil {
		return fmt.Errorf("%s: %w", c.loc, err)
	}
	return g.launched(c, kernels, work)
}

// launched gives c its launches.
func (g *generator) launched(c *call, kernels []cuda.Kernel, work int) error {
	if work > g.plan.WorkBytes {
		return fmt.Errorf("BUG: %s needs %d bytes of workspace for %s, the plan has %d", c.describe, work, valueNames(c.out), g.plan.WorkBytes)
	}
	var err error
	if c.launches, err = g.launches(kernels, c.args, c.loc); err != nil {
		return err
	}
	c.fn = g.gpu.list[c.launches[0].Kernel].Name
	c.name = valueNames(c.out) + " = " + c.fn
	return nil
}

// gpuCall is c for codegen/cuda.
func (c *call) gpuCall() gpuprint.Call {
	o := gpuprint.Call{Kernel: c.kernel}
	for _, a := range c.args {
		o.At = append(o.At, a.offset)
	}
	return o
}
