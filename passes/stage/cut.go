package stage

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/cost"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// What moving a byte counts beside a floating-point operation: in a kernel, which then waits for memory, and from stage to
// stage (shared memory beside a processor core).
const (
	byteCost = 4
	sendCost = 8
)

// slack is the share by which the costliest part may be costlier than it must, for a cut where fewer bytes cross.
const slack = 0.05

// cut gives the core ops of F their parts.
func (k *cutter) cut() error {
	var list []*ir.Op
	for _, op := range k.f.Ops {
		if k.front[op] && k.core(op.Out[0]) {
			list = append(list, op)
		}
	}
	b := newBalance(list)
	ends, err := b.divide(k.parts)
	if err != nil {
		return ir.Errorf(ir.Loc{}, "the model cannot be cut into %d parts (%d stages, %s each): %v", k.parts, k.stages, printable.Count(k.table.Chunks, "chunk"), err).
			Note("use fewer stages; --tp and --dp divide the work of single operations")
	}
	k.part = map[*ir.Op]int{}
	q := 0
	for i, op := range list {
		if i == ends[q] {
			q++
		}
		k.part[op] = q
		for _, v := range op.In {
			if v != nil && !k.core(v) {
				k.reads(v, q)
			}
		}
	}
	total := b.before[len(list)]
	start := 0
	for q, end := range ends {
		goesOn := ""
		if end < len(list) {
			goesOn = fmt.Sprintf("; %d bytes of a micro-batch go on to the next part", b.cross[end])
		}
		k.c.Remark(nil, "part %d of %d, stage %d: %d forward operations, %.1f %% of the cost, from %s on%s", q, k.parts, k.stageOf(q),
			end-start, 100*float64(b.before[end]-b.before[start])/float64(max(total, 1)), list[start].Loc, goesOn)
		start = end
	}
	return nil
}

// reads records that part q reads the parameters in v, which is not core.
func (k *cutter) reads(v *ir.Value, q int) {
	for _, p := range k.kind[v].params {
		k.home(p.Name, q)
	}
}

// home records that the parameter of that name lives in part q.
func (k *cutter) home(name string, q int) {
	list := k.homes[name]
	if i, ok := slices.BinarySearch(list, q); !ok {
		k.homes[name] = slices.Insert(list, i, q)
	}
}

// balance divides a list of ops, in order, into consecutive parts.
type balance struct {
	before []int64 // cost of the ops before each position
	cross  []int64 // bytes made before each position and read from there on
}

func newBalance(list []*ir.Op) *balance {
	b := &balance{before: make([]int64, len(list)+1), cross: make([]int64, len(list)+2)}
	last, made := map[*ir.Value]int{}, map[*ir.Value]int{}
	var order []*ir.Value
	for i, op := range list {
		c := cost.Flops(op)
		if c += byteCost * moved(op); op.Def.Rules.Collective != "" {
			c = 0
		}
		b.before[i+1] = b.before[i] + c
		for _, v := range op.In {
			if _, ok := made[v]; ok {
				last[v] = i
			}
		}
		for _, v := range op.Out {
			made[v] = i
			order = append(order, v)
		}
	}
	for _, v := range order {
		if l, ok := last[v]; ok {
			b.cross[made[v]+1] += int64(v.Type.Bytes())
			b.cross[l+1] -= int64(v.Type.Bytes())
		}
	}
	for i := 1; i < len(b.cross); i++ {
		b.cross[i] += b.cross[i-1]
	}
	return b
}

// moved is the bytes that op moves; of a table of embeddings only the rows that it takes.
func moved(op *ir.Op) int64 {
	if op.Move() == ir.LooksUp {
		return int64(2*op.Out[0].Type.Bytes() + op.In[1].Type.Bytes())
	}
	return cost.Bytes(op)
}

