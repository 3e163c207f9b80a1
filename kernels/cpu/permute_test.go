package cpu

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

func permuted(in []byte, dims, perm []int, size int) []byte {
	strides, s := make([]int, len(dims)), size
	for i, d := range slices.Backward(dims) {
		strides[i] = s
		s *= d
	}
	out := make([]byte, 0, s)
	var walk func(i, at int)
	walk = func(i, at int) {
		if i == len(dims) {
			out = append(out, in[at:at+size]...)
			return
		}
		for j := range dims[perm[i]] {
			walk(i+1, at+j*strides[perm[i]])
		}
	}
	walk(0, 0)
	return out
}

func TestTransposeAgainstLoops(t *testing.T) {
	onThreads(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(10, 11))
		for try := range 400 {
			n, total := r.IntN(7), 1
			dims, perm := make([]int, n), r.Perm(n)
			for i := range dims {
				dims[i] = 1 + r.IntN(9)
				if r.IntN(20) == 0 {
					dims[i] = 70
				}
				if total *= dims[i]; total > 20000 {
					total /= dims[i]
					dims[i] = 1
				}
			}
			size := 1 << r.IntN(4)
			if try == 0 { // large enough for two threads
				n, total, dims, perm, size = 3, 20*300*30, []int{20, 300, 30}, []int{1, 0, 2}, 4
			} else if try == 1 {
				n, total, dims, perm, size = 3, 20*300*30, []int{20, 300, 30}, []int{2, 0, 1}, 4
			}
			in := make([]byte, total*size)
			for i := range in {
				in[i] = byte(r.Uint32())
			}
			out := make([]byte, len(in))
			d, p := append(slices.Clone(dims), make([]int, 6)...), append(slices.Clone(perm), make([]int, 6)...)
			Transpose(ptr(in), ptr(out), nil, n, d[0], d[1], d[2], d[3], d[4], d[5], p[0], p[1], p[2], p[3], p[4], p[5], size)
			if !bytes.Equal(out, permuted(in, dims, perm, size)) {
				t.Errorf("dims %v, perm %v, size %d: wrong", dims, perm, size)
			}
		}
	})
}

func TestFillAndCopy(t *testing.T) {
	onThreads(t, func(t *testing.T) {
		for _, n := range []int{0, 1, 17, 300000} {
			a, b := make([]float32, n), make([]float32, n)
			Fill(ptr(a), nil, n, 2.5)
			Copy(ptr(a), ptr(b), nil, 4*n)
			near(t, "fill", a, filled(n, 2.5), 0)
			near(t, "copy", b, a, 0)
		}
	})
}
