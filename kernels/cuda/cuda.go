// Package cuda holds the hand-made kernel templates of the CUDA target: device code in .cuh files, and beside each the Go
// code that says how a call of the template is launched. The names and integers of templates are those of kernels/cpu,
// which documents them, so that the same IR runs on both.
//
// Device code includes gtc.cuh and nothing else from outside this folder: no CUDA header is needed, NVRTC compiles it as it
// is, and so does a C++ compiler for the host (gtc_host.h), where tests execute it.
package cuda

import (
	"embed"
	"fmt"
	"maps"
	"slices"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Headers are the .cuh and .h files of this folder, by name.
//
//go:embed *.cuh *.h
var Headers embed.FS

// Special arguments of a Kernel.
const (
	Workspace = -10 // the start of the call's scratch memory, plus Ref.Offset
	Status    = abi.ArgStatus
	Nil       = abi.ArgNil
	Table     = abi.ArgTable
	Base      = abi.ArgBase
)

// Ref is what a kernel's pointer parameter stands for: the call's pointer number Arg, or one of the special ones, Offset
// bytes further on.
type Ref struct{ Arg, Offset int }

// Kernel is one __global__ function and how it is launched.
type Kernel struct {
	Name        string   // what it does, in letters of an identifier; the program adds a number
	Text        string   // CUDA C++: the function, extern "C" and named NAME, with pointer parameters only
	Include     []string // headers of this package that Text needs besides gtc.cuh
	Grid, Block [3]int
	Shared      int      // dynamic shared memory, bytes
	Args        []Ref    // by parameter
	Table       []uint64 // what parameter Table points at
	Refs        []int    // which entries of Table are offsets from Base
	Family      string   // pointwise, reduction, gemm, attention, conv, ...: reports sort by it
}

// Call is a call of a template, as the compiler hands it over.
type Call struct {
	Name    string
	Ints    []int
	Floats  []float64
	Types   []dtype.DType // of each pointer, in the template's order, workspace excluded; Invalid where it is nil
	Compute string        // f32, or tf32: products of f32 in tensor cores

	// Align are the bytes, at most 64, that each pointer is a multiple of; nil while the program has no plan yet: a template
	// may not need more workspace where they are less. Parts of larger tensors, which a template's strides describe, may begin
	// anywhere; all else is a multiple of 64.
	Align []int
}

// Plan is how a call is done: its kernels one after the other, or a product or convolution whose Own they are (its offsets
// are then left to the compiler, which knows the arena).
type Plan struct {
	Kernels     []Kernel
	Product     *abi.Product     // A, B, C, Bias, Aux hold pointer numbers (or abi.ArgNil), not offsets
	Convolution *abi.Convolution // likewise
	Workspace   int              // bytes, a multiple of 64
}

// template is a kernel's device side.
type template struct {
	native func(types []dtype.DType) bool // types that it takes as they are
	lower  func(c Call) (*Plan, error)
}

// templates lists every template; each file of this package adds its own in an init function.
var templates = map[string]template{}

// Templates are the names of all templates, sorted.
func Templates() []string { return slices.Sorted(maps.Keys(templates)) }

// Native reports whether the template takes operands of those types as they are. Others are cast to f32 around the call.
func Native(name string, types []dtype.DType) bool {
	t, ok := templates[name]
	return ok && t.native(types)
}

// Lower plans a call.
func Lower(c Call) (*Plan, error) {
	t, ok := templates[c.Name]
	if !ok {
		return nil, fmt.Errorf("the CUDA target has no kernel %q yet", c.Name)
	}
	if !t.native(c.Types) {
		return nil, fmt.Errorf("BUG: template %s of the CUDA target is called with %v", c.Name, c.Types)
	}
	return t.lower(c)
}
