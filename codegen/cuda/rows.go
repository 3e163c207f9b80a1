package cuda

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Limits of row kernels: elements of a row that one thread keeps in registers, in a warp and in a block; registers that all it
// keeps may take, and all that it accumulates. Beside them some 40 are needed.
const (
	maxHeld   = 32
	blockHeld = 16
	maxKept   = 80
	maxAccs   = 128
)

// rowPlan says which threads work on a row and what they remember.
type rowPlan struct {
	walk
	lanes    int          // threads of one row
	rows     int          // of a block
	apart    bool         // neighbouring threads have neighbouring rows, not neighbouring elements of one
	rounds   int          // vectors of a row that one thread has
	used     [][]int      // per stage: instructions that its loop evaluates
	kept     map[int]int  // value that stays in registers -> first stage that has it
	memory   bool         // column accumulators are in the workspace, for want of registers
	blocks   int          // of the grid
	copies   int          // partial copies of accumulators
	fetched  map[int]bool // loads that are in registers
	declared map[int]bool // instructions outside loops that were printed
}

// rows prints kernels that reduce over rows.
func (p *printer) rows() {
	r := p.planRows()
	total := p.k.Rows()
	threads := r.lanes * r.rows
	l := launch{threads: threads, family: "reduction", params: p.everything(), grid: [3]int{r.copies, 1, 1}, work: p.has("acc") && r.copies > 1 || r.memory}
	p.begin(l)
	for n, in := range p.k.Insts {
		if in.Level == kir.Uniform && in.Op != "acc" && in.Op != "reduce" {
			p.outside(n, nil, "blockIdx.x == 0 && threadIdx.x == 0")
		}
	}
	if r.lanes > 1 {
		p.line("const int lane = threadIdx.x %s %d;", map[bool]string{true: "/", false: "%"}[r.apart], map[bool]int{true: r.rows, false: r.lanes}[r.apart])
	} else {
		p.line("const int lane = 0;")
	}
	for n, in := range p.k.Insts {
		if in.Op == "reduce" && r.exchanges() {
			p.line("GTC_SHARED(%s, room%d, [%d]);", regType(in.DType), n, map[bool]int{true: threads, false: threads / 32}[r.apart])
		}
	}
	p.startAccs(r)
	mine := fmt.Sprintf("threadIdx.x / %d", r.lanes)
	if r.apart {
		mine = fmt.Sprintf("threadIdx.x %% %d", r.rows)
	}
	looped := r.copies < r.blocks
	if looped {
		p.open("for (%s r0 = (%s)blockIdx.x * %d; r0 < %d; r0 += %d)", p.index(), p.index(), r.rows, total, r.copies*r.rows)
	} else {
		p.line("const %s r0 = (%s)blockIdx.x * %d;", p.index(), p.index(), r.rows)
	}
	if r.blocks*r.rows > total {
		p.line("const bool live = r0 + %s < %d;", mine, total)
		p.line("const %s r = live ? r0 + %s : %d;", p.index(), mine, total-1)
	} else if r.rows > 1 {
		p.line("const %s r = r0 + %s;", p.index(), mine)
	} else {
		p.line("const %s r = r0;", p.index())
	}
	p.decode(p.outDim, "r", "i")
	for t := range r.used {
		p.between(r, t)
		p.stage(r, t)
	}
	p.between(r, len(r.used))
	if looped {
		if r.exchanges() {
			p.line("sync();")
		}
		p.close()
	}
	p.endAccs(r)
	p.end(l)
}

