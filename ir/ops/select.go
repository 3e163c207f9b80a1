package ops

import (
	"math/rand/v2"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// WhereDef chooses between two operands; CastDef converts element types.
var (
	WhereDef = ir.NewOp("where")
	CastDef  = ir.NewOp("cast")
)

// CastAttrs gives the result's element type.
type CastAttrs struct{ To dtype.DType }

// Where is x where cond (bool) is true, else y; all of equal dims, x and y of one type.
func Where(b *ir.Builder, cond, x, y *ir.Value) *ir.Value { return b.Emit(WhereDef, nil, cond, x, y) }

// Cast converts x: floats truncate towards zero to integers (dtype.Truncate says what becomes of those out of range),
// anything but 0 becomes true, floats round to the nearest, ties to even; what is beyond a type becomes infinity, or NaN
// where the type has none, or its largest value where it has neither. It returns x when it has the type already.
func Cast(b *ir.Builder, x *ir.Value, to dtype.DType) *ir.Value {
	if x.Type.DType == to {
		return x
	}
	return b.Emit(CastDef, CastAttrs{to}, x)
}

func init() {
	defineWhere()
	defineCast()
}

func defineWhere() {
	WhereDef.Define(ir.Rules{
		Operands: 3, Doc: "operand 1 where operand 0 is true, else operand 2",
		Facts: ir.Facts{Linear: linear([]int{1, 2}), Zero: [][]int{{0, 2}}, Chooses: true},
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			c, t := op.In[0].Type, op.In[1].Type
			if !c.Equal(t.With(dtype.Bool)) {
				return wrong("operand 0 is %s, but must be %s", c, t.With(dtype.Bool))
			}
			if err := sameTypes(op, 1, 2); err != nil {
				return nil, err
			}
			return types(t)
		},
		Factors: pointwiseRule,
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			zero := ScalarLike(b, dy[0], 0)
			return []*ir.Value{nil, Where(b, op.In[0], dy[0], zero), Where(b, op.In[0], zero, dy[0])}
		},
		Eval: one(func(op *ir.Op, in []*ir.Array) *ir.Array {
			out := ir.NewArray(op.Out[0].Type)
			for e, c := range in[0].I {
				copyElem(out, e, in[2-c], e)
			}
			return out
		}),
		Impl: func(*ir.Op) kir.Impl {
			return kir.Impl{Kind: kir.Pointwise, Expr: []*kir.Expr{kir.Select(kir.Arg(0), kir.Arg(1), kir.Arg(2))}}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			var out []ir.Sample
			for _, t := range []ir.Type{ir.T(dtype.F32, 4, 6), ir.T(dtype.F32), ir.T(dtype.I64, 8)} {
				out = append(out, ir.Sample{In: []ir.Type{t.With(dtype.Bool), t, t}})
			}
			return out
		},
	})
}

func defineCast() {
	CastDef.Define(ir.Rules{
		Attrs: CastAttrs{}, Operands: 1, Doc: "converted to element type To",
		Facts: ir.Facts{Linear: ofFloats([]int{0}), Zero: [][]int{{0}}, Move: ir.Casts},
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			to := op.Attrs.(CastAttrs).To
			if to == dtype.Invalid {
				return wrong("has no target type")
			}
			return types(op.In[0].Type.With(to))
		},
		Factors: pointwiseRule,
		VJP: func(b *ir.Builder, op *ir.Op, dy []*ir.Value) []*ir.Value {
			from := op.In[0].Type.DType
			if !from.IsFloat() || !op.Attrs.(CastAttrs).To.IsFloat() {
				return []*ir.Value{nil}
			}
			return []*ir.Value{Cast(b, dy[0], from)}
		},
		Eval: one(func(op *ir.Op, in []*ir.Array) *ir.Array { return convert(in[0], op.Attrs.(CastAttrs).To) }),
		Impl: func(op *ir.Op) kir.Impl {
			return kir.Impl{Kind: kir.Pointwise, Expr: []*kir.Expr{kir.Cast(op.Attrs.(CastAttrs).To, kir.Arg(0))}}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			return []ir.Sample{
				{In: []ir.Type{ir.T(dtype.F32, 4, 2)}, Attrs: CastAttrs{dtype.F64}},
				{In: []ir.Type{ir.T(dtype.F32, 4, 2)}, Attrs: CastAttrs{dtype.I64}},
				{In: []ir.Type{ir.T(dtype.I64, 4)}, Attrs: CastAttrs{dtype.F32}},
				{In: []ir.Type{ir.T(dtype.F32)}, Attrs: CastAttrs{dtype.Bool}},
				{In: []ir.Type{ir.T(dtype.Bool, 4)}, Attrs: CastAttrs{dtype.F32}},
				{In: []ir.Type{ir.T(dtype.I64, 4)}, Attrs: CastAttrs{dtype.I32}},
				{In: []ir.Type{ir.T(dtype.I64, 4)}, Attrs: CastAttrs{dtype.I4}},
				{In: []ir.Type{ir.T(dtype.U2, 4)}, Attrs: CastAttrs{dtype.F32}},
				{In: []ir.Type{ir.T(dtype.F4E2M1, 4)}, Attrs: CastAttrs{dtype.I32}},
			}
		},
	})
}

// convert changes the element type: floats truncate towards zero to integers, integers wrap, bool is != 0. Floats are
// not rounded to f32, f16 and bf16, since the evaluator computes in float64, but they are to types of 8 bits and fewer.
func convert(x *ir.Array, to dtype.DType) *ir.Array {
	out := ir.NewArray(x.Type.With(to))
	for e := range x.Type.Elems() {
		switch {
		case out.F != nil && x.F != nil:
			out.F[e] = x.F[e]
		case out.F != nil && x.Type.DType == dtype.U64:
			out.F[e] = float64(uint64(x.I[e]))
		case out.F != nil:
			out.F[e] = float64(x.I[e])
		case to == dtype.Bool && x.F != nil:
			out.I[e] = b2i(x.F[e] != 0)
		case to == dtype.Bool:
			out.I[e] = b2i(x.I[e] != 0)
		case x.F != nil:
			out.I[e] = to.Truncate(x.F[e])
		default:
			out.I[e] = to.Wrap(x.I[e])
		}
		if to.IsSmallFloat() {
			out.F[e] = to.Round(out.F[e])
		}
	}
	return out
}
