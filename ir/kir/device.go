package kir

import "github.com/gtc-compiler/gtc/ir/dtype"

// Kernels on a GPU keep partial results of many blocks in the workspace and combine them, in order, in a second launch. How
// many there are is decided here by shapes alone: memplan sizes the workspace by it before kernels are printed, and results
// do not depend on the device.

// maxPartial bounds the elements of all partial copies of one accumulator, maxCopies their number.
const (
	maxPartial = 1 << 20
	maxCopies  = 528 // 4 blocks for each of the 132 multiprocessors of an H100
)

// DevicePiece is how many elements of a tensor a block takes at least in a launch over many tensors.
const DevicePiece = 1024

// DeviceCopies is the most partial copies that a GPU kernel over rows of rowElems elements makes of an accumulator of elems.
func DeviceCopies(elems, rows, rowElems int) int {
	if elems == 1 {
		return min(2*maxCopies, rows*rowElems/32+2)
	}
	return max(1, min(rows, maxCopies, max(16, maxPartial/elems)))
}

// DeviceSplit is into how many pieces a GPU kernel cuts each of few long rows, so that all multiprocessors have work.
func DeviceSplit(rows, rowElems int) int {
	if rows >= maxCopies/2 || rowElems < 1<<14 {
		return 1
	}
	return max(1, min((maxCopies+rows-1)/rows, rowElems/4096))
}

// DeviceSize is the bytes of one element of a partial result of type d on a GPU.
func DeviceSize(d dtype.DType) int {
	if d == dtype.F64 || d == dtype.I64 || d == dtype.U64 {
		return 8
	}
	return 4
}

// DeviceBytes is the workspace of so many copies of a partial result.
func DeviceBytes(d dtype.DType, elems, copies int) int {
	return (copies*elems*DeviceSize(d) + 63) &^ 63
}
