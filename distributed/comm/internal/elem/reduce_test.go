package elem_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gtc-compiler/gtc/distributed/comm/commtest"
	. "github.com/gtc-compiler/gtc/distributed/comm/internal/elem"
)

func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		f := F16ToF32(uint16(h))
		if back := F32ToF16(f); back != uint16(h) && f == f {
			t.Fatalf("f16 %04x becomes %v and then %04x", h, f, back)
		}
		b := math.Float32frombits(uint32(h) << 16)
		if back := F32ToBF16(b); back != uint16(h) && b == b {
			t.Fatalf("bf16 %04x becomes %v and then %04x", h, b, back)
		}
	}
	// Ties go to even; beyond the largest value comes infinity; NaN stays.
	for f, want := range map[float32]uint16{
		1 + 1.0/2048: 0x3c00, 1 + 3.0/2048: 0x3c02, 65519: 0x7bff, 65520: 0x7c00, 1.0 / (1 << 25): 0, 1.5 / (1 << 24): 2,
	} {
		if got := F32ToF16(f); got != want {
			t.Errorf("f16 of %v is %04x, want %04x", f, got, want)
		}
	}
	nan := float32(math.NaN())
	if f := F16ToF32(F32ToF16(nan)); f == f {
		t.Error("NaN does not stay NaN in f16")
	}
	if got := F32ToBF16(math.Float32frombits(0x7f800001)); got&0x7f == 0 {
		t.Error("NaN becomes infinity in bf16")
	}
}

// TestBF16Blocks compares the block conversions with those of one element.
func TestBF16Blocks(t *testing.T) {
	const n = 1<<16 + 5
	in, out, bits := make([]uint16, n), make([]float32, n), make([]uint16, n)
	for i := range in {
		in[i] = uint16(i)
	}
	Widen(out, in, BF16)
	for i, f := range out {
		if math.Float32bits(f) != uint32(in[i])<<16 {
			t.Fatalf("bf16 %04x becomes %08x", in[i], math.Float32bits(f))
		}
		// Every upper half with lower halves about the tie, and others.
		low := []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, uint32(i) * 40503 & 0xffff}[i%7]
		out[i] = math.Float32frombits(uint32(in[i])<<16 | low)
	}
	for range 7 {
		Narrow(bits, out, BF16)
		for i, f := range out {
			if want := F32ToBF16(f); bits[i] != want {
				t.Fatalf("f32 %08x becomes bf16 %04x, want %04x", math.Float32bits(f), bits[i], want)
			}
		}
		first := out[0]
		copy(out, out[1:]) // other lanes
		out[n-1] = first
	}
}

// TestTree has sums of up to 40 sources, in place and not, against the oracle,
// and one worked out by hand: 1e8 swallows a 1 that is added to it alone.
func TestTree(t *testing.T) {
	for _, dt := range []DType{F32, F64, F16, BF16, I16} {
		for n := 1; n <= 40; n++ {
			in := make([][]byte, n)
			for r := range n {
				in[r] = commtest.Input(r, 700, dt)
			}
			want := commtest.Reduced(in, dt, Sum)
			out := commtest.Aligned(len(want))
			Reduce(out, in, dt, Sum)
			if err := commtest.Expect(fmt.Sprint(n, " ", dt), out, want); err != nil {
				t.Fatal(err)
			}
			at := n * 7 % n
			in[at] = slices.Clone(in[at])
			Reduce(in[at], in, dt, Sum)
			if err := commtest.Expect(fmt.Sprint(n, " ", dt, " in place"), in[at], want); err != nil {
				t.Fatal(err)
			}
		}
	}
	var in [][]byte
	for _, f := range []float32{1e8, 1, -1e8, 4, 3} {
		b := commtest.Aligned(4)
		binary.LittleEndian.PutUint32(b, math.Float32bits(f))
		in = append(in, b)
	}
	// In order it would be ((1e8+1)-1e8)+4+3 = 7; the tree has -1e8+4 = -99999996
	// rounded to -1e8 (floats there are 8 apart, ties to even), so 0+3.
	out := commtest.Aligned(4)
	if Reduce(out, in, F32, Sum); commtest.Element(out, 0, F32) != 3 {
		t.Errorf("sum is %v, want 3", commtest.Element(out, 0, F32))
	}
}

func TestNaNWins(t *testing.T) {
	nan := commtest.Aligned(4)
	binary.LittleEndian.PutUint32(nan, math.Float32bits(float32(math.NaN())))
	one := commtest.Aligned(4)
	binary.LittleEndian.PutUint32(one, math.Float32bits(1))
	for _, op := range []ReduceOp{Sum, Max, Min, Prod, Avg} {
		for _, srcs := range [][][]byte{{nan, one}, {one, nan}} {
			out := commtest.Aligned(4)
			Reduce(out, srcs, F32, op)
			if x := commtest.Element(out, 0, F32); x == x {
				t.Errorf("%s of NaN and 1 is %v", op, x)
			}
		}
	}
}
