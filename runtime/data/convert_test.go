package data

import (
	"encoding/binary"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestHalves(t *testing.T) {
	for h := range 1 << 16 { // decoding and encoding again is the identity, but for NaN payloads
		v := fromF16(uint16(h))
		if v != v {
			continue
		}
		if got := toHalf(v, 10, 15); got != uint16(h) {
			t.Fatalf("f16 %04x -> %v -> %04x", h, v, got)
		}
		f := math.Float32frombits(uint32(h) << 16)
		if f != f {
			continue
		}
		if got := toHalf(float64(f), 7, 127); got != uint16(h) {
			t.Fatalf("bf16 %04x -> %v -> %04x", h, f, got)
		}
	}
	for v, want := range map[float64]uint16{
		65519.99: 0x7bff, 65520: 0x7c00, -1e300: 0xfc00, math.Ldexp(1, -25): 0, math.Ldexp(1.0001, -25): 1,
		1 + 1.0/2048: 0x3c00, 1 + 3.0/2048: 0x3c02, math.Inf(-1): 0xfc00, 2047.0 / 2048 * math.Ldexp(1, -14): 0x0400,
	} {
		if got := toHalf(v, 10, 15); got != want {
			t.Errorf("f16 of %v is %04x, want %04x", v, got, want)
		}
	}
	if got := toHalf(math.NaN(), 10, 15); got != 0x7e00 {
		t.Errorf("f16 of NaN is %04x", got)
	}
}

func convertOnce(t *testing.T, src string, in Input, tr *Transform, b []byte) ([]byte, error) {
	t.Helper()
	c, err := newConverter(src, &in, tr)
	if err != nil {
		return nil, err
	}
	dst := make([]byte, in.size()*kinds[in.DType].size)
	s := &scratch{ints: make([]int64, in.size()), floats: make([]float64, in.size())}
	return dst, c.convert(dst, b, s)
}

func TestIntegers(t *testing.T) {
	for src, a := range kinds {
		for dst, b := range kinds {
			if a.float || b.float {
				continue
			}
			in := make([]byte, 2*a.size)
			in[0], in[a.size] = 1, 0
			out, err := convertOnce(t, src, Input{DType: dst, Shape: []int{2}}, nil, in)
			if err != nil || out[0] != 1 || out[b.size] != 0 {
				t.Errorf("%s to %s: %v %v", src, dst, out, err)
			}
		}
	}
	minus := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	ignore := int64(-100)
	for _, c := range []struct {
		src  string
		in   Input
		b    []byte
		want string // of the error; empty: fine
	}{
		{"i64", Input{DType: "i32"}, minus, ""},
		{"i64", Input{DType: "u32"}, minus, "element 0: value -1 is not in [0, 4294967295]"},
		{"u64", Input{DType: "i64"}, minus, "18446744073709551615 does not fit"},
		{"u64", Input{DType: "u64"}, minus, ""},
		{"u16", Input{DType: "u8"}, []byte{0, 1}, "value 256 is not in [0, 255]"},
		{"u8", Input{DType: "bool"}, []byte{2}, "value 2 is not in [0, 1]"},
		{"bool", Input{DType: "bool"}, []byte{2}, "value 2 is not in [0, 1]"},
		{"i32", Input{DType: "i32", Lo: 0, Hi: 10}, []byte{10, 0, 0, 0}, "value 10 is not in [0, 9]"},
		{"i32", Input{DType: "i32", Lo: 0, Hi: 10}, []byte{9, 0, 0, 0}, ""},
		{"i8", Input{DType: "i64", Lo: 0, Hi: 10, Ignore: &ignore}, []byte{0x9c}, ""},
		{"i8", Input{DType: "i64", Lo: 0, Hi: 10, Ignore: &ignore}, []byte{0x9d}, "value -99 is not in"},
	} {
		c.in.Shape = []int{1}
		_, err := convertOnce(t, c.src, c.in, nil, c.b)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s to %s: got %v, want %q", c.src, c.in.DType, err, c.want)
		}
	}
}

func floats(b []byte) []float32 {
	out := make([]float32, len(b)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return out
}

func TestFloats(t *testing.T) {
	u8 := []byte{0, 51, 255, 102}
	in := Input{DType: "f32", Shape: []int{2, 2}}
	got, err := convertOnce(t, "u8", in, nil, u8)
	if err != nil || !reflect.DeepEqual(floats(got), []float32{0, 51, 255, 102}) {
		t.Errorf("without a transform: %v %v", floats(got), err)
	}
	tr, err := ParseTransform("scale=1/255,mean=0.5:0.25,std=0.5")
	if err != nil {
		t.Fatal(err)
	}
	want := []float32{-1, -0.6, 1.5, 0.3}
	for src, b := range map[string][]byte{"u8": u8, "i16": {0, 0, 51, 0, 255, 0, 102, 0},
		"f32": binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(math.Float32bits(51))<<32),
			uint64(math.Float32bits(102))<<32|uint64(math.Float32bits(255)))} {
		got, err := convertOnce(t, src, in, &tr, b)
		if err != nil {
			t.Error(err)
			continue
		}
		for i, v := range floats(got) {
			if math.Abs(float64(v-want[i])) > 1e-6 {
				t.Errorf("%s: got %v, want %v", src, floats(got), want)
			}
		}
	}
	one := binary.LittleEndian.AppendUint64(nil, math.Float64bits(1.5))
	id, _ := ParseTransform("identity")
	for dst, want := range map[string][]byte{"f16": {0, 0x3e}, "bf16": {0xc0, 0x3f}, "f32": {0, 0, 0xc0, 0x3f}} {
		if _, err := convertOnce(t, "f64", Input{DType: dst, Shape: []int{1}}, nil, one); err == nil ||
			!strings.Contains(err.Error(), "need a transform") {
			t.Errorf("f64 to %s without a transform: %v", dst, err)
		}
		if got, err := convertOnce(t, "f64", Input{DType: dst, Shape: []int{1}}, &id, one); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("f64 to %s: %x %v", dst, got, err)
		}
	}
	if _, err := convertOnce(t, "f32", Input{DType: "i64", Shape: []int{1}}, nil, u8); err == nil {
		t.Error("floats became integers")
	}
	if _, err := convertOnce(t, "u8", Input{DType: "i64", Shape: []int{1}}, &id, u8); err == nil {
		t.Error("integers were scaled")
	}
	if _, err := convertOnce(t, "u8", Input{DType: "f32", Shape: []int{3, 1}}, &tr, u8); err == nil {
		t.Error("two channels were applied to three")
	}
}

func TestParseTransform(t *testing.T) {
	for _, s := range []string{"", "scale", "gain=2", "scale=x", "std=0", "scale=1/0", "mean=1:2,std=1:2:3"} {
		if tr, err := ParseTransform(s); err == nil {
			t.Errorf("%q is taken as %v", s, tr)
		}
	}
	tr, err := ParseTransform("scale=1/4,std=2")
	if err != nil || !reflect.DeepEqual(tr, Transform{Scale: []float64{0.125}, Shift: []float64{0}}) {
		t.Errorf("%v %v", tr, err)
	}
}
