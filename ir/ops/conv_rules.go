package ops

import (
	"github.com/gtc-compiler/gtc/ir"
)

func init() {
	ConvDef.Define(ir.Rules{
		Attrs: ConvAttrs{}, Operands: 2, Factors: convRule, Precision: "low",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			_, d, err := convOf(op)
			return []ir.Type{ir.T(op.In[0].Type.DType, d.y...)}, err
		},
		Doc: "convolution of x[N,C,...] with w[O,C/g,...]",
	})
	ConvInputGradDef.Define(ir.Rules{
		Attrs: ConvInputGradAttrs{}, Operands: 2, Factors: convRule, Precision: "low",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			_, d, err := convOf(op)
			return []ir.Type{ir.T(op.In[0].Type.DType, d.x...)}, err
		},
		Doc: "transposed convolution: the gradient of conv in x, from dy and w",
	})
	ConvWeightGradDef.Define(ir.Rules{
		Attrs: ConvWeightGradAttrs{}, Operands: 2, Factors: convRule, Precision: "low",
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			_, d, err := convOf(op)
			return []ir.Type{ir.T(op.In[0].Type.DType, d.w...)}, err
		},
		Doc: "the gradient of conv in w, from x and dy",
	})
}
