package cuda

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// walk is the loop of a thread over its part of a space: chunks of v neighbouring elements along the last of dims. In the text
// chunk c starts at element j, which counts over dims; the dims of outer have indices of their own.
type walk struct {
	dims   []int // outermost first
	v      int
	chunks int
	start  string // declares what j is made of, for chunk c; may be several lines
	j      string // the first element of chunk c
	cond   string // when the chunk is there; "" always
	local  []int  // dims that are not walked, whose indices start declares
}

// accessForm is how a load or store goes through memory along a walk.
type accessForm int

const (
	single accessForm = iota // one element serves the whole vector
	packed                   // v neighbouring elements
	spread                   // each element has an address of its own
)

// form says how instruction n, a load or a store, goes along w.
func (p *printer) form(n int, w *walk) accessForm {
	in := p.k.Insts[n]
	if len(w.dims) == 0 || w.v == 1 {
		return single
	}
	last := w.dims[len(w.dims)-1]
	if w.crosses(p.k) {
		switch {
		case denseOver(in.Access, p.k, w.dims):
			return packed
		case !slices.ContainsFunc(w.dims, func(d int) bool { return in.Access.Strides[d] != 0 }):
			return single
		}
		return spread
	}
	switch in.Access.Strides[last] {
	case 0:
		return single
	case 1:
		return packed
	}
	return spread
}

// crosses reports whether vectors go over the end of the last dim.
func (w *walk) crosses(k *kir.Kernel) bool {
	return len(w.dims) > 1 && k.Dims[w.dims[len(w.dims)-1]]%w.v != 0
}

// denseOver reports whether the access walks memory as dims are counted.
func denseOver(a kir.Access, k *kir.Kernel, dims []int) bool {
	n := 1
	for i := len(dims) - 1; i >= 0; i-- {
		if k.Dims[dims[i]] > 1 && a.Strides[dims[i]] != n {
			return false
		}
		n *= k.Dims[dims[i]]
	}
	return true
}

// accessWidth is how many neighbouring elements access n may move at once, at most v.
func (p *printer) accessWidth(n, v int, dims []int) int {
	in := p.k.Insts[n]
	par := p.k.Params[in.Param]
	size := par.DType.Size()
	w := v
	for ; w > 1; w /= 2 {
		ok := w*size <= 16 && in.Access.Offset%w == 0 && (max(par.Align, size))%(w*size) == 0
		for d, s := range in.Access.Strides {
			if last := dims[len(dims)-1]; d != last && p.k.Dims[d] > 1 && s%w != 0 {
				ok = false
			}
		}
		if ok {
			break
		}
	}
	return w
}

// moved is how many neighbouring elements packed access n moves at once along w.
func (p *printer) moved(n int, w *walk) int {
	if !w.crosses(p.k) {
		return p.accessWidth(n, w.v, w.dims)
	}
	return min(w.v, 16/p.k.Params[p.k.Insts[n].Param].DType.Size()) // crossing has seen to it
}

// crossing is how many neighbours a thread takes where the last dim is odd but some accesses run densely over all dims: vectors
// go over its ends, and only the other accesses find each element by itself. 1 where that does not pay or fit.
func (p *printer) crossing(insts []int) int {
	dims, dense, other, size := p.rowDim, 0, 0, 1
	for _, n := range insts {
		in := p.k.Insts[n]
		par := p.k.Params[in.Param]
		switch {
		case in.Op != "load" && in.Op != "store":
		case denseOver(in.Access, p.k, dims) && in.Access.Offset == 0 && par.Align >= 16:
			dense++
			size = max(size, par.DType.Size())
		case in.Op == "store" || denseOver(in.Access, p.k, dims):
			return 1
		default:
			other++
		}
	}
	v := min(8, 16/size)
	if dense < 2*other || p.k.RowElems()%v != 0 {
		return 1
	}
	return v
}

