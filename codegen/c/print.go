// Package c prints kernel IR as C: loops that GCC and Clang vectorise (#pragma omp simd) and share among
// threads (OpenMP). It knows kir, not tensor ops.
package c

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Thresholds of the loops: a kernel below parallelWork instruction evaluations runs on one thread, since
// waking another takes a few microseconds; rows of at most maxSpill elements keep costly values in a buffer.
const (
	parallelWork = 1 << 16
	maxSpill     = 8192
)

type printer struct {
	scalar.Text

	k      *kir.Kernel
	err    error
	rowDim []int        // dims of a row, outermost first
	outDim []int        // dims that enumerate rows
	used   [][]int      // per stage: PerElem instructions that its loop evaluates
	spill  map[int]int  // instruction -> stage that fills its row buffer
	accAt  map[int]int  // acc instruction -> offset of its chunks in the workspace, bytes
	scalar map[int]bool // acc instructions with a single accumulator
}

// Function prints one kernel as a C function; note is a comment for people. The parameters are void pointers to
// the kernel's buffers in order, then to the workspace when it needs one.
func Function(name, note string, k *kir.Kernel) (string, error) {
	p := &printer{k: k, spill: map[int]int{}, accAt: map[int]int{}, scalar: map[int]bool{}}
	for d := range k.Dims {
		if k.Row[d] {
			p.rowDim = append(p.rowDim, d)
		} else {
			p.outDim = append(p.outDim, d)
		}
	}
	for _, par := range k.Params {
		if scalar.MemType(par.DType) == "" {
			return "", fmt.Errorf("the CPU target has no kernels of %s", par.DType)
		}
	}
	p.plan()
	p.function(name, note)
	return p.String(), p.err
}

// root reports whether an instruction makes its stage's loop run.
func (p *printer) root(n int) bool {
	switch in := p.k.Insts[n]; in.Op {
	case "reduce", "acc":
		return true
	case "store":
		return in.Level == kir.PerElem
	}
	return false
}

// stageOf is the loop in which a root runs: a reduction's result belongs to the next stage.
func (p *printer) stageOf(n int) int {
	in := p.k.Insts[n]
	if in.Op == "reduce" {
		return in.Stage - 1
	}
	return in.Stage
}

// plan finds for each stage what its loop computes, and which costly values are kept for later stages.
func (p *printer) plan() {
	stages := 0
	for n := range p.k.Insts {
		stages = max(stages, p.k.Insts[n].Stage)
	}
	p.used = make([][]int, stages+1)
	for t := range p.used {
		seen := map[int]bool{}
		var walk func(n int)
		walk = func(n int) {
			seen[n] = true
			if first, kept := p.spill[n]; kept && first < t {
				return
			}
			for _, a := range p.k.Insts[n].Args {
				if !seen[a] && p.k.Insts[a].Level == kir.PerElem {
					walk(a)
				}
			}
		}
		for n := range p.k.Insts {
			if p.root(n) && p.stageOf(n) == t {
				walk(n)
			}
		}
		for n := range seen {
			p.used[t] = append(p.used[t], n)
		}
		slices.Sort(p.used[t])
		p.keep(t)
	}
	// A value is kept only if a later stage reads it.
	for n, first := range p.spill {
		if !slices.ContainsFunc(p.used[first+1:], func(u []int) bool { return slices.Contains(u, n) }) {
			delete(p.spill, n)
		}
	}
	off := 0
	for n, in := range p.k.Insts {
		if in.Op == "acc" {
			p.accAt[n] = off
			p.scalar[n] = p.k.Params[in.Param].Elems == 1
			off += p.k.Chunks * p.accBytes(n)
		}
	}
}

func (p *printer) accBytes(n int) int {
	par := p.k.Params[p.k.Insts[n].Param]
	return (par.Elems*kir.AccSize(par.DType) + 63) &^ 63
}

// keep marks the costly values of stage t for row buffers.
func (p *printer) keep(t int) {
	if t == len(p.used)-1 || p.k.RowElems() > maxSpill {
		return
	}
	for _, n := range p.used[t] {
		if _, kept := p.spill[n]; !kept && costly(p.k.Insts[n]) {
			p.spill[n] = t
		}
	}
}

