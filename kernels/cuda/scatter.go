package cuda

import (
	"math/bits"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// How updates join what is there: the numbers of kernels/cpu.
const (
	scatterSet  = 0
	scatterAdd  = 1
	scatterSame = 5
)

func init() {
	templates["ScatterAddRows"] = template{scatterAddTypes, func(c Call) (*Plan, error) {
		s := scatter{idx: Ref{Arg: 0}, upd: Ref{Arg: 1}, data: Ref{Arg: Nil}, out: Ref{Arg: 2}, from: c.Types[1], to: c.Types[2],
			rows: c.Ints[0], width: c.Ints[1], n: c.Ints[2], how: scatterAdd}
		if c.Ints[3] == 0 {
			s.data = s.out
		}
		return s.plan(), nil
	}}
	templates["ScatterRows"] = template{scatterRowsTypes, func(c Call) (*Plan, error) {
		d := elemType(c.Ints[3])
		s := scatter{data: Ref{Arg: 0}, idx: Ref{Arg: 1}, upd: Ref{Arg: 2}, out: Ref{Arg: 3}, from: d, to: d,
			rows: c.Ints[0], width: c.Ints[1], n: c.Ints[2], how: c.Ints[4]}
		return s.plan(), nil
	}}
}

func scatterAddTypes(types []dtype.DType) bool {
	return len(types) == 3 && types[0] == dtype.I64 && isFloat(types[1]) && isFloat(types[2])
}

func scatterRowsTypes(types []dtype.DType) bool {
	return len(types) == 4 && types[1] == dtype.I64 && types[0] == types[2] && types[0] == types[3]
}

// scatter is a call of ScatterAddRows or ScatterRows. An index out of range is told in the status and its update left out.
type scatter struct {
	data, idx, upd, out Ref
	from, to            dtype.DType // of updates, and of data and results
	rows, width, n, how int

	kernels []Kernel
	work    int // bytes of workspace given out
}

// Sizes of sort.cuh and scatter.cuh.
const (
	sortTile   = 2048
	scatterRun = 128
)

// plan sorts the positions of the updates by row and then makes each row in one go, so that its updates are joined in
// the order of their positions whatever else runs. Rows of very many updates (the two of BERT's token types) are joined in runs
// ahead; the order is fixed there, too. A radix sort's launches take some 3 µs each, nothing beside the table's gradient
// that is written; atomics would need one launch fewer and give other bits on every run.
func (s *scatter) plan() *Plan {
	if s.rows*s.width == 0 {
		return &Plan{}
	}
	if s.how == scatterSame {
		s.same()
		return &Plan{Kernels: s.kernels}
	}
	if s.n*s.rows*s.width <= 1<<24 && s.n <= 1<<10 {
		s.few()
		return &Plan{Kernels: s.kernels}
	}
	starts, at := s.sort()
	s.join(starts, at)
	return &Plan{Kernels: s.kernels, Workspace: s.work}
}

// alloc gives out workspace.
func (s *scatter) alloc(bytes int) Ref {
	at := s.work
	s.work += divUp(bytes, 64) * 64
	return Ref{Arg: Workspace, Offset: at}
}

func (s *scatter) add(k Kernel, blocks int) {
	k.Include, k.Grid = []string{"scatter.cuh"}, [3]int{blocks, 1, 1}
	s.kernels = append(s.kernels, k)
}

// sort plans the radix sort and gives the places of the rows' starts and of the sorted positions.
func (s *scatter) sort() (starts, positions Ref) {
	const threads = 256
	blocks := divUp(s.n, sortTile)
	counts := param{"gtc::u32", "counts", s.alloc(4 * 256 * blocks)}
	read, written := param{"const gtc::u32", "keys", s.alloc(4 * s.n)}, param{"gtc::u32", "sorted", s.alloc(4 * s.n)}
	from, to := param{"const gtc::u32", "from", s.alloc(4 * s.n)}, param{"gtc::u32", "to", s.alloc(4 * s.n)}
	idx := param{"const gtc::i64", "idx", s.idx}
	for shift := 0; shift < bits.Len(uint(s.rows)); shift += 8 {
		first := shift == 0
		s.add(kernelOf("sort_count", "scatter", "sort_count", threads, []param{idx, read, counts, status}, s.rows, s.n, shift, first), blocks)
		s.add(kernelOf("sort_scan", "scatter", "sort_scan", 1024, []param{counts}, 256*blocks), 1)
		seen := counts
		seen.typ = "const gtc::u32"
		s.add(kernelOf("sort_place", "scatter", "sort_place", threads, []param{idx, read, from, seen, written, to}, s.rows, s.n, shift, first), blocks)
		read.ref, written.ref = written.ref, read.ref
		from.ref, to.ref = to.ref, from.ref
	}
	begin := param{"gtc::u32", "starts", s.alloc(4 * (s.rows + 1))}
	s.add(kernelOf("sort_starts", "scatter", "sort_starts", threads, []param{read, begin}, s.rows, s.n, threads), divUp(s.rows+1, threads))
	if s.how != scatterSet && s.n >= scatterRun {
		s.ahead(read, from)
	}
	return begin.ref, from.ref
}

// wideType is what elements of type d are joined in.
func wideType(d dtype.DType) dtype.DType {
	if d == dtype.F16 || d == dtype.BF16 {
		return dtype.F32
	}
	return d
}

// ahead joins runs of updates of one row. Their results are last in the workspace.
func (s *scatter) ahead(keys, at param) {
	threads := min(divUp(s.width, 32)*32, 256)
	wide := wideType(s.from)
	parts := param{typeNames[wide], "parts", s.alloc(s.n / scatterRun * s.width * wide.Size())}
	typ := typeNames[s.from]
	k := kernelOf("scatter_ahead", "scatter", "scatter_ahead", threads, []param{{"const " + typ, "upd", s.upd}, keys, {"const gtc::u32", "at", at.ref}, parts},
		typ, s.rows, s.width, s.n, s.how, threads)
	s.add(k, s.n/scatterRun*divUp(s.width, threads))
}

// access is the number of elements that a thread owns: those of accesses of 16 bytes at most.
func (s *scatter) access() int {
	size := max(s.from.Size(), s.to.Size(), wideType(s.from).Size())
	return max(widest(s.width*size)/size, 1)
}

// params are the parameters for data and out.
func (s *scatter) params() (data, out param) {
	return param{"const " + typeNames[s.to], "data", s.data}, param{typeNames[s.to], "out", s.out}
}

func (s *scatter) join(starts, at Ref) {
	const threads = 256
	v := s.access()
	data, out := s.params()
	parts := Ref{Arg: Nil}
	if last := s.kernels[len(s.kernels)-1]; last.Name == "scatter_ahead" {
		parts = last.Args[3]
	}
	k := kernelOf("scatter_rows", "scatter", "scatter_rows", threads, []param{data, {"const " + typeNames[s.from], "upd", s.upd},
		{"const gtc::u32", "starts", starts}, {"const gtc::u32", "at", at}, {"const " + typeNames[wideType(s.from)], "parts", parts}, out},
		typeNames[s.from], typeNames[s.to], s.rows, s.width, s.n, s.how, v, threads)
	s.add(k, divUp(s.rows*s.width/v, threads))
}

func (s *scatter) few() {
	const threads = 256
	v := s.access()
	data, out := s.params()
	k := kernelOf("scatter_few", "scatter", "scatter_few", threads, []param{data, {"const gtc::i64", "idx", s.idx},
		{"const " + typeNames[s.from], "upd", s.upd}, out, status}, typeNames[s.from], typeNames[s.to], s.rows, s.width, s.n, s.how, v, threads)
	s.add(k, divUp(s.rows*s.width/v, threads))
}

// same copies the table, where it is to lie elsewhere, and sets the rows of the updates in any order: a table whose new rows take the
// place of the old ones costs no pass over it. Blocks of the copy are few, since they mostly find nothing to do.
func (s *scatter) same() {
	const threads, blocks = 256, 1024
	data, out := s.params()
	v := s.access()
	elems := s.rows * s.width / v
	s.add(kernelOf("scatter_copy", "scatter", "scatter_copy", threads, []param{data, out}, typeNames[s.to], s.rows*s.width, v, threads),
		min(divUp(elems, threads), blocks))
	s.add(kernelOf("scatter_same", "scatter", "scatter_same", threads, []param{{"const gtc::i64", "idx", s.idx},
		{"const " + typeNames[s.from], "upd", s.upd}, out, status}, typeNames[s.to], s.rows, s.width, s.n, v, threads),
		divUp(s.n*s.width/v, threads))
}
