package ir

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Tensor is constant host data: little-endian, row-major, dense. It is never changed in place.
type Tensor struct {
	Type Type
	Data []byte // nil when only the hash is known (parsed from text without its data), or nothing but the type: see Absent
	hash string
}

// Absent reports whether the contents are not there, so that t stands for any of its type.
func (t *Tensor) Absent() bool { return t.Data == nil && t.Type.Bytes() > 0 }

// Hash is the first 12 hex digits of the SHA-256 of the data.
func (t *Tensor) Hash() string {
	if t.hash == "" {
		sum := sha256.Sum256(t.Data)
		t.hash = hex.EncodeToString(sum[:6])
	}
	return t.hash
}

// At is element i as a float64 (bools are 0 or 1). 64-bit integers beyond 2^53 lose digits: use Int.
func (t *Tensor) At(i int) float64 {
	switch t.Type.DType {
	case dtype.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:])))
	case dtype.F64:
		return math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:]))
	case dtype.F16:
		return float64(dtype.F16ToF32(binary.LittleEndian.Uint16(t.Data[2*i:])))
	case dtype.BF16:
		return float64(dtype.BF16ToF32(binary.LittleEndian.Uint16(t.Data[2*i:])))
	}
	if t.Type.DType.IsSmallFloat() {
		return t.Type.DType.Decode(t.Data[i])
	}
	return float64(t.Int(i))
}

// Int is element i of an integer or bool tensor.
func (t *Tensor) Int(i int) int64 {
	le := binary.LittleEndian
	switch t.Type.DType {
	case dtype.I64, dtype.U64:
		return int64(le.Uint64(t.Data[8*i:]))
	case dtype.I32:
		return int64(int32(le.Uint32(t.Data[4*i:])))
	case dtype.U32:
		return int64(le.Uint32(t.Data[4*i:]))
	case dtype.I16:
		return int64(int16(le.Uint16(t.Data[2*i:])))
	case dtype.U16:
		return int64(le.Uint16(t.Data[2*i:]))
	case dtype.I8, dtype.I4, dtype.I2:
		return int64(int8(t.Data[i]))
	case dtype.U8, dtype.U4, dtype.U2, dtype.Bool:
		return int64(t.Data[i])
	}
	return int64(t.At(i))
}

// appendElem appends one element converted to d.
func appendElem(out []byte, d dtype.DType, f float64, i int64) []byte {
	le := binary.LittleEndian
	switch d {
	case dtype.F32:
		return le.AppendUint32(out, math.Float32bits(float32(f)))
	case dtype.F64:
		return le.AppendUint64(out, math.Float64bits(f))
	case dtype.F16:
		return le.AppendUint16(out, dtype.F32ToF16(float32(f)))
	case dtype.BF16:
		return le.AppendUint16(out, dtype.F32ToBF16(float32(f)))
	case dtype.I64, dtype.U64:
		return le.AppendUint64(out, uint64(i))
	case dtype.I32, dtype.U32:
		return le.AppendUint32(out, uint32(i))
	case dtype.I16, dtype.U16:
		return le.AppendUint16(out, uint16(i))
	case dtype.I8, dtype.U8, dtype.I4, dtype.U4, dtype.I2, dtype.U2:
		return append(out, byte(d.Wrap(i)))
	case dtype.Bool:
		if i != 0 {
			return append(out, 1)
		}
		return append(out, 0)
	}
	if d.IsSmallFloat() {
		return append(out, d.Encode(f, d == dtype.F8E8M0))
	}
	panic("BUG: tensor of type " + d.String())
}

// Floats makes a tensor from float64 elements, rounded to t's float type.
func Floats(t Type, data ...float64) *Tensor {
	if len(data) != t.Elems() {
		panic(fmt.Sprintf("BUG: %d elements for %s", len(data), t))
	}
	out := make([]byte, 0, t.Bytes())
	for _, f := range data {
		out = appendElem(out, t.DType, f, int64(f))
	}
	return &Tensor{Type: t, Data: out}
}

// Ints makes a tensor from int64 elements, for integer and bool types.
func Ints(t Type, data ...int64) *Tensor {
	if len(data) != t.Elems() {
		panic(fmt.Sprintf("BUG: %d elements for %s", len(data), t))
	}
	out := make([]byte, 0, t.Bytes())
	for _, i := range data {
		out = appendElem(out, t.DType, float64(i), i)
	}
	return &Tensor{Type: t, Data: out}
}

// Uniform reports whether every element has the same bits, and element 0. False for an empty tensor.
func (t *Tensor) Uniform() (float64, bool) {
	n := t.Type.DType.Size()
	if len(t.Data) < n || n == 0 {
		return 0, false
	}
	for i := n; i < len(t.Data); i++ {
		if t.Data[i] != t.Data[i-n] {
			return 0, false
		}
	}
	return t.At(0), true
}

// Array is a tensor as the reference evaluator sees it: float types (of any width) in F as float64,
// integers and bools in I. Exactly one of F and I is used. Arithmetic on it does not round to the element type.
type Array struct {
	Type Type
	F    []float64
	I    []int64
}

// NewArray is an array of zeros.
func NewArray(t Type) *Array {
	a := &Array{Type: t}
	if t.DType.IsFloat() {
		a.F = make([]float64, t.Elems())
	} else {
		a.I = make([]int64, t.Elems())
	}
	return a
}

// Array widens the tensor for evaluation.
func (t *Tensor) Array() *Array {
	a := NewArray(t.Type)
	for i := range a.F {
		a.F[i] = t.At(i)
	}
	for i := range a.I {
		a.I[i] = t.Int(i)
	}
	return a
}

// Tensor rounds the array to its element type.
func (a *Array) Tensor() *Tensor {
	if a.F != nil {
		return Floats(a.Type, a.F...)
	}
	return Ints(a.Type, a.I...)
}

// Strides gives row-major element strides of dims.
func Strides(dims []int) []int {
	s, n := make([]int, len(dims)), 1
	for d := len(dims) - 1; d >= 0; d-- {
		s[d] = n
		n *= dims[d]
	}
	return s
}
