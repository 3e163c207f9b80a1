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
	Loc  string // where the model says so: "/0/Gemm" model.py:41
	// Wait lists the calls (by position) whose collectives must be over before this one runs.
	Wait []int
	// Comm, when set, is a collective that starts here and runs beside later calls.
	Comm *Comm
	// What runs on a device: kernels one after the other, or what a library may do in their place.
	Launches    []Launch
	Product     *Product
	Convolution *Convolution
	// Run launches the kernel on the arena at b, with At. It returns -1, or the first row whose index was out of range.
	Run func(b unsafe.Pointer, at []int) int64
	// At holds the offsets of operands in the arena, bytes, then sizes: what tells calls of one kernel apart.
	At []int
	// Ptrs is how many of At are offsets, in a program with a stash. Those within slot 0 of it move to the slot that an action
	// works on.
	Ptrs int
	// Out is what it writes, for GTC_NAN and GTC_HASH.
	Out []Span `print:"always"`
}

// Comm is a collective on a stretch of the arena.
type Comm struct {
	Kind   mesh.Collective `print:"always"`
	Axis   string          `print:"always"` // mesh axis, such as dp
	Op     string          `print:"always"` // sum, max, …
	DType  string          `print:"always"`
	Offset int             `print:"always"` // in place for all_reduce; destination for the others
	Bytes  int             `print:"always"`
	Source int             `print:"always"` // source offset of all_gather and reduce_scatter
	Tensor string          `print:"always"` // the tensors, for errors
	Loc    string          `print:"always"`
	Peer   int             // coordinate on Axis of the other side of a send or recv
	Stays  bool            // what a send sends is overwritten by nothing but the same function on the same slot of the stash
	Outer  int             // shard_slice: number of slices to take, each Bytes/Outer long, Stride bytes apart in the source
	Stride int
	Before []Copy // copies of operands that could not be made in place
}

// Copy moves Bytes from one arena offset to another.
type Copy struct {
	From  int `print:"always"`
	To    int `print:"always"`
	Bytes int `print:"always"`
}

// Span is a stretch of the arena that holds elements of one type.
type Span struct {
	Offset int    `print:"always"`
	Bytes  int    `print:"always"`
	DType  string `print:"always"` // an abi name, such as "f32"
	Name   string `print:"always"` // the tensor
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
