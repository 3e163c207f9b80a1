package train

import (
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// A program may keep a tensor in other dims than files do: [d,3,e] for the [d,3·e] of a fused projection, so that each
// of the three can be split over ranks. What a rank has of it is then several boxes in a file.

// inFiles is the shape of the whole of t in files.
func (x *plan) inFiles(t *abi.Tensor) []int {
	if t.Shape != nil {
		return t.Shape
	}
	return x.whole(t)
}

// piece is a box of a tensor in a file, and the same elements in the part that the program has.
type piece struct {
	offset, shape []int // in the file's dims
	at, size      []int // in the program's dims, from the part's origin
	all           bool  // it is all of the part, in its order
}

// pieces are the boxes of a file that make up this rank's part of t.
func (x *plan) pieces(t *abi.Tensor) []piece {
	start := x.start(t, x.rank, 0)
	if t.Shape == nil || slices.Equal(t.Shape, x.whole(t)) {
		return []piece{{offset: start, shape: t.Dims, all: true}}
	}
	return fold(x.whole(t), t.Shape, start, t.Dims)
}

// fold finds the boxes, in dims file, of the box at start of the given dims, which is in dims whole. Each of file's dims
// is the product of some of whole's that follow each other.
func fold(whole, file, start, dims []int) []piece {
	list := []piece{{at: make([]int, len(whole)), size: slices.Clone(dims)}}
	first := 0
	for _, n := range file {
		end, product := first, 1
		for end < len(whole) && (product < n || end == first) {
			product *= whole[end]
			end++
		}
		inner := end - 1 // the dims behind it are whole, so that a run of it is one range
		for inner > first && dims[inner] == whole[inner] {
			inner--
		}
		var next []piece
		for _, p := range list {
			for index := make([]int, inner-first); ; {
				q := piece{slices.Clone(p.offset), slices.Clone(p.shape), slices.Clone(p.at), slices.Clone(p.size), false}
				offset := 0
				for k := first; k < inner; k++ {
					q.at[k], q.size[k] = index[k-first], 1
					offset = offset*whole[k] + start[k] + index[k-first]
				}
				length := 1
				for k := inner; k < end; k++ {
					offset = offset*whole[k] + start[k]
					length *= dims[k]
				}
				q.offset, q.shape = append(q.offset, offset), append(q.shape, length)
				next = append(next, q)
				if !advance(index, dims[first:inner]) {
					break
				}
			}
		}
		list, first = next, end
	}
	if len(list) == 1 {
		list[0].all = true
	}
	return list
}

// advance counts index on, below dims; false when it is through.
func advance(index, dims []int) bool {
	for k := len(index) - 1; k >= 0; k-- {
		if index[k]++; index[k] < dims[k] {
			return true
		}
		index[k] = 0
	}
	return false
}

// buffer is room for the elements of p: the part itself where p is all of it.
func (p *piece) buffer(t *abi.Tensor, part []byte) []byte {
	if p.all {
		return part
	}
	return make([]byte, elems(p.size)*elemSizes[t.DType])
}

// take gives the elements of p out of the part.
func (p *piece) take(t *abi.Tensor, part []byte) []byte {
	data := p.buffer(t, part)
	if !p.all {
		copyBox(region{data: data, dims: p.size}, region{data: part, dims: t.Dims, at: p.at}, p.size, elemSizes[t.DType])
	}
	return data
}

// give puts the elements of p into the part.
func (p *piece) give(t *abi.Tensor, part, data []byte) {
	if !p.all {
		copyBox(region{data: part, dims: t.Dims, at: p.at}, region{data: data, dims: p.size}, p.size, elemSizes[t.DType])
	}
}