// width picks how many neighbours along the last of dims a thread takes: as many as fill 16 bytes of the widest type that is
// accessed so, and as all accesses can have at once. With rest, elements that make no whole vector may be left.
func (p *printer) width(dims []int, insts []int, rest bool) int {
	if len(dims) == 0 {
		return 1
	}
	last := dims[len(dims)-1]
	unit, size := 0, 1
	for _, n := range insts {
		in := p.k.Insts[n]
		if (in.Op == "load" || in.Op == "store") && in.Access.Strides[last] == 1 {
			unit++
			if len(p.outDim) == 0 || slices.ContainsFunc(p.outDim, func(d int) bool { return in.Access.Strides[d] != 0 }) {
				size = max(size, p.k.Params[in.Param].DType.Size()) // what all rows read comes from a cache
			}
		}
	}
	if unit == 0 {
		return 1
	}
	v := min(8, 16/size)
	for v > 1 && (p.k.Dims[last]%v != 0 && !(rest && p.k.Dims[last] > 64*v) || slices.ContainsFunc(insts, func(n int) bool { return p.narrower(n, v, dims) })) {
		v /= 2
	}
	return v
}

// narrower reports whether access n, of unit stride, cannot move v elements in one access of up to 16 bytes.
func (p *printer) narrower(n, v int, dims []int) bool {
	in := p.k.Insts[n]
	if in.Op != "load" && in.Op != "store" || in.Access.Strides[dims[len(dims)-1]] != 1 {
		return false
	}
	size := p.k.Params[in.Param].DType.Size()
	return p.accessWidth(n, v, dims) < min(v, 16/size)
}

// address prints where access n starts in chunk c of w.
func (p *printer) address(n int, w *walk) string {
	in := p.k.Insts[n]
	parts := []string{fmt.Sprintf("p%d", in.Param)}
	if in.Access.Offset != 0 {
		parts = append(parts, fmt.Sprint(in.Access.Offset))
	}
	if s := offset(in.Access, w.local, "i"); s != "" {
		parts = append(parts, s)
	}
	if w.crosses(p.k) {
		if p.form(n, w) == packed {
			parts = append(parts, "j")
		}
	} else if s := offset(in.Access, w.dims, "j"); s != "" {
		parts = append(parts, s)
	}
	return strings.Join(parts, " + ")
}

// elementOffset prints how far element e of a vector is from its start, for an access that is spread.
func (p *printer) elementOffset(n int, w *walk) string {
	in := p.k.Insts[n]
	if w.crosses(p.k) {
		return strings.NewReplacer().Replace(offset(in.Access, w.dims, "x"))
	}
	return fmt.Sprintf("e * %d", in.Access.Strides[w.dims[len(w.dims)-1]])
}

// fetch prints the loads into the arrays qN, one vector (or element) for each chunk.
func (p *printer) fetch(loads []int, w *walk) {
	if len(loads) == 0 {
		return
	}
	for _, n := range loads {
		t := scalar.MemType(p.k.Insts[n].DType)
		if p.form(n, w) == single {
			p.Line("%s q%d[%d];", t, n, w.chunks)
		} else {
			p.Line("pack<%s, %d> q%d[%d];", t, w.v, n, w.chunks)
		}
	}
	p.each(w, func() {
		for _, n := range loads {
			switch at := p.address(n, w); p.form(n, w) {
			case single:
				p.Line("q%d[c] = *(%s);", n, at)
			case packed:
				p.Line("get<%d>(q%d[c], %s);", p.moved(n, w), n, at)
			}
		}
		spreads := slices.DeleteFunc(slices.Clone(loads), func(n int) bool { return p.form(n, w) != spread })
		if len(spreads) == 0 {
			return
		}
		p.elements(w, func() {
			for _, n := range spreads {
				p.Line("q%d[c].x[e] = (%s)[%s];", n, p.address(n, w), p.elementOffset(n, w))
			}
		})
	})
}

// elements prints the loop over the elements of a vector, with their indices where those are not the chunk's plus e.
func (p *printer) elements(w *walk, body func()) {
	if w.v == 1 {
		p.Open("")
	} else {
		p.Line("#pragma unroll")
		p.Open("for (int e = 0; e < %d; e++)", w.v)
	}
	inner := p.captured(func() {
		if w.crosses(p.k) {
			p.decode(w.dims, "(j + e)", "x")
		}
		body()
	})
	if w.v == 1 && says(inner, "e") {
		p.Line("const int e = 0;")
	}
	p.WriteString(inner)
	p.Close()
}

