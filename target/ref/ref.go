// Package ref is the target ref: plain C, one loop after the other, without vectors, threads or hand-made kernels of any
// machine. It is slow, sums in double precision, and is there to be read and copied by those who bring gtc to another machine, and
// to be compared with.
package ref

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/codegen/c"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/group"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/target"
)

// Target compiles to plain C.
var Target target.Host = plain{}

type plain struct{}

var traits = target.Traits{Name: "ref", Title: "reference", About: "plain C without vectors or threads, slow, for those who bring gtc to another machine",
	Cost: target.OneHost}

// Traits are the target's.
func (plain) Traits() *target.Traits { return &traits }

// CheckChips takes none.
func (plain) CheckChips([]string) error {
	return errors.New("--arch has no effect with --target ref, which compiles for the machine it runs on")
}

// Native reports whether there is a template. Floats of 16 bits are computed in f32, and only moved as they are.
func (plain) Native(c target.Call) bool {
	t, ok := templates[c.Name]
	half := slices.ContainsFunc(c.Types, func(d dtype.DType) bool { return d == dtype.F16 || d == dtype.BF16 })
	return ok && (!half || t.moves)
}

// Workspace is none.
func (plain) Workspace(target.Call) (int, error) { return 0, nil }

// Scratch is one element of 8 bytes for each of the sums over rows.
func (plain) Scratch(s *group.Space) (alone, joined int) {
	for v, l := range s.Level {
		if l == group.Acc {
			alone += sumBytes(v.Type.Elems())
		}
	}
	return alone, 0
}

// sumBytes is the workspace of a sum over rows of so many elements.
func sumBytes(elems int) int { return (8*elems + 63) &^ 63 }

// Fused prints a fused kernel.
func (plain) Fused(k *kir.Kernel) (string, error) { return function(k) }

// Template is a call's C function: its sizes are constants, named as kernels/cpu names them.
func (plain) Template(c target.Call) (target.Function, error) {
	t, ok := templates[c.Name]
	if !ok {
		return target.Function{}, fmt.Errorf("the reference target has no kernel %q", c.Name)
	}
	text, err := t.function(c)
	return target.Function{Text: text}, err
}

// Head begins a C file with the functions text.
func (plain) Head(text string) string { return c.Prelude(text) }

// Build are cgo's directives: the language and its functions, without extensions.
func (plain) Build(bool) string { return "#cgo CFLAGS: -O2 -std=c11\n#cgo LDFLAGS: -lm\n" }
