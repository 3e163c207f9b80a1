package elem

import (
	"math/bits"
	"unsafe"
)

// number is a type whose sums Go can do directly.
type number interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Reduce sets dst to the combination of srcs, element by element, in the
// pairwise tree over srcs: the first 2^k of them, the largest power of two
// below their number, make the left half, the others the right one, and so on:
//
//	n=2  0+1
//	n=3  (0+1)+2
//	n=4  (0+1)+(2+3)
//	n=5  ((0+1)+(2+3))+4
//	n=6  ((0+1)+(2+3))+(4+5)
//
// That tree, and nothing else, decides the bits of the result: it does not
// depend on the transport, the algorithm, or how a buffer is cut. Any aligned
// 2^k of the srcs form a subtree, so a rank that first adds up 2^k values of
// its own and then joins the others gets what as many ranks with one value
// each get. It is also the tree of recursive halving (Thakur, Rabenseifner,
// Gropp, "Optimization of Collective Communication Operations in MPICH", 2005).
//
// All slices have the same length, a whole number of elements. dst may be one
// of the srcs, but not overlap one partly. len(srcs) >= 1.
func Reduce(dst []byte, srcs [][]byte, dt DType, op ReduceOp) {
	switch dt {
	case F32:
		reduceTyped[float32](dst, srcs, op)
	case F64:
		reduceTyped[float64](dst, srcs, op)
	case F16, BF16:
		reduceHalf(dst, srcs, dt, op)
	case I8:
		reduceTyped[int8](dst, srcs, op)
	case I16:
		reduceTyped[int16](dst, srcs, op)
	case I32:
		reduceTyped[int32](dst, srcs, op)
	case I64:
		reduceTyped[int64](dst, srcs, op)
	case U8:
		reduceTyped[uint8](dst, srcs, op)
	case U16:
		reduceTyped[uint16](dst, srcs, op)
	case U32:
		reduceTyped[uint32](dst, srcs, op)
	case U64:
		reduceTyped[uint64](dst, srcs, op)
	}
}

// view is b as a slice of T; b is aligned (checked when a call starts).
func view[T any](b []byte) []T {
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}

// blockElems is the length of the partial results that reduceTyped keeps on
// its stack: small enough for the first-level cache beside its inputs.
const blockElems = 512

func reduceTyped[T number](dst []byte, srcs [][]byte, op ReduceOp) {
	d := view[T](dst)
	n := len(srcs)
	switch {
	case n == 1:
		copy(dst, srcs[0])
	case n == 2:
		combine(d, view[T](srcs[0]), view[T](srcs[1]), op)
	case n <= 4 && len(d) <= fewElems:
		// dst may be any of the srcs, so partial results live elsewhere until
		// the last source of the block has been read. Clearing more room than
		// this would take longer than a small sum.
		var part [2 * fewElems]T
		reduceBlocks(d, srcs, op, part[:], fewElems)
	case n <= 4:
		var part [2 * blockElems]T
		reduceBlocks(d, srcs, op, part[:], blockElems)
	default:
		var part [MaxDepth * blockElems]T
		reduceBlocks(d, srcs, op, part[:], blockElems)
	}
	finish(d, op, n)
}

// fewElems is the length up to which a reduction takes a small frame.
const fewElems = 32

// MaxDepth is the number of levels of a tree over the most ranks that there may
// be, 2^MaxDepth, and so of its partial results that are needed at a time.
const MaxDepth = 14

// reduceBlocks is reduceTyped for three or more srcs, block by block. The two
// halves of the tree are made in part, since d may be one of the srcs.
func reduceBlocks[T number](d []T, srcs [][]byte, op ReduceOp, part []T, block int) {
	half := leftHalf(len(srcs))
	for at := 0; at < len(d); at += block {
		end := min(at+block, len(d))
		left := part[:end-at]
		reduceTree(left, srcs[:half], at, op, part[block:])
		if half+1 == len(srcs) {
			combine(d[at:end], left, view[T](srcs[half])[at:end], op)
			continue
		}
		right := part[block:][:end-at]
		reduceTree(right, srcs[half:], at, op, part[2*block:])
		combine(d[at:end], left, right, op)
	}
}

