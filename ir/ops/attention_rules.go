package ops

import "github.com/gtc-compiler/gtc/ir"

func init() {
	AttentionDef.Define(ir.Rules{
		Attrs: AttentionAttrs{}, Operands: 3, Optional: 1, Infer: inferAttention, Factors: attentionRule, Precision: "low",
		Doc: "softmax(scale*q.k' + mask).v and the log-sum-exp of the scores",
	})
	AttentionGradDef.Define(ir.Rules{
		Attrs: AttentionAttrs{}, Operands: 3, Optional: 4, Infer: inferAttentionGrad, Factors: attentionRule, Precision: "low",
		Doc: "gradients of attention in q, k and v",
	})
}
