package program

import (
	"fmt"
	"testing"
)

func TestFirstBad(t *testing.T) {
	f32 := []byte{0, 0, 0x80, 0x7f, 0, 0, 0xc0, 0x7f, 1, 0, 0, 0}
	f16 := []byte{0, 0x3c, 0, 0xfc, 1, 0xfc}
	bf16 := []byte{0x80, 0x7f, 0xc0, 0x7f}
	f64 := []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x7f, 1, 0, 0, 0, 0, 0, 0xf0, 0xff}
	for _, c := range []struct {
		b     []byte
		dtype string
		want  string
	}{{f32, "f32", "0 1 0"}, {f16, "f16", "1 2 1"}, {bf16, "bf16", "0 1 0"}, {f64, "f64", "0 1 0"}, {f32, "i64", "-1 -1 -1"}, {f32[8:], "f32", "-1 -1 -1"}} {
		at, nan, inf := FirstBad(c.b, c.dtype)
		if got := fmt.Sprint(at, nan, inf); got != c.want {
			t.Errorf("%s: %s, want %s", c.dtype, got, c.want)
		}
	}
}
