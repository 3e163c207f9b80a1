package dtype

import (
	"math"
	"testing"
)

// Every binary16 and bfloat16 value must survive the trip through float32.
func TestHalfRoundTrip(t *testing.T) {
	for h := 0; h < 1<<16; h++ {
		if f := F16ToF32(uint16(h)); !isNaN(f) && F32ToF16(f) != uint16(h) {
			t.Fatalf("f16 %#04x -> %g -> %#04x", h, f, F32ToF16(f))
		}
		if f := BF16ToF32(uint16(h)); !isNaN(f) && F32ToBF16(f) != uint16(h) {
			t.Fatalf("bf16 %#04x -> %g -> %#04x", h, f, F32ToBF16(f))
		}
	}
}

func TestHalfRounding(t *testing.T) {
	for _, c := range []struct {
		in   float32
		want uint16
	}{{65519.99, 0x7bff}, {65520, 0x7c00}, {2049, 0x6800}, {2051, 0x6802}, {float32(math.Exp2(-25)), 0}, {1.1 * float32(math.Exp2(-25)), 1}} {
		if got := F32ToF16(c.in); got != c.want {
			t.Errorf("F32ToF16(%g) = %#04x, want %#04x", c.in, got, c.want)
		}
	}
}

func isNaN(f float32) bool { return f != f }
