// Package cuda prints kernel IR as CUDA C++. It knows kir, not tensor ops. The same instructions take one of three forms:
// flat kernels give each thread some neighbouring elements of the whole space; row kernels give each row to a few lanes, a
// warp or a block, which reduce over it and keep what later stages need in registers; column kernels accumulate over rows
// that are cut among blocks. Accumulations leave partial results in the workspace, which a second kernel combines in order.
//
// Sizes are constants of the text, scalar operations those of codegen/scalar, and what is shared is in kernels/cuda/fused.cuh.
package cuda

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
)

// Kernels prints k as kernels that run one after the other; name says in letters of an identifier what they do. Args of the
// result are numbers of k's params. The workspace is in bytes, a multiple of 64.
func Kernels(name string, k *kir.Kernel) (list []cuda.Kernel, workspace int, err error) {
	for _, par := range k.Params {
		if scalar.MemType(par.DType) == "" {
			return nil, 0, fmt.Errorf("the CUDA target has no kernels of %s", par.DType)
		}
	}
	p := newPrinter(name, k)
	switch pieces := p.pieces(); {
	case p.has("reduce") && pieces > 1:
		p.splitRows(pieces)
	case p.has("reduce"):
		p.rows()
	case p.has("acc") && !p.allScalar():
		p.columns()
	default:
		p.flat()
	}
	if p.err != nil {
		return nil, 0, p.err
	}
	if len(p.partials) > 0 {
		p.finish()
	}
	return p.list, p.workspace, p.err
}

// partial is an accumulator whose partial results lie in the workspace.
type partial struct {
	inst, at, copies int
}

type printer struct {
	scalar.Text

	name      string
	k         *kir.Kernel
	err       error
	rowDim    []int // dims of a row, outermost first
	outDim    []int // dims that enumerate rows
	list      []cuda.Kernel
	workspace int
	partials  []partial
	wide      bool   // indices need 64 bits
	fastMath  []bool // see fastMath
	base      string // what positions of elements count from, if not 0
}

func newPrinter(name string, k *kir.Kernel) *printer {
	p := &printer{name: name, k: k}
	p.split()
	n := 1
	for _, d := range k.Dims {
		n *= d
	}
	p.wide = n >= 1<<30
	for _, par := range k.Params {
		p.wide = p.wide || par.Elems >= 1<<30
	}
	return p
}

// split lists the dims of rows and those that enumerate them.
func (p *printer) split() {
	p.rowDim, p.outDim = nil, nil
	for d := range p.k.Dims {
		if p.k.Row[d] {
			p.rowDim = append(p.rowDim, d)
		} else {
			p.outDim = append(p.outDim, d)
		}
	}
}

// index is the type of indices.
func (p *printer) index() string {
	if p.wide {
		return "int64_t"
	}
	return "int"
}

func (p *printer) has(op string) bool {
	return slices.ContainsFunc(p.k.Insts, func(in kir.Inst) bool { return in.Op == op })
}

// scalarAcc reports whether instruction n accumulates into one element.
func (p *printer) scalarAcc(n int) bool {
	in := p.k.Insts[n]
	return in.Op == "acc" && p.k.Params[in.Param].Elems == 1
}

func (p *printer) allScalar() bool {
	for n, in := range p.k.Insts {
		if in.Op == "acc" && !p.scalarAcc(n) {
			return false
		}
	}
	return true
}

// accs lists the accumulations.
func (p *printer) accs() []int {
	var out []int
	for n, in := range p.k.Insts {
		if in.Op == "acc" {
			out = append(out, n)
		}
	}
	return out
}

// launch is how the kernel that is being printed runs.
type launch struct {
	suffix  string
	grid    [3]int
	threads int
	family  string
	params  []int // of k
	work    bool  // and the workspace
}

// everything lists all params.
func (p *printer) everything() []int {
	var out []int
	for i := range p.k.Params {
		out = append(out, i)
	}
	return out
}

