package cuda

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// A kernel that writes along one dim and reads some operand along another would ask memory for a sector of 32 bytes for each
// element. Blocks take tiles of both dims instead: such operands are read along their own dim into shared memory, and from there
// along the other.

// tileSide is the sides of a tile, tileLines how many of its lines the threads of a block take at once.
const (
	tileSide  = 32
	tileLines = blockThreads / tileSide
)

// turned is what such a kernel is about.
type turned struct {
	along, across int   // the dim that is written along, and the one that loads read along
	loads         []int // those loads
}

// turns finds a dim to turn for a pointwise kernel whose dims are walked as one.
func turns(k *kir.Kernel) (t turned, ok bool) {
	if len(k.Dims) < 2 {
		return t, false
	}
	t.along, t.across = lastDim(k), -1
	for n, in := range k.Insts {
		switch {
		case in.Op == "store" && in.Access.Strides[t.along] != 1 || in.Op == "acc" || in.Op == "reduce":
			return t, false
		case in.Op != "load" || in.Access.Strides[t.along] < 2:
			continue
		}
		d := slices.Index(in.Access.Strides, 1)
		if d < 0 || k.Dims[d] < tileSide/2 || t.across >= 0 && d != t.across {
			continue
		}
		t.across = d
		t.loads = append(t.loads, n)
	}
	return t, t.across >= 0 && k.Dims[t.along] >= tileSide/2 && len(t.loads) <= 4
}

// tiles prints a kernel that turns operands.
func (p *printer) tiles(t turned) {
	k := p.k
	insts, uniform := p.partition()
	var others, all []int
	for d := range k.Dims {
		all = append(all, d)
		if d != t.along && d != t.across {
			others = append(others, d)
		}
	}
	wide, high := (k.Dims[t.along]+tileSide-1)/tileSide, (k.Dims[t.across]+tileSide-1)/tileSide
	blocks := wide * high
	for _, d := range others {
		blocks *= k.Dims[d]
	}
	l := launch{threads: blockThreads, family: "pointwise", params: p.everything(), grid: [3]int{blocks, 1, 1}}
	p.begin(l)
	for _, n := range uniform {
		p.outside(n, nil, "blockIdx.x == 0 && threadIdx.x == 0")
	}
	for _, n := range t.loads {
		p.Line("GTC_SHARED(%s, tile%d, [%d][%d]);", scalar.MemType(k.Insts[n].DType), n, tileSide, tileSide+1)
	}
	p.Line("const int tx = threadIdx.x %% %d, ty = threadIdx.x / %d;", tileSide, tileSide)
	p.Line("const %s along = blockIdx.x %% %d * %d, across = blockIdx.x / %d %% %d * %d;", p.index(), wide, tileSide, wide, high, tileSide)
	if len(others) > 0 {
		p.Line("const %s r = blockIdx.x / %d;", p.index(), wide*high)
		p.decode(others, "r", "i")
	}
	walkBy := func(line, lane int, lineStart, laneStart string) *walk {
		w := &walk{local: all, v: 1, chunks: tileSide / tileLines}
		w.start = fmt.Sprintf("const %s i%d = %s + ty + c * %d;\nconst %s i%d = %s + tx;", p.index(), line, lineStart, tileLines, p.index(), lane, laneStart)
		if k.Dims[t.along]%tileSide != 0 || k.Dims[t.across]%tileSide != 0 {
			w.cond = fmt.Sprintf("i%d < %d && i%d < %d", t.along, k.Dims[t.along], t.across, k.Dims[t.across])
		}
		return w
	}
	p.each(walkBy(t.along, t.across, "along", "across"), func() {
		for _, n := range t.loads {
			p.Line("tile%d[ty + c * %d][tx] = *(%s);", n, tileLines, p.address(n, &walk{local: all}))
		}
	})
	p.Line("sync();")
	w := walkBy(t.across, t.along, "across", "along")
	straight := slices.DeleteFunc(p.loads(insts), func(n int) bool { return slices.Contains(t.loads, n) })
	p.fetch(straight, w)
	p.compute(insts, w, func(n int) bool {
		if !slices.Contains(t.loads, n) {
			return false
		}
		in := k.Insts[n]
		p.Line("const %s v%d = %s;", scalar.RegType(in.DType), n, scalar.Load(in.DType, fmt.Sprintf("tile%d[tx][ty + c * %d]", n, tileLines)))
		return true
	})
	p.end(l)
}
