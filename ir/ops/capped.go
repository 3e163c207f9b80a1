package ops

import (
	"math"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// CappedSumDef adds what is softly kept below a cap.
var CappedSumDef = ir.NewOp("capped_sum")

// CappedSumAttrs is how large a term can get.
type CappedSumAttrs struct{ Cap float64 }

// CappedSum is the sum of cap*tanh(x/cap) over the last dim of x[…,n]: […].
func CappedSum(b *ir.Builder, x *ir.Value, cap float64) *ir.Value {
	return b.Emit(CappedSumDef, CappedSumAttrs{cap}, x)
}

// rowsOf are the dims before the last of operand 0, and the last.
func rowsOf(op *ir.Op) (lead []int, n int) {
	d := in(op, 0)
	return d[:len(d)-1], d[len(d)-1]
}

func init() {
	CappedSumDef.Define(ir.Rules{
		Attrs: CappedSumAttrs{}, Operands: 1, Decompose: inF32, Precision: "keep", Doc: "sum of Cap*tanh(x/Cap) over the last dim",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			t := op.In[0].Type
			if len(t.Dims) == 0 || !t.DType.IsFloat() {
				return wrong("operand 0 is %s, want floats […,n]", t)
			}
			if op.Attrs.(CappedSumAttrs).Cap <= 0 {
				return wrong("Cap is not above 0")
			}
			lead, _ := rowsOf(op)
			return types(ir.T(t.DType, lead...))
		},
		Factors: func(op *ir.Op) factor.Rule {
			var m ruleMaker
			lead, n := rowsOf(op)
			rows := m.addAll("r", lead, factor.Free)
			return m.rule([][]factor.Dim{append(rows[:len(rows):len(rows)], m.add("c", n, factor.Sum))}, rows)
		},
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			x, d := op.In[0], in(op, 0)
			lead, _ := rowsOf(op)
			cap := op.Attrs.(CappedSumAttrs).Cap
			y := Tanh(b, Mul(b, x, ScalarLike(b, x, 1/cap)))
			g := Expand(b, Reshape(b, dy[0], append(lead[:len(lead):len(lead)], 1)), d)
			return []*ir.Value{Mul(b, g, Sub(b, ScalarLike(b, x, 1), Mul(b, y, y)))}
		},
		Impl: func(op *ir.Op) kir.Impl {
			if op.In[0].Type.DType != dtype.F32 {
				return kir.Impl{}
			}
			lead, n := rowsOf(op)
			return kir.Impl{Kind: kir.Template, Template: "CappedSum", Ints: []int{ir.Product(lead), n}, Floats: []float64{op.Attrs.(CappedSumAttrs).Cap}}
		},
		Eval: one(func(op *ir.Op, x []*ir.Array) *ir.Array {
			out := ir.NewArray(op.Out[0].Type)
			_, n := rowsOf(op)
			cap := op.Attrs.(CappedSumAttrs).Cap
			for i := range out.F {
				for _, v := range x[0].F[i*n : (i+1)*n] {
					out.F[i] += cap * math.Tanh(v/cap)
				}
			}
			return out
		}),
		Samples: samples(sample(CappedSumAttrs{2}, []int{2, 3, 5}), sample(CappedSumAttrs{0.5}, []int{6}), sample(CappedSumAttrs{1}, []int{4, 1})),
	})
}