// compute prints the instructions listed for every element of every chunk, and their stores. leaf prints what is not a plain
// instruction (kept values, reductions, accumulations) and says whether it did.
func (p *printer) compute(insts []int, w *walk, leaf func(n int) bool) {
	p.each(w, func() {
		var stores []int
		for _, n := range insts {
			if in := p.k.Insts[n]; in.Op == "store" {
				stores = append(stores, n)
				if p.form(n, w) == packed {
					p.Line("pack<%s, %d> s%d;", scalar.MemType(in.DType), w.v, n)
				}
			}
		}
		p.elements(w, func() {
			for _, n := range insts {
				if leaf == nil || !leaf(n) {
					p.inst(n, w)
				}
			}
		})
		for _, n := range stores {
			if p.form(n, w) == packed {
				p.Line("put<%d>(%s, s%d);", p.moved(n, w), p.address(n, w), n)
			}
		}
	})
}

// inst prints an instruction for element e of chunk c.
func (p *printer) inst(n int, w *walk) {
	in := p.k.Insts[n]
	switch in.Op {
	case "load":
		at := fmt.Sprintf("q%d[c]", n)
		if p.form(n, w) != single {
			at += ".x[e]"
		}
		p.Line("const %s v%d = %s;", scalar.RegType(in.DType), n, scalar.Load(in.DType, at))
	case "store":
		v := scalar.Store(in.DType, scalar.Unrounded(p.k, in.Args[0], in.DType))
		switch p.form(n, w) {
		case packed:
			p.Line("s%d.x[e] = %s;", n, v)
		case spread:
			p.Line("(%s)[%s] = %s;", p.address(n, w), p.elementOffset(n, w), v)
		default:
			p.Line("*(%s) = %s;", p.address(n, w), v)
		}
	case "index":
		p.Line("const int64_t v%d = %s;", n, p.position(in.Access, w))
	default:
		p.scalarInst(n)
	}
}

// position prints the value of an index instruction at element e.
func (p *printer) position(a kir.Access, w *walk) string {
	parts := []string{fmt.Sprint(a.Offset)}
	if p.base != "" && slices.ContainsFunc(a.Strides, func(s int) bool { return s != 0 }) {
		parts = append(parts, p.base)
	}
	if s := offset(a, w.local, "i"); s != "" {
		parts = append(parts, s)
	}
	prefix := "j"
	if w.crosses(p.k) {
		prefix = "x"
	}
	if s := offset(a, w.dims, prefix); s != "" {
		parts = append(parts, s)
	}
	if len(w.dims) > 0 && prefix == "j" && w.v > 1 {
		if s := a.Strides[w.dims[len(w.dims)-1]]; s != 0 {
			parts = append(parts, fmt.Sprintf("e * %d", s))
		}
	}
	return strings.Join(parts, " + ")
}

func (p *printer) scalarInst(n int) {
	p.Line("const %s v%d = %s;", scalar.RegType(p.k.Insts[n].DType), n, p.expr(n))
}

// outside prints an instruction that does not vary along a walk; the dims of local have indices i. Stores are for the threads
// that guard lets through.
func (p *printer) outside(n int, local []int, guard string) {
	in := p.k.Insts[n]
	at := func() string { return fmt.Sprintf("p%d[%s]", in.Param, p.outerPosition(in.Access, local)) }
	switch in.Op {
	case "load":
		p.Line("const %s v%d = %s;", scalar.RegType(in.DType), n, scalar.Load(in.DType, at()))
	case "store":
		if guard != "" {
			guard = "if (" + guard + ") "
		}
		p.Line("%s%s = %s;", guard, at(), scalar.Store(in.DType, scalar.Unrounded(p.k, in.Args[0], in.DType)))
	case "index":
		p.Line("const int64_t v%d = %s;", n, p.outerPosition(in.Access, local))
	default:
		p.scalarInst(n)
	}
}

func (p *printer) outerPosition(a kir.Access, local []int) string {
	s := offset(a, local, "i")
	switch {
	case s == "":
		return fmt.Sprint(a.Offset)
	case a.Offset == 0:
		return s
	}
	return fmt.Sprintf("%d + %s", a.Offset, s)
}

// combine prints how value x joins accumulator acc.
func (p *printer) combine(n int, acc, x string) {
	in := p.k.Insts[n]
	p.Line("%s = op_%s::of(%s, (%s)%s);", acc, in.Fn, acc, regType(in.DType), x)
}
