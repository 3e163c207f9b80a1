package onnx

import (
	"github.com/gtc-compiler/gtc/ir"
)

// A file of a few bytes may ask for any amount of work. These limits hold for one import together; every array that is
// evaluated at import, and every constant of the file that is looked into, is charged here before it is allocated. An
// import thus needs at most 8*maxFoldTotal = 256 MiB for them, beside a few times the bytes of the file itself (a node
// costs 1 to 4 KiB, a tensor is mapped and not read). What does not fit is computed by the program instead of at
// import; only where its contents decide a shape, that is an error. Limits on loops are in subgraph.go, those on nodes and
// names in graph.go, those on the encoding in scan.go.
const (
	maxFold      = 8 << 20  // elements of one array, 8 bytes each
	maxFoldTotal = 32 << 20 // elements of all arrays
	maxWork      = 1 << 27  // elements read or written, some 3 s
	maxVisits    = 8 << 20  // nodes visited, those of loops once for each step
)

// budget is what one import has spent.
type budget struct {
	held   int // elements of arrays
	work   int // elements read or written
	visits int
}

// tooLarge is raised by host evaluation that would need too much memory or time; the node is emitted instead.
type tooLarge struct{ err *ir.Error }

// claim charges an array of type t, before it exists.
func (n *node) claim(t ir.Type) {
	e, err := product(t.Dims)
	if err != nil || e > maxFold {
		panic(tooLarge{ir.Errorf(n.located(), "a constant of dims %v is too large to evaluate at import (limit %d)",
			t.Dims, maxFold)})
	}
	if n.spent == nil {
		return
	}
	if n.spent.held+e > maxFoldTotal {
		panic(tooLarge{ir.Errorf(n.located(), "the constants evaluated at import would hold more than %d elements in all", maxFoldTotal)})
	}
	n.spent.held += e
	n.work(e)
}

// work charges the reading or writing of so many elements.
func (n *node) work(elements int) {
	if n.spent == nil {
		return
	}
	if elements > maxWork-n.spent.work {
		panic(tooLarge{ir.Errorf(n.located(), "evaluating constants at import would touch more than %d elements in all", maxWork)})
	}
	n.spent.work += elements
}

// array makes a zero array, within the limits.
func (n *node) array(t ir.Type) *ir.Array {
	n.claim(t)
	return ir.NewArray(t)
}
