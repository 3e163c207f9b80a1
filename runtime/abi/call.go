package abi

import (
	"slices"
	"unsafe"

	"github.com/gtc-compiler/gtc/distributed/mesh"
)

// The structs of this file and of cuda.go are what generated code holds: codegen/rank fills them and prints them by reflection, in the
// order of their fields, those that are zero left out unless their tag says always.

// Call is one step of a function: a kernel on this rank, or a collective among ranks.
type Call struct {
	Name string `print:"always"` // the value it makes and the kernel, such as "h = k17" or "h = Gemm"
	Loc  string // where the model says so: "/0/Gemm" model.py:41; "" when nothing is known
	// Wait lists calls with a Comm, by their position in the function, whose collectives must have ended before this one runs.
	Wait []int
	// Comm is a collective that starts here and runs beside later calls; nil for a kernel.
	Comm *Comm
	// What a call of a program for a device runs, one of the three: kernels one after the other, or a product or convolution that a
	// library may do. All are nil in a program for the CPU.
	Launches    []Launch
	Product     *Product
	Convolution *Convolution
	// Run, in a program for the CPU, runs the kernel on the arena that begins at b, with At. It returns -1, or the number of the first
	// row (of its index operand) whose index was out of range. Nil for collectives and on devices.
	Run func(b unsafe.Pointer, at []int) int64
	// At holds what differs between calls of one kernel: first the operands, as bytes from the start of the arena, then sizes.
	At []int
	// Ptrs is how many of At, from its beginning on, are offsets, in a program with a stash (else 0): those within slot 0 of the stash
	// are moved to the slot that an action works on.
	Ptrs int
	// Out lists the places that it writes, for GTC_NAN and GTC_HASH.
	Out []Span `print:"always"`
}

// Comm is a collective on a stretch of the arena.
type Comm struct {
	Kind   mesh.Collective `print:"always"`
	Axis   string          `print:"always"` // mesh axis, such as dp
	Op     string          `print:"always"` // sum, max, …
	DType  string          `print:"always"` // an abi name, such as f32
	Offset int             `print:"always"` // of its first result, bytes from the start of the arena
	Bytes  int             `print:"always"` // of its results, from Offset to the end of the last; of a send, of what it sends
	Source int             `print:"always"` // of its first operand, bytes from the start of the arena; an all_reduce reads at Offset instead
	Tensor string          `print:"always"` // names of the tensors, joined by a comma, for errors
	Loc    string          `print:"always"` // node and source line of the model, for errors
	Peer   int             // coordinate on Axis of the other side of a send or recv
	Stays  bool            // what a send sends is overwritten by nothing but the same function on the same slot of the stash
	Outer  int             // shard_slice: number of slices to take, each Bytes/Outer long, Stride bytes apart in the source
	Stride int             // of shard_slice: bytes from one slice to the next in the source
	Before []Copy          // copies of operands that could not be made in place
}

// Copy moves Bytes from one arena offset to another.
type Copy struct {
	From  int `print:"always"` // bytes from the start of the arena
	To    int `print:"always"` // bytes from the start of the arena
	Bytes int `print:"always"` // how many are copied
}

// Span is a stretch of the arena that holds elements of one type.
type Span struct {
	Offset int    `print:"always"` // bytes from the start of the arena
	Bytes  int    `print:"always"` // its size
	DType  string `print:"always"` // an abi name, such as "f32"
	Name   string `print:"always"` // the tensor that lies there
}

// Kernel reports whether a call is no collective.
func (c *Call) Kernel() bool {
	return c.Run != nil || c.Launches != nil || c.Product != nil || c.Convolution != nil
}

// Refuses reports whether a call has a status word.
func (c *Call) Refuses() bool {
	has := func(l Launch) bool { return slices.Contains(l.Args, ArgStatus) }
	return slices.ContainsFunc(c.Launches, has) || c.Product != nil && slices.ContainsFunc(c.Product.Own, has) ||
		c.Convolution != nil && slices.ContainsFunc(c.Convolution.Own, has)
}

// Operands are the offsets of what a call works on: At, or what its launches are given where At is not told.
func (c *Call) Operands() []int {
	if c.At != nil || c.Launches == nil {
		return c.At
	}
	var at []int
	for _, l := range c.Launches {
		at = append(at, l.Args...)
	}
	return at
}
