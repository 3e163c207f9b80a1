package cuda

import (
	"slices"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
)

// Scalars is the Key of calls that compute numbers: learning rates, norms, counts. One thread does any of them one after the
// other, so they may depend on one another.
const Scalars = "scalars"

// scalars reports whether the call computes numbers only.
func (c Call) scalars() bool {
	if c.Kernel.Rows()*c.Kernel.RowElems() != 1 {
		return false
	}
	for _, in := range c.Kernel.Insts {
		if in.Op == "reduce" || in.Op == "acc" {
			return false
		}
	}
	return true
}

// InOrder prints calls of the Key Scalars as one launch of one thread. A table says where their params are, so that neither
// the text nor the kernel's parameters grow with the calls: the sum of a number for each parameter of a model is a loop over
// the table, and so are neighbouring calls that do the same.
func InOrder(name string, calls []Call) ([]cuda.Kernel, error) {
	k := cuda.Kernel{Name: name, Include: []string{"fused.cuh"}, Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Family: "pointwise",
		Args: []cuda.Ref{{Arg: cuda.Base}, {Arg: cuda.Table}}}
	p := &printer{name: name}
	p.Line("extern \"C\" __global__ void __launch_bounds__(32) NAME(char *base, const uint64_t *row)")
	p.Open("")
	p.Line("using namespace gtc;")
	p.Line("if (threadIdx.x != 0) return;")
	last, count := "", 0 // the text of the calls before, and where the table counts them
	for _, c := range calls {
		r := rolled(c)
		p.k, p.fastMath, p.Indent = r.Kernel, nil, 2
		text := p.captured(func() { p.rolled(r) })
		p.Indent = 1
		if text != last {
			count = len(k.Table)
			k.Table = append(k.Table, 0)
			p.Open("for (uint64_t calls = *row++; calls > 0; calls--)")
			p.WriteString(text)
			p.Close()
		}
		last = text
		k.Table[count]++
		r.tabulate(&k)
	}
	p.Indent = 1
	p.Close()
	k.Text = p.String()
	return []cuda.Kernel{k}, p.err
}

// roll is a kernel in which each sum of many loaded numbers is printed as a loop over the table.
type roll struct {
	*kir.Kernel
	at    []int // where its params are
	folds []fold
}

// fold is a chain of additions: instruction add is carried out for each of the numbers at, after a load of it and perhaps a
// cast. The first addition is to the value from.
type fold struct {
	load, cast, add int // cast is -1 where there is none
	from            int
	at              []int
}

// tabulate appends where a call's params and the numbers of its sums are, in the order in which the kernel reads them.
func (r *roll) tabulate(k *cuda.Kernel) {
	offset := func(at int) {
		k.Refs = append(k.Refs, len(k.Table))
		k.Table = append(k.Table, uint64(at))
	}
	for i, at := range r.at {
		if r.foldOf(func(f fold) bool { return r.Insts[f.load].Param == i }) < 0 {
			offset(at)
		}
	}
	for _, f := range r.folds {
		k.Table = append(k.Table, uint64(len(f.at)))
		for _, at := range f.at {
			offset(at)
		}
	}
}

func (r *roll) foldOf(is func(f fold) bool) int { return slices.IndexFunc(r.folds, is) }

// rolled finds the sums of a call of numbers. What the loops repeat is left out of the kernel, and its params with it, so that
// sums of any length have one text.
func rolled(c Call) *roll {
	k := flattened(c.Kernel).Kernel
	r := &roll{Kernel: &kir.Kernel{Dims: k.Dims, Row: k.Row, Chunks: k.Chunks}}
	links, gone := chains(k)
	param := make([]int, len(k.Params))
	for i := range k.Params {
		param[i] = -1
		if !slices.ContainsFunc(links, func(f fold) bool { return gone[f.load] && k.Insts[f.load].Param == i }) {
			param[i] = len(r.Params)
			r.Params = append(r.Params, k.Params[i])
			r.at = append(r.at, c.At[i])
		}
	}
	number := make([]int, len(k.Insts))
	for n, in := range k.Insts {
		f := slices.IndexFunc(links, func(f fold) bool { return f.add == n })
		if gone[n] {
			if f >= 0 { // its sum is that of the loop
				number[n] = number[in.Args[0]]
				to := &r.folds[r.foldOf(func(f fold) bool { return f.add == number[n] })]
				to.at = append(to.at, c.At[k.Insts[links[f].load].Param])
			}
			continue
		}
		number[n] = len(r.Insts)
		in.Args = slices.Clone(in.Args)
		for i, a := range in.Args {
			in.Args[i] = number[a]
		}
		if in.Op == "load" || in.Op == "store" {
			in.Param = param[in.Param]
		}
		r.Insts = append(r.Insts, in)
		if f >= 0 {
			l := links[f]
			g := fold{load: number[l.load], cast: -1, add: number[n], from: in.Args[0], at: []int{c.At[k.Insts[l.load].Param]}}
			if l.cast >= 0 {
				g.cast = number[l.cast]
			}
			r.folds = append(r.folds, g)
		}
	}
	return r
}

