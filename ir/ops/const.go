package ops

import (
	"errors"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
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

func init() {
	ConstDef.Define(ir.Rules{
		Attrs: ConstAttrs{},
		Doc:   "a constant tensor",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			t := op.Attrs.(ConstAttrs).Value
			if t == nil {
				return nil, errors.New("has no value")
			}
			return types(t.Type)
		},
	})
	IotaDef.Define(ir.Rules{
		Attrs: IotaAttrs{},
		Doc:   "0, 1, 2, … along Dim, repeated over the other dims",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			a := op.Attrs.(IotaAttrs)
			if err := needDim(a.Dim, len(a.Dims)); err != nil {
				return nil, err
			}
			if !numeric(a.DType) {
				return wrong("counts in %s", a.DType)
			}
			return types(ir.T(a.DType, a.Dims...))
		},
	})
}
