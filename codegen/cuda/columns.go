package cuda

import (
	"fmt"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// onePass is how much memory one block may read, bytes, rather than leave partial results to a second launch: both take some
// 2 microseconds.
const onePass = 1 << 16

// bytes is how much the instructions read for one element.
func (p *printer) bytes(insts []int) int {
	n := 0
	for _, l := range p.loads(insts) {
		if in := p.k.Insts[l]; in.Level == kir.PerElem {
			n += in.DType.Size()
		}
	}
	return n
}

// columns prints kernels that accumulate over rows and reduce over none: a block takes some columns of a range of rows, each
// thread w.v columns of every so manieth row.
func (p *printer) columns() {
	insts, uniform := p.partition()
	rows, elems := p.k.Rows(), p.k.RowElems()
	w := &walk{dims: p.rowDim, v: p.width(p.rowDim, insts, false), local: p.outDim, chunks: 4}
	across := min(32, powerOf2((elems+w.v-1)/w.v))
	short := p.bytes(insts)*rows*w.v*8 <= onePass && elems <= 256*8*w.v
	if short {
		across = min(across, 8)
	}
	down := blockThreads / across
	for w.chunks > 1 && rows < 2*down*w.chunks {
		w.chunks /= 2
	}
	tiles := (elems + across*w.v - 1) / (across * w.v)
	cuts := 1
	if !short {
		cuts = p.cuts(tiles, rows/(down*w.chunks))
	}
	part := (rows + cuts - 1) / cuts
	cuts = (rows + part - 1) / part
	l := launch{threads: blockThreads, family: "reduction", params: p.everything(), grid: [3]int{tiles, cuts, 1}, work: tiles*cuts > 1}
	p.begin(l)
	for _, n := range uniform {
		p.outside(n, nil, "blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0")
	}
	p.Line("const %s column = (blockIdx.x * %d + threadIdx.x %% %d) * %d;", p.index(), across, across, w.v)
	p.Line("const %s r0 = (%s)blockIdx.y * %d, r1 = r0 + %d < %d ? r0 + %d : %d;", p.index(), p.index(), part, part, rows, part, rows)
	for _, n := range p.accs() {
		t, start := regType(p.k.Insts[n].DType), scalar.Identity(p.k.Insts[n])
		if p.scalarAcc(n) {
			p.Line("%s a%d = %s;", t, n, start)
			continue
		}
		p.Line("%s a%d[%d];", t, n, w.v)
		p.Line("#pragma unroll")
		p.Line("for (int e = 0; e < %d; e++) a%d[e] = %s;", w.v, n, start)
	}
	w.j, w.cond = "column", "q < r1"
	if tiles*across*w.v > elems {
		w.cond += fmt.Sprintf(" && j < %d", elems)
	}
	w.start = fmt.Sprintf("const %s q = r + c * %d;\n", p.index(), down) + p.decoded(p.outDim, "q", "i")
	p.Open("for (%s r = r0 + threadIdx.x / %d; r < r1; r += %d)", p.index(), across, down*w.chunks)
	p.fetch(p.loads(insts), w)
	p.compute(insts, w, func(n int) bool {
		acc := fmt.Sprintf("a%d[e]", n)
		if p.scalarAcc(n) {
			acc = fmt.Sprintf("a%d", n)
		}
		return p.accumulate(n, acc)
	})
	p.Close()
	for _, n := range p.accs() {
		if !p.scalarAcc(n) {
			p.columnPartial(n, w.v, across, cuts)
		}
	}
	p.scalarPartials(tiles*cuts, blockThreads, fmt.Sprintf("blockIdx.y * %d + blockIdx.x", tiles))
	p.end(l)
}

// cuts is into how many ranges rows are cut, at most most: enough blocks for the device, within the planned workspace.
func (p *printer) cuts(tiles, most int) int {
	rows, elems := p.k.Rows(), p.k.RowElems()
	n := min(most, (528+tiles-1)/tiles)
	for _, a := range p.accs() {
		limit := sumCopies(p.k.Params[p.k.Insts[a].Param].Elems, rows, elems)
		if p.scalarAcc(a) {
			limit /= tiles
		}
		n = min(n, limit)
	}
	return max(1, n)
}

// columnPartial combines accumulator n over the lines of the block and writes it.
func (p *printer) columnPartial(n, v, across, copies int) {
	in := p.k.Insts[n]
	t, elems := regType(in.DType), p.k.RowElems()
	to := fmt.Sprintf("p%d[column + e]", in.Param)
	value := fmt.Sprintf("a%d[e]", n)
	if copies > 1 {
		a := p.partialOf(n, copies)
		to = fmt.Sprintf("((%s *)(ws + %d))[blockIdx.y * %d + column + e]", t, a.at, elems)
	} else {
		value = scalar.Store(in.DType, value)
	}
	p.Line("GTC_SHARED(%s, room%d, [%d]);", t, n, blockThreads)
	p.Line("#pragma unroll")
	p.Open("for (int e = 0; e < %d; e++)", v)
	p.Line("a%d[e] = over_lines<op_%s, %d, %d>(a%d[e], room%d);", n, in.Fn, across, blockThreads/across, n, n)
	p.Line("sync();")
	p.Line("if (threadIdx.x < %d && column + e < %d) %s = %s;", across, elems, to, value)
	p.Close()
}

// decoded is what decode prints.
func (p *printer) decoded(dims []int, from, prefix string) string {
	q := &printer{k: p.k, wide: p.wide}
	q.decode(dims, from, prefix)
	return strings.TrimSuffix(q.String(), "\n")
}

// powerOf2 is the least power of two that is not below n.
func powerOf2(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}
