package kir

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Number is one value: F of a float type, I of an integer (of U64 its bits) or a bool (0 or 1).
type Number struct {
	F float64
	I int64
}

// Apply is the function of operands of type from, as an instruction with a result of type to has it. Arithmetic is that of
// float64. Casts to f16, bf16 and f32 round only where stored is set, those to smaller types always.
func (f *Func) Apply(to, from dtype.DType, stored bool, x ...Number) Number {
	switch {
	case f.Name == "select":
		if x[0].I != 0 {
			return x[1]
		}
		return x[2]
	case f.Name == "cast":
		return convert(to, from, x[0], stored)
	case f.Name == "bitcast":
		return ofBits(to, bitsOf(from, x[0]))
	case from.IsFloat():
		v := make([]float64, len(x))
		for i := range x {
			v[i] = x[i].F
		}
		if r := f.Float(v); to.IsFloat() {
			return Number{F: r}
		} else { // a Test
			return Number{I: int64(r)}
		}
	}
	v := make([]int64, len(x))
	for i := range x {
		v[i] = x[i].I
	}
	return Number{I: to.Wrap(f.Int(from, v))}
}

// convert is x, of type from, as a value of type to.
func convert(to, from dtype.DType, x Number, stored bool) Number {
	switch {
	case to == dtype.Bool && from.IsFloat():
		return Number{I: int64(truth(x.F != 0))}
	case to == dtype.Bool:
		return Number{I: int64(truth(x.I != 0))}
	case !to.IsFloat() && from.IsFloat():
		return Number{I: to.Truncate(x.F)}
	case !to.IsFloat():
		return Number{I: to.Wrap(x.I)}
	case from == dtype.U64:
		x.F = float64(uint64(x.I))
	case !from.IsFloat():
		x.F = float64(x.I)
	}
	if stored || to.IsSmallFloat() {
		x.F = to.Round(x.F)
	}
	return Number{F: x.F}
}

// bitsOf are the bits that hold x in memory, ofBits the value of type d that they hold.
func bitsOf(d dtype.DType, x Number) uint64 {
	switch {
	case d == dtype.F64:
		return math.Float64bits(x.F)
	case d == dtype.F32:
		return uint64(math.Float32bits(float32(x.F)))
	case d == dtype.F16:
		return uint64(dtype.F32ToF16(float32(x.F)))
	case d == dtype.BF16:
		return uint64(dtype.F32ToBF16(float32(x.F)))
	case d.IsFloat():
		return uint64(d.Encode(x.F, d == dtype.F8E8M0))
	}
	return uint64(x.I)
}

func ofBits(d dtype.DType, b uint64) Number {
	switch {
	case d == dtype.F64:
		return Number{F: math.Float64frombits(b)}
	case d == dtype.F32:
		return Number{F: float64(math.Float32frombits(uint32(b)))}
	case d == dtype.F16:
		return Number{F: float64(dtype.F16ToF32(uint16(b)))}
	case d == dtype.BF16:
		return Number{F: float64(dtype.BF16ToF32(uint16(b)))}
	case d.IsFloat():
		return Number{F: d.Decode(uint8(b))}
	}
	return Number{I: d.Wrap(int64(b))}
}

// Operand is an operand of an op at the point at hand, for Expr.Eval.
type Operand struct {
	DType dtype.DType
	Number
}

// Eval is the expression's value at the point index, where arg gives the operands, and its type. Floats are those of float64,
// as the tensor evaluator's are, so that only casts to types of 8 bits and fewer round.
func (e *Expr) Eval(arg func(i int) Operand, index []int) (Operand, error) {
	switch e.Op {
	case "arg":
		return arg(e.Index), nil
	case "const":
		return Operand{e.DType, literal(e.DType, e.Value)}, nil
	case "index":
		return Operand{dtype.I64, Number{I: int64(index[e.Index])}}, nil
	}
	f := Lookup(e.Op)
	if f == nil {
		return Operand{}, fmt.Errorf("%q is not a scalar function", e.Op)
	}
	var types []dtype.DType
	var x []Number
	for _, a := range e.Args {
		v, err := a.Eval(arg, index)
		if err != nil {
			return Operand{}, err
		}
		types, x = append(types, v.DType), append(x, v.Number)
	}
	to, err := f.Result(e.DType, types...)
	if err != nil {
		return Operand{}, err
	}
	return Operand{to, f.Apply(to, types[0], false, x...)}, nil
}

// literal is a constant of type d; integers clip to 64 bits, as in printed text.
func literal(d dtype.DType, v float64) Number {
	switch {
	case d.IsFloat():
		return Number{F: v}
	case d == dtype.U64 && v >= math.MaxUint64:
		return Number{I: -1}
	case d == dtype.U64 && v >= math.MaxInt64:
		return Number{I: int64(uint64(v))}
	case v >= math.MaxInt64:
		return Number{I: math.MaxInt64}
	case v <= math.MinInt64:
		return Number{I: math.MinInt64}
	}
	return Number{I: int64(v)}
}

// Identity is what a reduction fn (sum, prod, max or min) over values of type d starts from: for max and min the end of the
// type from which every value is a step.
func Identity(fn string, d dtype.DType) Number {
	least, largest := int64(0), d.Wrap(-1)
	switch {
	case d == dtype.Bool:
		largest = 1
	case d.Signed():
		least = -1 << (d.Bits() - 1)
		largest = ^least
	}
	switch fn {
	case "prod":
		return Number{1, 1}
	case "max":
		return Number{math.Inf(-1), least}
	case "min":
		return Number{math.Inf(1), largest}
	}
	return Number{}
}

// Combine is one step of reduction fn over values of type d.
func Combine(fn string, d dtype.DType, x, y Number) Number {
	return ReductionOf(fn).Func().Apply(d, d, false, x, y)
}

