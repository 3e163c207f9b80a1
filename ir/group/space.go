package group

import (
	"maps"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Level says over which part of the space a value varies.
type Level uint8

// The levels.
const (
	Full Level = iota + 1 // over all dims
	Row                   // one per row: the result of a reduction over the row dims
	Acc                   // collected over rows while the kernel runs; ready only after it
)

// Space is the iteration space of a group. Dims (sizes above 1) is a common refinement of the dims of all
// its ops. When Decided, Row marks the dims that form a row: reduced over by row reductions, and kept by
// column accumulations, while the others enumerate the rows.
type Space struct {
	Dims    []int
	Row     []bool
	Decided bool
	Reduces bool // some op reduces over the row dims
	Level   map[*ir.Value]Level
	started bool
}

// MaxAcc bounds the elements of one column accumulator, MaxChunks the partial copies of it.
const (
	MaxAcc    = 1 << 15
	MaxChunks = 16
)

// Build replays the ops, in program order, into an empty space; ok is false when one does not fit.
func Build(ops []*ir.Op) (s *Space, ok bool) {
	s = &Space{Level: map[*ir.Value]Level{}}
	for _, op := range ops {
		if !s.Add(op) {
			return nil, false
		}
	}
	return s, true
}

// With is the space with op added; ok is false, and s unchanged in any case, when it does not fit.
func (s *Space) With(op *ir.Op) (t *Space, ok bool) {
	t = &Space{}
	*t = *s
	t.Level = maps.Clone(s.Level)
	return t, t.Add(op)
}

// Add makes op part of the group if it fits, else leaves the space as it was.
func (s *Space) Add(op *ir.Op) bool {
	switch impl := Impl(op); impl.Kind {
	case kir.Pointwise, kir.View:
		return s.addPointwise(op)
	case kir.Reduce:
		return s.addReduce(op, impl.Dims)
	}
	return false
}

// rows lists the sizes of the dims that enumerate rows, or (row true) that form one.
func (s *Space) part(row bool) []int {
	var out []int
	for d, n := range s.Dims {
		if s.Row[d] == row {
			out = append(out, n)
		}
	}
	return out
}

func (s *Space) addPointwise(op *ir.Op) bool {
	dims := op.Out[0].Type.Dims
	if !s.started {
		s.Dims, _ = kir.Refine(dims, dims)
		s.Row, s.started = make([]bool, len(s.Dims)), true
		return s.commit(op, s.Dims, s.Row, Full)
	}
	if fine, ok := kir.Refine(s.Dims, dims); ok {
		row := spread(s.Dims, s.Row, fine)
		if s.operandsFit(op, fine, row) {
			return s.commit(op, fine, row, Full)
		}
		return false
	}
	if !s.Reduces {
		return false
	}
	fine, ok := kir.Refine(s.part(false), dims)
	if !ok || !s.rowOperands(op) {
		return false
	}
	full, row := s.refineRows(fine)
	return s.commit(op, full, row, Row)
}

func (s *Space) commit(op *ir.Op, dims []int, row []bool, l Level) bool {
	s.Dims, s.Row = dims, row
	for _, v := range op.Out {
		s.Level[v] = l
	}
	return true
}

// spread carries the marks of old dims over to dims that refine them.
func spread(old []int, mark []bool, fine []int) []bool {
	var out []bool
	i := 0
	for d, n := range old {
		for p := 1; p < n; i++ {
			p *= fine[i]
			out = append(out, mark[d])
		}
	}
	return out
}

// refineRows replaces the dims that enumerate rows by their refinement fine.
func (s *Space) refineRows(fine []int) (dims []int, row []bool) {
	i := 0
	for d, n := range s.Dims {
		if s.Row[d] {
			dims, row = append(dims, n), append(row, true)
			continue
		}
		for p := 1; p < n; i++ {
			p *= fine[i]
			dims, row = append(dims, fine[i]), append(row, false)
		}
	}
	return dims, row
}

// inputs are the operands that a kernel of op reads: for a view that has a kernel, its source.
func inputs(op *ir.Op) []*ir.Value { return op.In }

// OperandAccess is how op reads operand v, over op's own iteration dims: the result's for pointwise ops and
// views, the operand's for reductions.
func OperandAccess(op *ir.Op, v *ir.Value) (src *ir.Value, acc kir.Access, ok bool) {
	src, acc, ok = Resolve(v)
	if ok && Impl(op).Kind == kir.View {
		if acc, ok = acc.View(*Impl(op).View, op.Out[0].Type.Dims); !ok {
			src = v
		}
	}
	return src, acc, ok
}

// operandsFit checks that every operand made inside the group is read exactly where it was made.
func (s *Space) operandsFit(op *ir.Op, fine []int, row []bool) bool {
	for _, v := range inputs(op) {
		if _, ok := Scalar(v); ok {
			continue
		}
		src, acc, ok := OperandAccess(op, v)
		if !ok {
			return false
		}
		level, inside := s.Level[src]
		if !inside {
			continue
		}
		on, ok := SpreadAccess(acc, fine)
		if !ok || level == Acc || level == Full && !on.IsDense() || level == Row && !isRowRead(on, row) {
			return false
		}
	}
	return true
}

// SpreadAccess expresses an access over dims that refine its own.
func SpreadAccess(a kir.Access, fine []int) (kir.Access, bool) {
	return a.Reshape(fine)
}

// isRowRead reports whether a reads, at every point, the element of its row: stride 0 along the row
// dims, dense over the others.
func isRowRead(a kir.Access, row []bool) bool {
	n := 1
	for d := len(a.Dims) - 1; d >= 0; d-- {
		want := 0
		if !row[d] {
			want, n = n, n*a.Dims[d]
		}
		if a.Strides[d] != want {
			return false
		}
	}
	return a.Offset == 0
}

// rowOperands checks a row-level op: its inside operands are row values in order.
func (s *Space) rowOperands(op *ir.Op) bool {
	some := false
	for _, v := range inputs(op) {
		if _, ok := Scalar(v); ok {
			continue
		}
		src, acc, ok := OperandAccess(op, v)
		if !ok {
			return false
		}
		if level, inside := s.Level[src]; inside {
			if level != Row || !acc.IsDense() {
				return false
			}
			some = true
		}
	}
	return some
}

func (s *Space) addReduce(op *ir.Op, dims []int) bool {
	in := op.In[0].Type.Dims
	if !s.started {
		s.Dims, _ = kir.Refine(in, in)
		s.Row, s.started = make([]bool, len(s.Dims)), true
	}
	fine, ok := kir.Refine(s.Dims, in)
	if !ok {
		return false
	}
	row := spread(s.Dims, s.Row, fine)
	if !s.operandsFit(op, fine, row) {
		return false
	}
	mark := make([]bool, len(in))
	for _, d := range dims {
		mark[d] = true
	}
	reduced := spread(in, mark, fine)
	level, rows, ok := s.decide(fine, row, reduced)
	if !ok {
		return false
	}
	if !s.Decided && rows != nil {
		s.Decided, row = true, rows
	}
	s.Reduces = s.Reduces || level == Row
	return s.commit(op, fine, row, level)
}

// decide says what a reduction over the marked dims is in this space: over rows, or a column
// accumulation, and (when the space was undecided) what its rows then are.
func (s *Space) decide(dims []int, row, reduced []bool) (Level, []bool, bool) {
	n := len(dims)
	all, none := !slices.Contains(reduced, false), !slices.Contains(reduced, true)
	switch {
	case none:
		return Full, nil, true
	case s.Decided && slices.Equal(row, reduced):
		return Row, nil, true
	case all:
		return Acc, nil, true
	}
	kept := make([]bool, n)
	for d := range reduced {
		kept[d] = !reduced[d]
	}
	columns := isPrefix(reduced) && keptElems(dims, kept) <= MaxAcc
	if s.Decided {
		return Acc, nil, columns && slices.Equal(row, kept)
	}
	if columns {
		return Acc, kept, true
	}
	return Row, slices.Clone(reduced), true
}

// isPrefix reports whether the marked dims are the leading ones.
func isPrefix(mark []bool) bool {
	i := slices.Index(mark, false)
	return i >= 0 && !slices.Contains(mark[i:], true)
}

func keptElems(dims []int, kept []bool) int {
	n := 1
	for d, k := range kept {
		if k {
			n *= dims[d]
		}
	}
	return n
}

// Rows is the number of rows, RowElems the elements of one. Undecided spaces count as one dim a row: the last.
func (s *Space) Rows() (rows, elems int) {
	rows, elems = 1, 1
	for d, n := range s.Dims {
		if s.Decided && s.Row[d] || !s.Decided && d == len(s.Dims)-1 {
			elems *= n
		} else {
			rows *= n
		}
	}
	return rows, elems
}

// Chunks is into how many pieces the rows are cut for column accumulation: fixed by the shape alone, so
// that results do not depend on the number of threads.
func (s *Space) Chunks() int {
	rows, _ := s.Rows()
	return max(1, min(rows, MaxChunks))
}

// WorkBytes is the scratch memory that the partial accumulators of the group take.
func (s *Space) WorkBytes() int {
	n := 0
	for v, l := range s.Level {
		if l == Acc {
			n += s.Chunks() * ((v.Type.Elems()*kir.AccSize(v.Type.DType) + 63) &^ 63)
		}
	}
	return n
}

// AtOperand is the level at which op reads its operands: a reduction reads elements whatever it makes.
func (l Level) AtOperand(op *ir.Op) Level {
	if Impl(op).Kind == kir.Reduce {
		return Full
	}
	return l
}