// chains finds additions of a number that is loaded for nothing else, and marks the instructions of those that continue
// another: the loop over the first carries them out.
func chains(k *kir.Kernel) (links []fold, gone []bool) {
	uses, reads := make([]int, len(k.Insts)), make([]int, len(k.Params))
	for _, in := range k.Insts {
		for _, a := range in.Args {
			uses[a]++
		}
		if in.Op == "load" || in.Op == "store" {
			reads[in.Param]++
		}
	}
	gone = make([]bool, len(k.Insts))
	for n, in := range k.Insts {
		if in.Op != "add" || in.Args[0] == in.Args[1] {
			continue
		}
		f := fold{load: in.Args[1], cast: -1, add: n, from: in.Args[0]}
		if k.Insts[f.load].Op == "cast" && uses[f.load] == 1 {
			f.cast, f.load = f.load, k.Insts[f.load].Args[0]
		}
		if l := k.Insts[f.load]; l.Op != "load" || uses[f.load] != 1 || reads[l.Param] != 1 {
			continue
		}
		before := slices.IndexFunc(links, func(b fold) bool { return b.add == f.from })
		if before >= 0 && uses[f.from] == 1 && links[before].alike(f, k) {
			gone[f.load], gone[f.add] = true, true
			if f.cast >= 0 {
				gone[f.cast] = true
			}
		}
		links = append(links, f)
	}
	return links, gone
}

// alike reports whether one loop can carry out a and b.
func (a fold) alike(b fold, k *kir.Kernel) bool {
	same := func(x, y int) bool {
		return k.Insts[x].DType == k.Insts[y].DType && k.Insts[x].Access.Offset == k.Insts[y].Access.Offset
	}
	return (a.cast < 0) == (b.cast < 0) && (a.cast < 0 || same(a.cast, b.cast)) && same(a.load, b.load) && same(a.add, b.add) &&
		k.Params[k.Insts[a.load].Param].DType == k.Params[k.Insts[b.load].Param].DType
}

// rolled prints a kernel of one point: all loads and arithmetic, then the stores.
func (p *printer) rolled(r *roll) {
	pointer := func(i int) {
		t := scalar.MemType(r.Params[i].DType)
		if !r.Params[i].Out {
			t = "const " + t
		}
		p.Line("%s *p%d = (%s *)(base + *row++);", t, i, t)
	}
	inside := map[int]bool{}
	for _, f := range r.folds {
		inside[f.load], inside[f.cast] = true, true
	}
	for i := range r.Params {
		if r.foldOf(func(f fold) bool { return r.Insts[f.load].Param == i }) < 0 {
			pointer(i)
		}
	}
	var stores []int
	for n, in := range r.Insts {
		f := r.foldOf(func(f fold) bool { return f.add == n })
		switch {
		case in.Op == "store":
			stores = append(stores, n)
		case f >= 0:
			g := r.folds[f]
			t := scalar.RegType(in.DType)
			p.Line("%s s%d = v%d;", t, n, g.from)
			p.Line("#pragma unroll 8")
			p.Open("for (uint64_t i = *row++; i > 0; i--)")
			p.Line("const %s v%d = s%d;", t, g.from, n)
			pointer(r.Insts[g.load].Param)
			p.outside(g.load, nil, "")
			if g.cast >= 0 {
				p.outside(g.cast, nil, "")
			}
			p.outside(n, nil, "")
			p.Line("s%d = v%d;", n, n)
			p.Close()
			p.Line("const %s v%d = s%d;", t, n, n)
		case !inside[n]:
			p.outside(n, nil, "")
		}
	}
	for _, n := range stores {
		p.outside(n, nil, "")
	}
}
