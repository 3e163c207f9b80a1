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
		p.Line("const int lane = threadIdx.x %s %d;", map[bool]string{true: "/", false: "%"}[r.apart], map[bool]int{true: r.rows, false: r.lanes}[r.apart])
	} else {
		p.Line("const int lane = 0;")
	}
	for n, in := range p.k.Insts {
		if in.Op == "reduce" && r.exchanges() {
			p.Line("GTC_SHARED(%s, room%d, [%d]);", regType(in.DType), n, map[bool]int{true: threads, false: threads / 32}[r.apart])
		}
	}
	p.startAccs(r)
	mine := fmt.Sprintf("threadIdx.x / %d", r.lanes)
	if r.apart {
		mine = fmt.Sprintf("threadIdx.x %% %d", r.rows)
	}
	looped := r.copies < r.blocks
	if looped {
		p.Open("for (%s r0 = (%s)blockIdx.x * %d; r0 < %d; r0 += %d)", p.index(), p.index(), r.rows, total, r.copies*r.rows)
	} else {
		p.Line("const %s r0 = (%s)blockIdx.x * %d;", p.index(), p.index(), r.rows)
	}
	if r.blocks*r.rows > total {
		p.Line("const bool live = r0 + %s < %d;", mine, total)
		p.Line("const %s r = live ? r0 + %s : %d;", p.index(), mine, total-1)
	} else if r.rows > 1 {
		p.Line("const %s r = r0 + %s;", p.index(), mine)
	} else {
		p.Line("const %s r = r0;", p.index())
	}
	p.decode(p.outDim, "r", "i")
	for t := range r.used {
		p.between(r, t)
		p.stage(r, t)
	}
	p.between(r, len(r.used))
	if looped {
		if r.exchanges() {
			p.Line("sync();")
		}
		p.Close()
	}
	p.endAccs(r)
	p.end(l)
}

// exchanges reports whether reductions go through shared memory.
func (r *rowPlan) exchanges() bool { return r.apart && r.lanes > 1 || !r.apart && r.lanes > 32 }

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
			p.Line("%s a%d = %s;", regType(in.DType), n, scalar.Identity(in))
		}
	}
	r.start = ""
	if r.looped() {
		p.Open("for (int c0 = 0; c0 < %d; c0 += %d)", r.rounds, r.chunks)
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
		p.Open("")
	}
	p.fetch(fresh, &r.walk)
	p.compute(used, &r.walk, func(n int) bool { return p.rowLeaf(r, n, t) })
	if brace || r.looped() {
		p.Close()
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
		p.Line("const %s v%d = h%d[c][e];", scalar.RegType(in.DType), n, n)
		return true
	case kept && in.Op != "load":
		p.inst(n, &r.walk)
		p.Line("h%d[c][e] = v%d;", n, n)
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
		p.Line("const %s v%d = (%s)%s;", scalar.RegType(in.DType), n, scalar.RegType(in.DType), value)
	}
}

// startAccs declares the accumulators and what stays in registers.
func (p *printer) startAccs(r *rowPlan) {
	for n, in := range p.k.Insts {
		if _, ok := r.kept[n]; ok && in.Op != "load" {
			p.Line("%s h%d[%d][%d];", scalar.RegType(in.DType), n, r.chunks, r.v)
		}
	}
	for _, n := range p.accs() {
		in := p.k.Insts[n]
		t, start, elems := regType(in.DType), scalar.Identity(in), p.k.RowElems()
		switch {
		case p.scalarAcc(n):
			p.Line("%s a%d = %s;", t, n, start)
		case r.memory:
			a := p.partialOf(n, r.copies)
			p.Line("%s *m%d = (%s *)(ws + %d) + blockIdx.x * %d;", t, n, t, a.at, elems)
			p.Line("for (int k = lane * %d; k < %d; k += %d)", r.v, elems, r.lanes*r.v)
			p.Line("\tfor (int e = 0; e < %d; e++) m%d[k + e] = %s;", r.v, n, start)
		default:
			p.Line("%s a%d[%d][%d];", t, n, r.chunks, r.v)
			p.Line("#pragma unroll")
			p.Line("for (int c = 0; c < %d; c++)", r.chunks)
			p.Line("#pragma unroll")
			p.Line("\tfor (int e = 0; e < %d; e++) a%d[c][e] = %s;", r.v, n, start)
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
		p.Line("#pragma unroll")
		p.Open("for (int c = 0; c < %d; c++)", r.chunks)
		p.Line("const int j = (c * %d + lane) * %d;", r.lanes, r.v)
		p.Line("#pragma unroll")
		p.Open("for (int e = 0; e < %d; e++)", r.v)
		p.Open("if (j + e < %d)", elems)
		p.Line(body, args...)
		p.Close()
		p.Close()
		p.Close()
	}
	if r.rows == 1 {
		each("%s[j + e] = %s;", to, store(fmt.Sprintf("a%d[c][e]", n)))
		return
	}
	p.Line("GTC_SHARED(%s, sums%d, [%d]);", t, n, elems)
	p.Open("for (int g = 0; g < %d; g++)", r.rows)
	p.Open("if (threadIdx.x / %d == g)", r.lanes)
	each("sums%d[j + e] = g == 0 ? a%d[c][e] : op_%s::of(sums%d[j + e], a%d[c][e]);", n, n, in.Fn, n, n)
	p.Close()
	p.Line("sync();")
	p.Close()
	p.Line("for (int j = threadIdx.x; j < %d; j += %d) %s[j] = %s;", elems, r.lanes*r.rows, to, store(fmt.Sprintf("sums%d[j]", n)))
}
