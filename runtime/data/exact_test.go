package data

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

func TestConvertExact(t *testing.T) {
	f32 := func(v ...float32) []byte {
		var b []byte
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		return b
	}
	for _, c := range []struct {
		src      []byte
		from, to string
		want     []byte
		err      string
	}{
		{f32(1, -2.5), "f32", "f16", []byte{0, 0x3c, 0, 0xc1}, ""},
		{f32(1, -2.5), "f32", "bf16", []byte{0x80, 0x3f, 0x20, 0xc0}, ""},
		{[]byte{0, 0x3c, 0, 0xc1}, "f16", "f32", f32(1, -2.5), ""},
		{f32(3, 255), "f32", "u8", []byte{3, 255}, ""},
		{f32(3, 256), "f32", "u8", nil, "element 1 is 256 of type f32"},
		{f32(0.5), "f32", "i64", nil, "element 0 is 0.5"},
		{[]byte{0xff, 3}, "i8", "i16", []byte{0xff, 0xff, 3, 0}, ""},
		{[]byte{0xff, 3}, "i8", "u16", nil, "element 0 is -1"},
		{[]byte{1}, "string", "u8", nil, "it is string"},
	} {
		got, err := Convert(c.src, c.from, c.to)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s to %s: error %v, want %q", c.from, c.to, err, c.err)
			}
		case err != nil || !bytes.Equal(got, c.want):
			t.Errorf("%v of %s to %s: %v, %v; want %v", c.src, c.from, c.to, got, err, c.want)
		}
	}
}