// exchanges reports whether reductions go through shared memory.
func (r *rowPlan) exchanges() bool { return r.apart && r.lanes > 1 || !r.apart && r.lanes > 32 }

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
		r.copies = min(r.copies, 132*1024/(r.lanes*r.rows), kir.DeviceCopies(p.k.Params[p.k.Insts[n].Param].Elems, rows, elems))
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
		if scalar.Heavy(in.Op) && in.Level == kir.PerElem && len(when[n]) > 1 && cost <= room {
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

// between prints the instructions of stage t that do not vary along the row, and stores of per-row values.
func (p *printer) between(r *rowPlan, t int) {
	guard := "lane == 0"
	if r.blocks*r.rows > p.k.Rows() {
		guard += " && live"
	}
	for n, in := range p.k.Insts {
		if in.Level == kir.PerRow && in.Op != "acc" && in.Op != "reduce" && in.Stage <= t && !r.declared[n] {
			r.declared[n] = true
			p.outside(n, p.outDim, guard)
		}
	}
}

// stage prints the pass of stage t over the row and the reductions that end it.
func (p *printer) stage(r *rowPlan, t int) {
	used := r.used[t]
	if len(used) == 0 {
		return
	}
	for _, n := range used {
		if in := p.k.Insts[n]; in.Op == "reduce" {
			p.line("%s a%d = %s;", regType(in.DType), n, scalar.Identity(in))
		}
	}
	r.start = ""
	if r.looped() {
		p.open("for (int c0 = 0; c0 < %d; c0 += %d)", r.rounds, r.chunks)
		r.j = fmt.Sprintf("((c0 + c) * %d + lane) * %d", r.lanes, r.v)
	} else {
		r.j = fmt.Sprintf("(c * %d + lane) * %d", r.lanes, r.v)
	}
	r.cond = p.rowCond(r)
	var fresh []int
	for _, n := range p.loads(used) {
		if !r.fetched[n] {
			fresh = append(fresh, n)
		}
	}
	brace := !r.looped() && slices.ContainsFunc(fresh, func(n int) bool { _, kept := r.kept[n]; return !kept })
	p.fetchKept(r, &fresh)
	if brace {
		p.open("")
	}
	p.fetch(fresh, &r.walk)
	p.compute(used, &r.walk, func(n int) bool { return p.rowLeaf(r, n, t) })
	if brace || r.looped() {
		p.close()
	}
	p.reduceStage(r, used)
}

// fetchKept loads what later stages need, too, and takes it out of fresh.
func (p *printer) fetchKept(r *rowPlan, fresh *[]int) {
	var keep []int
	for _, n := range *fresh {
		if _, ok := r.kept[n]; ok {
			keep = append(keep, n)
			r.fetched[n] = true
		}
	}
	p.fetch(keep, &r.walk)
	*fresh = slices.DeleteFunc(*fresh, func(n int) bool { return r.fetched[n] })
}

// rowCond is when a chunk is part of a row that exists.
func (p *printer) rowCond(r *rowPlan) string {
	cond := ""
	rounds := r.rounds
	if r.looped() {
		rounds = (r.rounds + r.chunks - 1) / r.chunks * r.chunks
	}
	if rounds*r.lanes*r.v > p.k.RowElems() {
		cond = fmt.Sprintf("j < %d", p.k.RowElems())
	}
	if r.blocks*r.rows > p.k.Rows() {
		if cond != "" {
			cond += " && "
		}
		cond += "live"
	}
	return cond
}

// rowLeaf prints reductions, accumulations and values from registers.
func (p *printer) rowLeaf(r *rowPlan, n, t int) bool {
	in := p.k.Insts[n]
	first, kept := r.kept[n]
	switch {
	case in.Op == "reduce":
		p.combine(n, fmt.Sprintf("a%d", n), fmt.Sprintf("v%d", in.Args[0]))
		return true
	case in.Op == "acc" && p.scalarAcc(n):
		return p.accumulate(n, fmt.Sprintf("a%d", n))
	case in.Op == "acc" && r.memory:
		p.combine(n, fmt.Sprintf("m%d[j + e]", n), fmt.Sprintf("v%d", in.Args[0]))
		return true
	case in.Op == "acc":
		return p.accumulate(n, fmt.Sprintf("a%d[c][e]", n))
	case kept && in.Op != "load" && first < t:
		p.line("const %s v%d = h%d[c][e];", scalar.RegType(in.DType), n, n)
		return true
	case kept && in.Op != "load":
		p.inst(n, &r.walk)
		p.line("h%d[c][e] = v%d;", n, n)
		return true
	}
	return false
}

// reduceStage combines the reductions of a stage over the lanes of the row.
func (p *printer) reduceStage(r *rowPlan, used []int) {
	for _, n := range used {
		in := p.k.Insts[n]
		if in.Op != "reduce" {
			continue
		}
		value := fmt.Sprintf("a%d", n)
		switch {
		case r.lanes == 1:
		case r.apart:
			value = fmt.Sprintf("over_lines<op_%s, %d, %d>(a%d, room%d)", in.Fn, r.rows, r.lanes, n, n)
		case r.lanes > 32:
			value = fmt.Sprintf("over_block<op_%s, %d>(a%d, room%d)", in.Fn, r.lanes/32, n, n)
		default:
			value = fmt.Sprintf("over_lanes<op_%s, %d>(a%d)", in.Fn, r.lanes, n)
		}
		p.line("const %s v%d = (%s)%s;", scalar.RegType(in.DType), n, scalar.RegType(in.DType), value)
	}
}

// startAccs declares the accumulators and what stays in registers.
func (p *printer) startAccs(r *rowPlan) {
	for n, in := range p.k.Insts {
		if _, ok := r.kept[n]; ok && in.Op != "load" {
			p.line("%s h%d[%d][%d];", scalar.RegType(in.DType), n, r.chunks, r.v)
		}
	}
	for _, n := range p.accs() {
		in := p.k.Insts[n]
		t, start, elems := regType(in.DType), scalar.Identity(in), p.k.RowElems()
		switch {
		case p.scalarAcc(n):
			p.line("%s a%d = %s;", t, n, start)
		case r.memory:
			a := p.partialOf(n, r.copies)
			p.line("%s *m%d = (%s *)(ws + %d) + blockIdx.x * %d;", t, n, t, a.at, elems)
			p.line("for (int k = lane * %d; k < %d; k += %d)", r.v, elems, r.lanes*r.v)
			p.line("\tfor (int e = 0; e < %d; e++) m%d[k + e] = %s;", r.v, n, start)
		default:
			p.line("%s a%d[%d][%d];", t, n, r.chunks, r.v)
			p.line("#pragma unroll")
			p.line("for (int c = 0; c < %d; c++)", r.chunks)
			p.line("#pragma unroll")
			p.line("\tfor (int e = 0; e < %d; e++) a%d[c][e] = %s;", r.v, n, start)
		}
	}
}

// endAccs writes the partial accumulators of the block.
func (p *printer) endAccs(r *rowPlan) {
	for _, n := range p.accs() {
		if !p.scalarAcc(n) && !r.memory {
			p.rowPartial(r, n)
		}
	}
	p.scalarPartials(r.copies, r.lanes*r.rows, "blockIdx.x")
}

// rowPartial combines column accumulator n over the rows that the block works on side by side, and writes it.
func (p *printer) rowPartial(r *rowPlan, n int) {
	in := p.k.Insts[n]
	t, elems := regType(in.DType), p.k.RowElems()
	to := fmt.Sprintf("p%d", in.Param)
	store := func(v string) string { return scalar.Store(in.DType, v) }
	if r.copies > 1 {
		a := p.partialOf(n, r.copies)
		to = fmt.Sprintf("((%s *)(ws + %d) + blockIdx.x * %d)", t, a.at, elems)
		store = func(v string) string { return v }
	}
	each := func(body string, args ...any) {
		p.line("#pragma unroll")
		p.open("for (int c = 0; c < %d; c++)", r.chunks)
		p.line("const int j = (c * %d + lane) * %d;", r.lanes, r.v)
		p.line("#pragma unroll")
		p.open("for (int e = 0; e < %d; e++)", r.v)
		p.open("if (j + e < %d)", elems)
		p.line(body, args...)
		p.close()
		p.close()
		p.close()
	}
	if r.rows == 1 {
		each("%s[j + e] = %s;", to, store(fmt.Sprintf("a%d[c][e]", n)))
		return
	}
	p.line("GTC_SHARED(%s, sums%d, [%d]);", t, n, elems)
	p.open("for (int g = 0; g < %d; g++)", r.rows)
	p.open("if (threadIdx.x / %d == g)", r.lanes)
	each("sums%d[j + e] = g == 0 ? a%d[c][e] : op_%s::of(sums%d[j + e], a%d[c][e]);", n, n, in.Fn, n, n)
	p.close()
	p.line("sync();")
	p.close()
	p.line("for (int j = threadIdx.x; j < %d; j += %d) %s[j] = %s;", elems, r.lanes*r.rows, to, store(fmt.Sprintf("sums%d[j]", n)))
}
