package stage

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
)

// place gives the core ops of B, and what borders add up, their parts.
func (k *cutter) place() {
	present := k.present()
	for _, op := range k.f.Ops {
		if k.back(op) {
			k.part[op] = k.latest(op, present)
		}
	}
	k.targets()
	for _, b := range k.borders {
		k.takeApart(b)
	}
	k.sink(present)
	for _, b := range k.borders {
		for i, a := range b.adds {
			switch {
			case k.core(a.v):
				b.adds[i].part = k.part[a.v.Op]
			default: // made of data alone, such as the count of what is not ignored: beside the loss
				b.adds[i].part = k.parts - 1
			}
		}
	}
	for _, op := range k.f.Ops { // weights that only the backward reads, or reads elsewhere
		if q, ok := k.part[op]; ok {
			for _, v := range op.In {
				if v != nil && !k.core(v) {
					k.reads(v, q)
				}
			}
		}
	}
}

// back reports whether op is a core op of B.
func (k *cutter) back(op *ir.Op) bool {
	return !k.front[op] && !isBorder(op) && k.core(op.Out[0])
}

// present lists, for the core values of F, the parts that have them: where they are made and where F reads them.
func (k *cutter) present() map[*ir.Value][]int {
	out := map[*ir.Value][]int{}
	for _, op := range k.f.Ops {
		q, ok := k.part[op]
		if !ok {
			continue
		}
		for _, v := range op.Out {
			out[v] = []int{q}
		}
		for _, v := range op.In {
			if k.core(v) && !slices.Contains(out[v], q) {
				out[v] = append(out[v], q) // parts ascend in program order
			}
		}
	}
	return out
}

// needs lists what op must have beside it: for each forward value and each weight, the parts that have it.
func (k *cutter) needs(op *ir.Op, present map[*ir.Value][]int) [][]int {
	var out [][]int
	for _, v := range op.In {
		switch {
		case v == nil:
		case !k.core(v):
			for _, p := range k.kind[v].params {
				if h := k.homes[p.Name]; len(h) > 0 {
					out = append(out, h)
				}
			}
		case k.isFront(v):
			out = append(out, present[v])
		}
	}
	return out
}

// latest is the last part in which op of B can run: not behind the gradients that it reads, and beside what it needs. When no
// part has all of that, it is the first that is not before any of it is made; values are then sent for it.
func (k *cutter) latest(op *ir.Op, present map[*ir.Value][]int) int {
	high := k.parts - 1
	for _, v := range op.In {
		if k.core(v) && !k.isFront(v) {
			high = min(high, k.part[v.Op])
		}
	}
	sets := k.needs(op, present)
	q := high
	for again := true; again; {
		again = false
		for _, s := range sets {
			i, _ := slices.BinarySearch(s, q+1)
			if i == 0 {
				return k.elsewhere(op, high)
			}
			if s[i-1] < q {
				q, again = s[i-1], true
			}
		}
	}
	return q
}

func (k *cutter) elsewhere(op *ir.Op, high int) int {
	low := 0
	for _, v := range op.In {
		if k.core(v) && k.isFront(v) {
			low = max(low, k.part[v.Op])
		}
	}
	return min(low, high)
}

// targets finds, for each border, the parts of the parameters that its sum updates.
func (k *cutter) targets() {
	of := map[*ir.Value]*border{}
	for _, b := range k.borders {
		of[b.out()] = b
	}
	for _, r := range k.f.Results {
		if r.Updates == nil || r.Updates.Role != ir.Param {
			continue
		}
		seen := map[*ir.Value]bool{}
		var visit func(v *ir.Value)
		visit = func(v *ir.Value) {
			if v == nil || seen[v] || !k.kind[v].total || len(v.Type.Dims) == 0 {
				return
			}
			seen[v] = true
			if b := of[v]; b != nil {
				b.wants = k.homes[r.Updates.Name]
				return
			}
			for _, x := range v.Op.In {
				visit(x)
			}
		}
		visit(r.Value)
	}
}

// takeApart finds what a border adds up: its operand, or the addends of a sum over several parts. With --reproducible it is
// the operand, as on one rank, although a gradient then travels for each micro-batch: another order of additions would give
// other bits.
func (k *cutter) takeApart(b *border) {
	var leaves []*ir.Value
	var adds []*ir.Op
	var visit func(v *ir.Value)
	visit = func(v *ir.Value) {
		if !k.core(v) || !v.Op.Def.Rules.Adds || !k.back(v.Op) || len(k.uses[v]) != 1 || !k.core(v.Op.In[0]) || !k.core(v.Op.In[1]) {
			leaves = append(leaves, v)
			return
		}
		adds = append(adds, v.Op)
		visit(v.Op.In[0])
		visit(v.Op.In[1])
	}
	if visit(b.in()); !k.c.Opt.Reproducible && slices.ContainsFunc(leaves, func(v *ir.Value) bool { return !k.core(v) || k.part[v.Op] != k.part[leaves[0].Op] }) && len(leaves) > 1 {
		for _, op := range adds {
			delete(k.part, op)
		}
	} else {
		leaves = []*ir.Value{b.in()}
	}
	for _, v := range leaves {
		b.adds = append(b.adds, addend{v: v})
	}
}

