package npz

import "slices"

// MoveDim lays out an array of that shape, row-major, with dim from brought to place to and the others in their order, as
// numpy.moveaxis. x has the elements, or as many entries for each, and stays as it is.
func MoveDim[T any](x []T, shape []int, from, to int) ([]T, []int) {
	moved := slices.Insert(slices.Delete(slices.Clone(shape), from, from+1), to, shape[from])
	if from == to || len(x) == 0 {
		return slices.Clone(x), moved
	}
	lo, hi := min(from, to), max(from, to)
	outer, inner := 1, len(x)
	for _, n := range shape[:lo] {
		outer *= n
	}
	for _, n := range shape[:hi+1] {
		inner /= n
	}
	// The dims from lo to hi are two: the one that moves and the rest.
	a, b := shape[from], 1
	for d := lo; d <= hi; d++ {
		if d != from {
			b *= shape[d]
		}
	}
	if from > to { // [b, a] becomes [a, b]
		a, b = b, a
	}
	out := make([]T, 0, len(x))
	for o := range outer {
		for j := range b {
			for i := range a {
				at := ((o*a+i)*b + j) * inner
				out = append(out, x[at:at+inner]...)
			}
		}
	}
	return out, moved
}