// leftHalf is the number of leaves in the left half of a tree over n > 1.
func leftHalf(n int) int { return 1 << (bits.Len(uint(n-1)) - 1) }

// reduceTree sets sum, which is none of the srcs, to the combination of their
// elements from at on. There are two srcs or more, and part has room for a sum
// for each level of the tree above the lowest.
func reduceTree[T number](sum []T, srcs [][]byte, at int, op ReduceOp, part []T) {
	end := at + len(sum)
	half := leftHalf(len(srcs))
	if half == 1 {
		combine(sum, view[T](srcs[0])[at:end], view[T](srcs[1])[at:end], op)
		return
	}
	reduceTree(sum, srcs[:half], at, op, part)
	if half+1 == len(srcs) {
		combine(sum, sum, view[T](srcs[half])[at:end], op)
		return
	}
	right := part[:len(sum)]
	reduceTree(right, srcs[half:], at, op, part[len(sum):])
	combine(sum, sum, right, op)
}

// finish turns a sum into an average where op asks for one.
func finish[T number](d []T, op ReduceOp, n int) {
	if op != Avg {
		return
	}
	c := T(n)
	for i := range d {
		d[i] /= c
	}
}

// Average turns a sum over n ranks into their mean, where op asks for it.
func Average(sum []byte, dt DType, op ReduceOp, n int) {
	switch dt {
	case F32:
		finish(view[float32](sum), op, n)
	case F64:
		finish(view[float64](sum), op, n)
	}
}

func combine[T number](d, a, b []T, op ReduceOp) {
	switch op {
	case Sum, Avg:
		if f, ok := any(d).([]float32); ok {
			addFloats(f, any(a).([]float32), any(b).([]float32))
			return
		}
		add(d, a, b)
	case Prod:
		a, b = a[:len(d)], b[:len(d)]
		for i := range d {
			d[i] = a[i] * b[i]
		}
	case Max:
		a, b = a[:len(d)], b[:len(d)]
		for i := range d {
			d[i] = max(a[i], b[i])
		}
	case Min:
		a, b = a[:len(d)], b[:len(d)]
		for i := range d {
			d[i] = min(a[i], b[i])
		}
	}
}

// add is the hot loop of gradient reduction. Conversions to array pointers
// leave one bounds check per 8 elements.
func add[T number](d, a, b []T) {
	a, b = a[:len(d)], b[:len(d)]
	for len(d) >= 8 {
		x, y, z := (*[8]T)(a), (*[8]T)(b), (*[8]T)(d)
		z[0] = x[0] + y[0]
		z[1] = x[1] + y[1]
		z[2] = x[2] + y[2]
		z[3] = x[3] + y[3]
		z[4] = x[4] + y[4]
		z[5] = x[5] + y[5]
		z[6] = x[6] + y[6]
		z[7] = x[7] + y[7]
		a, b, d = a[8:], b[8:], d[8:]
	}
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

// reduceHalf widens blocks to f32, combines them there in the tree and rounds
// once.
func reduceHalf(dst []byte, srcs [][]byte, dt DType, op ReduceOp) {
	var part [MaxDepth + 1][blockElems]float32
	d := view[uint16](dst)
	for at := 0; at < len(d); at += blockElems {
		end := min(at+blockElems, len(d))
		sum := part[0][:end-at]
		reduceHalfTree(sum, srcs, at, dt, op, part[1:])
		finish(sum, op, len(srcs))
		narrow(d[at:end], sum, dt)
	}
}

// reduceHalfTree is reduceTree with leaves that are widened, of which one is
// enough.
func reduceHalfTree(sum []float32, srcs [][]byte, at int, dt DType, op ReduceOp, part [][blockElems]float32) {
	if len(srcs) == 1 {
		widen(sum, view[uint16](srcs[0])[at:at+len(sum)], dt)
		return
	}
	half := leftHalf(len(srcs))
	reduceHalfTree(sum, srcs[:half], at, dt, op, part)
	right := part[0][:len(sum)]
	reduceHalfTree(right, srcs[half:], at, dt, op, part[1:])
	combine(sum, sum, right, op)
}