// sink moves ops of B towards the parts that want their results while no more bytes are sent for it.
func (k *cutter) sink(present map[*ir.Value][]int) {
	s := &sinker{k: k, present: present, readers: map[*ir.Value]map[int]int{}, wants: map[*ir.Value][]int{}}
	var list []*ir.Op
	for _, op := range k.f.Ops {
		if q, ok := k.part[op]; ok && k.back(op) {
			list = append(list, op)
			s.count(op, q, 1)
		}
	}
	for _, b := range k.borders {
		for _, a := range b.adds {
			s.wants[a.v] = append(s.wants[a.v], b.wants...)
		}
	}
	for again, turns := true, 0; again && turns < 3; turns++ { // what moved may have brought along what others read
		again = false
		last := s.destinations(list)
		free := s.free(list, last)
		for _, op := range list {
			if free[op] {
				s.relocate(op, last[op])
				again = true
			}
		}
		for _, op := range slices.Backward(list) {
			again = s.move(op, s.wanted(op, func(r *ir.Op) int { return k.part[r] })) || again
		}
	}
}

// sinker moves ops of B.
type sinker struct {
	k       *cutter
	present map[*ir.Value][]int
	readers map[*ir.Value]map[int]int // how many ops of a part read a value of B
	wants   map[*ir.Value][]int       // parts of the weights that what a border adds up goes to
}

// count adds n to the readers of what op, in part q, reads.
func (s *sinker) count(op *ir.Op, q, n int) {
	for _, v := range op.In {
		if !s.k.core(v) || s.k.isFront(v) {
			continue
		}
		if s.readers[v] == nil {
			s.readers[v] = map[int]int{}
		}
		s.readers[v][q] += n
	}
}

// destinations gives each op the part where it would run if all behind it were where they should be.
func (s *sinker) destinations(list []*ir.Op) map[*ir.Op]int {
	to := map[*ir.Op]int{}
	for _, op := range slices.Backward(list) {
		to[op] = s.wanted(op, func(r *ir.Op) int { return to[r] })
		if !s.allowed(op, to[op]) {
			to[op] = s.k.part[op]
		}
	}
	return to
}

// wanted is the last part that reads results of op, whose readers are in the parts that of tells; -1 when none does.
func (s *sinker) wanted(op *ir.Op, of func(*ir.Op) int) int {
	q, to := s.k.part[op], -1
	for _, v := range op.Out {
		for _, r := range s.k.uses[v] {
			if _, ok := s.k.part[r]; ok {
				to = max(to, of(r))
			}
		}
		best := -1
		for _, h := range s.wants[v] {
			if h <= q {
				best = max(best, h)
			}
		}
		to = max(to, best)
	}
	return to
}

// allowed reports whether op has what it needs in part q.
func (s *sinker) allowed(op *ir.Op, q int) bool {
	return q >= 0 && q <= s.k.part[op] &&
		!slices.ContainsFunc(s.k.needs(op, s.present), func(list []int) bool { return !slices.Contains(list, q) })
}

// free finds the ops that can run in their destinations without a byte sent for it, all of them together: what they read
// is there anyway, or moves along, and so does what reads their results.
func (s *sinker) free(list []*ir.Op, to map[*ir.Op]int) map[*ir.Op]bool {
	free := map[*ir.Op]bool{}
	for _, op := range list {
		if to[op] < s.k.part[op] && s.allowed(op, to[op]) {
			free[op] = true
		}
	}
	there := func(v *ir.Value, q int) bool {
		return !s.k.core(v) || s.k.isFront(v) || s.k.part[v.Op] == q || s.readers[v][q] > 0 || free[v.Op] && to[v.Op] == q
	}
	for n := -1; n != len(free); {
		n = len(free)
		for _, op := range list {
			q := to[op]
			stays := func(r *ir.Op) bool { p, ok := s.k.part[r]; return ok && p > q && !free[r] }
			if free[op] && (slices.ContainsFunc(op.In, func(v *ir.Value) bool { return v != nil && !there(v, q) }) ||
				slices.ContainsFunc(op.Out, func(v *ir.Value) bool { return slices.ContainsFunc(s.k.uses[v], stays) })) {
				delete(free, op)
			}
		}
	}
	return free
}

// adds reports whether op makes a gradient of a weight that lives in part q: it is added up there, not in the part that has
// its operands by chance, so that a stage holds the sums of its own weights.
func (s *sinker) adds(op *ir.Op, q int) bool {
	return slices.ContainsFunc(op.Out, func(v *ir.Value) bool { return slices.Contains(s.wants[v], q) })
}

// move moves op to a part if it can run there and no more bytes are sent for it, or it has to be there.
func (s *sinker) move(op *ir.Op, to int) bool {
	if to == s.k.part[op] || !s.allowed(op, to) {
		return false
	}
	extra, result := 0, 0
	for i, v := range op.In {
		if s.k.core(v) && !s.k.isFront(v) && s.k.part[v.Op] != to && s.readers[v][to] == 0 && !slices.Contains(op.In[:i], v) {
			extra += v.Type.Bytes()
		}
	}
	for _, v := range op.Out {
		result += v.Type.Bytes()
	}
	if extra > result && !s.adds(op, to) {
		return false
	}
	s.relocate(op, to)
	return true
}

func (s *sinker) relocate(op *ir.Op, to int) {
	s.count(op, s.k.part[op], -1)
	s.count(op, to, 1)
	s.k.part[op] = to
}
