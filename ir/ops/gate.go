package ops

import (
	"math/rand/v2"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
)

// GateDef passes a value into a branch of the program that counts only under a condition.
//
// A branch that is chosen at run time is computed either way and its result selected. The gradient of the selection
// is zero for the branch that was not taken, but zero times an infinite or undefined derivative inside it (of sqrt at
// 0, of log, of a division) is NaN; a gate where values enter the branch replaces whatever comes back by zero. It is
// the "double where" idiom, made once by the importer instead of by everyone who writes a model.
var GateDef = ir.NewOp("gate")

// Gate is x (any float type). Its gradient is dy where cond (bool[]) is true, else zero.
func Gate(b *ir.Builder, cond, x *ir.Value) *ir.Value { return b.Emit(GateDef, nil, cond, x) }

func init() {
	GateDef.Define(ir.Rules{
		Operands: 2, Doc: "operand 1, whose gradient is zero where operand 0 (bool[]) is false",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			if c := op.In[0].Type; !c.Equal(ir.T(dtype.Bool)) {
				return wrong("operand 0 is %s, but must be bool[]", c)
			}
			return []ir.Type{op.In[1].Type}, needFloat(op, 1)
		},
		Factors: func(op *ir.Op) factor.Rule {
			r := factor.Pointwise(op.Out[0].Type.Dims, 1, 1)
			r.In = [][]factor.Dim{{}, r.In[0]}
			return r
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			cond := BroadcastTo(b, op.In[0], dy[0].Type.Dims)
			return []*ir.Value{nil, Where(b, cond, dy[0], ScalarLike(b, dy[0], 0))}
		},
		Eval: one(func(op *ir.Op, in []*ir.Array) *ir.Array { return in[1] }),
		// Nothing is left of it once gradients are made.
		Decompose: func(_ *ir.Builder, op *ir.Op) []*ir.Value { return []*ir.Value{op.In[1]} },
		Samples: func(*rand.Rand) []ir.Sample {
			open := func(_ *rand.Rand, in []*ir.Array) { in[0].I[0] = 1 } // a closed gate has no derivative to compare
			return []ir.Sample{
				{In: []ir.Type{ir.T(dtype.Bool), ir.T(dtype.F32, 4, 6)}, Fill: open},
				{In: []ir.Type{ir.T(dtype.Bool), ir.T(dtype.F32)}, Fill: open},
			}
		},
	})
}
