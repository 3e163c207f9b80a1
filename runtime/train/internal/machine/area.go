package machine

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// Where work is queued ahead of the run-time, on a device with memory of its own, there lies behind the plan's arena what the
// run-time needs for itself: the status words of calls that may refuse an index, the results of a step, and the batch that comes
// next.

// RuntimeArea is the layout of what follows the plan's arena. Offsets are bytes from the arena's start.
type RuntimeArea struct {
	Words   int                 // offset of the status words, eight bytes each
	Limit   int                 // number of status words
	Results int                 // offset of what a step gives, right behind the words; InBlock times eight bytes
	Inbox   map[*abi.Tensor]int // offset of each input of the next batch, its micro-batches one after the other
	Image   program.Copy        // copies the inbox to all inputs at once, where they lie side by side and a step takes one batch; else of no bytes
	End     int
}

// What a step gives: the loss sum, the count, the loss scale, the number of skipped steps, the norm of the gradients and the number of
// empty steps come back of every step, where there are such; the learning rate, the last, when it is shown.
const (
	InBlock    = 6
	NumResults = 7
)

// NoRow is a status word when nothing was refused.
const NoRow = math.MaxInt64

// align is that of places on a device, which libraries and wide loads ask for.
const align = 256

func aligned(n int) int { return (n + align - 1) / align * align }

// layRuntimeArea makes room behind the arena of x for what p needs.
func layRuntimeArea(x *program.Plan, p *program.Program) RuntimeArea {
	b := RuntimeArea{Inbox: map[*abi.Tensor]int{}, Words: aligned(x.Prog.ArenaBytes)}
	count := map[string]int{} // of a function
	for name, calls := range p.Funcs {
		for i := range calls {
			if calls[i].Refuses() {
				count[name]++
			}
		}
		b.Limit += count[name] * max(x.Prog.Slots, 1)
	}
	for _, a := range x.Prog.Actions { // a copy for each action, since the words say not which micro-batch it was
		b.Limit += count[a.Func]
	}
	if x.Prog.Actions == nil && x.Train.Microbatches > 1 {
		b.Limit += x.Train.Microbatches*count[abi.FuncMicro] + max(count[abi.FuncStep], count[abi.FuncLocal])
	}
	b.Results = b.Words + 8*b.Limit
	b.End = aligned(b.Results + 8*InBlock)
	layInbox(x, &b)
	return b
}

// layInbox makes room for a batch.
func layInbox(x *program.Plan, b *RuntimeArea) {
	var list []*abi.Tensor
	start, most := b.End, 1
	for i := range x.Prog.Tensors {
		t := &x.Prog.Tensors[i]
		if t.Role != abi.RoleInput && t.Role != abi.RoleTarget && t.Role != abi.RoleWeight && !program.IsWhole(t) {
			continue
		}
		n := program.PartOf(t, x.Train.Microbatches-1) + 1
		if len(t.Dims) > 0 && t.Dims[0] == x.Train.RankBatch*n { // the program splits it itself
			n = 1
		}
		most = max(most, n)
		list = append(list, t)
		b.Inbox[t] = b.End
		b.End += aligned(n * t.Bytes)
	}
	if most > 1 || len(list) < 2 {
		return
	}
	slices.SortFunc(list, func(s, t *abi.Tensor) int { return s.Offset - t.Offset })
	first, last := list[0], list[len(list)-1]
	for i, t := range list[1:] {
		if gap := t.Offset - list[i].Offset - list[i].Bytes; gap < 0 || gap >= abi.Align { // there may be something else
			return
		}
	}
	b.Image = program.Copy{From: start, To: first.Offset, Bytes: last.Offset + last.Bytes - first.Offset}
	for _, t := range list {
		b.Inbox[t] = start + t.Offset - first.Offset
	}
	b.End = start + aligned(b.Image.Bytes)
}
