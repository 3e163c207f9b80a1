package walk

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
)

// Rule imports one node whose operands are not all known on the host. in[i] is nil for an operand left out; the
// first min operands of the row are present. Results are in the order of the node's; trailing ones may be missing.
type Rule func(w *Walker, n *model.Node, in []*Val) []*Val

// Row is one form of an ONNX operator: it holds from opset since until the next row of the operator.
type Row struct {
	Op       string
	Since    int64
	Min, Max int  // operands required and allowed; max -1 is any number
	Rule     Rule // nil: only evaluated on the host (package fold)
	Seq      bool // takes or gives sequences
	Removed  bool // the operator does not exist from since on
}

// table is every operator that gtc imports, byOp its rows by their operator.
var (
	table []Row
	byOp  = map[string][]*Row{}
)

// Define sets the table, once, when a program starts.
func Define(rows []Row) {
	table = rows
	slices.SortStableFunc(table, func(a, b Row) int {
		if a.Op != b.Op {
			return map[bool]int{true: -1, false: 1}[a.Op < b.Op]
		}
		return int(a.Since - b.Since)
	})
	for i := range table {
		byOp[table[i].Op] = append(byOp[table[i].Op], &table[i])
	}
}

// Lookup finds the row that holds for a node's operator and opset; nil and a hint when there is none.
func Lookup(n *model.Node) (*Row, string) {
	rows := byOp[n.Op]
	var found *Row
	for _, r := range rows {
		if r.Since <= n.Opset {
			found = r
		}
	}
	switch {
	case found != nil && found.Removed:
		return nil, fmt.Sprintf(": removed in opset %d", found.Since)
	case found == nil && len(rows) > 0:
		return nil, fmt.Sprintf(": needs opset %d", rows[0].Since)
	}
	return found, ""
}

// FormsOf lists the rows of an operator, the oldest form first.
func FormsOf(op string) []*Row { return byOp[op] }

// Operators lists the names of all supported operators, sorted.
func Operators() []string {
	var names []string
	for _, r := range table {
		names = append(names, r.Op)
	}
	return slices.Compact(names)
}