// divide gives the ends of n parts, each of which has work: the costliest, with what it sends, costs as little as it can,
// give or take slack, and of such divisions the fewest bytes cross.
func (b *balance) divide(n int) ([]int, error) {
	last := len(b.before) - 1
	work := 0
	for i := range last {
		if b.before[i+1] > b.before[i] {
			work++
		}
	}
	if work < n {
		return nil, fmt.Errorf("its forward pass has %s with weights, but each part needs at least one", printable.Count(work, "operation"))
	}
	even := func(x, y state) bool { return x.most < y.most || x.most == y.most && x.bytes < y.bytes }
	cheap := func(x, y state) bool { return x.bytes < y.bytes || x.bytes == y.bytes && x.most < y.most }
	var all []int
	for i := 1; i < last; i++ {
		all = append(all, i)
	}
	tries := [][]int{all}
	if last > manyOps {
		tries = [][]int{b.narrow(), all}
	}
	least := b.bottleneck(n)
	for _, at := range tries {
		_, most := b.best(n, at, even, 2*least, math.MaxInt64)
		if most == math.MaxInt64 {
			continue
		}
		most += int64(slack * float64(most))
		ends, _ := b.best(n, at, cheap, most, most)
		return ends, nil
	}
	return nil, fmt.Errorf("BUG: no cut into %d parts", n)
}

// manyOps is the number of ops from which on narrow places are looked at first, and others only when those do not do.
const manyOps = 6000

// bottleneck is the least cost of the costliest of n parts.
func (b *balance) bottleneck(n int) int64 {
	last := len(b.before) - 1
	fits := func(limit int64) bool {
		at := 0
		for range n {
			at += sort.Search(last-at, func(d int) bool { return b.before[at+d+1]-b.before[at] > limit })
			if at == last {
				return true
			}
		}
		return false
	}
	lo, hi := int64(0), b.before[last]
	for lo < hi {
		if mid := (lo + hi) / 2; fits(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return hi
}

// narrow lists the positions at which fewer bytes cross than beside them.
func (b *balance) narrow() []int {
	var out []int
	for i := 1; i < len(b.before)-1; i++ {
		if b.cross[i] < b.cross[i-1] && b.cross[i] <= b.cross[i+1] || i > 1 && b.cross[i] <= b.cross[i-1] && b.cross[i] < b.cross[i+1] {
			out = append(out, i)
		}
	}
	return out
}

// state is a division of the ops before a position.
type state struct {
	bytes, most int64 // that cross; cost of the costliest part
	from        int
}

// best cuts at n-1 of the given positions so that no part has more work than limit, or costs more than most with what it
// sends, and none is better; the cost of its costliest part is MaxInt64 when there is no such cut.
func (b *balance) best(n int, at []int, better func(x, y state) bool, limit, most int64) ([]int, int64) {
	last := len(b.before) - 1
	at = append(append([]int{0}, at...), last)
	none := state{bytes: math.MaxInt64, most: math.MaxInt64}
	rows := [][]state{slices.Repeat([]state{none}, len(at))}
	rows[0][0] = state{}
	for r := 1; r <= n; r++ {
		row, low := slices.Repeat([]state{none}, len(at)), 0
		for i := range at {
			for b.before[at[i]]-b.before[at[low]] > limit {
				low++
			}
			for j := low; j < i; j++ {
				work, p := b.before[at[i]]-b.before[at[j]], rows[r-1][j]
				if p.most == math.MaxInt64 || work == 0 || work+sendCost*b.cross[at[i]] > most {
					continue
				}
				s := state{p.bytes + b.cross[at[i]], max(p.most, work+sendCost*b.cross[at[i]]), j}
				if better(s, row[i]) {
					row[i] = s
				}
			}
		}
		rows = append(rows, row)
	}
	i := len(at) - 1
	found := rows[n][i].most
	if found == math.MaxInt64 {
		return nil, found
	}
	ends := make([]int, n)
	for r := n; r > 0; r-- {
		ends[r-1] = at[i]
		i = rows[r][i].from
	}
	return ends, found
}
