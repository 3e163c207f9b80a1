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

// exchange sends the messages of many gradients together, up to maxFactors bytes, when the last of them is ready.
func (z *squeezer) exchange(list []*message, place map[*ir.Op]int, wanted map[*ir.Value]int, subst map[*ir.Value]*ir.Value) {
	for len(list) > 0 {
		n, bytes, until := 0, 0, len(place)
		for _, m := range list {
			for _, p := range m.parts {
				bytes += p.Type.Bytes()
			}
			if n > 0 && bytes > maxFactors {
				break
			}
			n++
			if at, ok := wanted[m.op.Out[0]]; ok {
				until = min(until, at)
			}
		}
		group := list[:n]
		list = list[n:]
		mark := len(z.f.Ops)
		var all []*ir.Value
		for i := range group[0].parts {
			all = append(all, z.gather(group, i))
		}
		z.at(mark, place, place[group[n-1].op])
		mark = len(z.f.Ops)
		at := make([]int, len(all))
		for _, m := range group {
			z.b.Loc = z.c.Loc(m.op.Loc)
			own := make([]*ir.Value, len(all))
			for i, p := range m.parts {
				size := p.Type.Elems()
				own[i] = ops.SliceDim(z.b, all[i], 1, at[i], size)
				at[i] += size
			}
			subst[m.op.Out[0]] = z.named(m.back(own), m.op.Out[0])
		}
		z.at(mark, place, until)
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
