package optimizer

import (
	"slices"
	"testing"
)

// TestBlocks: whatever number of ranks divides the leaves, the first dim that divides falls into whole blocks.
func TestBlocks(t *testing.T) {
	for _, c := range []struct {
		dims   []int
		leaves int
		want   []int
	}{
		{[]int{50, 32}, 8, []int{2, 8}}, {[]int{96, 32}, 8, []int{8, 1}}, {[]int{3}, 4, []int{1}}, {[]int{6, 4}, 4, []int{2, 4}},
		{[]int{64, 3, 3}, 1, []int{1, 1, 1}}, {nil, 4, []int{}}, {[]int{0, 4}, 4, []int{1, 4}}, {[]int{2, 2, 8}, 8, []int{2, 2, 8}},
	} {
		got := blocks(c.dims, c.leaves)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v of %d leaves: %v, want %v", c.dims, c.leaves, got, c.want)
		}
		for dp := 2; dp <= c.leaves; dp *= 2 {
			for d, n := range c.dims {
				if n > 0 && n%dp == 0 { // ZeRO splits this one
					if got[d]%dp != 0 {
						t.Errorf("%v of %d leaves: %d ranks cut the blocks %v in dim %d", c.dims, c.leaves, dp, got, d)
					}
					break
				}
			}
		}
	}
}
