// Package commtest is the conformance suite of distributed/comm: what every
// backend must do, and the results worked out one element at a time.
package commtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"unsafe"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// memo keeps inputs and expected results, which take longer to make than the
// collectives take to run. Nobody changes them.
var memo sync.Map

func memoized(key string, f func() []byte) []byte {
	once, _ := memo.LoadOrStore(key, sync.OnceValue(f))
	return once.(func() []byte)()
}

// Input is Fill, made once; nobody may change it.
func Input(rank, elems int, dt comm.DType) []byte {
	return memoized(fmt.Sprint("in", rank, elems, dt), func() []byte { return Fill(rank, elems, dt) })
}

// Fill is a rank's input for a test: equal in every run, different for each
// rank, dtype and size. Floats have widely different exponents, so that another
// order of summation gives other bits.
func Fill(rank, elems int, dt comm.DType) []byte {
	rng := rand.New(rand.NewPCG(uint64(rank+1), uint64(elems)<<8|uint64(dt)))
	b := Aligned(elems * dt.Size())
	le := binary.LittleEndian
	for i := range elems {
		f := math.Ldexp(rng.Float64()-0.5, rng.IntN(20)-10)
		switch at := i * dt.Size(); dt {
		case comm.F32:
			le.PutUint32(b[at:], math.Float32bits(float32(f)))
		case comm.F64:
			le.PutUint64(b[at:], math.Float64bits(f))
		case comm.F16:
			le.PutUint16(b[at:], dtype.F32ToF16(float32(f)))
		case comm.BF16:
			le.PutUint16(b[at:], dtype.F32ToBF16(float32(f)))
		default:
			for k := range dt.Size() {
				b[at+k] = byte(rng.Uint32())
			}
		}
	}
	return b
}

// Element is element i of b as a float64 (exact for all but 64-bit integers).
func Element(b []byte, i int, dt comm.DType) float64 {
	le := binary.LittleEndian
	switch b = b[i*dt.Size():]; dt {
	case comm.F32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case comm.F64:
		return math.Float64frombits(le.Uint64(b))
	case comm.F16:
		return float64(dtype.F16ToF32(le.Uint16(b)))
	case comm.BF16:
		return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16))
	}
	panic(dt)
}

// treeOf combines one element of every rank, pair by pair, and then the
// results pair by pair, until one is left; an odd one out waits for the next
// round. Sums of all but f64 are kept in f32.
func treeOf(x []float64, dt comm.DType, op comm.ReduceOp) float64 {
	for len(x) > 1 {
		var next []float64
		for i := 0; i+1 < len(x); i += 2 {
			acc := x[i]
			switch op {
			case comm.Sum, comm.Avg:
				acc += x[i+1]
			case comm.Prod:
				acc *= x[i+1]
			case comm.Max:
				acc = math.Max(acc, x[i+1])
			case comm.Min:
				acc = math.Min(acc, x[i+1])
			}
			if dt != comm.F64 {
				acc = float64(float32(acc))
			}
			next = append(next, acc)
		}
		if len(x)%2 == 1 {
			next = append(next, x[len(x)-1])
		}
		x = next
	}
	return x[0]
}

// Reduced is what the ranks' inputs come to, computed one element at a time.
func Reduced(in [][]byte, dt comm.DType, op comm.ReduceOp) []byte {
	out := slices.Clone(in[0])
	le := binary.LittleEndian
	for i := range len(out) / dt.Size() {
		at := i * dt.Size()
		if !Float(dt) {
			reducedInt(out[at:at+dt.Size()], in, at, dt, op)
			continue
		}
		leaves := make([]float64, len(in))
		for r, b := range in {
			leaves[r] = Element(b, i, dt)
		}
		acc := treeOf(leaves, dt, op)
		if op == comm.Avg {
			acc /= float64(len(in))
		}
		switch dt {
		case comm.F32:
			le.PutUint32(out[at:], math.Float32bits(float32(acc)))
		case comm.F64:
			le.PutUint64(out[at:], math.Float64bits(acc))
		case comm.F16:
			le.PutUint16(out[at:], dtype.F32ToF16(float32(acc)))
		case comm.BF16:
			le.PutUint16(out[at:], dtype.F32ToBF16(float32(acc)))
		}
	}
	return out
}

func reducedInt(out []byte, in [][]byte, at int, dt comm.DType, op comm.ReduceOp) {
	signed := dt >= comm.I8 && dt <= comm.I64
	get := func(b []byte) uint64 {
		var w [8]byte
		copy(w[:], b[at:at+dt.Size()])
		x := binary.LittleEndian.Uint64(w[:])
		if shift := 64 - 8*dt.Size(); signed {
			x = uint64(int64(x<<shift) >> shift)
		}
		return x
	}
	acc := get(in[0])
	for _, b := range in[1:] {
		x := get(b)
		less := x < acc
		if signed {
			less = int64(x) < int64(acc)
		}
		switch {
		case op == comm.Sum:
			acc += x
		case op == comm.Prod:
			acc *= x
		case op == comm.Max && !less, op == comm.Min && less:
			acc = x
		}
	}
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], acc)
	copy(out, w[:])
}

// Float reports whether dt is one of the four floating types.
func Float(dt comm.DType) bool { return dt <= comm.BF16 }

// Aligned is zeroed memory aligned to a cache line.
func Aligned(size int) []byte {
	const line = 64
	b := make([]byte, size+line)
	off := -uintptr(unsafe.Pointer(&b[0])) & (line - 1)
	return b[off : int(off)+size : int(off)+size]
}
