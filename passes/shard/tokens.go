package shard

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
)

// Sequence parallelism (Korthikanti et al., arXiv:2205.05198): where a sum over the tensor-parallel ranks must be
// finished, each finishes it for a part of the tokens only, and what follows (residual, norm, dropout) runs on that part
// until the next product needs all tokens. An all_reduce becomes a reduce_scatter and an all_gather, of the same
// bytes together, and the activations between are kept in parts.

// tokenWish is the wish that op, which takes a sum that is spread over tp, leaves its results in parts of their
// tokens; nil where there is no such sum, or no dim of tokens divides.
func (s *spread) tokenWish(op *spreadOp, in []int32, made *plan) []int32 {
	finishes := false
	for k, n := range in {
		if slices.Contains(s.layouts[n].Partial, "tp") {
			need := s.layouts[made.in[k]]
			finishes = finishes || !slices.Contains(need.Partial, "tp")
		}
	}
	v := op.Out[0]
	if !finishes || !v.Data || splitOver(s.layouts[made.out[0]], "tp") {
		return nil
	}
	for _, d := range tokenDims(v) {
		want := make([]int32, len(op.out))
		want[0] = s.splitDim(v, made.out[0], d)
		if want[0] < 0 {
			continue
		}
		if s.of(op.signature, op.Op, in, want).out[0] == want[0] {
			return want
		}
	}
	return nil
}

// tokenDims lists the dims of v along which tokens lie, positions before samples; the last dim is that of features.
func tokenDims(v *ir.Value) []int {
	switch n := len(v.Type.Dims); {
	case n < 2:
		return nil
	case n == 2:
		return []int{0}
	}
	return []int{1, 0}
}

// splitDim is the sharding have with dim d split over tp, too; -1 when that does not divide.
func (s *spread) splitDim(v *ir.Value, have int32, d int) int32 {
	x := s.layouts[have]
	y := x
	y.Dims = make([][]string, len(v.Type.Dims))
	ways := s.m.Size("tp")
	for k := range y.Dims {
		y.Dims[k] = x.Axes(k)
	}
	for _, a := range y.Dims[d] {
		ways *= s.m.Size(a)
	}
	if v.Type.Dims[d]%ways != 0 {
		return -1
	}
	y.Dims[d] = append(slices.Clone(y.Dims[d]), "tp")
	return s.number(y)
}
