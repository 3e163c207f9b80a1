// Package passes holds the pipeline: the table of passes in the order in which they run, and the driver
// that runs them. A pass is a package below this one; it knows the module, the options and the facts that
// earlier passes made (package pass), never another pass.
package passes

import (
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Table is the pipeline. Options choose parameters of passes, never their order.
var Table = []pass.Pass{}

func init() {
	if err := Check(Table, pass.Typed); err != nil {
		panic("BUG: " + err.Error())
	}
}
