package program

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Slot moves offsets within the stash to those of one of its copies.
type Slot struct {
	start, end int // of slot 0
	by         int
}

// Slot is the k-th copy of the stash.
func (x *Plan) Slot(k int) Slot {
	p := x.Prog
	return Slot{p.StashStart, p.StashStart + p.StashBytes, k * p.StashBytes}
}

// schedule checks the actions of a program, and that the stash is within the arena.
func (x *Plan) schedule() error {
	p := x.Prog
	if p.StashBytes < 0 || p.Slots < 0 || p.StashStart < 0 || p.StashStart+p.Slots*p.StashBytes > p.ArenaBytes || p.StashBytes > 0 && p.Slots < 1 {
		return fmt.Errorf("BUG: %d slots of %d bytes from %d leave the arena of %d", p.Slots, p.StashBytes, p.StashStart, p.ArenaBytes)
	}
	for i, a := range p.Actions {
		if x.Funcs[a.Func] == nil || a.Micro < 0 || a.Micro >= x.Train.Microbatches || a.Slot < 0 || a.Slot >= max(p.Slots, 1) {
			return fmt.Errorf("BUG: action %d is @%s of micro-batch %d in slot %d, but there are %d micro-batches and %d slots", i, a.Func, a.Micro, a.Slot,
				x.Train.Microbatches, p.Slots)
		}
	}
	if n := len(p.Actions); n > 0 && p.Actions[n-1].Func != abi.FuncStep {
		return fmt.Errorf("BUG: the schedule ends with @%s, not with @%s", p.Actions[n-1].Func, abi.FuncStep)
	}
	return nil
}

// At is where an offset lies in the slot.
func (s Slot) At(offset int) int {
	if offset >= s.start && offset < s.end {
		return offset + s.by
	}
	return offset
}

// Calls are those of slot 0, moved.
func (s Slot) Calls(calls []Call) []Call {
	if s.by == 0 {
		return calls
	}
	calls = slices.Clone(calls)
	for i := range calls {
		c := &calls[i]
		c.At = slices.Clone(c.At)
		for k := range c.Ptrs {
			c.At[k] = s.At(c.At[k])
		}
		if c.Comm != nil {
			moved := *c.Comm
			moved.Offset, moved.Source, moved.Before = s.At(moved.Offset), s.At(moved.Source), s.Copies(moved.Before)
			c.Comm = &moved
		}
		c.Launches = s.launches(c.Launches)
		c.Product, c.Convolution = s.product(c.Product), s.convolution(c.Convolution)
		c.Out = slices.Clone(c.Out)
		for k := range c.Out {
			c.Out[k].Offset = s.At(c.Out[k].Offset)
		}
	}
	return calls
}

// launches are those of slot 0, moved.
func (s Slot) launches(list []abi.Launch) []abi.Launch {
	list = slices.Clone(list)
	for i := range list {
		l := &list[i]
		l.Args, l.Table = slices.Clone(l.Args), slices.Clone(l.Table)
		for k := range l.Args {
			l.Args[k] = s.At(l.Args[k])
		}
		for _, k := range l.Refs {
			l.Table[k] = uint64(s.At(int(l.Table[k])))
		}
	}
	return list
}

func (s Slot) product(p *abi.Product) *abi.Product {
	if p == nil {
		return nil
	}
	q := *p
	q.A, q.B, q.C, q.Bias, q.Add, q.Aux, q.Workspace = s.At(p.A), s.At(p.B), s.At(p.C), s.At(p.Bias), s.At(p.Add), s.At(p.Aux), s.At(p.Workspace)
	q.Own = s.launches(p.Own)
	return &q
}

func (s Slot) convolution(c *abi.Convolution) *abi.Convolution {
	if c == nil {
		return nil
	}
	d := *c
	d.A, d.B, d.C, d.Bias, d.Workspace = s.At(c.A), s.At(c.B), s.At(c.C), s.At(c.Bias), s.At(c.Workspace)
	d.Own = s.launches(c.Own)
	return &d
}

// Copies are those of slot 0, moved.
func (s Slot) Copies(list []Copy) []Copy {
	if s.by == 0 {
		return list
	}
	list = slices.Clone(list)
	for i, c := range list {
		list[i] = Copy{From: s.At(c.From), To: s.At(c.To), Bytes: c.Bytes}
	}
	return list
}
