package ops

import "github.com/gtc-compiler/gtc/ir"

func init() {
	rules := func(operands int, doc string) ir.Rules {
		return ir.Rules{Attrs: XentAttrs{}, Operands: operands, Infer: inferXent, Factors: xentRule, Precision: "keep", Doc: doc}
	}
	XentDef.Define(rules(2, "softmax cross entropy of each row of logits with its integer target"))
	XentGradDef.Define(rules(3, "gradient of xent in the logits"))
	both := rules(3, "weighted xent and its gradient in the logits, in one pass")
	both.NoGrad = "made after differentiation"
	XentBothDef.Define(both)
}
