// Package normalize brings @forward to canonical core ops.
//
// # Design
//
// Exporters spell the same thing in many ways: a scalar is a constant of one, of many equal elements, or the
// end of a chain of casts and reshapes; a square is pow(x, 2); a transpose comes in two steps. Later passes
// match idioms and should know one spelling of each. The rules are the peephole rules of passes/algebra,
// applied until none does. They look at one op and the makers of its operands, keep all values (constants
// are folded in float64 and rounded once), and leave large constants alone.
//
// What does not reach an output is dropped, with a remark for each trained parameter that loses its last
// reader: that is a parameter of the model which the exported graph does not use.
package normalize

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/algebra"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Run normalizes @forward.
func Run(c *pass.Context) (err error) {
	defer ir.Recover(&err)
	f := c.Module.Func(abi.FuncForward)
	if f == nil {
		return fmt.Errorf("there is no @forward to normalize")
	}
	f.DCE()
	algebra.Peephole(c, f)
	if orderRows(c, f) > 0 {
		algebra.Peephole(c, f)
	}
	uses := f.Uses()
	for _, r := range f.Results {
		uses[r.Value] = append(uses[r.Value], nil)
	}
	for _, p := range f.Params {
		if p.Role == ir.Param && len(uses[p]) == 0 {
			c.Remark(p, "has no effect on any output")
		}
	}
	return nil
}
