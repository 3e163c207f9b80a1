package fold

import (
	"math"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
)

func TestCuts(t *testing.T) {
	n := &model.Node{Op: "Slice"}
	for size := range 5 {
		for _, start := range []int{math.MinInt64, -9, -2, -1, 0, 1, 3, 9, math.MaxInt64} {
			for _, end := range []int{math.MinInt64, -9, -2, -1, 0, 2, 4, 9, math.MaxInt64} {
				for _, step := range []int{-3, -1, 1, 2} {
					c := Cuts(n, []int{size}, []int{start}, []int{end}, nil, []int{step})[0]
					var got []int
					for i := range c.Count {
						got = append(got, c.Start+i*c.Step)
					}
					if want := wantSlice(size, start, end, step); !slices.Equal(got, want) {
						t.Errorf("range(%d)[%d:%d:%d] = %v, want %v", size, start, end, step, got, want)
					}
				}
			}
		}
	}
}

// wantSlice follows the ONNX text: as in Python, but a start before the first element is the first also when
// stepping back.
func wantSlice(size, start, end, step int) []int {
	lo, hi := 0, size
	if step < 0 {
		lo, hi = -1, size-1
	}
	fix := func(v, lo int) int {
		if v < 0 {
			if v < -size {
				return lo
			}
			v += size
		}
		return min(max(v, lo), hi)
	}
	var out []int
	if size == 0 {
		return nil
	}
	s, e := fix(start, 0), fix(end, lo)
	for i := s; step > 0 && i < e || step < 0 && i > e; i += step {
		out = append(out, i)
	}
	return out
}
