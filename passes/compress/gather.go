package compress

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// message is what a rank sends of a gradient to all others.
type message struct {
	gradient
	parts []*ir.Value                     // of one dim each
	back  func(all []*ir.Value) *ir.Value // the summed gradient, of all ranks' parts: [ranks, n] each
}

// exchange sends the messages of many gradients together, up to maxFactors bytes, when the last of them is ready. What came is
// added up while the next ones travel: it is as many times a message as there are ranks, and must not be kept for long.
func (z *squeezer) exchange(list []*message, place map[*ir.Op]int, subst map[*ir.Value]*ir.Value) {
	groups := grouped(list)
	came := make([][]*ir.Value, len(groups))
	send := func(k int) {
		mark := len(z.f.Ops)
		for i := range groups[k][0].parts {
			came[k] = append(came[k], z.gather(groups[k], i))
		}
		z.at(mark, place, ready(groups[k], place))
	}
	for k, group := range groups {
		if k == 0 {
			send(0)
		}
		then := ready(group, place)
		if k+1 < len(groups) {
			send(k + 1)
			then = ready(groups[k+1], place)
		}
		mark := len(z.f.Ops)
		z.receive(group, came[k], subst)
		z.at(mark, place, then)
	}
}

// grouped cuts list into messages of at most maxFactors bytes, or of one gradient.
func grouped(list []*message) [][]*message {
	var groups [][]*message
	bytes := 0
	for _, m := range list {
		size := 0
		for _, p := range m.parts {
			size += p.Type.Bytes()
		}
		if bytes += size; groups == nil || bytes > maxFactors {
			groups, bytes = append(groups, nil), size
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], m)
	}
	return groups
}

// ready is the place of the last of a group.
func ready(group []*message, place map[*ir.Op]int) int { return place[group[len(group)-1].op] }

// receive makes the gradients of a group out of what came from all ranks.
func (z *squeezer) receive(group []*message, came []*ir.Value, subst map[*ir.Value]*ir.Value) {
	at := make([]int, len(came))
	for _, m := range group {
		z.b.Loc = z.c.Loc(m.op.Loc)
		own := make([]*ir.Value, len(came))
		for i, p := range m.parts {
			size := p.Type.Elems()
			own[i] = ops.SliceDim(z.b, came[i], 1, at[i], size)
			at[i] += size
		}
		subst[m.op.Out[0]] = z.named(m.back(own), m.op.Out[0])
	}
}

// gather brings part i of all members to every rank: [ranks, their elements together].
func (z *squeezer) gather(group []*message, i int) *ir.Value {
	last := group[len(group)-1]
	z.b.Loc = z.c.Loc(last.op.Loc)
	list := make([]*ir.Value, len(group))
	for k, m := range group {
		list[k] = m.parts[i]
	}
	one := list[0]
	if len(list) > 1 {
		one = ops.Concat(z.b, 0, list...)
	}
	all := ops.AllGather(z.b, ops.Reshape(z.b, one, []int{1, one.Type.Elems()}), axis, 0, z.ranks)
	what := []string{"the largest elements of the gradients", "where the largest elements of the gradients are"}
	if z.o.Compress == "int8" {
		what = []string{"the gradients in 8 bits", "the scales of the gradients in 8 bits"}
	}
	all.Op.Why = fmt.Sprintf("%s of %d parameters, from %s on", what[i], len(group), group[0].param.Name)
	return all
}
