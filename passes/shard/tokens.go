package shard

import (
	"slices"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
)

// Sequence parallelism (Korthikanti et al., arXiv:2205.05198): where a sum over the tensor-parallel ranks must be
// finished, each finishes it for a part of the tokens only, and what follows (residual, norm, dropout) runs on that part
// until the next product needs all tokens. An all_reduce becomes a reduce_scatter and an all_gather, of the same
// bytes together, and the activations between are kept in parts.

// tokenWish is the wish that op, which takes a sum that is spread over tp or adds to what is in parts of its tokens,
// leaves its results in parts of their tokens; nil where there is no such thing, or no dim of tokens divides.
func (s *propagation) tokenWish(op *propagationOp, in []int32, made *plan) []int32 {
	finishes := false
	for k, n := range in {
		finishes = finishes || slices.Contains(s.layouts[n].Partial, mesh.TensorAxis) && !slices.Contains(s.layouts[made.in[k]].Partial, mesh.TensorAxis)
	}
	v := op.Out[0]
	dims := tokenDims(v)
	if !v.Data || slices.ContainsFunc(dims, func(d int) bool { return slices.Contains(s.layouts[made.out[0]].Axes(d), mesh.TensorAxis) }) {
		return nil
	}
	if !finishes && op.Def.Rules.Adds { // the stream of residuals
		dims = slices.DeleteFunc(dims, func(d int) bool {
			return !slices.ContainsFunc(in, func(n int32) bool { return slices.Contains(s.layouts[n].Axes(d), mesh.TensorAxis) })
		})
	} else if !finishes {
		return nil
	}
	for _, d := range dims {
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
	case n < 2 || v.Type.Dims[n-1] == 1: // one number for each token, such as its loss, is not worth a message
		return nil
	case n == 2:
		return []int{0}
	}
	return []int{1, 0}
}

// splitDim is the sharding have with dim d split over tp, too; -1 when that does not divide.
func (s *propagation) splitDim(v *ir.Value, have int32, d int) int32 {
	x := s.layouts[have]
	y := x
	y.Dims = make([][]string, len(v.Type.Dims))
	ways := s.m.Size(mesh.TensorAxis)
	for k := range y.Dims {
		y.Dims[k] = x.Axes(k)
	}
	for _, a := range y.Dims[d] {
		ways *= s.m.Size(a)
	}
	if v.Type.Dims[d]%ways != 0 {
		return -1
	}
	for k := range y.Dims { // it moves from where it is
		y.Dims[k] = slices.DeleteFunc(slices.Clone(y.Dims[k]), func(a string) bool { return a == mesh.TensorAxis })
	}
	y.Dims[d] = append(y.Dims[d], mesh.TensorAxis)
	return s.number(y)
}
