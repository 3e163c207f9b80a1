package ops

import (
	"math"

	"github.com/gtc-compiler/gtc/ir"
)

// each calls f for every index of dims in row-major order, with its number. f must not keep index.
func each(dims []int, f func(index []int, flat int)) {
	index := make([]int, len(dims))
	for flat := range ir.Product(dims) {
		f(index, flat)
		for d := len(dims) - 1; d >= 0; d-- {
			if index[d]++; index[d] < dims[d] {
				break
			}
			index[d] = 0
		}
	}
}

// dot is the flat position of index under strides, of the dims that both have, from the first on.
func dot(index, strides []int) int {
	n := 0
	for d, s := range strides {
		n += index[d] * s
	}
	return n
}

// copyElem sets dst[i] to src[j]; both hold the same kind of element.
func copyElem(dst *ir.Array, i int, src *ir.Array, j int) {
	if dst.F != nil {
		dst.F[i] = src.F[j]
	} else {
		dst.I[i] = src.I[j]
	}
}

// noElem puts NaN where an index is out of range, at which programs stop; integers have none, and get 0.
func noElem(dst *ir.Array, i int) {
	if i < len(dst.F) {
		dst.F[i] = math.NaN()
	}
}

// addElem adds src[j] to dst[i]; both hold the same kind of element.
func addElem(dst *ir.Array, i int, src *ir.Array, j int) {
	if dst.F != nil {
		dst.F[i] += src.F[j]
	} else {
		dst.I[i] += src.I[j]
	}
}

// number is element i as a float64.
func number(x *ir.Array, i int) float64 {
	if x.F != nil {
		return x.F[i]
	}
	return float64(x.I[i])
}

// remap fills an array of type t: element index is x[from(index)].
func remap(t ir.Type, x *ir.Array, from func(index []int) int) *ir.Array {
	out := ir.NewArray(t)
	each(t.Dims, func(index []int, flat int) { copyElem(out, flat, x, from(index)) })
	return out
}

// strided is remap through an affine map: offset + Σ index·strides.
func strided(t ir.Type, x *ir.Array, offset int, strides []int) *ir.Array {
	return remap(t, x, func(index []int) int { return offset + dot(index, strides) })
}
