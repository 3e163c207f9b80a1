// Package launch says how kernels that are compiled apart from their program are launched on a device, and what compiles them: what
// a target with a device, its printers of kernels and the printer of programs tell one another.
package launch

import (
	"context"
	"os"
	"path/filepath"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

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

// Kernel is one kernel and how it is launched.
type Kernel struct {
	Name        string   // what it does, in letters of an identifier; the program adds a number
	Text        string   // source, in the target's language: a function named NAME, with pointer parameters only
	Include     []string // headers of the target that Text needs besides those that all do
	Grid, Block [3]int
	Shared      int      // dynamic shared memory, bytes
	Args        []Ref    // by parameter
	Table       []uint64 // what parameter Table points at
	Refs        []int    // which entries of Table are offsets from Base
	Family      string   // pointwise, reduction, gemm, attention, conv, ...: reports sort by it
}

// Plan is how a call of a template is done: its kernels one after the other, or a product or convolution whose Own they are (its
// offsets are then left to the printer of the program, which knows the arena).
type Plan struct {
	Kernels     []Kernel
	Product     *abi.Product     // A, B, C, Bias, Aux hold pointer numbers (or abi.ArgNil), not offsets
	Convolution *abi.Convolution // likewise
	Workspace   int              // bytes, a multiple of 64
}

// Add appends a kernel that has blocks to run.
func (p *Plan) Add(k Kernel) {
	if k.Grid[0] > 0 {
		p.Kernels = append(p.Kernels, k)
	}
}

// Function is a kernel of a program, once for all of its launches.
type Function struct {
	Name    string   // of the function
	Text    string   // source
	Include []string // as in Kernel
	Family  string
	Loc     string // of the first op that calls it
}

// Image is a file beside the program with its kernels, compiled for Arch.
type Image struct{ Arch, File string }

// Options say what to compile kernels for, and by what.
type Options struct {
	Chips   []string // nil: the target's default
	Toolkit string   // folder of the compiler; "": the usual places
	Cache   string   // folder of compiled kernels; "": none
	Getenv  func(string) string
}

// DefaultCache is the folder of compiled kernels of this user, "" where there is no place for one. GTC_CACHE names another;
// "off" is none.
func DefaultCache(getenv func(string) string) string {
	switch dir := getenv("GTC_CACHE"); dir {
	case "off":
		return ""
	case "":
	default:
		return filepath.Join(dir, "kernels")
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "gtc", "kernels")
}

// Compiler makes the images of programs.
type Compiler interface {
	Chips() []string                                                            // that it compiles for
	Name() string                                                               // what compiles, with its version; "": that is left to the program's first start
	Warning() string                                                            // why it is, or ""
	Images() []Image                                                            // the files that Build makes
	StandIn() string                                                            // the file with what takes the place of a device and its driver, "" where there is a real one
	Driver() int                                                                // the version that the device's driver must have to load the images, in its maker's count; 0: any
	Build(ctx context.Context, kernels []Function, strict bool) (*Built, error) // strict: no multiplication is contracted with the addition that follows
}

// Built is what was compiled.
type Built struct {
	Files   map[string][]byte   // the images, and what the text of the kernels includes
	Figures []abi.KernelFigures // by kernel, then chip
	Cached  int                 // images of single kernels that were in the cache
}
