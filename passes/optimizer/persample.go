package optimizer

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/samples"
)

// oneOfSamples makes gradients of parameters with an entry for each sample of the batch, such as a bias [B,1], sums over samples, as all others
// are: each sample adds its own entry, and zeros to the rest. Micro-batches, which know but their own, can then be added up.
func (u *updater) oneOfSamples(grads []grad) {
	if u.c.Opt.Microbatches < 2 {
		return
	}
	var sums []*ir.Value
	for _, g := range grads {
		sums = append(sums, g.sum)
	}
	t := samples.Leading(u.f, sums...)
	if t == nil {
		return
	}
	for i := range grads {
		g := &grads[i]
		d, ok := t.Outermost(g.sum)
		if !ok {
			continue
		}
		b, dims := u.b, g.sum.Type.Dims
		b.Loc = g.loc
		order := slices.Insert(slices.Delete(ops.AllDims(g.sum), d, d+1), 0, d)
		each := []int{t.Batch, g.sum.Type.Elems() / t.Batch}
		front := ops.Transpose(b, g.sum, order)
		square := []int{t.Batch, t.Batch}
		eye := ops.Cast(b, ops.Eq(b, ops.Iota(b, dtype.I64, square, 0), ops.Iota(b, dtype.I64, square, 1)), g.sum.Type.DType)
		sum := ops.Reshape(b, ops.MatMul(b, eye, ops.Reshape(b, front, each)), front.Type.Dims)
		back := make([]int, len(dims))
		for k, p := range order {
			back[p] = k
		}
		g.sum = ops.Transpose(b, sum, back)
	}
}
