package model

import (
	"slices"
	"testing"
)

// TestDepthFirst sorts what needs later elements, and finds cycles.
func TestDepthFirst(t *testing.T) {
	if order, cycle := depthFirst([][]int{{2}, {}, {1}, {0, 0}}); cycle != nil || !slices.Equal(order, []int{1, 2, 0, 3}) {
		t.Errorf("order %v, cycle %v", order, cycle)
	}
	if _, cycle := depthFirst([][]int{{1}, {2}, {1}}); !slices.Equal(cycle, []int{1, 2}) {
		t.Errorf("cycle %v, want 1 and 2", cycle)
	}
}
