// Package cpu is the target cpu: this kind of processor, with the templates of kernels/cpu and fused kernels in C.
package cpu

import (
	"errors"
	"slices"

	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/kernels/cpu"
	"github.com/gtc-compiler/gtc/target"
)

// Name is the target's.
const Name = "cpu"

// Target compiles for processors. It prefers nothing: caches keep what groups share, and a call costs nanoseconds.
var Target target.Target = processor{}

type processor struct{}

var traits = target.Traits{Name: Name, Title: "CPU"}

// Traits are the target's.
func (processor) Traits() *target.Traits { return &traits }

// Native reports whether kernels/cpu has a form of the template for the types.
func (processor) Native(c target.Call) bool {
	_, _, ok := Form(c)
	return ok
}

// Workspace is that of the form, in bytes.
func (processor) Workspace(c target.Call) (int, error) {
	name, more, _ := Form(c)
	return cpu.Workspace(name, append(slices.Clone(c.Ints), more...))
}

// CheckChips takes none: kernels are compiled for the machine at hand.
func (processor) CheckChips([]string) error { return errors.New("--arch is not for --target cpu") }

// Scratch is one copy of each column sum for each chunk of rows.
func (processor) Scratch(s *group.Space) (alone, joined int) { return s.WorkBytes(), 0 }

// Form is the kernel of kernels/cpu that does what the template does for the types of the call, and the integers that it takes
// after the template's; ok is false where there is none.
func Form(c target.Call) (name string, more []int, ok bool) {
	var names []string
	for _, d := range c.Types {
		names = append(names, d.String())
	}
	return cpu.Form(c.Name, names)
}
