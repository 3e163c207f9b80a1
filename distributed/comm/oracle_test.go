package comm

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
)

// memo keeps inputs and expected results, which take longer to make than the
// collectives take to run. Nobody changes them.
var memo sync.Map

func memoized(key string, f func() []byte) []byte {
	once, _ := memo.LoadOrStore(key, sync.OnceValue(f))
	return once.(func() []byte)()
}

func input(rank, elems int, dt DType) []byte {
	return memoized(fmt.Sprint("in", rank, elems, dt), func() []byte { return fill(rank, elems, dt) })
}

// fill is a rank's input for a test: equal in every run, different for each
// rank, dtype and size. Floats have widely different exponents, so that another
// order of summation gives other bits.
func fill(rank, elems int, dt DType) []byte {
	rng := rand.New(rand.NewPCG(uint64(rank+1), uint64(elems)<<8|uint64(dt)))
	b := alignedBytes(elems * dt.Size())
	le := binary.LittleEndian
	for i := range elems {
		f := math.Ldexp(rng.Float64()-0.5, rng.IntN(20)-10)
		switch at := i * dt.Size(); dt {
		case F32:
			le.PutUint32(b[at:], math.Float32bits(float32(f)))
		case F64:
			le.PutUint64(b[at:], math.Float64bits(f))
		case F16:
			le.PutUint16(b[at:], f32ToF16(float32(f)))
		case BF16:
			le.PutUint16(b[at:], f32ToBF16(float32(f)))
		default:
			for k := range dt.Size() {
				b[at+k] = byte(rng.Uint32())
			}
		}
	}
	return b
}

// element is element i of b as a float64 (exact for all but 64-bit integers).
func element(b []byte, i int, dt DType) float64 {
	le := binary.LittleEndian
	switch b = b[i*dt.Size():]; dt {
	case F32:
		return float64(math.Float32frombits(le.Uint32(b)))
	case F64:
		return math.Float64frombits(le.Uint64(b))
	case F16:
		return float64(f16ToF32(le.Uint16(b)))
	case BF16:
		return float64(math.Float32frombits(uint32(le.Uint16(b)) << 16))
	}
	panic(dt)
}

// treeOf combines one element of every rank, pair by pair, and then the
// results pair by pair, until one is left; an odd one out waits for the next
// round. Sums of all but f64 are kept in f32.
func treeOf(x []float64, dt DType, op ReduceOp) float64 {
	for len(x) > 1 {
		var next []float64
		for i := 0; i+1 < len(x); i += 2 {
			acc := x[i]
			switch op {
			case Sum, Avg:
				acc += x[i+1]
			case Prod:
				acc *= x[i+1]
			case Max:
				acc = math.Max(acc, x[i+1])
			case Min:
				acc = math.Min(acc, x[i+1])
			}
			if dt != F64 {
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

// reduced is what the ranks' inputs come to, computed one element at a time.
func reduced(in [][]byte, dt DType, op ReduceOp) []byte {
	out := slices.Clone(in[0])
	le := binary.LittleEndian
	for i := range len(out) / dt.Size() {
		at := i * dt.Size()
		if !dt.float() {
			reducedInt(out[at:at+dt.Size()], in, at, dt, op)
			continue
		}
		leaves := make([]float64, len(in))
		for r, b := range in {
			leaves[r] = element(b, i, dt)
		}
		acc := treeOf(leaves, dt, op)
		if op == Avg {
			acc /= float64(len(in))
		}
		switch dt {
		case F32:
			le.PutUint32(out[at:], math.Float32bits(float32(acc)))
		case F64:
			le.PutUint64(out[at:], math.Float64bits(acc))
		case F16:
			le.PutUint16(out[at:], f32ToF16(float32(acc)))
		case BF16:
			le.PutUint16(out[at:], f32ToBF16(float32(acc)))
		}
	}
	return out
}

func reducedInt(out []byte, in [][]byte, at int, dt DType, op ReduceOp) {
	signed := dt >= I8 && dt <= I64
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
		case op == Sum:
			acc += x
		case op == Prod:
			acc *= x
		case op == Max && !less, op == Min && less:
			acc = x
		}
	}
	var w [8]byte
	binary.LittleEndian.PutUint64(w[:], acc)
	copy(out, w[:])
}
