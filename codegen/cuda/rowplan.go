package cuda

import (
	"slices"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// planRows decides the form of a row kernel.
func (p *printer) planRows() *rowPlan {
	r := &rowPlan{kept: map[int]int{}, fetched: map[int]bool{}, declared: map[int]bool{}}
	rows, elems := p.k.Rows(), p.k.RowElems()
	r.dims, r.local = p.rowDim, p.outDim
	r.apart = !p.k.Row[lastDim(p.k)] && rows > 1 && (p.allScalar() || !p.has("acc"))
	if r.apart {
		r.v = 1
		p.layApart(r, rows, elems)
	} else {
		_, _, insts := p.stages(r.kept)
		r.v = p.width(p.rowDim, insts, false)
		p.layAlong(r, rows, elems)
	}
	accs := p.accRegisters(r)
	p.keepAll(r, min(maxKept, maxAccs+32-accs))
	if accs > maxAccs {
		r.memory = true
		r.rows = 1
		r.lanes = max(32, min(512, powerOf2((elems+r.v-1)/r.v)))
	}
	r.finishLayout(elems)
	r.blocks = (rows + r.rows - 1) / r.rows
	r.copies = r.blocks
	for _, n := range p.accs() { // a grid of some 1024 threads for each multiprocessor goes through the rows
		r.copies = min(r.copies, 132*1024/(r.lanes*r.rows), sumCopies(p.k.Params[p.k.Insts[n].Param].Elems, rows, elems))
	}
	return r
}

// finishLayout works out rounds and chunks from the lanes.
func (r *rowPlan) finishLayout(elems int) {
	r.rounds = (elems + r.lanes*r.v - 1) / (r.lanes * r.v)
	r.chunks = r.rounds
	if r.rounds*r.v > maxHeld {
		r.chunks = max(1, min(4, 16/r.v))
	}
}

// looped reports whether rows are too long to have all chunks unrolled; nothing is kept then.
func (r *rowPlan) looped() bool { return r.chunks < r.rounds }

// layAlong gives neighbouring elements of a row to neighbouring lanes: of a warp, or less, when the row is short.
func (p *printer) layAlong(r *rowPlan, rows, elems int) {
	vectors := (elems + r.v - 1) / r.v
	r.lanes = min(32, powerOf2(vectors))
	r.rows = blockThreads / r.lanes
	r.finishLayout(elems)
	switch {
	case elems <= 32*maxHeld && (p.accRegisters(r) <= maxKept || vectors < 64):
		for r.rows*r.lanes > 64 && (rows/r.rows < 264 || r.rows*r.lanes > 128 && p.accRegisters(r) > 40) {
			r.rows /= 2
		}
	case vectors > 512*max(1, maxHeld/r.v):
		r.lanes, r.rows = 512, 1
	default:
		r.lanes, r.rows = blockLanes(vectors, r.v), 1
	}
	r.finishLayout(elems)
}

// blockLanes is how many threads share a row of so many vectors of v elements: whole warps, of which few are idle, each thread
// with some blockHeld elements.
func blockLanes(vectors, v int) int {
	best, least := 512, 1<<30
	for c := 1; c*v <= maxHeld; c++ {
		lanes := ((vectors+c-1)/c + 31) &^ 31
		if lanes > 512 || lanes < 64 && c > 1 {
			continue
		}
		cost := lanes*c*16/vectors*4 + max(c*v-blockHeld, blockHeld-c*v)/8
		if cost < least {
			best, least = lanes, cost
		}
	}
	return best
}

// layApart gives neighbouring rows to neighbouring threads, since it is rows that lie side by side in memory.
func (p *printer) layApart(r *rowPlan, rows, elems int) {
	r.lanes, r.rows = 1, blockThreads
	for r.rows > 32 && (rows/r.rows < 264 || r.rows/2 >= rows) && elems/r.lanes >= 8 {
		r.rows /= 2
		r.lanes *= 2
	}
	for r.lanes*r.rows < 512 && rows/r.rows < 132 && elems/r.lanes >= 64 {
		r.lanes *= 2
	}
	r.finishLayout(elems)
}

// stages lists what the loop of each stage evaluates, values in kept taken from registers after their first stage: per stage,
// by instruction the stages that need it, and all of them.
func (p *printer) stages(kept map[int]int) (used [][]int, when map[int][]int, all []int) {
	last := 0
	for _, in := range p.k.Insts {
		last = max(last, in.Stage)
	}
	when = map[int][]int{}
	for t := range last + 1 {
		seen := map[int]bool{}
		var walk func(n int)
		walk = func(n int) {
			seen[n] = true
			if first, ok := kept[n]; ok && first < t {
				return
			}
			for _, a := range p.k.Insts[n].Args {
				if !seen[a] && p.k.Insts[a].Level == kir.PerElem && p.k.Insts[a].Op != "reduce" {
					walk(a)
				}
			}
		}
		for n, in := range p.k.Insts {
			root := in.Op == "acc" && in.Stage == t || in.Op == "reduce" && in.Stage-1 == t || in.Op == "store" && in.Level == kir.PerElem && in.Stage == t
			if root {
				walk(n)
			}
		}
		var list []int
		for n := range seen {
			list = append(list, n)
			when[n] = append(when[n], t)
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
		slices.Sort(list)
		used = append(used, list)
	}
	slices.Sort(all)
	return used, when, all
}

// keepAll marks loads that several stages need, those of the row first, then costly values, to stay in registers as long as
// there is room.
func (p *printer) keepAll(r *rowPlan, room int) {
	held := r.rounds * r.v
	if r.looped() {
		room = 0
	}
	_, when, _ := p.stages(r.kept)
	for _, ofRow := range []bool{true, false} {
		for n, in := range p.k.Insts {
			own := slices.ContainsFunc(p.outDim, func(d int) bool { return d < len(in.Access.Strides) && in.Access.Strides[d] != 0 })
			cost := (held*in.DType.Size() + 3) / 4
			if in.Op == "load" && own == ofRow && len(when[n]) > 1 && cost <= room {
				r.kept[n] = when[n][0]
				room -= cost
			}
		}
	}
	for n, in := range p.k.Insts {
		cost := held * max(1, scalar.Compute(in.DType).Size()/4)
		if f := kir.Lookup(in.Op); f != nil && f.Cost == kir.Dear && in.Level == kir.PerElem && len(when[n]) > 1 && cost <= room {
			r.kept[n] = when[n][0]
			room -= cost
		}
	}
	used, when, _ := p.stages(r.kept)
	for n := range r.kept {
		if len(when[n]) < 2 {
			delete(r.kept, n)
		}
	}
	r.used = used
}

// accRegisters is how many registers the column accumulators take; as many as never fit when there are not even all chunks.
func (p *printer) accRegisters(r *rowPlan) int {
	n := 0
	for _, a := range p.accs() {
		if !p.scalarAcc(a) {
			n += r.rounds * r.v * max(1, scalar.Compute(p.k.Insts[a].DType).Size()/4)
			if r.looped() {
				n += 2 * maxKept
			}
		}
	}
	return n
}
