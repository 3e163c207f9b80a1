package c

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// row prints the code of one row, numbered by the C variable r; "" when there is only one row.
func (p *printer) row(r string) {
	p.indices(r)
	p.pointers()
	done := map[int]bool{}
	for t := range p.used {
		if t == 0 {
			for n := range p.k.Insts {
				if first, kept := p.spill[n]; kept {
					_ = first
					p.Line("%s t%d[%d] __attribute__((aligned(64)));", scalar.RegType(p.k.Insts[n].DType), n, p.k.RowElems())
				}
			}
		}
		p.outside(t, done)
		if len(p.used[t]) > 0 {
			p.loop(t, r == "")
		}
	}
	p.outside(len(p.used), done)
}

// indices decodes the row number into one index per outer dim.
func (p *printer) indices(r string) {
	stride := p.k.Rows()
	for _, d := range p.outDim {
		if r == "" {
			p.Line("const long i%d = 0;", d)
			continue
		}
		stride /= p.k.Dims[d]
		switch {
		case len(p.outDim) == 1:
			p.Line("const long i%d = %s;", d, r)
		case d == p.outDim[0]:
			p.Line("const long i%d = %s / %d;", d, r, stride)
		default:
			p.Line("const long i%d = %s / %d %% %d;", d, r, stride, p.k.Dims[d])
		}
	}
}

// pointers prints, for each load and store, where this row starts in its buffer.
func (p *printer) pointers() {
	for n, in := range p.k.Insts {
		if in.Op != "load" && in.Op != "store" {
			continue
		}
		c := "const "
		if in.Op == "store" {
			c = ""
		}
		p.Line("%s%s *q%d = p%d%s;", c, scalar.MemType(p.k.Params[in.Param].DType), n, in.Param, p.offset(in.Access, p.outDim, "i"))
	}
}

// offset prints "+ 5 + i0 * 512 + i1" for the dims listed.
func (p *printer) offset(a kir.Access, dims []int, index string) string {
	var b strings.Builder
	if a.Offset != 0 && index == "i" {
		fmt.Fprintf(&b, " + %d", a.Offset)
	}
	for _, d := range dims {
		switch s := a.Strides[d]; s {
		case 0:
		case 1:
			fmt.Fprintf(&b, " + %s%d", index, d)
		default:
			fmt.Fprintf(&b, " + %s%d * %d", index, d, s)
		}
	}
	return b.String()
}

// inner prints the index of an access within its row.
func (p *printer) inner(a kir.Access) string {
	s := strings.TrimPrefix(p.offset(a, p.rowDim, "j"), " + ")
	if s == "" {
		return "0"
	}
	return s
}

// outside prints the instructions of stage t that do not vary along the row, and stores of per-row values.
func (p *printer) outside(t int, done map[int]bool) {
	for n, in := range p.k.Insts {
		if done[n] || in.Level == kir.PerElem || in.Stage > t || in.Op == "acc" || in.Op == "reduce" {
			continue
		}
		if t == len(p.used) || in.Stage == t {
			done[n] = true
			p.inst(n)
		}
	}
}

// loop prints the pass of stage t over the row.
func (p *printer) loop(t int, alone bool) {
	var reductions []string
	for _, n := range p.used[t] {
		in := p.k.Insts[n]
		if in.Op == "reduce" || in.Op == "acc" && p.scalar[n] {
			name := fmt.Sprintf("v%d", n)
			p.Line("%s %s = %s;", scalar.RegType(in.DType), name, scalar.Identity(in))
			reductions = append(reductions, kir.ReductionOf(in.Fn).OpenMP+":"+name)
			if scalar.Extreme(in) {
				p.Line("int n%d = 0;", n)
				reductions = append(reductions, fmt.Sprintf("|:n%d", n))
			}
		}
	}
	for i, d := range p.rowDim {
		if i == len(p.rowDim)-1 {
			p.simd(t, reductions, alone && i == 0)
		}
		p.Open("for (long j%d = 0; j%d < %d; j%d++)", d, d, p.k.Dims[d], d)
	}
	if len(p.rowDim) == 0 {
		p.Open("")
	}
	for _, n := range p.used[t] {
		p.inst2(n, t)
	}
	for range max(1, len(p.rowDim)) {
		p.Close()
	}
	for _, n := range p.used[t] {
		in := p.k.Insts[n]
		if scalar.Extreme(in) && (in.Op == "reduce" || in.Op == "acc" && p.scalar[n]) {
			p.Line("v%d = n%d ? NAN : v%d;", n, n, n)
		}
		if in.Op == "acc" && p.scalar[n] {
			p.Line("acc%d[0] = %s;", n, scalar.Combine(in, fmt.Sprintf("acc%d[0]", n), fmt.Sprintf("v%d", n)))
		}
	}
}