// costly reports whether in is worth keeping in a row buffer rather than computing again in a later stage.
func costly(in kir.Inst) bool {
	f := kir.Lookup(in.Op)
	return f != nil && f.Cost == kir.Dear
}

func (p *printer) function(name, note string) {
	if note != "" {
		p.Line("// %s", strings.NewReplacer("\n", " ", "\\", "/").Replace(note))
	}
	n := len(p.k.Params)
	if p.k.Work > 0 {
		n++
	}
	params := make([]string, n)
	for i := range params {
		params[i] = fmt.Sprintf("void *a%d", i)
	}
	p.Open("void %s(%s)", name, strings.Join(params, ", "))
	for i, par := range p.k.Params {
		c := "const "
		if par.Out {
			c = ""
		}
		p.Line("%s%s *p%d = a%d;", c, scalar.MemType(par.DType), i, i)
	}
	if p.k.Work > 0 {
		p.Line("char *ws = a%d;", n-1)
	}
	switch {
	case len(p.accAt) > 0:
		p.chunks()
	case p.k.Rows() == 1 && len(p.used) == 1 && !p.reduces():
		p.row("")
	default:
		p.parallel(p.k.Rows())
		p.Open("for (long r = 0; r < %d; r++)", p.k.Rows())
		p.row("r")
		p.Close()
	}
	p.Close()
}

func (p *printer) reduces() bool {
	return slices.ContainsFunc(p.k.Insts, func(in kir.Inst) bool { return in.Op == "reduce" })
}

// parallel prints the directive that shares n iterations among threads, when the work is worth it.
func (p *printer) parallel(n int) {
	if n > 1 && p.k.Rows()*p.k.RowElems()*len(p.k.Insts) >= parallelWork {
		p.Line("#pragma omp parallel for schedule(static) num_threads(gtc_threads) if (parallel: gtc_threads > 1)")
	}
}

// chunks prints the form with column accumulators: a fixed number of row ranges, each with its own partial
// results, then the partial results added in order.
func (p *printer) chunks() {
	n, rows := p.k.Chunks, p.k.Rows()
	p.parallel(n)
	p.Open("for (long c = 0; c < %d; c++)", n)
	accs := p.accs()
	for _, i := range accs {
		in := p.k.Insts[i]
		t := p.accType(i)
		p.Line("%s *acc%d = (%s *)(ws + %d + c * %d);", t, i, t, p.accAt[i], p.accBytes(i))
		if p.scalar[i] {
			p.Line("acc%d[0] = %s;", i, scalar.Identity(in))
		} else {
			p.Line("for (long j = 0; j < %d; j++) acc%d[j] = %s;", p.k.Params[in.Param].Elems, i, scalar.Identity(in))
		}
	}
	p.Open("for (long r = c * %d / %d; r < (c + 1) * %d / %d; r++)", rows, n, rows, n)
	p.row("r")
	p.Close()
	p.Close()
	for _, i := range accs {
		in := p.k.Insts[i]
		elems := p.k.Params[in.Param].Elems
		t := p.accType(i)
		if elems*n >= parallelWork {
			p.Line("#pragma omp parallel for simd schedule(static) num_threads(gtc_threads) if (parallel: gtc_threads > 1)")
		} else if elems > 1 {
			p.Line("#pragma omp simd")
		}
		p.Open("for (long j = 0; j < %d; j++)", elems)
		p.Line("%s s = ((%s *)(ws + %d))[j];", t, t, p.accAt[i])
		p.Line("for (long c = 1; c < %d; c++) s = %s;", n,
			scalar.Combine(in, "s", fmt.Sprintf("((%s *)(ws + %d + c * %d))[j]", t, p.accAt[i], p.accBytes(i))))
		p.Line("p%d[j] = %s;", in.Param, scalar.Store(p.k.Params[in.Param].DType, "s"))
		p.Close()
	}
}

func (p *printer) accs() []int {
	var out []int
	for n := range p.k.Insts {
		if p.k.Insts[n].Op == "acc" {
			out = append(out, n)
		}
	}
	return out
}

// accType is the type of a partial accumulator.
func (p *printer) accType(n int) string { return scalar.AccType(p.k.Insts[n].DType, p.scalar[n]) }
