package stage

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
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

// takeApart finds what a border adds up: its operand, or the addends of a sum over several parts.
func (k *cutter) takeApart(b *border) {
	var leaves []*ir.Value
	var adds []*ir.Op
	var visit func(v *ir.Value)
	visit = func(v *ir.Value) {
		if !k.core(v) || v.Op.Def != ops.AddDef || !k.back(v.Op) || len(k.uses[v]) != 1 || !k.core(v.Op.In[0]) || !k.core(v.Op.In[1]) {
			leaves = append(leaves, v)
			return
		}
		adds = append(adds, v.Op)
		visit(v.Op.In[0])
		visit(v.Op.In[1])
	}
	visit(b.in())
	if slices.ContainsFunc(leaves, func(v *ir.Value) bool { return !k.core(v) || k.part[v.Op] != k.part[leaves[0].Op] }) && len(leaves) > 1 {
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
	readers := map[*ir.Value]map[int]int{} // by part
	count := func(op *ir.Op, q, n int) {
		for _, v := range op.In {
			if !k.core(v) || k.isFront(v) {
				continue
			}
			if readers[v] == nil {
				readers[v] = map[int]int{}
			}
			readers[v][q] += n
		}
	}
	for _, op := range k.f.Ops {
		if q, ok := k.part[op]; ok && k.back(op) {
			count(op, q, 1)
		}
	}
	wants := map[*ir.Value][]int{}
	for _, b := range k.borders {
		for _, a := range b.adds {
			wants[a.v] = append(wants[a.v], b.wants...)
		}
	}
	move := func(op *ir.Op) bool {
		q, ok := k.part[op]
		if !ok || !k.back(op) {
			return false
		}
		to := k.wanted(op, q, readers, wants)
		if to < 0 || to == q || slices.ContainsFunc(k.needs(op, present), func(s []int) bool { return !slices.Contains(s, to) }) {
			return false
		}
		extra, result := 0, 0
		for i, v := range op.In {
			if k.core(v) && !k.isFront(v) && readers[v][to] == 0 && !slices.Contains(op.In[:i], v) {
				extra += v.Type.Bytes()
			}
		}
		for _, v := range op.Out {
			result += v.Type.Bytes()
		}
		if extra > result {
			return false
		}
		count(op, q, -1)
		count(op, to, 1)
		k.part[op] = to
		return true
	}
	for again, turns := true, 0; again && turns < 3; turns++ { // what moved may have brought along what others read
		again = false
		for _, op := range slices.Backward(k.f.Ops) {
			again = move(op) || again
		}
	}
}

// wanted is the last part that reads results of op, which is in part q; -1 when none does.
func (k *cutter) wanted(op *ir.Op, q int, readers map[*ir.Value]map[int]int, wants map[*ir.Value][]int) int {
	to := -1
	for _, v := range op.Out {
		for r, n := range readers[v] {
			if n > 0 {
				to = max(to, r)
			}
		}
		best := -1
		for _, h := range wants[v] {
			if h <= q {
				best = max(best, h)
			}
		}
		to = max(to, best)
	}
	return to
}
