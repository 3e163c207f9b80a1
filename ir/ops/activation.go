package ops

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/factor"
)

// The gradients of the activations that are not short compositions.
var (
	GeluGradDef = ir.NewOp("gelu_grad")
	SiluGradDef = ir.NewOp("silu_grad")
)

// GeluGradAttrs: Tanh means the tanh approximation.
type GeluGradAttrs struct{ Tanh bool }

// GeluGrad is dy*gelu'(x).
func GeluGrad(b *ir.Builder, x, dy *ir.Value, tanh bool) *ir.Value {
	return b.Emit(GeluGradDef, GeluGradAttrs{tanh}, x, dy)
}

// SiluGrad is dy*silu'(x).
func SiluGrad(b *ir.Builder, x, dy *ir.Value) *ir.Value { return b.Emit(SiluGradDef, nil, x, dy) }

func init() {
	infer := func(op *ir.Op) ([]ir.Type, error) {
		if x, dy := op.In[0].Type, op.In[1].Type; !x.Equal(dy) {
			return nil, fmt.Errorf("operands are %s and %s, must be equal", x, dy)
		}
		return []ir.Type{op.In[0].Type}, sameFloat(op, 0)
	}
	factors := func(op *ir.Op) factor.Rule { return factor.Pointwise(op.In[0].Type.Dims, 2, 1) }
	GeluGradDef.Define(ir.Rules{Attrs: GeluGradAttrs{}, Operands: 2, Infer: infer, Factors: factors, Doc: "dy times the derivative of gelu at x"})
	SiluGradDef.Define(ir.Rules{Operands: 2, Infer: infer, Factors: factors, Doc: "dy times the derivative of silu at x"})
}
