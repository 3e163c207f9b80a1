package comm

import "unsafe"

// number is a type whose sums Go can do directly.
type number interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint8 | ~uint16 | ~uint32 | ~uint64
}

// reduceInto sets dst to the combination of srcs, element by element, always
// in the order of srcs: that order, and nothing else, decides the bits of the
// result. All slices have the same length, a whole number of elements. dst may
// be one of the srcs, but not overlap one partly. len(srcs) >= 1.
func reduceInto(dst []byte, srcs [][]byte, dt DType, op ReduceOp) {
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
	switch n {
	case 1:
		copy(dst, srcs[0])
		return
	case 2:
		combine(d, view[T](srcs[0]), view[T](srcs[1]), op)
		finish(d, op, n)
		return
	}
	// dst may be any of the srcs, so partial results live in acc until the
	// last source of the block has been read.
	var acc [blockElems]T
	for at := 0; at < len(d); at += blockElems {
		end := min(at+blockElems, len(d))
		a := acc[:end-at]
		combine(a, view[T](srcs[0])[at:end], view[T](srcs[1])[at:end], op)
		for _, s := range srcs[2 : n-1] {
			combine(a, a, view[T](s)[at:end], op)
		}
		combine(d[at:end], a, view[T](srcs[n-1])[at:end], op)
		finish(d[at:end], op, n)
	}
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

// reduceHalf widens blocks to f32, combines them there in the order of srcs
// and rounds once.
func reduceHalf(dst []byte, srcs [][]byte, dt DType, op ReduceOp) {
	d := view[uint16](dst)
	var acc, next [blockElems]float32
	for at := 0; at < len(d); at += blockElems {
		end := min(at+blockElems, len(d))
		a, b := acc[:end-at], next[:end-at]
		widen(a, view[uint16](srcs[0])[at:end], dt)
		for _, s := range srcs[1:] {
			widen(b, view[uint16](s)[at:end], dt)
			combine(a, a, b, op)
		}
		finish(a, op, len(srcs))
		narrow(d[at:end], a, dt)
	}
}