// Buffer is what a param's memory holds: F of a float type, I of integers and bools.
type Buffer struct {
	F []float64
	I []int64
}

func (b Buffer) at(i int) Number {
	if b.F != nil {
		return Number{F: b.F[i]}
	}
	return Number{I: b.I[i]}
}

func (b Buffer) set(i int, d dtype.DType, x Number) {
	if b.F != nil {
		b.F[i] = d.Round(x.F)
	} else {
		b.I[i] = d.Wrap(x.I)
	}
}

// NewBuffer makes memory of n elements of type d, all 0.
func NewBuffer(d dtype.DType, n int) Buffer {
	if d.IsFloat() {
		return Buffer{F: make([]float64, n)}
	}
	return Buffer{I: make([]int64, n)}
}

// Bytes is the buffer as memory holds it, in elements of type d, little end first.
func (b Buffer) Bytes(d dtype.DType) []byte {
	var out []byte
	for i := range len(b.F) + len(b.I) {
		out = append(out, binary.LittleEndian.AppendUint64(nil, bitsOf(d, b.at(i)))[:d.Size()]...)
	}
	return out
}

// ReadBuffer is the buffer of elements of type d that memory holds.
func ReadBuffer(d dtype.DType, data []byte) Buffer {
	b := NewBuffer(d, len(data)/d.Size())
	for i := range len(b.F) + len(b.I) {
		var word [8]byte
		copy(word[:], data[i*d.Size():][:d.Size()])
		n := ofBits(d, binary.LittleEndian.Uint64(word[:]))
		if b.F != nil {
			b.F[i] = n.F
		} else {
			b.I[i] = n.I
		}
	}
	return b
}

// Eval does to the buffers of the params what the kernel does: slowly, instruction by instruction over all points, in float64
// with loads, stores and casts of the right types. It is what printed kernels are held to.
func (k *Kernel) Eval(buffers []Buffer) error {
	if err := k.Verify(); err != nil {
		return err
	}
	if len(buffers) != len(k.Params) {
		return fmt.Errorf("the number of buffers is %d, but that of params %d", len(buffers), len(k.Params))
	}
	for i, p := range k.Params {
		floats, ints := p.Elems, 0
		if !p.DType.IsFloat() {
			floats, ints = ints, floats
		}
		if b := buffers[i]; len(b.F) != floats || len(b.I) != ints {
			return fmt.Errorf("buffer %d holds %d floats and %d integers, its param is %s[%d]", i, len(b.F), len(b.I), p.DType, p.Elems)
		}
	}
	e := &evaluation{k: k, buffers: buffers, values: make([][]Number, len(k.Insts))}
	e.points()
	for n := range k.Insts {
		e.inst(n)
	}
	return nil
}

// evaluation is the state of Kernel.Eval: the index of each point, the row that it is in, and the values of the instructions
// so far, at each point.
type evaluation struct {
	k       *Kernel
	buffers []Buffer
	index   [][]int
	row     []int
	values  [][]Number
}

func (e *evaluation) points() {
	n := e.k.Rows() * e.k.RowElems()
	at := make([]int, len(e.k.Dims))
	for range n {
		e.index = append(e.index, slices.Clone(at))
		row := 0
		for d, size := range e.k.Dims {
			if !e.k.Row[d] {
				row = row*size + at[d]
			}
		}
		e.row = append(e.row, row)
		for d := len(at) - 1; d >= 0; d-- {
			if at[d]++; at[d] < e.k.Dims[d] {
				break
			}
			at[d] = 0
		}
	}
}

// position is where access a is at point p.
func (e *evaluation) position(a Access, p int) int {
	at := a.Offset
	for d, s := range a.Strides {
		at += s * e.index[p][d]
	}
	return at
}

func (e *evaluation) inst(n int) {
	in := e.k.Insts[n]
	v := make([]Number, len(e.index))
	e.values[n] = v
	switch in.Op {
	case "load":
		for p := range v {
			v[p] = e.buffers[in.Param].at(e.position(in.Access, p))
		}
	case "index":
		for p := range v {
			v[p] = Number{I: int64(e.position(in.Access, p))}
		}
	case "const":
		for p := range v {
			v[p] = literal(in.DType, in.Value)
		}
	case "store":
		for p := range v {
			e.buffers[in.Param].set(e.position(in.Access, p), in.DType, e.values[in.Args[0]][p])
		}
	case "reduce":
		e.reduce(in, v)
	case "acc":
		e.accumulate(in)
	default:
		f, from := Lookup(in.Op), e.k.Insts[in.Args[0]].DType
		x := make([]Number, len(in.Args))
		for p := range v {
			for i, a := range in.Args {
				x[i] = e.values[a][p]
			}
			v[p] = f.Apply(in.DType, from, true, x...)
		}
	}
}

func (e *evaluation) reduce(in Inst, v []Number) {
	sums := make([]Number, e.k.Rows())
	for r := range sums {
		sums[r] = Identity(in.Fn, in.DType)
	}
	for p, r := range e.row {
		sums[r] = Combine(in.Fn, in.DType, sums[r], e.values[in.Args[0]][p])
	}
	for p, r := range e.row {
		v[p] = sums[r]
	}
}

// accumulate collects in float64 and rounds the results.
func (e *evaluation) accumulate(in Inst) {
	sums := make([]Number, e.k.Params[in.Param].Elems)
	for j := range sums {
		sums[j] = Identity(in.Fn, in.DType)
	}
	for p, x := range e.values[in.Args[0]] {
		j := e.position(in.Access, p)
		sums[j] = Combine(in.Fn, in.DType, sums[j], x)
	}
	for j, x := range sums {
		e.buffers[in.Param].set(j, in.DType, x)
	}
}
