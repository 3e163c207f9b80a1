package train

import (
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Where work is queued ahead of the run-time, on a device with memory of its own, there lies behind the plan's arena what the
// run-time needs for itself: the status words of calls that may refuse an index, the results of a step, and the batch that comes
// next.

// behind is the layout of what follows the plan's arena. Offsets are bytes from the arena's start.
type behind struct {
	words   int                 // offset of the status words
	limit   int                 // how many there are
	results int                 // offset of the loss sum and the count, eight bytes each; right behind the words
	inbox   map[*abi.Tensor]int // micro-batches one after the other
	image   Copy                // of the inbox to all inputs at once, where they lie side by side and a step takes one batch; else of no bytes
	end     int
}

// What a step gives: the loss sum, the count, the loss scale, the number of skipped steps, the norm of the gradients and the number of
// empty steps come back of every step, where there are such; the learning rate, the last, when it is shown.
const (
	inBlock    = 6
	numResults = 7
)

// noRow is a status word when nothing was refused.
const noRow = math.MaxInt64

// align is that of places on a device, which libraries and wide loads ask for.
const align = 256

func aligned(n int) int { return (n + align - 1) / align * align }

// layBehind makes room behind the arena of x for what p needs.
func layBehind(x *plan, p *Program) behind {
	b := behind{inbox: map[*abi.Tensor]int{}, words: aligned(x.prog.ArenaBytes)}
	count := map[string]int{} // of a function
	for name, calls := range p.Funcs {
		for i := range calls {
			if calls[i].refuses() {
				count[name]++
			}
		}
		b.limit += count[name] * max(x.prog.Slots, 1)
	}
	for _, a := range x.prog.Actions { // a copy for each action, since the words say not which micro-batch it was
		b.limit += count[a.Func]
	}
	if x.prog.Actions == nil && x.Train.Microbatches > 1 {
		b.limit += x.Train.Microbatches*count[FuncMicro] + max(count[FuncStep], count[FuncLocal])
	}
	b.results = b.words + 8*b.limit
	b.end = aligned(b.results + 8*inBlock)
	layInbox(x, &b)
	return b
}

// layInbox makes room for a batch.
func layInbox(x *plan, b *behind) {
	var list []*abi.Tensor
	start, most := b.end, 1
	for i := range x.prog.Tensors {
		t := &x.prog.Tensors[i]
		if t.Role != "input" && t.Role != "target" && t.Role != "weight" && !isWhole(t) {
			continue
		}
		n := partOf(t, x.Train.Microbatches-1) + 1
		if len(t.Dims) > 0 && t.Dims[0] == x.Train.RankBatch*n { // the program splits it itself
			n = 1
		}
		most = max(most, n)
		list = append(list, t)
		b.inbox[t] = b.end
		b.end += aligned(n * t.Bytes)
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
	b.image = Copy{From: start, To: first.Offset, Bytes: last.Offset + last.Bytes - first.Offset}
	for _, t := range list {
		b.inbox[t] = start + t.Offset - first.Offset
	}
	b.end = start + aligned(b.image.Bytes)
}
