// Package program says what a generated rank program declares, and reads the plan in it as one rank sees it: which part it has
// of each tensor, in the arena, in files and among the ranks.
package program

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
)

// Program is one compiled rank program, as generated code declares it.
type Program struct {
	// Plan is the JSON of abi.Manifest, the same for every rank.
	Plan []byte
	// Index is the number of this program among the manifest's.
	Index int
	// Funcs are the calls of each function that the plan lists.
	Funcs map[string][]Call
	// Copies are arena copies to make when a function ends, by function.
	Copies map[string][]Copy
	// Device is what the calls run on when it is not this processor: calls then have Launches, Product or Convolution in place
	// of Run.
	Device *Device
	// SetThreads sets the thread count of the generated kernels.
	SetThreads func(n int)
}

// Device is the code of a program for a device, and how that is opened.
type Device struct {
	Code device.Code
	Open device.Opener
}

// Copy moves Bytes from one arena offset to another.
type Copy struct{ From, To, Bytes int }

// Span is a stretch of the arena that holds elements of one type.
type Span struct {
	Offset, Bytes int
	DType         string // an abi name, such as "f32"
	Name          string // the tensor
}

// Call is one step of a function: a kernel on this rank, or a collective among ranks.
type Call struct {
	Name string // the value it makes and the kernel, such as "h = k17" or "h = Gemm"
	Loc  string // where the model says so: "/0/Gemm" model.py:41
	// Run launches the kernel on the arena at b, with At. It returns -1, or the first row whose index was out of range.
	Run func(b unsafe.Pointer, at []int) int64
	// What runs on a device: kernels one after the other, or what a library may do in their place.
	Launches    []abi.Launch
	Product     *abi.Product
	Convolution *abi.Convolution
	// At holds the offsets of operands in the arena, bytes, then sizes: what tells calls of one kernel apart.
	At []int
	// Ptrs is how many of At are offsets, in a program with a stash. Those within slot 0 of it move to the slot that an action
	// works on.
	Ptrs int
	// Comm, when set, is a collective that starts here and runs beside later calls.
	Comm *Comm
	// Wait lists the calls (by position) whose collectives must be over before this one runs.
	Wait []int
	// Out is what it writes, for GTC_NAN and GTC_HASH.
	Out []Span
}

// Comm is a collective on a stretch of the arena.
type Comm struct {
	Kind   string // all_reduce, all_gather, reduce_scatter, all_to_all, send, recv, shard_slice
	Axis   string // mesh axis, such as dp
	Peer   int    // coordinate on Axis of the other side of a send or recv
	Stays  bool   // what a send sends is overwritten by nothing but the same function on the same slot of the stash
	Op     string // sum, max, …
	DType  string
	Offset int // in place for all_reduce; destination for the others
	Bytes  int
	Source int    // source offset of all_gather and reduce_scatter
	Before []Copy // copies of operands that could not be made in place
	Outer  int    // shard_slice: number of slices to take, each Bytes/Outer long, Stride bytes apart in the source
	Stride int
	Tensor string // the tensors, for errors
	Loc    string
}

// Kernel reports whether a call is no collective.
func (c *Call) Kernel() bool {
	return c.Run != nil || c.Launches != nil || c.Product != nil || c.Convolution != nil
}

// Refuses reports whether a call has a status word.
func (c *Call) Refuses() bool {
	has := func(l abi.Launch) bool { return slices.Contains(l.Args, abi.ArgStatus) }
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

// Place is where the model says loc, for errors.
func Place(loc string) string {
	if strings.TrimSpace(loc) == "" {
		return "an op without a location"
	}
	return loc
}

// Names of the functions of a program.
const (
	FuncMicro   = "micro"   // one micro-batch, accumulating
	FuncStep    = "step"    // the last micro-batch, the collectives and the update
	FuncEval    = "eval"    // loss_sum, count and correct of a batch, nothing updated
	FuncForward = "forward" // the model's outputs
	FuncLocal   = "local"   // step of local SGD, when step is that of plain data parallelism
	FuncAverage = "average" // makes parameters the mean over the data-parallel ranks
)
