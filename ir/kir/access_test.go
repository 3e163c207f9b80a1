package kir

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// table lists the buffer positions that an access visits.
func (a Access) table() []int {
	var out []int
	idx := make([]int, len(a.Dims))
	n := 1
	for _, d := range a.Dims {
		n *= d
	}
	for range n {
		p := a.Offset
		for d, i := range idx {
			p += i * a.Strides[d]
		}
		out = append(out, p)
		for d := len(idx) - 1; d >= 0; d-- {
			if idx[d]++; idx[d] < a.Dims[d] {
				break
			}
			idx[d] = 0
		}
	}
	return out
}

// Random chains of transposes, slices, broadcasts and reshapes, composed, must visit what doing them one
// by one on a table of positions visits.
func TestComposeAgainstTables(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	composed := 0
	for range 5000 {
		dims := make([]int, 1+r.IntN(3))
		for i := range dims {
			dims[i] = 1 + r.IntN(4)
		}
		acc, want := Dense(dims), Dense(dims).table()
		for range 3 {
			v, out := randomView(r, acc.Dims)
			next, ok := acc.View(v, out)
			if v.Strides != nil {
				next2 := Access{v.Offset, out, v.Strides}
				var moved []int
				for _, p := range next2.table() {
					moved = append(moved, want[p])
				}
				want = moved
			}
			if !ok {
				break
			}
			composed++
			if got := next.table(); !slices.Equal(got, want) {
				t.Fatalf("%v then %v to %v: visits %v, want %v", acc, v, out, got, want)
			}
			acc = next
		}
	}
	if composed < 5000 {
		t.Errorf("only %d compositions were affine: the rule is too timid", composed)
	}
}

func randomView(r *rand.Rand, dims []int) (ViewMap, []int) {
	s := strides(dims)
	switch r.IntN(4) {
	case 0: // transpose
		p := r.Perm(len(dims))
		v, out := ViewMap{Strides: make([]int, len(dims))}, make([]int, len(dims))
		for i, d := range p {
			v.Strides[i], out[i] = s[d], dims[d]
		}
		return v, out
	case 1: // slice with a step
		v, out := ViewMap{Strides: make([]int, len(dims))}, make([]int, len(dims))
		for d, n := range dims {
			start, step := r.IntN(n), 1+r.IntN(2)
			out[d] = 1 + (n-1-start)/step
			v.Offset += start * s[d]
			v.Strides[d] = s[d] * step
		}
		return v, out
	case 2: // repeat dims of size 1
		out := slices.Clone(dims)
		for d, n := range dims {
			if n == 1 {
				out[d] = 1 + r.IntN(3)
			}
		}
		return ViewMap{Strides: s}, out
	}
	n := 1
	for _, d := range dims {
		n *= d
	}
	for f := 2; f < n; f++ {
		if n%f == 0 && r.IntN(2) == 0 {
			return ViewMap{}, []int{f, n / f}
		}
	}
	return ViewMap{}, []int{n}
}
