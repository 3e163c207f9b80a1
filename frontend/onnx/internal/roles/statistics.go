package roles

import (
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
)

// becomesStatistic reports whether what u's node makes of it by moving elements is the mean or variance of a batch
// normalization, and nothing else.
func (r *Roles) becomesStatistic(u model.Operand) bool {
	for range 4 {
		if !statisticMovers[u.Node.Op] || u.Index != 0 || len(u.Node.Out) == 0 {
			return false
		}
		next := r.readersOf(u.Node.Out[0])
		if len(next) == 0 {
			return false
		}
		if allOf(next, model.IsStatistic) {
			return true
		}
		u = next[0]
	}
	return false
}

// readersOf lists the operands that read a value of any graph of the file.
func (r *Roles) readersOf(name string) []model.Operand {
	if r.readers == nil {
		r.readers = map[string][]model.Operand{}
		_ = r.m.EachNode(func(n *model.Node) { // its errors came up in findUses
			for i, in := range n.In {
				r.readers[in] = append(r.readers[in], model.Operand{Node: n, Index: i})
			}
		})
	}
	return r.readers[name]
}

// statisticMovers are the operators through which running statistics are looked for.
var statisticMovers = setOf("Identity Cast Reshape Unsqueeze Squeeze Flatten Expand Tile")
