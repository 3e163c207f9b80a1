package ckpt

import "fmt"

// A box is an offset and a shape within a tensor.

// inside checks that a box lies within a tensor of the given shape.
func inside(shape, off, size []int) error {
	if len(off) != len(shape) || len(size) != len(shape) {
		return fmt.Errorf("a part at %v of shape %v cannot belong to a tensor of shape %v", off, size, shape)
	}
	for i, n := range shape {
		if off[i] < 0 || size[i] < 0 || off[i] > n || size[i] > n-off[i] {
			return fmt.Errorf("dim %d: the part %d:%d is outside the tensor, whose size there is %d", i, off[i], off[i]+size[i], n)
		}
	}
	return nil
}

// overlap reports whether two boxes share an element.
func overlap(off1, size1, off2, size2 []int) bool {
	for i := range off1 {
		if min(off1[i]+size1[i], off2[i]+size2[i]) <= max(off1[i], off2[i]) {
			return false
		}
	}
	return true
}

// box is a dense row-major array that stands at off within a tensor.
type box struct {
	off, shape []int
	data       []byte
}

// strides are the distances, in bytes, between neighbours along each dim.
func (b *box) strides(elem int) []int {
	s := make([]int, len(b.shape))
	for i := len(s) - 1; i >= 0; i-- {
		s[i] = elem
		elem *= b.shape[i]
	}
	return s
}

// copyBox copies the elements that both boxes have from src to dst.
func copyBox(dst, src *box, elem int) {
	if !overlap(dst.off, dst.shape, src.off, src.shape) {
		return
	}
	ds, ss := dst.strides(elem), src.strides(elem)
	from, to := 0, 0 // bytes to the first common element
	count := make([]int, len(ds))
	for i := range count {
		lo := max(dst.off[i], src.off[i])
		count[i] = min(dst.off[i]+dst.shape[i], src.off[i]+src.shape[i]) - lo
		from += (lo - src.off[i]) * ss[i]
		to += (lo - dst.off[i]) * ds[i]
	}
	// The trailing dims that are whole in both are one run of bytes, and so is the dim
	// before them.
	run, dims := elem, len(count)
	for dims > 0 {
		dims--
		run *= count[dims]
		if count[dims] != dst.shape[dims] || count[dims] != src.shape[dims] {
			break
		}
	}
	var walk func(dim, from, to int)
	walk = func(dim, from, to int) {
		if dim >= dims {
			copy(dst.data[to:to+run], src.data[from:from+run])
			return
		}
		for range count[dim] {
			walk(dim+1, from, to)
			from, to = from+ss[dim], to+ds[dim]
		}
	}
	walk(0, from, to)
}
