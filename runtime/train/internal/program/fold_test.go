package program

import (
	"fmt"
	"testing"
)

// TestFold numbers the elements of a whole tensor and compares, of every box, the numbers that its pieces name in the
// file with those that the box has.
func TestFold(t *testing.T) {
	cases := []struct{ whole, file, parts []int }{
		{[]int{2, 3, 4}, []int{2, 12}, []int{1, 1, 2}},
		{[]int{2, 3, 4}, []int{2, 12}, []int{2, 1, 2}},
		{[]int{3, 4, 2}, []int{12, 2}, []int{1, 2, 2}},
		{[]int{3, 4}, []int{12}, []int{1, 4}},
		{[]int{3, 4}, []int{12}, []int{3, 1}},
		{[]int{2, 2, 3, 4}, []int{4, 12}, []int{1, 2, 1, 2}},
		{[]int{2, 3, 4}, []int{2, 12}, []int{1, 1, 1}},
	}
	for _, c := range cases {
		dims := make([]int, len(c.whole))
		boxes := 1
		for d, n := range c.whole {
			dims[d] = n / c.parts[d]
			boxes *= c.parts[d]
		}
		index := make([]int, len(c.parts))
		for range boxes {
			start := make([]int, len(dims))
			for d := range dims {
				start[d] = index[d] * dims[d]
			}
			want := map[string]int{}
			for at := make([]int, len(dims)); ; {
				want[fmt.Sprint(at)] = flat(at, start, c.whole)
				if !advance(at, dims) {
					break
				}
			}
			for _, p := range fold(c.whole, c.file, start, dims) {
				if Elems(p.size) != Elems(p.Shape) {
					t.Fatalf("%v: a piece of %v is %v in the file", c, p.size, p.Shape)
				}
				from := make([]int, len(p.Shape))
				for at := make([]int, len(dims)); ; {
					abs := make([]int, len(at))
					for d := range at {
						abs[d] = p.at[d] + at[d]
					}
					k := fmt.Sprint(abs)
					if got := flat(from, p.Offset, c.file); want[k] != got {
						t.Fatalf("%v, box at %v: element %v is %d in the file, want %d", c, start, abs, got, want[k])
					}
					delete(want, k)
					advance(from, p.Shape)
					if !advance(at, p.size) {
						break
					}
				}
			}
			if len(want) > 0 {
				t.Fatalf("%v, box at %v: %d elements are in no piece", c, start, len(want))
			}
			advance(index, c.parts)
		}
	}
}
