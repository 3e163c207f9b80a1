package ops

import (
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/kir"
)

// ConstDef is a constant tensor; IotaDef counts along a dim.
var (
	ConstDef = ir.NewOp("const")
	IotaDef  = ir.NewOp("iota")
)

// ConstAttrs holds the contents.
type ConstAttrs struct{ Value *ir.Tensor }

// IotaAttrs gives the result's dims and type, and the dim along which it counts 0, 1, 2, ….
type IotaAttrs struct {
	Dims  []int
	Dim   int
	DType dtype.DType
}

// Const is t as a value.
func Const(b *ir.Builder, t *ir.Tensor) *ir.Value { return b.Emit(ConstDef, ConstAttrs{t}) }

// Iota is a tensor of the given dims and type whose elements are their index along dim.
func Iota(b *ir.Builder, d dtype.DType, dims []int, dim int) *ir.Value {
	return b.Emit(IotaDef, IotaAttrs{dims, dim, d})
}

// Uniform reports the one number that every element of v is, when v is a constant seen through shape ops.
func Uniform(v *ir.Value) (float64, bool) {
	for v.Moved().OfOne() && v.Moved() != ir.Casts {
		v = v.Op.In[0]
	}
	if v.Op == nil || Literal(v.Op) == nil {
		return 0, false
	}
	t := Literal(v.Op)
	if len(t.Data) != t.Type.Bytes() {
		return 0, false // known by hash only
	}
	return t.Uniform()
}

// Literal is the tensor that op, a constant, is; nil for any other op.
func Literal(op *ir.Op) *ir.Tensor {
	if a, ok := op.Attrs.(ConstAttrs); ok {
		return a.Value
	}
	return nil
}

func init() {
	defineConst()
	defineIota()
}

func defineConst() {
	ConstDef.Define(ir.Rules{
		Attrs: ConstAttrs{}, NoGrad: "no operands",
		Doc: "a constant tensor",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			t := op.Attrs.(ConstAttrs).Value
			if t == nil {
				return nil, errors.New("has no value")
			}
			return types(t.Type)
		},
		Factors: func(op *ir.Op) factor.Rule {
			if _, same := op.Attrs.(ConstAttrs).Value.Uniform(); !same {
				return factor.Rule{}
			}
			return factor.Pointwise(outDims(op)[0], 0, 1)
		},
		Resize: func(op *ir.Op, _, out [][]int) any {
			v := op.Attrs.(ConstAttrs).Value
			if n := ir.Product(out[0]) * v.Type.DType.Size(); n <= len(v.Data) { // all elements are alike: see Factors
				return ConstAttrs{&ir.Tensor{Type: ir.T(v.Type.DType, out[0]...), Data: v.Data[:n]}}
			}
			panic("BUG: a constant cannot grow")
		},
		Eval: one(func(op *ir.Op, _ []*ir.Array) *ir.Array { return op.Attrs.(ConstAttrs).Value.Array() }),
		Impl: constImpl,
		Samples: func(r *rand.Rand) []ir.Sample {
			return []ir.Sample{
				{Attrs: ConstAttrs{ir.Floats(ir.T(dtype.F32, 2, 2), 1, -2, 0.5, r.NormFloat64())}},
				{Attrs: ConstAttrs{ir.Floats(ir.T(dtype.F32, 2), 0.25, 0.25)}},
				{Attrs: ConstAttrs{ir.Ints(ir.T(dtype.I64), 1<<60)}},
				{Attrs: ConstAttrs{ir.Ints(ir.T(dtype.Bool, 3), 0, 1, 1)}},
			}
		},
	})
}

func defineIota() {
	IotaDef.Define(ir.Rules{
		Attrs: IotaAttrs{}, NoGrad: "no operands",
		Doc: "0, 1, 2, … along Dim, repeated over the other dims",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			a := op.Attrs.(IotaAttrs)
			if err := needDim(a.Dim, len(a.Dims)); err != nil {
				return nil, err
			}
			if slices.Min(a.Dims) < 0 {
				return wrong("dims are %v, but must not be negative", a.Dims)
			}
			if !numeric(a.DType) {
				return wrong("cannot count in elements of type %s", a.DType)
			}
			return types(ir.T(a.DType, a.Dims...))
		},
		Factors: func(op *ir.Op) factor.Rule {
			r := factor.Pointwise(outDims(op)[0], 0, 1)
			r.Factors[op.Attrs.(IotaAttrs).Dim].Kind = factor.Index
			return r
		},
		Resize: func(op *ir.Op, _, out [][]int) any {
			a := op.Attrs.(IotaAttrs)
			a.Dims = out[0]
			return a
		},
		Indexed: func(b *ir.Builder, _ *ir.Op, attrs any, _ []*ir.Value, first *ir.Value) []*ir.Value {
			y := b.Emit(IotaDef, attrs)
			return []*ir.Value{Add(b, y, BroadcastTo(b, Cast(b, first, y.Type.DType), y.Type.Dims))}
		},
		Eval: one(func(op *ir.Op, _ []*ir.Array) *ir.Array {
			a, out := op.Attrs.(IotaAttrs), ir.NewArray(op.Out[0].Type)
			each(a.Dims, func(index []int, flat int) {
				if out.F != nil {
					out.F[flat] = float64(index[a.Dim])
				} else {
					out.I[flat] = a.DType.Wrap(int64(index[a.Dim]))
				}
			})
			return out
		}),
		Impl: func(op *ir.Op) kir.Impl {
			a := op.Attrs.(IotaAttrs)
			return kir.Impl{Kind: kir.Pointwise, Expr: []*kir.Expr{kir.Cast(a.DType, kir.Index(a.Dim))}}
		},
		Samples: func(*rand.Rand) []ir.Sample {
			return []ir.Sample{
				{Attrs: IotaAttrs{[]int{2, 4}, 1, dtype.I64}},
				{Attrs: IotaAttrs{[]int{4}, 0, dtype.F32}},
			}
		},
	})
}

// constImpl writes a uniform constant into the expressions that use it; any other is stored with the weights.
func constImpl(op *ir.Op) kir.Impl {
	t := op.Attrs.(ConstAttrs).Value
	v, ok := t.Uniform()
	if !ok || !t.Type.DType.IsFloat() && (v >= 1<<53 || v <= -1<<53) { // an integer that a float64 may not hold
		return kir.Impl{Kind: kir.Literal}
	}
	return kir.Impl{Kind: kir.Pointwise, Expr: []*kir.Expr{kir.Const(t.Type.DType, v)}}
}
