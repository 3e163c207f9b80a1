package ops

import "github.com/gtc-compiler/gtc/ir"

func init() {
	rules := func(operands, optional int, doc string) ir.Rules {
		return ir.Rules{Attrs: NormAttrs{}, Operands: operands, Optional: optional, Infer: inferNorm, Factors: normRule, Precision: "keep", Doc: doc}
	}
	LayerNormDef.Define(rules(1, 2, "layer normalisation over the trailing dims, with the saved mean and 1/std"))
	LayerNormGradDef.Define(rules(4, 1, "gradients of layer_norm in x, g and bias"))
	RMSNormDef.Define(rules(1, 1, "division by the root mean square over the trailing dims, and the saved 1/rms"))
	RMSNormGradDef.Define(rules(3, 1, "gradients of rms_norm in x and g"))
}
