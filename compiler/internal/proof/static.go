package proof

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// meeting lists the collectives that the run-time has, and whether each needs an operator.
var meeting = map[string]bool{"all_reduce": true, "reduce_scatter": true, "all_gather": false, "all_to_all": false}

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
	needsOp, known := meeting[o.Kind]
	switch {
	case !known:
		return fmt.Errorf("there is no such collective")
	case needsOp != (o.Op != ""):
		return fmt.Errorf("it has the operator %q", o.Op)
	case (o.Kind == "all_gather" || o.Kind == "all_to_all") && o.Bytes%n != 0:
		return fmt.Errorf("%d bytes cannot be divided among %d ranks", o.Bytes, n)
	}
	return nil
}

// schedule checks the actions of a program: each function of a chunk once for each micro-batch, in order where sums depend
// on it, each pair of chunk and micro-batch in a slot that no other holds meanwhile, and the update once, last.
func (j *job) schedule(p *program) error {
	if p.Actions == nil {
		if _, step := p.funcs[stepFunc]; step && j.plan.Train.Microbatches > 1 {
			if _, micro := p.funcs[microFunc]; !micro {
				return fmt.Errorf("there are %d micro-batches, but no function @micro", j.plan.Train.Microbatches)
			}
		}
		return nil
	}
	if n := len(p.Actions); n == 0 || p.Actions[n-1].Func != stepFunc {
		return fmt.Errorf("the schedule does not end with the update, @step")
	}
	s := &slots{next: map[string]int{}, held: map[int]pair{}, last: map[string]string{}}
	for f := range p.funcs {
		what, chunk, ok := strings.Cut(f, ".")
		if ok && (what == "bwd" && s.last[chunk] == "" || what == "wgrad") {
			s.last[chunk] = what // the one that frees the slot
		}
	}
	for i, a := range p.Actions {
		if _, ok := p.funcs[a.Func]; !ok {
			return fmt.Errorf("action %d calls @%s, which the program does not have", i, a.Func)
		}
		if a.Slot < 0 || a.Slot >= max(1, p.Slots) {
			return fmt.Errorf("action %d, @%s of micro-batch %d, works on slot %d, but there is room for %d", i, a.Func, a.Micro, a.Slot, p.Slots)
		}
		if a.Func == stepFunc {
			if i != len(p.Actions)-1 || a.Slot != 0 {
				return fmt.Errorf("action %d is the update, @step, before the end or in slot %d", i, a.Slot)
			}
			continue
		}
		if err := p.merged(i); err != nil {
			return fmt.Errorf("action %d: %w", i, err)
		}
		if strings.HasPrefix(a.Func, mergePrefix) {
			continue
		}
		if err := s.take(a.Func, pair{chunkOf(a.Func), a.Micro}, a.Slot); err != nil {
			return fmt.Errorf("action %d: %w", i, err)
		}
	}
	return s.whole(p, max(1, j.plan.Train.Microbatches))
}

// mergePrefix begins the functions that add up the sums of micro-batches in a tree: merge.F.T behind function F of a
// micro-batch that completes T levels.
const mergePrefix = "merge."

// merged checks that action i of a function with sums is followed by their merge, and that merges follow nothing else.
func (p *program) merged(i int) error {
	a := p.Actions[i]
	name := func(f string, micro int) string { return fmt.Sprintf("%s%s.%d", mergePrefix, f, trailingOnes(micro)) }
	if strings.HasPrefix(a.Func, mergePrefix) {
		if i == 0 || p.Actions[i-1].Micro != a.Micro || a.Func != name(p.Actions[i-1].Func, a.Micro) || a.Slot != 0 {
			return fmt.Errorf("@%s of micro-batch %d does not follow the sums that it merges, or merges another number of levels than are complete", a.Func, a.Micro)
		}
		return nil
	}
	_, sums := p.funcs[mergePrefix+a.Func+".0"]
	if next := p.Actions[i+1]; sums && (next.Func != name(a.Func, a.Micro) || next.Micro != a.Micro) { // @step is the last
		return fmt.Errorf("the sums of @%s of micro-batch %d are not merged with the %d levels that are complete", a.Func, a.Micro, trailingOnes(a.Micro))
	}
	return nil
}

// pair is what a slot holds.
type pair struct {
	chunk string
	micro int
}

// slots follows a schedule.
type slots struct {
	next map[string]int    // by function: the micro-batch that is next
	held map[int]pair      // by slot
	last map[string]string // by chunk: which function frees its slots
}

func chunkOf(name string) string {
	_, chunk, _ := strings.Cut(name, ".")
	return chunk
}

// take follows one action.
func (s *slots) take(name string, p pair, slot int) error {
	what, _, _ := strings.Cut(name, ".")
	if k := s.next[name]; k != p.micro {
		return fmt.Errorf("@%s of micro-batch %d comes where micro-batch %d is next", name, p.micro, k)
	}
	s.next[name]++
	if name == microFunc { // accumulation without stages
		return nil
	}
	if what == "fwd" {
		if old, ok := s.held[slot]; ok {
			return fmt.Errorf("@%s of micro-batch %d takes slot %d, which holds micro-batch %d of chunk %s", name, p.micro, slot, old.micro, old.chunk)
		}
		if s.last[p.chunk] != "" { // a chunk without parameters has no backward, and keeps nothing for it
			s.held[slot] = p
		}
		return nil
	}
	if got, ok := s.held[slot]; !ok || got != p {
		return fmt.Errorf("@%s of micro-batch %d works on slot %d, which does not hold it", name, p.micro, slot)
	}
	if what == "wgrad" && s.next["bwd."+p.chunk] <= p.micro {
		return fmt.Errorf("@%s of micro-batch %d comes before its backward", name, p.micro)
	}
	if s.last[p.chunk] == what {
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
	if k, ok := s.next[microFunc]; ok && k != micros-1 {
		return fmt.Errorf("the schedule has %d micro-batches before the last, but a step has %d", k, micros)
	}
	var names []string
	for f := range p.funcs {
		names = append(names, f)
	}
	slices.Sort(names)
	for _, f := range names {
		what, _, ok := strings.Cut(f, ".")
		if ok && (what == "fwd" || what == "bwd" || what == "wgrad") && s.next[f] != micros {
			return fmt.Errorf("the schedule runs @%s for %d micro-batches of %d", f, s.next[f], micros)
		}
	}
	return nil
}
