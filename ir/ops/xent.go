package ops

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
)

// Softmax cross entropy of rows of logits with integer targets.
var (
	XentDef     = ir.NewOp("xent")
	XentGradDef = ir.NewOp("xent_grad")
	XentBothDef = ir.NewOp("xent_both")
)

// sumType is the type of sums over elements of type d: f32 of narrower floats.
func sumType(d dtype.DType) dtype.DType {
	if half(d) {
		return dtype.F32
	}
	return d
}

// XentAttrs: rows whose target is IgnoreIndex have loss 0 and no gradient.
type XentAttrs struct{ IgnoreIndex int }

// Xent gives loss[R] = log(sum(exp(logits))) - logits[target] for logits[R,C] and an integer target[R]; the losses of logits
// in half precision, and their gradients, are f32. A target
// outside [0,C) that is not ignoreIndex is an error when the program runs. Targets are cast to i64, which kernels read.
func Xent(b *ir.Builder, logits, target *ir.Value, ignoreIndex int) *ir.Value {
	return b.Emit(XentDef, XentAttrs{ignoreIndex}, logits, Cast(b, target, dtype.I64))
}

// XentGrad gives dlogits[R,C] = dloss*(softmax(logits) - onehot(target)) from the gradient dloss[R].
func XentGrad(b *ir.Builder, logits, target, dloss *ir.Value, ignoreIndex int) *ir.Value {
	return b.Emit(XentGradDef, XentAttrs{ignoreIndex}, logits, target, dloss)
}

// XentBoth gives weight*Xent and XentGrad for dloss = weight[R] in one go over the logits.
func XentBoth(b *ir.Builder, logits, target, weight *ir.Value, ignoreIndex int) (loss, dlogits *ir.Value) {
	out := b.EmitN(XentBothDef, XentAttrs{ignoreIndex}, logits, target, weight)
	return out[0], out[1]
}

// inferXent is the Infer of all three.
func inferXent(op *ir.Op) ([]ir.Type, error) {
	t := op.In[0].Type
	if err := sameFloat(op, 0); err != nil {
		return nil, err
	}
	if len(t.Dims) != 2 {
		return nil, fmt.Errorf("operand 0 has %d dimensions, but must be [rows,classes]", len(t.Dims))
	}
	rows := ir.T(sumType(t.DType), t.Dims[0])
	target := op.In[1].Type
	if !target.DType.IsInt() || !target.With(rows.DType).Equal(rows) {
		return nil, fmt.Errorf("operand 1 is %s, but must be %d integers", target, t.Dims[0])
	}
	if v := operand(op, 2); v != nil && !v.Type.Equal(rows) {
		return nil, fmt.Errorf("operand 2 is %s, but must be %s", v.Type, rows)
	}
	switch op.Def {
	case XentDef:
		return []ir.Type{rows}, nil
	case XentGradDef:
		return []ir.Type{t}, nil
	}
	return []ir.Type{rows, t}, nil
}

// xentRule: rows are independent, the classes of a row stay whole.
func xentRule(op *ir.Op) factor.Rule {
	if len(op.In[0].Type.Dims) != 2 {
		return factor.Rule{}
	}
	var r ruleMaker
	row := []factor.Dim{r.add("r", op.In[0].Type.Dims[0], factor.Free)}
	logits := []factor.Dim{row[0], r.add("c", op.In[0].Type.Dims[1], factor.Blocked)}
	in := [][]factor.Dim{logits, row, row}[:len(op.In)]
	switch op.Def {
	case XentDef:
		return r.rule(in, row)
	case XentGradDef:
		return r.rule(in, logits)
	}
	return r.rule(in, row, logits)
}
