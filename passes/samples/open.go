package samples

import (
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/factor"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// Open is the operand of op that must be multiplied by the weights of samples so that those which fill a batch do not count: op adds
// up samples, and its terms are not zero with the weight. It is -1 where op adds up none, or needs more than that. The layouts of the
// operands must be known (Reach).
func (s *Facts) Open(op *ir.Op) int {
	if op.Def.Rules.Factors == nil {
		return -1
	}
	rule := op.Def.Rules.Factors(op)
	if len(rule.In) != len(op.In) {
		return -1
	}
	w := walk{s: s, op: op, rule: rule, parts: make([][]Part, len(rule.Factors)), null: make([][]bool, len(rule.Factors))}
	if w.operands() != nil {
		return -1
	}
	for f, parts := range w.parts {
		if parts == nil || rule.Factors[f].Kind != factor.Sum || !w.whole(f) || w.terms(f) {
			continue
		}
		switch op.Def {
		case ops.ReduceSumDef, ops.MatMulDef:
			return 0
		case ops.ScatterAddDef, ops.ScatterElementsAddDef:
			return 1
		}
	}
	return -1
}
