package program

// Region is a tensor and where in it a box begins; a nil at is the origin.
type Region struct {
	Data []byte // all elements of the tensor, row-major
	Dims []int  // of the tensor
	At   []int  // where the box begins in it: an index for each dim
}

// CopyBox copies a box of shape dims from one region to another. size is the bytes of an element.
func CopyBox(to, from Region, dims []int, size int) {
	if Elems(dims) == 0 {
		return
	}
	// Trailing dims that the box covers in both tensors are one run of bytes.
	run, d := size, len(dims)
	for d > 0 && dims[d-1] == to.Dims[d-1] && dims[d-1] == from.Dims[d-1] {
		d--
		run *= dims[d]
	}
	if d > 0 {
		d--
		run *= dims[d]
	}
	index := make([]int, d)
	for {
		i := flat(index, to.At, to.Dims) * size
		j := flat(index, from.At, from.Dims) * size
		copy(to.Data[i:i+run], from.Data[j:j+run])
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
