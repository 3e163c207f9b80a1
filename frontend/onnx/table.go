package onnx

import (
	"fmt"
	"slices"
)

// rule imports one node whose operands are not all known on the host. in[i] is nil for an operand left out; the
// first min operands of the row are present. Results are in the order of the node's; trailing ones may be missing.
type rule func(w *walker, n *node, in []*val) []*val

// row is one form of an ONNX operator: it holds from opset since until the next row of the operator.
type row struct {
	op       string
	since    int64
	min, max int  // operands required and allowed; max -1 is any number
	rule     rule // nil: only evaluated on the host (fold.go)
	seq      bool // takes or gives sequences
	removed  bool // the operator does not exist from since on
}

// table is every operator that gtc imports. Adding one means a row here and, when it is no composition of what
// ir/ops has, an op there.
var table []row

func init() {
	table = slices.Concat(
		activationRows,
		attentionRows,
		castRows,
		contribRows,
		flowRows,
		linearAttentionRows,
		indexRows,
		linearRows,
		loopRows,
		mlRows,
		tfidfRows,
		normRows,
		padRows,
		pointwiseRows,
		poolRows,
		quantRows,
		quantContribRows,
		randomRows,
		reduceRows,
		resizeRows,
		rnnRows,
		samplingRows,
		sequenceRows,
		shapeRows,
		trainingRows,
		signalRows,
	)
	table = append(table, aliasRows(table)...)
	slices.SortStableFunc(table, func(a, b row) int {
		if a.op != b.op {
			return map[bool]int{true: -1, false: 1}[a.op < b.op]
		}
		return int(a.since - b.since)
	})
	for i := range table {
		byOp[table[i].op] = append(byOp[table[i].op], &table[i])
	}
}

var byOp = map[string][]*row{}

// lookup finds the row that holds for a node's operator and opset; nil and a hint when there is none.
func lookup(n *node) (*row, string) {
	rows := byOp[n.op]
	var found *row
	for _, r := range rows {
		if r.since <= n.opset {
			found = r
		}
	}
	switch {
	case found != nil && found.removed:
		return nil, fmt.Sprintf(": removed in opset %d", found.since)
	case found == nil && len(rows) > 0:
		return nil, fmt.Sprintf(": needs opset %d", rows[0].since)
	}
	return found, ""
}

// Operators lists the names of all supported operators, sorted.
func Operators() []string {
	var names []string
	for _, r := range table {
		names = append(names, r.op)
	}
	return slices.Compact(names)
}
