package cuda

import (
	"fmt"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// blockThreads is the usual size of a block.
const blockThreads = 256

// flat prints pointwise kernels and those that accumulate into scalars only: all dims are walked as one.
func (p *printer) flat() {
	k := flattened(p.k)
	rows, elems := p.k.Rows(), p.k.RowElems()
	p.k = k.Kernel
	p.split()
	if t, ok := turns(p.k); ok {
		p.tiles(t)
		return
	}
	insts, uniform := p.partition()
	w := &walk{dims: p.rowDim, v: p.width(p.rowDim, insts, len(p.rowDim) == 1)}
	if w.v == 1 && len(w.dims) > 1 {
		w.v = p.crossing(insts)
	}
	total := k.RowElems()
	vectors := total / w.v
	threads := min(blockThreads, (vectors+31)&^31)
	w.chunks = p.unroll(insts, w, vectors)
	blocks := (vectors + threads*w.chunks - 1) / (threads * w.chunks)
	copies := blocks
	if accs := p.accs(); len(accs) > 0 {
		copies = min(blocks, 528, sumCopies(1, rows, elems))
	}
	l := launch{threads: threads, family: "pointwise", params: p.everything(), grid: [3]int{copies, 1, 1}}
	if p.has("acc") {
		l.family, l.work = "reduction", copies > 1
	}
	p.begin(l)
	for _, n := range uniform {
		p.outside(n, nil, "blockIdx.x == 0 && threadIdx.x == 0")
	}
	for _, n := range p.accs() {
		p.Line("%s a%d = %s;", regType(k.Insts[n].DType), n, scalar.Identity(k.Insts[n]))
	}
	w.j = fmt.Sprintf("(b * %d + c * %d + (%s)threadIdx.x) * %d", threads*w.chunks, threads, p.index(), w.v)
	if vectors%(threads*w.chunks) != 0 {
		w.cond = fmt.Sprintf("j < %d", vectors*w.v)
	}
	if copies < blocks {
		p.Open("for (%s b = blockIdx.x; b < %d; b += %d)", p.index(), blocks, copies)
	} else {
		p.Line("const %s b = blockIdx.x;", p.index())
	}
	leaf := func(n int) bool { return p.accumulate(n, fmt.Sprintf("a%d", n)) }
	p.fetch(p.loads(insts), w)
	p.compute(insts, w, leaf)
	if copies < blocks {
		p.Close()
	}
	if rest := total - vectors*w.v; rest > 0 {
		tail := &walk{dims: p.rowDim, v: 1, chunks: 1, j: fmt.Sprintf("%d + (int)threadIdx.x", vectors*w.v)}
		tail.cond = fmt.Sprintf("blockIdx.x == 0 && threadIdx.x < %d", rest)
		p.Open("")
		p.fetch(p.loads(insts), tail)
		p.compute(insts, tail, leaf)
		p.Close()
	}
	p.scalarPartials(copies, threads, "blockIdx.x")
	p.end(l)
}

// partition lists the instructions that a loop over elements evaluates, and those that are the same everywhere.
func (p *printer) partition() (insts, uniform []int) {
	for n, in := range p.k.Insts {
		if in.Level == kir.Uniform && in.Op != "acc" && in.Op != "reduce" {
			uniform = append(uniform, n)
		} else {
			insts = append(insts, n)
		}
	}
	return insts, uniform
}

func (p *printer) loads(insts []int) []int {
	var out []int
	for _, n := range insts {
		if p.k.Insts[n].Op == "load" {
			out = append(out, n)
		}
	}
	return out
}

// unroll is how many vectors a thread takes: four loads on their way hide the memory's latency, while there are enough blocks.
func (p *printer) unroll(insts []int, w *walk, vectors int) int {
	streams := 0
	for _, n := range p.loads(insts) {
		if p.form(n, w) != single || w.v == 1 {
			streams++
		}
	}
	c := 1
	for c < 4 && c*max(streams, 1) < 4 && vectors >= 2*c*blockThreads*528 {
		c *= 2
	}
	return c
}

// accumulate prints an accumulation of the element at hand; false for other instructions.
func (p *printer) accumulate(n int, acc string) bool {
	in := p.k.Insts[n]
	if in.Op != "acc" {
		return false
	}
	p.combine(n, acc, fmt.Sprintf("v%d", in.Args[0]))
	return true
}

// scalarPartials combines the scalar accumulators aN over the block and writes them as partial number of copies, or as the
// result when there is one copy only.
func (p *printer) scalarPartials(copies, threads int, number string) {
	for _, n := range p.accs() {
		if !p.scalarAcc(n) {
			continue
		}
		in := p.k.Insts[n]
		t := regType(in.DType)
		p.Line("GTC_SHARED(%s, room%d, [%d]);", t, n, threads/32)
		p.Line("a%d = over_block<op_%s, %d>(a%d, room%d);", n, in.Fn, threads/32, n, n)
		if copies == 1 {
			p.Line("if (threadIdx.x == 0) *(p%d) = %s;", in.Param, scalar.Store(in.DType, fmt.Sprintf("a%d", n)))
			continue
		}
		a := p.partialOf(n, copies)
		p.Line("if (threadIdx.x == 0) ((%s *)(ws + %d))[%s] = a%d;", t, a.at, number, n)
	}
}
