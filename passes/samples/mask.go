package samples

import (
	"cmp"
	"slices"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// place is a part of a dim that steps from sample to sample.
type place struct {
	Part
	at int // which of all parts it is, those of the first dim first
}

// Mask repeats w, a number for each sample, over the dims of a value that l lays out: each element gets its sample's. It is nil where
// elements do not lie so that each is of one sample.
func (l Layout) Mask(b *ir.Builder, w *ir.Value) *ir.Value {
	var found []place
	var parts, dims []int // sizes of all parts, and of the dims that they make up
	for _, list := range l {
		size := 1
		for _, p := range list {
			if p.Step > 0 {
				found = append(found, place{p, len(parts)})
			}
			parts, size = append(parts, p.Size), size*p.Size
		}
		dims = append(dims, size)
	}
	slices.SortStableFunc(found, func(a, b place) int { return cmp.Compare(b.Step, a.Step) })
	left := ir.Product(w.Type.Dims)
	var sizes []int
	for _, p := range found {
		if p.Size*p.Step != left {
			return nil
		}
		sizes, left = append(sizes, p.Size), p.Step
	}
	if left != 1 || len(found) == 0 {
		return nil
	}
	order := make([]int, len(found))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(found[i].at, found[j].at) })
	if len(found) > 1 {
		w = ops.Transpose(b, ops.Reshape(b, w, sizes), order)
	}
	spread := slices.Repeat([]int{1}, len(parts))
	for _, p := range found {
		spread[p.at] = p.Size
	}
	return ops.Reshape(b, ops.Expand(b, ops.Reshape(b, w, spread), parts), dims)
}
