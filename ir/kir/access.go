package kir

import "slices"

// Access is an affine way of reading (or writing) a dense buffer: the element at index i is at
// Offset + Σ i[d]*Strides[d], in elements. Dims is the space the index runs over.
type Access struct {
	Offset        int
	Dims, Strides []int
}

// Dense is the access that reads a buffer of those dims in order.
func Dense(dims []int) Access {
	return Access{Dims: slices.Clone(dims), Strides: strides(dims)}
}

func strides(dims []int) []int {
	s, n := make([]int, len(dims)), 1
	for d := len(dims) - 1; d >= 0; d-- {
		if dims[d] != 1 {
			s[d] = n
		}
		n *= dims[d]
	}
	return s
}

// IsDense reports whether the access visits the buffer from its start, in order and without gaps.
func (a Access) IsDense() bool {
	n := 1
	for d := len(a.Dims) - 1; d >= 0; d-- {
		if a.Dims[d] != 1 && a.Strides[d] != n {
			return false
		}
		n *= a.Dims[d]
	}
	return a.Offset == 0
}

// View composes: a reads an operand with a.Dims; v maps a result of dims to the dense operand. The
// composition is the access of the result; ok is false when it is not affine.
func (a Access) View(v ViewMap, dims []int) (Access, bool) {
	if v.Strides == nil {
		return a.Reshape(dims)
	}
	dense := strides(a.Dims)
	out := Access{Offset: a.Offset, Dims: slices.Clone(dims), Strides: make([]int, len(dims))}
	reach := make([]int, len(a.Dims)) // the largest index met along each operand dim
	rest := v.Offset
	for _, d := range bySize(a.Dims, dense) {
		reach[d] = rest / dense[d]
		out.Offset += reach[d] * a.Strides[d]
		rest %= dense[d]
	}
	if rest != 0 {
		return out, false
	}
	for r, s := range v.Strides {
		if dims[r] == 1 {
			continue
		}
		for _, d := range bySize(a.Dims, dense) {
			k := s / dense[d]
			out.Strides[r] += k * a.Strides[d]
			reach[d] += k * (dims[r] - 1)
			s -= k * dense[d]
		}
		if s != 0 {
			return out, false
		}
	}
	for d := range reach {
		if reach[d] >= max(a.Dims[d], 1) { // an index carries into the next dim: not affine in general
			return out, false
		}
	}
	return out, true
}

// bySize lists the dims that can be moved along (size above 1), largest dense stride first.
func bySize(dims, dense []int) []int {
	var out []int
	for d := range dims {
		if dims[d] > 1 {
			out = append(out, d)
		}
	}
	slices.SortStableFunc(out, func(x, y int) int { return dense[y] - dense[x] })
	return out
}

// Reshape is the access of the same elements in the same order under other dims; ok is false when the
// strides do not allow it.
func (a Access) Reshape(dims []int) (Access, bool) {
	if start := a.Offset; (Access{0, a.Dims, a.Strides}).IsDense() {
		out := Dense(dims)
		out.Offset = start
		return out, true
	}
	fine, ok := Refine(a.Dims, dims)
	if !ok {
		return a, false
	}
	s, ok := a.split(fine)
	if !ok {
		return a, false
	}
	return s.join(dims)
}

// split spreads a over dims that refine a.Dims (sizes of 1 in a.Dims are dropped).
func (a Access) split(fine []int) (Access, bool) {
	out := Access{Offset: a.Offset, Dims: fine, Strides: make([]int, len(fine))}
	i := 0
	for d, n := range a.Dims {
		start := i
		for p := 1; p < n; i++ {
			p *= fine[i]
		}
		st := a.Strides[d]
		for j := i - 1; j >= start; j-- {
			out.Strides[j] = st
			st *= fine[j]
		}
	}
	return out, i == len(fine)
}

// join merges runs of a.Dims into the coarser dims where the strides are compatible.
func (a Access) join(dims []int) (Access, bool) {
	out := Access{Offset: a.Offset, Dims: slices.Clone(dims), Strides: make([]int, len(dims))}
	i := 0
	for d, n := range dims {
		start := i
		for p := 1; p < n; i++ {
			p *= a.Dims[i]
		}
		if i == start {
			continue
		}
		out.Strides[d] = a.Strides[i-1]
		for j := start; j < i-1; j++ {
			if a.Strides[j] != a.Strides[j+1]*a.Dims[j+1] {
				return a, false
			}
		}
	}
	return out, true
}

// Refine is the coarsest list of sizes above 1 of which both a and b are groupings; ok is false when there is none.
func Refine(a, b []int) (fine []int, ok bool) {
	a, b = slices.Clone(a), slices.Clone(b)
	i, j := 0, 0
	for {
		for i < len(a) && a[i] == 1 {
			i++
		}
		for j < len(b) && b[j] == 1 {
			j++
		}
		if i == len(a) || j == len(b) {
			return fine, i == len(a) && j == len(b)
		}
		n := min(a[i], b[j])
		if n == 0 || a[i]%n != 0 || b[j]%n != 0 {
			return nil, n == 0 && slices.Equal(a, b)
		}
		fine = append(fine, n)
		a[i] /= n
		b[j] /= n
	}
}
