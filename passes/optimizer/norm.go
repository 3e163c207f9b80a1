package optimizer

import (
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// sumSquares is the sum of the squares of all elements, without dims.
//
// Under Options.Reproducible the additions are the same however x is split over dp: x falls into blocks, which every
// layout with as many micro-batches in all has whole on one rank. Each block is summed up by itself; then the sums, which
// are needed whole on every rank, are added in one order.
func (u *updater) sumSquares(x *ir.Value) *ir.Value {
	b := u.b
	if !u.c.Opt.Reproducible || x.Type.Elems() == 0 {
		return ops.Reshape(b, ops.ReduceSum(b, ops.Square(b, x), ops.AllDims(x)...), nil)
	}
	counts := blocks(x.Type.Dims, max(1, u.c.Opt.DP)*max(1, u.c.Opt.Microbatches))
	var dims, front, back []int
	n, size := 1, 1
	for d, k := range counts {
		front, back = append(front, len(dims)), append(back, len(dims)+1)
		dims = append(dims, k, x.Type.Dims[d]/max(k, 1))
		n, size = n*k, size*dims[len(dims)-1]
	}
	sq := ops.Transpose(b, ops.Reshape(b, ops.Square(b, x), dims), append(front, back...))
	sq = ops.Reshape(b, sq, append(slices.Clone(counts), size))
	if size > 1 {
		sq, n = halves(b, sq), 2*n
	}
	sums := ops.Reshape(b, sq, []int{n})
	for ; n > 1; n /= 2 { // slices need their operand whole: here the parts are gathered
		sums = ops.Add(b, ops.SliceDim(b, sums, 0, 0, n/2), ops.SliceDim(b, sums, 0, n/2, n/2))
	}
	return ops.Reshape(b, sums, nil)
}

// halves adds up the last dim of x, one block a row, in two halves. So a rank that has a single block still has two sums to
// make: a reduction to one number is a kernel of another form, which adds in another order.
func halves(b *ir.Builder, x *ir.Value) *ir.Value {
	last := len(x.Type.Dims) - 1
	size := x.Type.Dims[last]
	if size%2 == 1 {
		high := make([]int, last+1)
		high[last] = 1
		x = ops.Pad(b, x, make([]int, last+1), high, nil, 0)
		size++
	}
	x = ops.Reshape(b, x, append(slices.Clone(x.Type.Dims[:last]), 2, size/2))
	return ops.ReduceSum(b, x, last+1)
}

// blocks says into how many blocks each dim of a tensor falls, so that the parts of any number of ranks that divides leaves,
// a power of two, are whole blocks: ZeRO splits the first dim that divides. Dims behind one with as many blocks as leaves
// are never split.
func blocks(dims []int, leaves int) []int {
	counts := make([]int, len(dims))
	for d, n := range dims {
		counts[d] = 1
		for n > 0 && n%2 == 0 && counts[d] < leaves {
			counts[d], n = counts[d]*2, n/2
		}
		if counts[d] == leaves {
			leaves = 1
		}
	}
	return counts
}
