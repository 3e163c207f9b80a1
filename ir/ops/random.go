package ops

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Counter-based random numbers: a pure function of seed, counter and element, so that recomputation and any
// split over ranks give the same numbers (the idea of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
var (
	RandDef     = ir.NewOp("rand")
	RandBitsDef = ir.NewOp("rand_bits")
	DropoutDef  = ir.NewOp("dropout")
)

// RandAttrs: Seed tells the streams of one program apart; Dims is the result's shape.
type RandAttrs struct {
	Seed int
	Dims []int
}

// RandBitsAttrs: Seed chooses one of the hash functions.
type RandBitsAttrs struct{ Seed int }

// DropoutAttrs: P is the probability of zero, in [0,1); Seed as in RandAttrs.
type DropoutAttrs struct {
	P    float64
	Seed int
}

// Rand gives f32 uniform numbers in [0,1) for an i64 scalar counter, usually the step.
func Rand(b *ir.Builder, counter *ir.Value, seed int, dims []int) *ir.Value {
	return b.Emit(RandDef, RandAttrs{seed, dims}, counter)
}

// RandBits hashes each element of x (i64, not negative, read modulo 2^32) into an i64 in [0,2^31). It is what Rand
// is made of.
func RandBits(b *ir.Builder, x *ir.Value, seed int) *ir.Value {
	return b.Emit(RandBitsDef, RandBitsAttrs{seed}, x)
}

// Dropout zeroes elements of x with probability p and divides the others by 1-p, by an i64 scalar counter.
func Dropout(b *ir.Builder, x, counter *ir.Value, p float64, seed int) *ir.Value {
	return b.Emit(DropoutDef, DropoutAttrs{p, seed}, x, counter)
}

func checkCounter(v *ir.Value, i int) error {
	if !v.Type.Equal(ir.T(dtype.I64)) {
		return fmt.Errorf("operand %d is %s, but must be an i64 scalar", i, v.Type)
	}
	return nil
}

func inferRand(op *ir.Op) ([]ir.Type, error) {
	dims := op.Attrs.(RandAttrs).Dims
	for _, n := range dims {
		if n < 0 {
			return nil, fmt.Errorf("dims %v are negative", dims)
		}
	}
	return []ir.Type{ir.T(dtype.F32, dims...)}, checkCounter(op.In[0], 0)
}

func inferRandBits(op *ir.Op) ([]ir.Type, error) {
	if t := op.In[0].Type; t.DType != dtype.I64 {
		return wrong("operand 0 is %s, but must be i64", t)
	}
	return types(op.In[0].Type)
}

func inferDropout(op *ir.Op) ([]ir.Type, error) {
	if p := op.Attrs.(DropoutAttrs).P; !(p >= 0 && p < 1) {
		return nil, fmt.Errorf("p is %g, but must be in [0,1)", p)
	}
	if err := sameFloat(op, 0); err != nil {
		return nil, err
	}
	return []ir.Type{op.In[0].Type}, checkCounter(op.In[1], 1)
}