// simd prints the directive of the innermost loop.
func (p *printer) simd(t int, reductions []string, alone bool) {
	clause := ""
	for _, r := range reductions {
		clause += fmt.Sprintf(" reduction(%s)", r)
	}
	if p.outerAccumulates(t) {
		return
	}
	if alone && p.k.RowElems()*len(p.k.Insts) >= parallelWork {
		p.Line("#pragma omp parallel for simd schedule(static) num_threads(gtc_threads) if (parallel: gtc_threads > 1)%s", clause)
		return
	}
	p.Line("#pragma omp simd%s", clause)
}

// outerAccumulates reports whether the loop stores through an access that repeats along the innermost dim.
func (p *printer) outerAccumulates(t int) bool {
	last := len(p.rowDim) - 1
	return last >= 0 && slices.ContainsFunc(p.used[t], func(n int) bool {
		in := p.k.Insts[n]
		return (in.Op == "store" || in.Op == "acc" && !p.scalar[n]) && in.Access.Strides[p.rowDim[last]] == 0 && p.k.Dims[p.rowDim[last]] > 1
	})
}

// inst2 prints instruction n inside the loop of stage t.
func (p *printer) inst2(n, t int) {
	in := p.k.Insts[n]
	first, kept := p.spill[n]
	switch {
	case kept && first < t:
		p.Line("const %s v%d = t%d[%s];", scalar.RegType(in.DType), n, n, p.flat())
		return
	case scalar.Extreme(in) && (in.Op == "reduce" || p.scalar[n]):
		p.Line("v%d = v%d %s v%d ? v%d : v%d;", n, n, kir.ReductionOf(in.Fn).Beats, in.Args[0], in.Args[0], n)
		p.Line("n%d |= v%d != v%d;", n, in.Args[0], in.Args[0])
		return
	case in.Op == "reduce" || in.Op == "acc" && p.scalar[n]:
		p.Line("v%d = %s;", n, scalar.Combine(in, fmt.Sprintf("v%d", n), fmt.Sprintf("v%d", in.Args[0])))
		return
	case in.Op == "acc":
		at := fmt.Sprintf("acc%d[%s]", n, p.inner(in.Access))
		p.Line("%s = %s;", at, scalar.Combine(in, at, fmt.Sprintf("v%d", in.Args[0])))
		return
	}
	p.inst(n)
	if kept {
		p.Line("t%d[%s] = v%d;", n, p.flat(), n)
	}
}

// flat is the position within the row.
func (p *printer) flat() string {
	a := kir.Access{Strides: make([]int, len(p.k.Dims))}
	n := 1
	for i := len(p.rowDim) - 1; i >= 0; i-- {
		a.Strides[p.rowDim[i]] = n
		n *= p.k.Dims[p.rowDim[i]]
	}
	return p.inner(a)
}

// inst prints a load, a store or a scalar instruction.
func (p *printer) inst(n int) {
	in := p.k.Insts[n]
	switch in.Op {
	case "load":
		p.Line("const %s v%d = %s;", scalar.RegType(in.DType), n, scalar.Load(in.DType, fmt.Sprintf("q%d[%s]", n, p.inner(in.Access))))
	case "store":
		p.Line("q%d[%s] = %s;", n, p.inner(in.Access), scalar.Store(in.DType, scalar.Unrounded(p.k, in.Args[0], in.DType)))
	case "index":
		p.Line("const int64_t v%d = %d%s%s;", n, in.Access.Offset, p.offset(kir.Access{Strides: in.Access.Strides}, p.outDim, "i"),
			p.offset(in.Access, p.rowDim, "j"))
	default:
		s, err := scalar.Expr(p.k, n, false)
		if err != nil && p.err == nil {
			p.err = err
		}
		p.Line("const %s v%d = %s;", scalar.RegType(in.DType), n, s)
	}
}
