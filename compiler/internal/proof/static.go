package proof

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/distributed/schedule"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// static checks what one program shows by itself.
func (j *job) static(p *program) error {
	for _, f := range slices.Sorted(maps.Keys(p.funcs)) {
		list := p.funcs[f]
		for i := range list {
			if err := j.staticOp(&list[i]); err != nil {
				return fmt.Errorf("%s: %w", tell(list[i].Collective), err)
			}
		}
	}
	return j.schedule(p)
}

func (j *job) staticOp(o *op) error {
	if o.axis < 0 {
		return fmt.Errorf("the mesh %s has no axis %q", j.mesh, o.Axis)
	}
	n := j.mesh.Axes[o.axis].Size
	if o.Bytes < 0 || o.DType == "" || len(o.Tensors) == 0 {
		return fmt.Errorf("it has %d bytes of type %q and %d tensors, which is not possible", o.Bytes, o.DType, len(o.Tensors))
	}
	if o.do != doMeet {
		if o.Op != "" {
			return fmt.Errorf("it has the operator %q", o.Op)
		}
		if o.Peer < 0 || o.Peer >= n {
			return fmt.Errorf("there is no rank %d on an axis of %d", o.Peer, n)
		}
		return nil
	}
	switch {
	case !o.Kind.OfPrograms() || !o.Kind.Talks():
		return fmt.Errorf("there is no such collective")
	case o.Kind.Reduces() != (o.Op != ""):
		return fmt.Errorf("it has the operator %q", o.Op)
	case (o.Kind == mesh.AllGather || o.Kind == mesh.AllToAll) && o.Bytes%n != 0:
		return fmt.Errorf("%d bytes cannot be divided among %d ranks", o.Bytes, n)
	}
	return nil
}

// schedule checks the actions of a program: each function of a chunk once for each micro-batch, in order where sums depend
// on it, each pair of chunk and micro-batch in a slot that no other holds meanwhile, and the update once, last.
func (j *job) schedule(p *program) error {
	if p.Actions == nil {
		if _, step := p.funcs[abi.FuncStep]; step && j.plan.Train.Microbatches > 1 {
			if _, micro := p.funcs[abi.FuncMicro]; !micro {
				return fmt.Errorf("there are %d micro-batches, but no function @micro", j.plan.Train.Microbatches)
			}
		}
		return nil
	}
	if n := len(p.Actions); n == 0 || p.Actions[n-1].Func != abi.FuncStep {
		return fmt.Errorf("the schedule does not end with the update, @step")
	}
	s := &slots{next: map[string]int{}, held: map[int]pair{}, last: map[int]schedule.Kind{}}
	for f := range p.funcs {
		k, chunk, ok := abi.ParseChunkFunc(f)
		if ok && (k == schedule.B && s.last[chunk] == 0 || k == schedule.W) {
			s.last[chunk] = k // the one that frees the slot
		}
	}
	for i, a := range p.Actions {
		if _, ok := p.funcs[a.Func]; !ok {
			return fmt.Errorf("action %d calls @%s, which the program does not have", i, a.Func)
		}
		if a.Slot < 0 || a.Slot >= max(1, p.Slots) {
			return fmt.Errorf("action %d, @%s of micro-batch %d, works on slot %d, but there is room for %d", i, a.Func, a.Micro, a.Slot, p.Slots)
		}
		if a.Func == abi.FuncStep {
			if i != len(p.Actions)-1 || a.Slot != 0 {
				return fmt.Errorf("action %d is the update, @step, before the end or in slot %d", i, a.Slot)
			}
			continue
		}
		if err := p.merged(i); err != nil {
			return fmt.Errorf("action %d: %w", i, err)
		}
		if abi.IsMergeFunc(a.Func) {
			continue
		}
		if err := s.take(a); err != nil {
			return fmt.Errorf("action %d: %w", i, err)
		}
	}
	return s.whole(p, max(1, j.plan.Train.Microbatches))
}

// merged checks that action i of a function with sums is followed by their merge, and that merges follow nothing else.
func (p *program) merged(i int) error {
	a := p.Actions[i]
	name := func(f string, micro int) string { return abi.MergeFunc(f, trailingOnes(micro)) }
	if abi.IsMergeFunc(a.Func) {
		if i == 0 || p.Actions[i-1].Micro != a.Micro || a.Func != name(p.Actions[i-1].Func, a.Micro) || a.Slot != 0 {
			return fmt.Errorf("@%s of micro-batch %d does not follow the sums that it merges, or merges another number of levels than are complete", a.Func, a.Micro)
		}
		return nil
	}
	_, sums := p.funcs[abi.MergeFunc(a.Func, 0)]
	if next := p.Actions[i+1]; sums && (next.Func != name(a.Func, a.Micro) || next.Micro != a.Micro) { // @step is the last
		return fmt.Errorf("the sums of @%s of micro-batch %d are not merged with the %d levels that are complete", a.Func, a.Micro, trailingOnes(a.Micro))
	}
	return nil
}

// pair is what a slot holds.
type pair struct{ chunk, micro int }

// slots follows a schedule.
type slots struct {
	next map[string]int        // by function: the micro-batch that is next
	held map[int]pair          // by slot
	last map[int]schedule.Kind // by chunk: which of its functions frees its slots
}

// take follows one action.
func (s *slots) take(a abi.Action) error {
	name, slot := a.Func, a.Slot
	k, chunk, ok := abi.ParseChunkFunc(name)
	p := pair{chunk, a.Micro}
	if next := s.next[name]; next != p.micro {
		return fmt.Errorf("@%s of micro-batch %d comes where micro-batch %d is next", name, p.micro, next)
	}
	s.next[name]++
	if name == abi.FuncMicro { // accumulation without stages
		return nil
	}
	if ok && k == schedule.F {
		if old, ok := s.held[slot]; ok {
			return fmt.Errorf("@%s of micro-batch %d takes slot %d, which holds micro-batch %d of chunk %d", name, p.micro, slot, old.micro, old.chunk)
		}
		if s.last[p.chunk] != 0 { // a chunk without parameters has no backward, and keeps nothing for it
			s.held[slot] = p
		}
		return nil
	}
	if got, held := s.held[slot]; !ok || !held || got != p {
		return fmt.Errorf("@%s of micro-batch %d works on slot %d, which does not hold it", name, p.micro, slot)
	}
	if k == schedule.W && s.next[abi.ChunkFunc(schedule.B, p.chunk)] <= p.micro {
		return fmt.Errorf("@%s of micro-batch %d comes before its backward", name, p.micro)
	}
	if s.last[p.chunk] == k {
		delete(s.held, slot)
	}
	return nil
}

func trailingOnes(n int) int {
	k := 0
	for ; n&1 == 1; n >>= 1 {
		k++
	}
	return k
}

// whole checks that nothing is missing.
func (s *slots) whole(p *program, micros int) error {
	if k, ok := s.next[abi.FuncMicro]; ok && k != micros-1 {
		return fmt.Errorf("the schedule has %d micro-batches before the last, but a step has %d", k, micros)
	}
	var names []string
	for f := range p.funcs {
		names = append(names, f)
	}
	slices.Sort(names)
	for _, f := range names {
		if _, _, ok := abi.ParseChunkFunc(f); ok && s.next[f] != micros {
			return fmt.Errorf("the schedule runs @%s for %d micro-batches of %d", f, s.next[f], micros)
		}
	}
	return nil
}
