package program

import (
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// A program may keep a tensor in other dims than files do: [d,3,e] for the [d,3·e] of a fused projection, so that each
// of the three can be split over ranks. What a rank has of it is then several boxes in a file.

// InFiles is the shape of the whole of t in files.
func (x *Plan) InFiles(t *abi.Tensor) []int {
	if t.Shape != nil {
		return t.Shape
	}
	return x.Whole(t)
}

// Piece is a box of a tensor in a file, and the same elements in the part that the program has.
type Piece struct {
	Offset, Shape []int // where the box begins, and its dims, in the file's dims
	at, size      []int // the same in the program's dims, from the origin of this rank's part
	all           bool  // the box is all of the part, element for element
}

// Pieces are the boxes of a file that make up this rank's part of t.
func (x *Plan) Pieces(t *abi.Tensor) []Piece {
	start := x.Start(t, x.Rank, 0)
	if t.Shape == nil || slices.Equal(t.Shape, x.Whole(t)) {
		return []Piece{{Offset: start, Shape: t.Dims, all: true}}
	}
	return fold(x.Whole(t), t.Shape, start, t.Dims)
}

// fold finds the boxes, in dims file, of the box at start of the given dims, which is in dims whole. Each of file's dims
// is the product of some of whole's that follow each other.
func fold(whole, file, start, dims []int) []Piece {
	list := []Piece{{at: make([]int, len(whole)), size: slices.Clone(dims)}}
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
		var next []Piece
		for _, p := range list {
			for index := make([]int, inner-first); ; {
				q := Piece{slices.Clone(p.Offset), slices.Clone(p.Shape), slices.Clone(p.at), slices.Clone(p.size), false}
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
				q.Offset, q.Shape = append(q.Offset, offset), append(q.Shape, length)
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

// Buffer is room for the elements of p: the part itself where p is all of it.
func (p *Piece) Buffer(t *abi.Tensor, part []byte) []byte {
	if p.all {
		return part
	}
	return make([]byte, Elems(p.size)*ElemSize(t.DType))
}

// Take gives the elements of p out of the part.
func (p *Piece) Take(t *abi.Tensor, part []byte) []byte {
	data := p.Buffer(t, part)
	if !p.all {
		CopyBox(Region{Data: data, Dims: p.size}, Region{Data: part, Dims: t.Dims, At: p.at}, p.size, ElemSize(t.DType))
	}
	return data
}

// Give puts the elements of p into the part.
func (p *Piece) Give(t *abi.Tensor, part, data []byte) {
	if !p.all {
		CopyBox(Region{Data: part, Dims: t.Dims, At: p.at}, Region{Data: data, Dims: p.size}, p.size, ElemSize(t.DType))
	}
}
