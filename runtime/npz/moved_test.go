package npz

import (
	"slices"
	"testing"
)

// TestMoveDim compares with the definition, for every pair of dims, and with two entries for each element.
func TestMoveDim(t *testing.T) {
	shape := []int{2, 3, 4, 5}
	strides := []int{60, 20, 5, 1}
	x := make([]int, 2*120)
	for i := range x {
		x[i] = i
	}
	for from := range shape {
		for to := range shape {
			got, moved := MoveDim(x, shape, from, to)
			order := slices.Insert(slices.Delete([]int{0, 1, 2, 3}, from, from+1), to, from)
			var want []int
			index := make([]int, 4)
			for range 120 {
				at := 0
				for d, o := range order {
					at += index[d] * strides[o]
				}
				want = append(want, 2*at, 2*at+1)
				for d := 3; d >= 0; d-- {
					if index[d]++; index[d] < moved[d] {
						break
					}
					index[d] = 0
				}
			}
			for d, o := range order {
				if moved[d] != shape[o] {
					t.Errorf("%d to %d: shape %v", from, to, moved)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d to %d: %v, want %v", from, to, got[:10], want[:10])
			}
		}
	}
}
