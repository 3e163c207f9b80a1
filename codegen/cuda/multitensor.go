package cuda

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/scalar"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
)

// Optimizer updates, casts and norms do the same to hundreds of tensors. One launch does it to all: a table has a row for each
// tensor, and each block finds the row that its piece of the work is in.

// Call is a call of a fused kernel: where its params are, in bytes from the arena's start.
type Call struct {
	Kernel *kir.Kernel
	At     []int
}

// maxPiece is how many elements of a tensor one block takes at most; minPiece is the least.
const maxPiece = 1 << 16

// Key is equal for calls that one launch can do together: kernels that do the same to every element of dense tensors of
// whatever size, perhaps with scalars that all elements share and sums of all into one number. "" stands for those that no
// launch does with others.
func (c Call) Key() string {
	if c.scalars() {
		return Scalars
	}
	k := flattened(c.Kernel)
	if len(k.Dims) != 1 || k.Dims[0] < 2 || slices.ContainsFunc(k.Insts, func(in kir.Inst) bool { return in.Op == "reduce" }) {
		return ""
	}
	var b strings.Builder
	for i, in := range k.Insts {
		moves := len(in.Access.Strides) == 1 && in.Access.Strides[0] != 0
		if len(in.Access.Strides) == 1 && in.Access.Strides[0] > 1 || in.Access.Offset != 0 || in.Op == "acc" && moves || in.Op == "store" && !moves {
			return ""
		}
		fmt.Fprintf(&b, "%d %s %s %d %v %d %v %v;", i, in.Op, in.Fn, in.DType, in.Args, in.Param, in.Value, moves)
	}
	for i, p := range k.Params {
		fmt.Fprintf(&b, "%d %v %v;", p.DType, p.Out, c.At[i]%16 == 0)
	}
	return b.String()
}

// flatKernel is a kernel whose dims are walked as one.
type flatKernel struct{ *kir.Kernel }

// flattened is a copy of k with all dims in one row, as few as its accesses allow.
func flattened(k *kir.Kernel) flatKernel {
	c := *k
	c.Row, c.Dims, c.Insts = make([]bool, len(k.Dims)), slices.Clone(k.Dims), slices.Clone(k.Insts)
	for d := range c.Row {
		c.Row[d] = true
	}
	c.Collapse()
	return flatKernel{&c}
}

// moves reports whether param i is read or written along the tensor, not as a scalar.
func (k flatKernel) moves(i int) bool {
	return slices.ContainsFunc(k.Insts, func(in kir.Inst) bool {
		return (in.Op == "load" || in.Op == "store") && in.Param == i && slices.ContainsFunc(in.Access.Strides, func(s int) bool { return s != 0 })
	})
}

// multiTensor is what the printing of a launch over many tensors needs to know.
type multiTensor struct {
	calls  []Call
	shared []int // params that are the same in all calls: pointers as usual
	own    []int // those in the table
	piece  int
	blocks int
	table  []uint64
	refs   []int // entries of table that are offsets
}

// MultiTensor prints calls of one Key as one launch, or two when they reduce (multi-tensor apply). Args are params of the first call.
func MultiTensor(name string, calls []Call) (list []cuda.Kernel, workspace int, err error) {
	k := flattened(calls[0].Kernel)
	p := newPrinter(name, k.Kernel)
	p.wide = false
	m := &multiTensor{calls: calls}
	aligned := true
	for i := range k.Params {
		same := !slices.ContainsFunc(calls, func(c Call) bool { return c.At[i] != calls[0].At[i] })
		if same && !k.moves(i) && !k.Params[i].Out {
			m.shared = append(m.shared, i)
		} else {
			m.own = append(m.own, i)
		}
		aligned = aligned && (calls[0].At[i]%16 == 0 || !k.moves(i))
	}
	m.tabulate()
	k.Params = slices.Clone(k.Params)
	for i := range k.Params {
		if k.Params[i].Align = 0; aligned {
			k.Params[i].Align = 64
		}
	}
	p.multiTensorKernel(m)
	for _, n := range p.accs() {
		p.multiTensorSum(m, n)
	}
	return p.list, p.workspace, p.err
}

