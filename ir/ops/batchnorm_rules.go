package ops

import "github.com/gtc-compiler/gtc/ir"

func init() {
	BatchNormDef.Define(ir.Rules{
		Attrs: BatchNormAttrs{}, Operands: 3, Infer: inferBatchNorm, Factors: batchNormRule, Precision: "keep",
		Doc: "batch normalisation of x[N,C,...] by the batch's own statistics, which are results too",
	})
	BatchNormGradDef.Define(ir.Rules{
		Attrs: BatchNormAttrs{}, Operands: 5, Infer: inferBatchNorm, Factors: batchNormRule, Precision: "keep",
		Doc: "gradients of batch_norm in x, g and bias",
	})
	BatchNormStatDef.Define(ir.Rules{
		Attrs: BatchNormStatAttrs{}, Operands: 5, Infer: inferBatchNorm, Factors: batchNormRule, Precision: "keep",
		Doc: "batch normalisation by given running statistics",
	})
}
