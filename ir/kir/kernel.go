package kir

import "github.com/gtc-compiler/gtc/ir/dtype"

// Level says over what an instruction's value varies. Higher levels vary over more.
type Level uint8

// The levels of a value.
const (
	Uniform Level = iota // the same at every point
	PerRow               // one per row
	PerElem              // one per element of a row
)

// Param is one buffer that a kernel touches. Kernels take pointers to dense buffers.
type Param struct {
	DType dtype.DType
	Elems int
	Out   bool // written; it may be the same memory as an input that is read at the same index only
	Align int  // the argument is a multiple of so many bytes; 0: of one element only
}

// Inst is one instruction; it makes the value that has its number. Access runs over the kernel's dims.
type Inst struct {
	Op     string      // load store const index reduce acc cast select, or a function of Un and Bin
	Fn     string      // reduce, acc: sum max min prod
	DType  dtype.DType // of the value
	Args   []int       // instruction numbers
	Param  int         // load, store, acc: which buffer
	Access Access      // load, store, acc; index: the number itself
	Value  float64     // const
	Level  Level
	Stage  int // number of row reductions, in sequence, that come before it
}

// Kernel is a loop nest with straight-line scalar code. The dims that Row marks form a row; the others
// enumerate rows, in parallel. A stage passes over the row once; a "reduce" is ready in the next stage.
// An "acc" collects over all rows into a buffer indexed by the row dims (or into a scalar), by way of Chunks
// partial copies in the workspace which are added in order.
type Kernel struct {
	Dims   []int
	Row    []bool
	Params []Param
	Insts  []Inst
	Chunks int
	Work   int // bytes of workspace
}

// AccSize is the bytes of one element of an accumulator of type d: floats below f32 are collected in f32.
func AccSize(d dtype.DType) int {
	if d.IsFloat() {
		return max(4, d.Size())
	}
	return d.Size()
}

// Rows is the number of rows, RowElems the elements of one.
func (k *Kernel) Rows() int { return k.extent(false) }

// RowElems is the number of elements in a row.
func (k *Kernel) RowElems() int { return k.extent(true) }

func (k *Kernel) extent(row bool) int {
	n := 1
	for d, size := range k.Dims {
		if k.Row[d] == row {
			n *= size
		}
	}
	return n
}

// Collapse merges neighbouring dims that every access walks as one.
func (k *Kernel) Collapse() {
	for d := len(k.Dims) - 2; d >= 0; d-- {
		if k.Row[d] != k.Row[d+1] || !k.mergeable(d) {
			continue
		}
		for i := range k.Insts {
			if a := &k.Insts[i].Access; len(a.Strides) > 0 {
				a.Strides = append(append([]int{}, a.Strides[:d]...), a.Strides[d+1:]...)
				a.Dims = nil
			}
		}
		k.Dims[d+1] *= k.Dims[d]
		k.Dims = append(k.Dims[:d], k.Dims[d+1:]...)
		k.Row = append(k.Row[:d], k.Row[d+1:]...)
	}
}

func (k *Kernel) mergeable(d int) bool {
	for i := range k.Insts {
		if s := k.Insts[i].Access.Strides; len(s) > 0 && s[d] != s[d+1]*k.Dims[d+1] {
			return false
		}
	}
	return true
}
