package schedule

import (
	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/group"
)

// landingFloor is how many bytes may always be on their way behind a reduce_scatter before it is waited for.
const landingFloor = 64 << 10

// landings says of each reduce_scatter in list, by position, at which later one it is over at the latest: when as many
// bytes follow it as it has itself. What it reads, such as a whole gradient of which a part is wanted, need not be kept
// from there on, though nobody may need the part before the step's end; and it still has the time of one more gradient
// to travel in.
func landings(list []group.Group) map[int]int {
	type flight struct{ pos, bytes, behind int }
	out := map[int]int{}
	var flying []flight
	for pos, g := range list {
		if g.Ops[0].Def.Rules.Collective != mesh.ReduceScatter {
			continue
		}
		n := g.Ops[0].In[0].Type.Bytes()
		kept := flying[:0]
		for _, f := range flying {
			if f.behind += n; f.behind >= max(f.bytes, landingFloor) {
				out[f.pos] = pos
			} else {
				kept = append(kept, f)
			}
		}
		flying = append(kept, flight{pos: pos, bytes: n})
	}
	return out
}

// offloaded says of each offload in list, by position, at which kernel it is over at the latest: the one that its op says, counted from
// there on. One behind which there are not so many is over when the function ends.
func offloaded(list []group.Group) map[int]int {
	out, left := map[int]int{}, map[int]int{} // kernels that may still start before it is over
	for pos, g := range list {
		op := g.Ops[0]
		if op.Def.Rules.Transfer == ir.ToHost {
			left[pos] = op.Def.Rules.Lands(op)
		}
		if op.Def.Rules.Beside() {
			continue
		}
		for from := range left {
			if left[from]--; left[from] == 0 {
				out[from] = pos
				delete(left, from)
			}
		}
	}
	return out
}
