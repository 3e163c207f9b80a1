package ops

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/factor"
)

// Batch normalisation: the training form, its gradient, and the form that a forward graph has.
var (
	BatchNormDef     = ir.NewOp("batch_norm")
	BatchNormGradDef = ir.NewOp("batch_norm_grad")
	BatchNormStatDef = ir.NewOp("batch_norm_stat")
)

// BatchNormAttrs: Eps is added to the variance. Sync means that the statistics are those of the global batch;
// otherwise each rank and micro-batch normalises by its own, as PyTorch's DistributedDataParallel does.
type BatchNormAttrs struct {
	Eps  float64
	Sync bool
}

// BatchNormStatAttrs: Eps as in BatchNormAttrs; Momentum is PyTorch's, new = (1-m)*old + m*batch.
type BatchNormStatAttrs struct{ Eps, Momentum float64 }

// BatchNorm normalises x[N,C,...] by the statistics of the batch: y = (x-mean)/sqrt(var+eps)*g + bias, and
// mean[C] and the biased var[C]. g and bias are [C].
func BatchNorm(b *ir.Builder, x, g, bias *ir.Value, a BatchNormAttrs) (y, mean, variance *ir.Value) {
	out := b.EmitN(BatchNormDef, a, x, g, bias)
	return out[0], out[1], out[2]
}

// BatchNormOf is BatchNorm by the statistics of those samples that count, bool[N]; by those of all where none does, so that
// numbers stay ordinary. What does not count is normalised, too. Results are y, mean, var, and how many values of each channel
// count, n f32[C].
func BatchNormOf(b *ir.Builder, x, g, bias, counts *ir.Value, a BatchNormAttrs) []*ir.Value {
	return b.EmitN(BatchNormDef, a, x, g, bias, counts)
}

// BatchNormGrad gives the gradients of BatchNorm's operands. Its operands are dy, x, g, mean, var, and
// which samples count where BatchNorm had that.
func BatchNormGrad(b *ir.Builder, a BatchNormAttrs, operands ...*ir.Value) (dx, dg, dbias *ir.Value) {
	out := b.EmitN(BatchNormGradDef, a, operands...)
	return out[0], out[1], out[2]
}

// BatchNormStat normalises x[N,C,...] by given statistics. Its operands are x, g, bias, the running mean and the
// running variance, each but x [C]. It is what importers emit; trainstep makes it a BatchNorm that also updates the statistics.
func BatchNormStat(b *ir.Builder, a BatchNormStatAttrs, operands ...*ir.Value) *ir.Value {
	return b.Emit(BatchNormStatDef, a, operands...)
}

// bnX is the index of the operand that is normalised.
func bnX(op *ir.Op) int {
	if op.Def == BatchNormGradDef {
		return 1
	}
	return 0
}

// inferBatchNorm is the Infer of all three.
func inferBatchNorm(op *ir.Op) ([]ir.Type, error) {
	x := op.In[bnX(op)].Type
	if len(x.Dims) < 2 {
		return nil, fmt.Errorf("operand %d has %d dimensions, but needs batch and channels", bnX(op), len(x.Dims))
	}
	floats := []int{0, 1, 2, 3, 4}
	if op.Def == BatchNormDef {
		floats = floats[:3]
	}
	if err := sameFloat(op, floats...); err != nil {
		return nil, err
	}
	stat := ir.T(x.DType, x.Dims[1])
	for i, v := range op.In {
		want := stat
		switch {
		case v == nil:
			continue
		case i <= bnX(op):
			want = x
		case v == bnCount(op):
			want = ir.T(dtype.Bool, x.Dims[0])
		}
		if !v.Type.Equal(want) {
			return nil, fmt.Errorf("operand %d is %s, but must be %s", i, v.Type, want)
		}
	}
	if op.Def == BatchNormStatDef {
		return []ir.Type{x}, nil
	}
	if op.Def == BatchNormDef && bnCount(op) != nil {
		return []ir.Type{x, stat, stat, stat.With(dtype.F32)}, nil
	}
	return []ir.Type{x, stat, stat}, nil
}

// bnCount is the operand that says which samples count, nil when all do.
func bnCount(op *ir.Op) *ir.Value {
	switch op.Def {
	case BatchNormDef:
		return operand(op, 3)
	case BatchNormGradDef:
		return operand(op, 5)
	}
	return nil
}

// batchNormRule: channels are independent. Without Sync a split of the batch changes what the statistics mean,
// deliberately: mean and var are then each rank's own, and only the gradients of g and bias are sums over ranks.
func batchNormRule(op *ir.Op) factor.Rule {
	dims := op.In[bnX(op)].Type.Dims
	if len(dims) < 2 {
		return factor.Rule{}
	}
	kind := factor.Free
	switch a, _ := op.Attrs.(BatchNormAttrs); {
	case a.Sync:
		kind = factor.Blocked
	case op.Def == BatchNormGradDef:
		kind = factor.Sum
	}
	var r ruleMaker
	n, c := r.add("n", dims[0], kind), r.add("c", dims[1], factor.Free)
	x, stat := slices.Concat([]factor.Dim{n, c}, r.addAll("s", dims[2:], kind)), []factor.Dim{c}
	in := make([][]factor.Dim, len(op.In))
	for i := range in {
		in[i] = stat
		if i <= bnX(op) {
			in[i] = x
		}
	}
	if bnCount(op) != nil {
		in[len(in)-1] = []factor.Dim{n}
	}
	switch {
	case op.Def == BatchNormStatDef:
		return r.rule(in, x)
	case op.Def == BatchNormDef && bnCount(op) != nil:
		return r.rule(in, x, stat, stat, stat)
	}
	return r.rule(in, x, stat, stat)
}
