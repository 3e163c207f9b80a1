package target

import (
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/target/launch"
)

// Device is a target whose kernels are compiled apart from the program and launched on a device that has the arena in its memory.
type Device interface {
	Target
	// Launches are those of one call: of a fused kernel, or of several that one launch can do together by MultiTensor.BatchKey, one after the other where
	// it says so. describe is a word for what they do. work is the workspace that they take, in bytes. References are to the params
	// of the first kernel; where kernels are joined, tables say where the others' are.
	Launches(describe string, kernels []Fused, inOrder bool) (list []launch.Kernel, work int, err error)
	// Plan is how a call of a template is done. It is asked with the strides of the call's operands in Ints.
	Plan(c Call) (*launch.Plan, error)
	// Text is the file of a program's kernels, for people and for compilers.
	Text(kernels []launch.Function) (file, text string)
	// Compiler finds what compiles kernels. The error says what is wrong with the options.
	Compiler(o launch.Options) (launch.Compiler, error)
	// Runtime is what its programs need of the run-time.
	Runtime() Runtime
}

// Fused is a call of a fused kernel: where its params are, in bytes from the arena's start.
type Fused struct {
	Kernel *kir.Kernel
	At     []int // for each param of Kernel, in order
}

// Runtime is what the programs of a device need of the run-time, by import paths within gtc's module.
type Runtime struct {
	Open    string   // package whose Open opens the device (runtime/device.Open)
	Link    []string // packages that a program links for what they register: libraries for collectives
	Carries []string // folders of the run-time that are copied into its programs only
	Params  int      // how many bytes of parameters a kernel can have
}
