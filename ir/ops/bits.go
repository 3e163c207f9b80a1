package ops

import (
	"math"
	"math/rand/v2"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// The ops on the bits of numbers, besides and, or and xor.
var (
	ShiftLeftDef  = ir.NewOp("shift_left")
	ShiftRightDef = ir.NewOp("shift_right")
	BitcastDef    = ir.NewOp("bitcast")
)

// BitcastAttrs gives the type that the bits are taken for.
type BitcastAttrs struct{ To dtype.DType }

// ShiftLeft is the integer x moved y bits up; 0 when y is at least the number of bits.
func ShiftLeft(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(ShiftLeftDef, nil, x, y) }

// ShiftRight is the integer x moved y bits down; signed ones keep their sign. Shifts by the number of bits or more
// leave the sign, or 0.
func ShiftRight(b *ir.Builder, x, y *ir.Value) *ir.Value { return b.Emit(ShiftRightDef, nil, x, y) }

// BitNot is the integer x with every bit flipped.
func BitNot(b *ir.Builder, x *ir.Value) *ir.Value { return Xor(b, x, ScalarLike(b, x, -1)) }

// Bitcast takes the bits of x for those of another type of the same size. It returns x when it has the type already.
func Bitcast(b *ir.Builder, x *ir.Value, to dtype.DType) *ir.Value {
	if x.Type.DType == to {
		return x
	}
	return b.Emit(BitcastDef, BitcastAttrs{to}, x)
}

func init() {
	shift(ShiftLeftDef, "x moved y bits up")
	shift(ShiftRightDef, "x moved y bits down")
	defineBitcast()
}

func shift(def *ir.Def, doc string) {
	f := kir.Lookup(def.Name)
	def.Define(ir.Rules{
		Operands: 2, Doc: doc, NoGrad: "integer result",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			t := op.In[0].Type
			if !t.DType.IsInt() || !op.In[1].Type.Equal(t) {
				return wrong("operands are %s and %s, but must be integers of one type", t, op.In[1].Type)
			}
			return types(t)
		},
		Factors: pointwiseRule,
		Eval: one(func(op *ir.Op, in []*ir.Array) *ir.Array {
			out := ir.NewArray(op.Out[0].Type)
			d := out.Type.DType
			for e, x := range in[0].I {
				out.I[e] = d.Wrap(f.Int(d, []int64{x, in[1].I[e]}))
			}
			return out
		}),
		Impl: func(*ir.Op) kir.Impl {
			return kir.Impl{Kind: kir.Pointwise, Expr: []*kir.Expr{kir.Bin(def.Name, kir.Arg(0), kir.Arg(1))}}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			var out []ir.Sample
			for _, d := range []dtype.DType{dtype.I64, dtype.I32, dtype.U8} {
				out = append(out, ir.Sample{In: []ir.Type{ir.T(d, 4, 6), ir.T(d, 4, 6)}, Limit: 100})
			}
			return out
		},
	})
}

func defineBitcast() {
	BitcastDef.Define(ir.Rules{
		Attrs: BitcastAttrs{}, Operands: 1, Doc: "the bits of x taken for another type of the same size", NoGrad: "bits have no slope",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			to, from := op.Attrs.(BitcastAttrs).To, op.In[0].Type.DType
			if to.Bits() != from.Bits() || to == dtype.Invalid {
				return wrong("operand 0 is %s, whose elements have %d bits, but those of %s have %d", op.In[0].Type, from.Bits(), to, to.Bits())
			}
			return types(op.In[0].Type.With(to))
		},
		Factors: pointwiseRule,
		Eval: one(func(op *ir.Op, in []*ir.Array) *ir.Array {
			t := in[0].Tensor()
			return (&ir.Tensor{Type: op.Out[0].Type, Data: t.Data}).Array()
		}),
		Impl: func(op *ir.Op) kir.Impl {
			e := &kir.Expr{Op: "bitcast", Args: []*kir.Expr{kir.Arg(0)}, DType: op.Attrs.(BitcastAttrs).To}
			return kir.Impl{Kind: kir.Pointwise, Expr: []*kir.Expr{e}}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			exact := func(_ *rand.Rand, in []*ir.Array) {
				for i := range in[0].F {
					in[0].F[i] = math.Ldexp(float64(i-3), i%5)
				}
			}
			return []ir.Sample{
				{In: []ir.Type{ir.T(dtype.F32, 4, 2)}, Attrs: BitcastAttrs{dtype.I32}, Fill: exact},
				{In: []ir.Type{ir.T(dtype.F64, 4)}, Attrs: BitcastAttrs{dtype.U64}, Fill: exact},
				{In: []ir.Type{ir.T(dtype.I32, 4)}, Attrs: BitcastAttrs{dtype.U32}},
				{In: []ir.Type{ir.T(dtype.U64, 4)}, Attrs: BitcastAttrs{dtype.F64}},
				{In: []ir.Type{ir.T(dtype.I8, 4)}, Attrs: BitcastAttrs{dtype.U8}},
			}
		},
	})
}