// The table starts with the tensors, the blocks and the elements of a block's piece: the text holds for any number of tensors.
const head = 3

// tabulate makes the table: after its head, for each tensor its first block, its elements and where its params are.
func (m *multiTensor) tabulate() {
	total := 0
	for _, c := range m.calls {
		total += c.Kernel.Rows() * c.Kernel.RowElems()
	}
	m.piece = minPiece
	for m.piece < maxPiece && total/m.piece > 1056 {
		m.piece *= 2
	}
	m.table = make([]uint64, head)
	for _, c := range m.calls {
		n := c.Kernel.Rows() * c.Kernel.RowElems()
		m.table = append(m.table, uint64(m.blocks), uint64(n))
		for _, i := range m.own {
			m.refs = append(m.refs, len(m.table))
			m.table = append(m.table, uint64(c.At[i]))
		}
		m.blocks += (n + m.piece - 1) / m.piece
	}
	m.table[0], m.table[1], m.table[2] = uint64(len(m.calls)), uint64(m.blocks), uint64(m.piece)
}

// width is how many words a row of the table has.
func (m *multiTensor) width() int { return 2 + len(m.own) }

// beginMultiTensor opens a kernel with the parameters base, table, those of shared and perhaps ws.
func (p *printer) beginMultiTensor(m *multiTensor, l launch, suffix string) cuda.Kernel {
	p.Reset()
	params := []string{"char *base", "const uint64_t *table"}
	k := cuda.Kernel{Name: p.name + suffix, Include: []string{"fused.cuh"}, Grid: l.grid, Block: [3]int{l.threads, 1, 1}, Family: l.family, Table: m.table, Refs: m.refs,
		Args: []cuda.Ref{{Arg: cuda.Base}, {Arg: cuda.Table}}}
	for _, i := range l.params {
		params = append(params, fmt.Sprintf("const %s *p%d", scalar.MemType(p.k.Params[i].DType), i))
		k.Args = append(k.Args, cuda.Ref{Arg: i})
	}
	if l.work {
		params = append(params, "char *ws")
		k.Args = append(k.Args, cuda.Ref{Arg: cuda.Workspace})
	}
	p.Line("extern \"C\" __global__ void __launch_bounds__(%d) NAME(%s)", l.threads, strings.Join(params, ", "))
	p.Open("")
	p.Line("using namespace gtc;")
	return k
}

// multiTensorKernel prints the launch over all pieces of all tensors.
func (p *printer) multiTensorKernel(m *multiTensor) {
	insts, uniform := p.partition()
	l := launch{grid: [3]int{m.blocks, 1, 1}, threads: blockThreads, family: "pointwise", params: m.shared, work: p.has("acc")}
	if l.work {
		l.family = "reduction"
	}
	k := p.beginMultiTensor(m, l, "_multitensor")
	p.Line("const int piece = (int)table[2];")
	p.Line("const uint64_t *row = table + %d + %d * find_row<%d>(table + %d, (int)table[0], blockIdx.x);", head, m.width(), m.width(), head)
	p.Line("const int64_t start = (int64_t)(blockIdx.x - (unsigned)row[0]) * piece, rest = (int64_t)row[1] - start;")
	p.Line("const int n = rest < piece ? (int)rest : piece;")
	flat := flatKernel{p.k}
	for i, par := range m.own {
		param := p.k.Params[par]
		c := "const "
		if param.Out {
			c = ""
		}
		step := ""
		if flat.moves(par) {
			step = " + start"
		}
		p.Line("%s%s *p%d = (%s%s *)(base + row[%d])%s;", c, scalar.MemType(param.DType), par, c, scalar.MemType(param.DType), 2+i, step)
	}
	for _, n := range uniform {
		p.outside(n, nil, "false")
	}
	for _, n := range p.accs() {
		p.Line("%s a%d = %s;", regType(p.k.Insts[n].DType), n, scalar.Identity(p.k.Insts[n]))
	}
	leaf := func(n int) bool { return p.accumulate(n, fmt.Sprintf("a%d", n)) }
	p.base = "start"
	w := &walk{dims: p.rowDim, v: p.multiTensorWidth(insts), chunks: 1}
	for w.chunks < 4 && w.chunks*len(p.loads(insts)) < 4 { // whatever the piece is, which depends on how many tensors there are
		w.chunks *= 2
	}
	w.j, w.cond = fmt.Sprintf("b + (c * %d + (int)threadIdx.x) * %d", blockThreads, w.v), fmt.Sprintf("j + %d <= n", w.v)
	p.Open("for (int b = 0; b < n; b += %d)", blockThreads*w.v*w.chunks)
	p.fetch(p.loads(insts), w)
	p.compute(insts, w, leaf)
	p.Close()
	if w.v > 1 {
		tail := &walk{dims: p.rowDim, v: 1, chunks: 1, j: fmt.Sprintf("n / %d * %d + (int)threadIdx.x", w.v, w.v), cond: "j < n"}
		p.Open("if (n %% %d != 0)", w.v)
		p.fetch(p.loads(insts), tail)
		p.compute(insts, tail, leaf)
		p.Close()
	}
	p.multiTensorPartials(m)
	p.Close()
	k.Text = p.String()
	p.list = append(p.list, k)
}

