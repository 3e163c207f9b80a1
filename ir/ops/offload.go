package ops

import "github.com/gtc-compiler/gtc/ir"

// Transfers between the arena and host storage. No pass puts them in yet, and codegen/rank refuses them; all between knows them: the
// verifier, schedule, memplan and the interpreter.
//
// They belong behind fuse, so that kernels stay what they are, each with a group of its own: an offload behind the last op of the group
// that makes its operand, a fetch where its copy is to start, before the first reader. The operand has memory (it is no view of fuse's),
// and no result of the function is made of it. Who puts them in has later readers read what is fetched, views of the operand included.
var (
	OffloadDef = ir.NewOp("offload")
	FetchDef   = ir.NewOp("fetch")
)

// OffloadAttrs says when the copy is over at the latest, so that the memory of its operand may be used again: when the Lands'th kernel
// behind it starts. Collectives and transfers do not count, so that others of these change nothing.
type OffloadAttrs struct{ Lands int }

// Offload copies x to host storage while kernels run, and is over when the lands'th kernel behind it starts. Only Fetch reads the result.
func Offload(b *ir.Builder, x *ir.Value, lands int) *ir.Value {
	return b.Emit(OffloadDef, OffloadAttrs{lands}, x)
}

// Fetch copies x, a result of Offload, back to the arena while kernels run, until the first of them that reads it.
func Fetch(b *ir.Builder, x *ir.Value) *ir.Value { return b.Emit(FetchDef, nil, x) }

func init() {
	copied := one(func(op *ir.Op, in []*ir.Array) *ir.Array {
		out := ir.NewArray(op.Out[0].Type)
		copy(out.F, in[0].F)
		copy(out.I, in[0].I)
		return out
	})
	OffloadDef.Define(ir.Rules{Attrs: OffloadAttrs{}, Operands: 1, Transfer: ir.ToHost, Lands: func(op *ir.Op) int { return op.Attrs.(OffloadAttrs).Lands }, Facts: ir.Facts{Linear: linear([]int{0}), Move: ir.Keeps},
		Doc: "the operand in host storage; the copy is over when the Lands'th kernel behind it starts", Precision: "own",
		NoGrad: "made after differentiation", Samples: samples(sample(OffloadAttrs{2}, []int{3, 4})), Eval: copied,
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			if n := op.Attrs.(OffloadAttrs).Lands; n < 1 {
				return wrong("lands %d kernels behind it, but must land at least 1", n)
			}
			return types(op.In[0].Type)
		}})
	FetchDef.Define(ir.Rules{Operands: 1, Transfer: ir.FromHost, Facts: ir.Facts{Linear: linear([]int{0}), Move: ir.Keeps},
		Doc: "what was offloaded, in the arena again", Precision: "own",
		NoGrad: "made after differentiation", Samples: samples(sample(nil, []int{3, 4})), Eval: copied,
		Infer: func(op *ir.Op) ([]ir.Type, error) { return types(op.In[0].Type) }})
}
