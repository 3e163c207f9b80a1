package train

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// slot moves offsets within the stash to those of one of its copies.
type slot struct {
	start, end int // of slot 0
	by         int
}

// slot is the k-th copy of the stash.
func (x *plan) slot(k int) slot {
	p := x.prog
	return slot{p.StashStart, p.StashStart + p.StashBytes, k * p.StashBytes}
}

// schedule checks the actions of a program, and that the stash is within the arena.
func (x *plan) schedule() error {
	p := x.prog
	if p.StashBytes < 0 || p.Slots < 0 || p.StashStart < 0 || p.StashStart+p.Slots*p.StashBytes > p.ArenaBytes || p.StashBytes > 0 && p.Slots < 1 {
		return fmt.Errorf("BUG: %d slots of %d bytes from %d leave the arena of %d", p.Slots, p.StashBytes, p.StashStart, p.ArenaBytes)
	}
	for i, a := range p.Actions {
		if x.funcs[a.Func] == nil || a.Micro < 0 || a.Micro >= x.Train.Microbatches || a.Slot < 0 || a.Slot >= max(p.Slots, 1) {
			return fmt.Errorf("BUG: action %d is @%s of micro-batch %d in slot %d: there are %d micro-batches and %d slots", i, a.Func, a.Micro, a.Slot,
				x.Train.Microbatches, p.Slots)
		}
	}
	if n := len(p.Actions); n > 0 && p.Actions[n-1].Func != FuncStep {
		return fmt.Errorf("BUG: the schedule ends with @%s, not @%s", p.Actions[n-1].Func, FuncStep)
	}
	return nil
}

// at is where an offset lies in the slot.
func (s slot) at(offset int) int {
	if offset >= s.start && offset < s.end {
		return offset + s.by
	}
	return offset
}

// calls are those of slot 0, moved.
func (s slot) calls(calls []Call) []Call {
	if s.by == 0 {
		return calls
	}
	calls = slices.Clone(calls)
	for i := range calls {
		c := &calls[i]
		c.At = slices.Clone(c.At)
		for k := range c.Ptrs {
			c.At[k] = s.at(c.At[k])
		}
		if c.Comm != nil {
			moved := *c.Comm
			moved.Offset, moved.Source, moved.Before = s.at(moved.Offset), s.at(moved.Source), s.copies(moved.Before)
			c.Comm = &moved
		}
		c.Launches = s.launches(c.Launches)
		c.Product, c.Convolution = s.product(c.Product), s.convolution(c.Convolution)
		c.Out = slices.Clone(c.Out)
		for k := range c.Out {
			c.Out[k].Offset = s.at(c.Out[k].Offset)
		}
	}
	return calls
}

// launches are those of slot 0, moved.
func (s slot) launches(list []abi.Launch) []abi.Launch {
	list = slices.Clone(list)
	for i := range list {
		l := &list[i]
		l.Args, l.Table = slices.Clone(l.Args), slices.Clone(l.Table)
		for k := range l.Args {
			l.Args[k] = s.at(l.Args[k])
		}
		for _, k := range l.Refs {
			l.Table[k] = uint64(s.at(int(l.Table[k])))
		}
	}
	return list
}

func (s slot) product(p *abi.Product) *abi.Product {
	if p == nil {
		return nil
	}
	q := *p
	q.A, q.B, q.C, q.Bias, q.Add, q.Aux, q.Workspace = s.at(p.A), s.at(p.B), s.at(p.C), s.at(p.Bias), s.at(p.Add), s.at(p.Aux), s.at(p.Workspace)
	q.Own = s.launches(p.Own)
	return &q
}

func (s slot) convolution(c *abi.Convolution) *abi.Convolution {
	if c == nil {
		return nil
	}
	d := *c
	d.A, d.B, d.C, d.Bias, d.Workspace = s.at(c.A), s.at(c.B), s.at(c.C), s.at(c.Bias), s.at(c.Workspace)
	d.Own = s.launches(c.Own)
	return &d
}

// copies are those of slot 0, moved.
func (s slot) copies(list []Copy) []Copy {
	if s.by == 0 {
		return list
	}
	list = slices.Clone(list)
	for i, c := range list {
		list[i] = Copy{From: s.at(c.From), To: s.at(c.To), Bytes: c.Bytes}
	}
	return list
}