// multiTensorWidth is how many elements a thread takes at once: 16 bytes of the widest type, where all tensors are aligned.
func (p *printer) multiTensorWidth(insts []int) int {
	v := 8
	for _, n := range insts {
		if in := p.k.Insts[n]; in.Op == "load" || in.Op == "store" {
			if par := p.k.Params[in.Param]; par.Align == 0 {
				return 1
			} else if len(in.Access.Strides) > 0 && in.Access.Strides[0] != 0 {
				v = min(v, 16/par.DType.Size())
			}
		}
	}
	return v
}

// multiTensorPartials leaves each block's sums in the workspace.
func (p *printer) multiTensorPartials(m *multiTensor) {
	for _, n := range p.accs() {
		in := p.k.Insts[n]
		t := regType(in.DType)
		a := partial{inst: n, at: p.workspace, copies: m.blocks}
		p.workspace += partialBytes(in.DType, 1, m.blocks)
		p.partials = append(p.partials, a)
		p.Line("GTC_SHARED(%s, room%d, [%d]);", t, n, blockThreads/32)
		p.Line("a%d = over_block<op_%s, %d>(a%d, room%d);", n, in.Fn, blockThreads/32, n, n)
		p.Line("if (threadIdx.x == 0) ((%s *)(ws + %d))[blockIdx.x] = a%d;", t, a.at, n)
	}
}

// multiTensorSum prints the launch that adds up the partial sums of each tensor, a block for each.
func (p *printer) multiTensorSum(m *multiTensor, n int) {
	in := p.k.Insts[n]
	t := regType(in.DType)
	at := p.partials[slices.IndexFunc(p.partials, func(a partial) bool { return a.inst == n })].at
	l := launch{grid: [3]int{len(m.calls), 1, 1}, threads: blockThreads, family: "reduction", work: true}
	k := p.beginMultiTensor(m, l, "_sums")
	p.Line("const uint64_t *row = table + %d + blockIdx.x * %d;", head, m.width())
	p.Line("const int first = (int)row[0], last = blockIdx.x + 1 < gridDim.x ? (int)row[%d] : (int)table[1];", m.width())
	p.Line("%s a = %s;", t, scalar.Identity(in))
	p.Line("for (int b = first + (int)threadIdx.x; b < last; b += %d) a = op_%s::of(a, ((const %s *)(ws + %d))[b]);", blockThreads, in.Fn, t, at)
	p.Line("GTC_SHARED(%s, room, [%d]);", t, blockThreads/32)
	p.Line("a = over_block<op_%s, %d>(a, room);", in.Fn, blockThreads/32)
	to := scalar.MemType(in.DType)
	p.Line("if (threadIdx.x == 0) *(%s *)(base + row[%d]) = %s;", to, 2+slices.Index(m.own, in.Param), scalar.Store(in.DType, "a"))
	p.Close()
	k.Text = p.String()
	p.list = append(p.list, k)
}
