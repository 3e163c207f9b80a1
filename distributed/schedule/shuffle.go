package schedule

import "math/rand/v2"

// Shuffled is t with the stages' actions in another order, by the seed: time and again some stage does any of its actions for
// which everything that it needs has been done, whatever the table says; only sums stay in the order of micro-batches. A program of the
// actions must compute the same, to the bit, or it depends on more than Simulate knows of. forget, unless nil, tells needs to be
// left out: the need that a, of a part, has for an action of kind on part of. Such an order must be noticed.
//
// Messages do not arrive in the order in which they are received, so that ranks cannot run it. Every micro-batch has a slot of its own.
func (t *Table) Shuffled(seed uint64, forget func(a Action, part int, kind Kind, of int) bool) *Table {
	r := rand.New(rand.NewPCG(seed, 1))
	s := *t
	s.Name, s.ranks, s.slots = "shuffled", make([][]Action, t.Stages), nil
	left := make([][]Action, t.Stages)
	for i, list := range t.ranks {
		left[i] = append(left[i], list...)
	}
	done := map[event]bool{}
	for {
		type choice struct{ stage, at int }
		var ready []choice
		for i, list := range left {
			for k, a := range list {
				if t.ready(a, t.Part(i, a.Chunk), done, forget) {
					ready = append(ready, choice{i, k})
				}
			}
		}
		if len(ready) == 0 {
			break
		}
		c := ready[r.IntN(len(ready))]
		a := left[c.stage][c.at]
		left[c.stage] = append(left[c.stage][:c.at:c.at], left[c.stage][c.at+1:]...)
		done[event{a.Kind, t.Part(c.stage, a.Chunk), a.Micro}] = true
		a.Slot = a.Chunk*t.Micros + a.Micro
		s.ranks[c.stage] = append(s.ranks[c.stage], a)
	}
	for range t.Stages {
		s.slots = append(s.slots, t.Chunks*t.Micros)
	}
	return &s
}

// ready reports whether all that a needs has been done, and the action of its kind and part for the micro-batch before it,
// where they add up.
func (t *Table) ready(a Action, part int, done map[event]bool, forget func(a Action, part int, kind Kind, of int) bool) bool {
	if a.Kind != F && a.Micro > 0 && !done[event{a.Kind, part, a.Micro - 1}] {
		return false
	}
	for _, e := range t.needs(a, part) {
		if !done[e] && (forget == nil || !forget(a, part, e.kind, e.part)) {
			return false
		}
	}
	return true
}
