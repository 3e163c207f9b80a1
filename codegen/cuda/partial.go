package cuda

import "github.com/gtc-compiler/gtc/ir/dtype"

// Kernels keep partial results of many blocks in the workspace and combine them, in order, in a second launch. How many there
// are is decided here by shapes alone: the workspace is planned by it before kernels are printed, and results do not depend on
// the device.

// maxPartial bounds the elements of all partial copies of one accumulator, maxCopies their number.
const (
	maxPartial = 1 << 20
	maxCopies  = 528 // 4 blocks for each of the 132 multiprocessors of an H100
)

// minPiece is how many elements of a tensor a block takes at least in a launch over many tensors.
const minPiece = 1024

// SumBytes is the workspace, at most, of sums over all rows, of elems elements of type d, in a kernel over rows of rowElems elements.
func SumBytes(d dtype.DType, elems, rows, rowElems int) int {
	return partialBytes(d, elems, sumCopies(elems, rows, rowElems))
}

// RowBytes is the workspace of a reduction over each row: 0 where a row is not cut.
func RowBytes(d dtype.DType, rows, rowElems int) int {
	if n := rowPieces(rows, rowElems); n > 1 {
		return partialBytes(d, rows, n)
	}
	return 0
}

// MultiTensorBytes is the workspace of a sum into one number over n elements in a launch over many tensors.
func MultiTensorBytes(d dtype.DType, n int) int { return partialBytes(d, 1, (n+minPiece-1)/minPiece) }

// sumCopies is the most partial copies that a kernel over rows of rowElems elements makes of an accumulator of elems.
func sumCopies(elems, rows, rowElems int) int {
	if elems == 1 {
		return min(2*maxCopies, rows*rowElems/32+2)
	}
	return max(1, min(rows, maxCopies, max(16, maxPartial/elems)))
}

// rowPieces is into how many pieces a kernel cuts each of few long rows, so that all multiprocessors have work.
func rowPieces(rows, rowElems int) int {
	if rows >= maxCopies/2 || rowElems < 1<<14 {
		return 1
	}
	return max(1, min((maxCopies+rows-1)/rows, rowElems/4096))
}

// partialBytes is the workspace of so many copies of a partial result of type d.
func partialBytes(d dtype.DType, elems, copies int) int {
	size := 4
	if d == dtype.F64 || d == dtype.I64 || d == dtype.U64 {
		size = 8
	}
	return (copies*elems*size + 63) &^ 63
}
