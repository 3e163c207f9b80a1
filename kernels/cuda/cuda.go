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
	"github.com/gtc-compiler/gtc/target/launch"
)

// Headers are the .cuh and .h files of this folder, by name.
//
//go:embed *.cuh *.h
var Headers embed.FS

// Special arguments of a Kernel.
const (
	Workspace = launch.Workspace
	Status    = launch.Status
	Nil       = launch.Nil
	Table     = launch.Table
	Base      = launch.Base
)

// What says how a call is launched.
type (
	// Ref is what a parameter of a kernel stands for.
	Ref = launch.Ref
	// Kernel is one kernel: here CUDA C++, an extern "C" __global__ function that includes headers of this package besides gtc.cuh.
	Kernel = launch.Kernel
	// Plan is how a call is done.
	Plan = launch.Plan
)

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
		return nil, fmt.Errorf("the CUDA target has no kernel %q", c.Name)
	}
	if !t.native(c.Types) {
		return nil, fmt.Errorf("BUG: template %s of the CUDA target is called with %v", c.Name, c.Types)
	}
	return t.lower(c)
}
