package train

// region is a tensor and where in it a box begins; a nil at is the origin.
type region struct {
	data     []byte
	dims, at []int
}

// copyBox copies a box of shape dims from one region to another. size is the bytes of an element.
func copyBox(to, from region, dims []int, size int) {
	if elems(dims) == 0 {
		return
	}
	// Trailing dims that the box covers in both tensors are one run of bytes.
	run, d := size, len(dims)
	for d > 0 && dims[d-1] == to.dims[d-1] && dims[d-1] == from.dims[d-1] {
		d--
		run *= dims[d]
	}
	if d > 0 {
		d--
		run *= dims[d]
	}
	index := make([]int, d)
	for {
		i := flat(index, to.at, to.dims) * size
		j := flat(index, from.at, from.dims) * size
		copy(to.data[i:i+run], from.data[j:j+run])
		k := d - 1
		for ; k >= 0; k-- {
			if index[k]++; index[k] < dims[k] {
				break
			}
			index[k] = 0
		}
		if k < 0 {
			return
		}
	}
}

// flat is the row-major position of index (fewer dims: zeros) plus offset.
func flat(index, offset, dims []int) int {
	n := 0
	for d := range dims {
		n *= dims[d]
		if d < len(index) {
			n += index[d]
		}
		if offset != nil {
			n += offset[d]
		}
	}
	return n
}
