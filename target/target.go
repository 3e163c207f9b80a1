// Package target says what passes and code generation ask about the machine that programs are compiled for. Each target is a
// package below this one, and a row in passes/pass; nothing else knows which there are.
package target

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// Target is a kind of machine. Fused kernels are the same for all until they are printed; hand-made ones (templates) a target may
// lack, or have for some types only.
type Target interface {
	// Traits are what holds for every program.
	Traits() *Traits
	// Native reports whether there is a template for the call with the types that it has. Where there is none, passes take the op
	// apart, compute it in f32 between casts, or refuse it.
	Native(c Call) bool
	// Workspace is the scratch memory that the call takes, in bytes. It is asked before there is a plan: Align is nil.
	Workspace(c Call) (int, error)
	// Scratch is the scratch memory of a fused kernel over s, in bytes: what it takes when it runs alone, and what its sums add to
	// those of others when calls are joined (Traits.MultiTensor).
	Scratch(s *group.Space) (alone, joined int)
	// CheckChips refuses names that are none of the target's chips (--arch), before anything is looked for.
	CheckChips(names []string) error
}

// Host is a target whose kernels are functions that the program calls itself, fused ones in C.
type Host interface {
	Target
	// Fused prints a fused kernel as the C function NAME, without a result: of pointers to k's params in order, then to the
	// workspace when k.Work is not 0.
	Fused(k *kir.Kernel) (string, error)
	// Template is what a call of a template calls. It is asked with the strides of the call's operands in Ints.
	Template(c Call) (Function, error)
	// Head is what a C file begins with that has the functions text. It declares gtc_threads, an int.
	Head(text string) string
	// Build are cgo's directives for that file; strict: no operation is contracted with the next.
	Build(strict bool) string
}

// MultiTensor is a target that launches several kernels at once (multi-tensor apply).
type MultiTensor interface {
	Target
	// BatchKey is equal for calls of fused kernels that one launch can do together, where none of them touches what another writes; ""
	// for those that no launch does with others. at is where the params are, in bytes of the arena. With inOrder the launch does them
	// one after the other, so that one may need what another makes.
	BatchKey(k *kir.Kernel, at []int) (key string, inOrder bool)
}

// Function is what a call of a template calls: a function of a package of kernels, or one in C.
type Function struct {
	Package, Name string // a Go function: its package and name; it takes the call's pointers, the workspace, integers and floats
	More          []int  // further integers for the Go function, after those of the call
	Text          string // or the text of a C function called NAME, which takes the pointers alone; it returns the first bad row or -1, as a long, when the template has a status
}

// Traits are what a target is and what it prefers. The zero value of a preference asks for nothing of a pass.
type Traits struct {
	Name  string // as --target has it
	Title string // as errors have it: CPU, CUDA
	About string // what the help says of it; "": the name says it

	Device bool     // kernels are compiled apart from the program and launched on a device that has the arena in its memory
	Chips  []string // chips that kernels are compiled for unless --arch names others; nil: for the machine that compiles
	Comm   []string // values of --comm that only this target has, such as nccl

	TF32             bool // products of f32 can run in tf32
	AttentionDropout bool // templates of attention draw the dropout of the probabilities themselves
	Epilogues        bool // products do what follows them while their result is in registers (template GemmEpilogue)
	JoinReaders      bool // fused kernels that read the same large value are merged, since no cache keeps it for the second
	MultiTensor      bool // starting a kernel costs so much that those which do the same to different tensors become one launch
	InPlace          bool // memory is short: templates write over an operand where they may (kir.Impl.InPlace)

	// OwnProduct is a number of floating-point operations: matrix products of up to so many are done well by gtc's own kernels,
	// larger ones by a vendor's library, which must then know their epilogues. 0 where there is no library.
	OwnProduct int64

	Cost Cost
}

// Cost is what searches reckon with: how many operations a rank does in the time that something else takes.
type Cost struct {
	Byte    float64 // to move a byte in memory
	Link    float64 // to send a byte to another rank
	Message float64 // to send an empty message there
	Strided float64 // to copy a byte, before a message or after it, where what is sent is not contiguous in memory
	Kept    float64 // no time, but a price in operations for each byte of parameters and state that a rank keeps, since splitting is to save memory
}

// OneHost is that of the cores of one host as ranks; between hosts messages cost more, in every layout.
var OneHost = Cost{Byte: 1, Link: 10, Message: 100e3, Strided: 3, Kept: 8}

// Call is a call of a template: what ir/ops says of the op (kir.Impl), and the types that it has.
type Call struct {
	Name    string        // of the template, such as Gemm
	Ints    []int         // its integer arguments, such as sizes, in the template's order
	Floats  []float64     // its float arguments
	Types   []dtype.DType // element type of each pointer, in the template's order, without the workspace; Invalid where it is nil
	Compute string        // f32, or tf32: products of f32 in tensor cores

	// Align are the bytes, at most 64, that each pointer is a multiple of; nil while the program has no plan yet.
	Align []int
}

// CallOf is op's call of its template, with products of f32 in f32.
func CallOf(op *ir.Op, impl kir.Impl) Call {
	return Call{Name: impl.Template, Ints: slices.Clone(impl.Ints), Floats: impl.Floats, Types: types(op, impl), Compute: "f32"}
}

// types are those of the pointers that op's template takes, in the template's order.
func types(op *ir.Op, impl kir.Impl) []dtype.DType {
	all := append(slices.Clone(op.In), op.Out...)
	order := impl.Order
	if order == nil {
		for i := range all {
			order = append(order, i)
		}
	}
	list := make([]dtype.DType, len(order))
	for i, n := range order {
		if n >= 0 && n < len(all) && all[n] != nil {
			list[i] = all[n].Type.DType
		}
	}
	return list
}
