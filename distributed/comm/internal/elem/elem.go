// Package elem adds up elements of messages: what types they have, and in which order those of several ranks become one, which
// decides the bits of every sum.
package elem

import "fmt"

// DType is an element type of a buffer.
type DType uint8

// Element types. F16 and BF16 are summed in f32 and rounded once, to nearest
// even. Types that are only moved (fp8, bool) can be passed as U8.
const (
	F32 DType = iota
	F64
	F16
	BF16
	I8
	I16
	I32
	I64
	U8
	U16
	U32
	U64
	numDTypes
)

var dtypes = [numDTypes]struct {
	name string
	size int
}{
	{"f32", 4}, {"f64", 8}, {"f16", 2}, {"bf16", 2}, {"i8", 1}, {"i16", 2},
	{"i32", 4}, {"i64", 8}, {"u8", 1}, {"u16", 2}, {"u32", 4}, {"u64", 8},
}

// Size is the number of bytes of one element, or 0 for an unknown type.
func (d DType) Size() int {
	if d >= numDTypes {
		return 0
	}
	return dtypes[d].size
}

// String is the type's short name, such as "bf16".
func (d DType) String() string {
	if d >= numDTypes {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Float reports whether d is a floating type.
func (d DType) Float() bool { return d <= BF16 }

// ReduceOp is how elements of several ranks become one.
type ReduceOp uint8

// Reductions. Max and Min of floating types give NaN when any rank has one.
// Avg is the sum divided by the number of ranks, for floating types only.
const (
	Sum ReduceOp = iota
	Max
	Min
	Prod
	Avg
	numReduceOps
)

var reduceNames = [numReduceOps]string{"sum", "max", "min", "prod", "avg"}

// String is the reduction's name, such as "sum".
func (r ReduceOp) String() string {
	if r >= numReduceOps {
		return fmt.Sprintf("reduce(%d)", uint8(r))
	}
	return reduceNames[r]
}

// Known reports whether there is such a reduction.
func (r ReduceOp) Known() bool { return r < numReduceOps }