// begin opens a kernel with parameters a0, a1, ... for those listed, and ws.
func (p *printer) begin(l launch) {
	p.Reset()
	var params []string
	for _, i := range l.params {
		c := "const "
		if p.k.Params[i].Out {
			c = ""
		}
		params = append(params, fmt.Sprintf("%s%s *p%d", c, scalar.MemType(p.k.Params[i].DType), i))
	}
	if l.work {
		params = append(params, "char *ws")
	}
	p.Line("extern \"C\" __global__ void __launch_bounds__(%d) NAME(%s)", l.threads, strings.Join(params, ", "))
	p.Open("")
	p.Line("using namespace gtc;")
}

// end closes the kernel and adds it to the list.
func (p *printer) end(l launch) {
	p.Close()
	k := cuda.Kernel{Name: p.name + l.suffix, Text: p.String(), Include: []string{"fused.cuh"}, Grid: l.grid, Block: [3]int{l.threads, 1, 1},
		Family: l.family}
	for i, n := range k.Grid {
		k.Grid[i] = max(1, n)
	}
	for _, i := range l.params {
		k.Args = append(k.Args, cuda.Ref{Arg: i})
	}
	if l.work {
		k.Args = append(k.Args, cuda.Ref{Arg: cuda.Workspace})
	}
	p.list = append(p.list, k)
}

// regType is the type of an accumulator in registers: integers below 32 bits have 32, which exchange and wrap alike.
func regType(d dtype.DType) string {
	switch d = scalar.Compute(d); {
	case d.IsInt() && d.Size() < 4 && d.Signed():
		return "int32_t"
	case d.IsInt() && d.Size() < 4:
		return "uint32_t"
	}
	return scalar.RegType(d)
}

// partialOf gives the accumulation n, of so many copies, its place in the workspace.
func (p *printer) partialOf(n, copies int) partial {
	in := p.k.Insts[n]
	par := p.k.Params[in.Param]
	if limit := sumCopies(par.Elems, p.k.Rows(), p.k.RowElems()); copies > limit && p.err == nil {
		p.err = fmt.Errorf("BUG: %d partial copies of an accumulator, planned are %d", copies, limit)
	}
	a := partial{inst: n, at: p.workspace, copies: copies}
	p.workspace += partialBytes(in.DType, par.Elems, copies)
	p.partials = append(p.partials, a)
	return a
}

// finish prints the kernel that combines partial results: blocks of 256 threads, in lines of as many results.
func (p *printer) finish() {
	l := launch{suffix: "_sum", threads: 256, family: "reduction", work: true}
	blocks := make([]int, len(p.partials))
	lines := make([]int, len(p.partials))
	for i, a := range p.partials {
		in := p.k.Insts[a.inst]
		elems := p.k.Params[in.Param].Elems
		lines[i] = 1
		for lines[i] < 256 && lines[i] < a.copies && 256/lines[i] > 32 || lines[i] < 256 && 256/lines[i]/2 >= elems {
			lines[i] *= 2
		}
		width := 256 / lines[i]
		blocks[i] = (elems + width - 1) / width
		l.grid[0] += blocks[i]
		l.params = append(l.params, in.Param)
	}
	p.begin(l)
	p.Line("GTC_SHARED(double, room, [256]);")
	first := 0
	for i, a := range p.partials {
		in := p.k.Insts[a.inst]
		par := p.k.Params[in.Param]
		t, width := regType(in.DType), 256/lines[i]
		if i == len(p.partials)-1 {
			p.Open("")
		} else {
			p.Open("if (blockIdx.x < %d)", first+blocks[i])
		}
		p.Line("const int j = (blockIdx.x - %d) * %d + threadIdx.x %% %d;", first, width, width)
		p.Line("const %s *from = (const %s *)(ws + %d) + (j < %d ? j : 0);", t, t, a.at, par.Elems)
		p.Line("%s v = fold<op_%s, %d, %d, %d>(from, (%s)%s, (%s *)room);", t, in.Fn, a.copies, par.Elems, lines[i], t, scalar.Identity(in), t)
		p.Line("if (threadIdx.x < %d && j < %d) p%d[j] = %s;", width, par.Elems, in.Param, scalar.Store(par.DType, "v"))
		if i < len(p.partials)-1 {
			p.Line("return;")
		}
		p.Close()
		first += blocks[i]
	}
	p.end(l)
}
