package ops

import (
	"github.com/gtc-compiler/gtc/ir"
)

func init() {
	MaxPoolDef.Define(ir.Rules{
		Attrs: MaxPoolAttrs{}, Operands: 1, Infer: inferPool, Factors: poolRule,
		Doc: "largest element of each window, and its place in the plane",
	})
	MaxPoolGradDef.Define(ir.Rules{
		Attrs: MaxPoolGradAttrs{}, Operands: 2, Infer: inferPool, Factors: poolRule,
		Doc: "gradient of max_pool: dy added at the places of the maxima",
	})
	AvgPoolDef.Define(ir.Rules{
		Attrs: AvgPoolAttrs{}, Operands: 1, Infer: inferPool, Factors: poolRule,
		Doc: "mean of each window",
	})
	AvgPoolGradDef.Define(ir.Rules{
		Attrs: AvgPoolGradAttrs{}, Operands: 1, Infer: inferPool, Factors: poolRule,
		Doc: "gradient of avg_pool: dy spread over the windows",
	})
}
