package fold

import (
	"math"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// OfNothing is what the Reduce operator n gives for no elements of type d, as a scalar: the neutral element of the operation
// (ONNX Reduce operators, "reduction over an empty set of values"), NaN for a mean.
func OfNothing(n *model.Node, d dtype.DType) *ir.Array {
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	switch {
	case d == dtype.U64:
		least, most = 0, -1 // as bits
	case d == dtype.Bool:
		least, most = 0, 1
	case d.IsInt() && d.Bits() < 64:
		lo, hi := d.Range()
		least, most = int64(lo), int64(hi)
	}
	f, i := 0.0, int64(0)
	switch n.Op {
	case "ReduceMax":
		f, i = math.Inf(-1), least
	case "ReduceMin":
		f, i = math.Inf(1), most
	case "ReduceProd":
		f, i = 1, 1
	case "ReduceMean":
		f = math.NaN()
	case "ReduceLogSum", "ReduceLogSumExp":
		f, i = math.Inf(-1), least
	}
	a := ir.NewArray(ir.T(d))
	Each(a.F, func(float64) float64 { return f })
	Each(a.I, func(int64) int64 { return i })
	return a
}
