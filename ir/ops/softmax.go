package ops

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/factor"
)

// Softmax over one dimension, its logarithm, and the gradients of both from their results.
var (
	SoftmaxDef        = ir.NewOp("softmax")
	LogSoftmaxDef     = ir.NewOp("log_softmax")
	SoftmaxGradDef    = ir.NewOp("softmax_grad")
	LogSoftmaxGradDef = ir.NewOp("log_softmax_grad")
)

// SoftmaxAttrs names the dimension that sums to one, counted from 0.
type SoftmaxAttrs struct{ Dim int }

// Softmax is exp(x)/sum(exp(x)) over dim, with the maximum subtracted first.
func Softmax(b *ir.Builder, x *ir.Value, dim int) *ir.Value {
	return b.Emit(SoftmaxDef, SoftmaxAttrs{dim}, x)
}

// LogSoftmax is x - log(sum(exp(x))) over dim.
func LogSoftmax(b *ir.Builder, x *ir.Value, dim int) *ir.Value {
	return b.Emit(LogSoftmaxDef, SoftmaxAttrs{dim}, x)
}

// SoftmaxGrad is y*(dy - sum(dy*y)) for y = Softmax(x, dim).
func SoftmaxGrad(b *ir.Builder, y, dy *ir.Value, dim int) *ir.Value {
	return b.Emit(SoftmaxGradDef, SoftmaxAttrs{dim}, y, dy)
}

// LogSoftmaxGrad is dy - exp(y)*sum(dy) for y = LogSoftmax(x, dim).
func LogSoftmaxGrad(b *ir.Builder, y, dy *ir.Value, dim int) *ir.Value {
	return b.Emit(LogSoftmaxGradDef, SoftmaxAttrs{dim}, y, dy)
}

func inferSoftmax(op *ir.Op) ([]ir.Type, error) {
	t, dim := op.In[0].Type, op.Attrs.(SoftmaxAttrs).Dim
	if dim < 0 || dim >= len(t.Dims) {
		return nil, fmt.Errorf("dim %d is not one of operand 0's %d dimensions", dim, len(t.Dims))
	}
	if len(op.In) > 1 && !op.In[1].Type.Equal(t) {
		return nil, fmt.Errorf("operand 1 is %s, but operand 0 is %s", op.In[1].Type, t)
	}
	return []ir.Type{t}, sameFloat(op, 0)
}

func softmaxRule(op *ir.Op) factor.Rule {
	r := factor.Pointwise(op.In[0].Type.Dims, len(op.In), 1)
	r.Factors[op.Attrs.(SoftmaxAttrs).Dim].Kind = factor.Blocked
	return r
}
