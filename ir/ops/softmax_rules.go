package ops

import "github.com/gtc-compiler/gtc/ir"

func init() {
	rules := func(operands int, doc string) ir.Rules {
		return ir.Rules{Attrs: SoftmaxAttrs{}, Operands: operands, Infer: inferSoftmax, Factors: softmaxRule, Precision: "keep", Doc: doc}
	}
	SoftmaxDef.Define(rules(1, "exp(x)/sum(exp(x)) over one dimension"))
	LogSoftmaxDef.Define(rules(1, "x - log(sum(exp(x))) over one dimension"))
	SoftmaxGradDef.Define(rules(2, "gradient of softmax from its result: y*(dy - sum(dy*y))"))
	LogSoftmaxGradDef.Define(rules(2, "gradient of log_softmax from its result: dy - exp(y)*sum(dy)"))
}
