package program

import (
	"slices"
	"testing"
)

func TestCopyBoxAgainstIndices(t *testing.T) {
	for _, c := range []struct{ dims, dst, dstDims, src, srcDims []int }{
		{[]int{}, nil, []int{}, nil, []int{}},
		{[]int{3}, []int{1}, []int{5}, []int{2}, []int{6}},
		{[]int{2, 3}, []int{1, 0}, []int{4, 3}, nil, []int{2, 3}},
		{[]int{2, 3}, nil, []int{2, 3}, []int{0, 3}, []int{2, 6}},
		{[]int{2, 2, 2}, []int{0, 1, 0}, []int{2, 3, 2}, []int{1, 0, 1}, []int{3, 2, 4}},
		{[]int{2, 0}, nil, []int{2, 0}, nil, []int{2, 0}},
	} {
		from, to := make([]byte, 2*Elems(c.srcDims)), make([]byte, 2*Elems(c.dstDims))
		for i := range from {
			from[i] = byte(i + 1)
		}
		CopyBox(Region{to, c.dstDims, c.dst}, Region{from, c.srcDims, c.src}, c.dims, 2)
		want := make([]byte, len(to))
		for i := range Elems(c.dims) {
			index, rest := make([]int, len(c.dims)), i
			for d := len(c.dims) - 1; d >= 0; d-- {
				index[d], rest = rest%c.dims[d], rest/c.dims[d]
			}
			copy(want[2*flat(index, c.dst, c.dstDims):][:2], from[2*flat(index, c.src, c.srcDims):])
		}
		if !slices.Equal(to, want) {
			t.Errorf("%+v: %v, want %v", c, to, want)
		}
	}
}
