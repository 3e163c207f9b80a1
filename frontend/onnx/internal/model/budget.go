package model

import (
	"github.com/gtc-compiler/gtc/ir"
)

// A file of a few bytes may ask for any amount of work. These limits hold for one import together; every array that is
// evaluated at import, and every constant of the file that is looked into, is charged here before it is allocated. An
// import thus needs at most 8*MaxFoldTotal = 256 MiB for them, beside a few times the bytes of the file itself (a node
// costs 1 to 4 KiB, a tensor is mapped and not read). What does not fit is computed by the program instead of at
// import; only where its contents decide a shape, that is an error. Limits on loops are in walk/call.go, those on nodes and
// names in graph.go, those on the encoding in scan.go.
const (
	MaxFold      = 8 << 20  // elements of one array, 8 bytes each
	MaxFoldTotal = 32 << 20 // elements of all arrays
	MaxWork      = 1 << 27  // elements read or written, some 3 s
	MaxVisits    = 8 << 20  // nodes visited, those of loops once for each step
)

// Budget is what one import has spent.
type Budget struct {
	Held   int // elements of arrays
	Work   int // elements read or written
	Visits int
}

// TooLarge is raised by host evaluation that would need too much memory or time; the node is emitted instead.
type TooLarge struct{ Err *ir.Error }

// Claim charges an array of type t, before it exists.
func (n *Node) Claim(t ir.Type) {
	e, err := Elements(t.Dims)
	if err != nil || e > MaxFold {
		panic(TooLarge{ir.Errorf(n.Located(), "a constant of dims %v is too large to evaluate at import (limit %d)",
			t.Dims, MaxFold)})
	}
	if n.Spent == nil {
		return
	}
	if n.Spent.Held+e > MaxFoldTotal {
		panic(TooLarge{ir.Errorf(n.Located(), "the constants evaluated at import would hold more than %d elements in all", MaxFoldTotal)})
	}
	n.Spent.Held += e
	n.Work(e)
}

// Work charges the reading or writing of so many elements.
func (n *Node) Work(elements int) {
	if n.Spent == nil {
		return
	}
	if elements > MaxWork-n.Spent.Work {
		panic(TooLarge{ir.Errorf(n.Located(), "evaluating constants at import would touch more than %d elements in all", MaxWork)})
	}
	n.Spent.Work += elements
}

// Array makes a zero array, within the limits.
func (n *Node) Array(t ir.Type) *ir.Array {
	n.Claim(t)
	return ir.NewArray(t)
}
