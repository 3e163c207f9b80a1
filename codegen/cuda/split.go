package cuda

import (
	"fmt"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Few long rows (the channels of a batch normalisation) would leave most of a GPU idle with a block for each. Every stage is a
// kernel of its own then, in which several blocks share a row: they leave partial reductions in the workspace, which all
// blocks of the next kernel combine in the same order.

// pieces is into how many parts rows are cut; 1 when they are not.
func (p *printer) pieces() int {
	if !p.has("reduce") || p.has("acc") || !p.k.Row[lastDim(p.k)] {
		return 1
	}
	return rowPieces(p.k.Rows(), p.k.RowElems())
}

// lastDim is the innermost dim that has a size.
func lastDim(k *kir.Kernel) int {
	d := len(k.Dims) - 1
	for d > 0 && k.Dims[d] == 1 {
		d--
	}
	return d
}

// splitRows prints the kernels of all stages.
func (p *printer) splitRows(pieces int) {
	at := map[int]int{} // reduction -> its partial results
	for n, in := range p.k.Insts {
		if in.Op == "reduce" {
			at[n] = p.workspace
			p.workspace += partialBytes(in.DType, p.k.Rows(), pieces)
		}
	}
	used, _, all := p.stages(nil)
	w := &walk{dims: p.rowDim, local: p.outDim, v: p.width(p.rowDim, all, false), chunks: 4}
	for t := range append(used, nil) {
		switch {
		case t < len(used) && len(used[t]) > 0:
			p.splitStage(w, t, used[t], pieces, at)
		case p.storesPerRow(t):
			p.splitStage(w, t, nil, pieces, at)
		}
	}
}

// storesPerRow reports whether values that do not vary along rows are stored in stage t.
func (p *printer) storesPerRow(t int) bool {
	for _, in := range p.k.Insts {
		if in.Op == "store" && in.Level != kir.PerElem && in.Stage == t {
			return true
		}
	}
	return false
}

// splitStage prints the kernel of stage t; without insts it stores per-row values only.
func (p *printer) splitStage(w *walk, t int, insts []int, pieces int, at map[int]int) {
	elems := p.k.RowElems()
	l := launch{suffix: fmt.Sprintf("_stage%d", t), threads: blockThreads, family: "reduction", params: p.everything(),
		grid: [3]int{pieces, p.k.Rows(), 1}, work: true}
	if insts == nil {
		l.threads, l.grid[0] = 32, 1
	}
	p.begin(l)
	p.Line("const %s r = blockIdx.y;", p.index())
	p.decode(p.outDim, "r", "i")
	need := p.needed(t, insts)
	for n, in := range p.k.Insts {
		switch {
		case !need[n]:
		case in.Op == "reduce":
			p.wholeReduction(n, pieces, at[n])
		default:
			p.outside(n, p.outDim, "blockIdx.x == 0 && threadIdx.x == 0")
		}
	}
	if insts != nil {
		unit := blockThreads * w.v
		part := (elems + pieces*unit - 1) / (pieces * unit) * unit
		p.Line("const %s start = blockIdx.x * %d, stop = start + %d < %d ? start + %d : %d;", p.index(), part, part, elems, part, elems)
		for _, n := range insts {
			if in := p.k.Insts[n]; in.Op == "reduce" {
				p.Line("%s a%d = %s;", regType(in.DType), n, scalar.Identity(in))
			}
		}
		w.j, w.cond = fmt.Sprintf("b + (c * %d + (int)threadIdx.x) * %d", blockThreads, w.v), "j < stop"
		p.Open("for (%s b = start; b < stop; b += %d)", p.index(), blockThreads*w.v*w.chunks)
		p.fetch(p.loads(insts), w)
		p.compute(insts, w, func(n int) bool {
			if p.k.Insts[n].Op != "reduce" {
				return false
			}
			p.combine(n, fmt.Sprintf("a%d", n), fmt.Sprintf("v%d", p.k.Insts[n].Args[0]))
			return true
		})
		p.Close()
		p.partReductions(insts, pieces, at)
	}
	p.end(l)
}

// needed marks what does not vary along rows and what stage t needs of it: for insts and for its stores.
func (p *printer) needed(t int, insts []int) []bool {
	need := make([]bool, len(p.k.Insts))
	for _, n := range insts {
		for _, a := range p.k.Insts[n].Args {
			need[a] = true
		}
	}
	for n := len(need) - 1; n >= 0; n-- {
		in := p.k.Insts[n]
		outer := in.Level != kir.PerElem && (in.Op != "reduce" || in.Stage <= t)
		if need[n] = outer && (need[n] || in.Op == "store" && in.Stage == t); need[n] && in.Op != "reduce" {
			for _, a := range in.Args {
				need[a] = true
			}
		}
	}
	return need
}

// wholeReduction combines the parts of reduction n that an earlier kernel has left: all warps do it alike.
func (p *printer) wholeReduction(n, pieces, at int) {
	in := p.k.Insts[n]
	t := regType(in.DType)
	p.Line("%s a%d = %s;", t, n, scalar.Identity(in))
	p.Line("for (int k = threadIdx.x %% 32; k < %d; k += 32) a%d = op_%s::of(a%d, ((const %s *)(ws + %d))[r * %d + k]);", pieces, n, in.Fn, n, t, at, pieces)
	p.Line("const %s v%d = (%s)over_lanes<op_%s, 32>(a%d);", scalar.RegType(in.DType), n, scalar.RegType(in.DType), in.Fn, n)
}

// partReductions leaves the block's part of each reduction in the workspace.
func (p *printer) partReductions(insts []int, pieces int, at map[int]int) {
	for _, n := range insts {
		in := p.k.Insts[n]
		if in.Op != "reduce" {
			continue
		}
		t := regType(in.DType)
		p.Line("GTC_SHARED(%s, room%d, [%d]);", t, n, blockThreads/32)
		p.Line("a%d = over_block<op_%s, %d>(a%d, room%d);", n, in.Fn, blockThreads/32, n, n)
		p.Line("if (threadIdx.x == 0) ((%s *)(ws + %d))[r * %d + blockIdx.x] = a%d;", t, at[n], pieces, n)
	}
}
