// Package cpu is the target cpu: this kind of processor, with the templates of kernels/cpu and fused kernels in C.
package cpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/codegen/c"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/kernels/cpu"
	"github.com/gtc-compiler/gtc/target"
)

// Name is the target's.
const Name = "cpu"

// Target compiles for processors. It prefers nothing: caches keep what groups share, and a call costs nanoseconds.
var Target target.Host = processor{}

type processor struct{}

var traits = target.Traits{Name: Name, Title: "CPU", Cost: target.OneHost}

// Traits are the target's.
func (processor) Traits() *target.Traits { return &traits }

// Native reports whether kernels/cpu has a form of the template for the types.
func (processor) Native(c target.Call) bool {
	_, _, ok := form(c)
	return ok
}

// Workspace is that of the form, in bytes.
func (processor) Workspace(c target.Call) (int, error) {
	name, more, _ := form(c)
	return cpu.Workspace(name, append(slices.Clone(c.Ints), more...))
}

// CheckChips takes none: kernels are compiled for the machine at hand.
func (processor) CheckChips([]string) error {
	return errors.New("--arch has no effect with --target cpu, which compiles for the machine it runs on")
}

// Scratch is one copy of each column sum for each chunk of rows.
func (processor) Scratch(s *group.Space) (alone, joined int) { return s.WorkBytes(), 0 }

// Fused prints loops that GCC and Clang vectorise, shared among threads.
func (processor) Fused(k *kir.Kernel) (string, error) { return c.Function("NAME", "", k) }

// Template is the function of kernels/cpu.
func (processor) Template(call target.Call) (target.Function, error) {
	name, more, ok := form(call)
	if !ok {
		return target.Function{}, fmt.Errorf("BUG: the CPU target has no kernel %s of %v", call.Name, call.Types)
	}
	return target.Function{Package: "github.com/gtc-compiler/gtc/kernels/cpu", Name: name, More: more}, nil
}

// Head are the functions that kernels use.
func (processor) Head(text string) string { return c.Prelude(text) }

// Build compiles for the machine at hand. In ISO mode GCC contracts no multiplication with an addition (-ffp-contract, which cgo
// does not let through); Clang obeys the pragma that strict files begin with.
func (processor) Build(strict bool) string {
	standard := "gnu11"
	if strict {
		standard = "c11"
	}
	return `#cgo CFLAGS: -O3 -std=` + standard + ` -Wno-unknown-pragmas -Wno-unused-variable
#cgo amd64 CFLAGS: -march=native
#cgo arm64 CFLAGS: -mcpu=native
#cgo linux CFLAGS: -fopenmp
#cgo linux LDFLAGS: -fopenmp
#cgo LDFLAGS: -lm
`
}

// form is the kernel of kernels/cpu that does what the template does for the types of the call, and the integers that it takes
// after the template's; ok is false where there is none.
func form(c target.Call) (name string, more []int, ok bool) {
	var names []string
	for _, d := range c.Types {
		names = append(names, d.String())
	}
	return cpu.Form(c.Name, names)
}
