package dtype

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"
)

// The hashes are those of what ml_dtypes 0.6.0 gives: of the f32 value of every code (NaN as 0x7fc00000), and of the
// codes of every f16 and every bf16 value; clipped to finfo's range first for saturating ones.
var small = []struct {
	t                                DType
	decode, fromF16, fromBF16, clips string
}{
	{F8E4M3, "422eccfaa21e72a6", "66c4d3a1fa3d9858", "ecbb201b2182a3e8", "556222ae80c3498b"},
	{F8E4M3Z, "ac4866f772a7c080", "95e6fb5b04ba11dc", "b5a02ccdb033ad92", "b8bc9477c4bd38c8"},
	{F8E5M2, "229a94c5f728edf2", "15ab0c3901962e79", "090ec74f2f7cc325", "8cf6b5373ee0049e"},
	{F8E5M2Z, "aac12d2730bf26ca", "0fa2de8eb3705708", "fbc7c46b2110bf77", "d622975379a6a306"},
	{F8E8M0, "2fb2732a95604377", "", "", ""},
	{F4E2M1, "c736c7e2e761e089", "ea00596248251771", "e6c3b75330483770", "e6c3b75330483770"},
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

func TestSmallFloats(t *testing.T) {
	for _, c := range small {
		var b []byte
		for code := range 1 << min(8, c.t.Bits()) {
			v := float32(c.t.Decode(uint8(code)))
			bits := math.Float32bits(v)
			if isNaN(v) {
				bits = 0x7fc00000
			}
			b = binary.LittleEndian.AppendUint32(b, bits)
			if back := c.t.Encode(float64(v), false); !isNaN(v) && back != uint8(code) {
				t.Errorf("%s: %#02x -> %g -> %#02x", c.t, code, v, back)
			}
		}
		if got := hashOf(b); got != c.decode {
			t.Errorf("%s: the values hash to %s, want %s", c.t, got, c.decode)
		}
		if c.fromF16 == "" {
			continue
		}
		var f16, bf16, clips []byte
		for h := range 1 << 16 {
			f16 = append(f16, c.t.Encode(float64(F16ToF32(uint16(h))), false))
			v := float64(BF16ToF32(uint16(h)))
			bf16 = append(bf16, c.t.Encode(v, false))
			clips = append(clips, c.t.Encode(v, true))
		}
		if got := hashOf(f16); got != c.fromF16 {
			t.Errorf("%s: the codes of all f16 hash to %s, want %s", c.t, got, c.fromF16)
		}
		if got := hashOf(bf16); got != c.fromBF16 {
			t.Errorf("%s: the codes of all bf16 hash to %s, want %s", c.t, got, c.fromBF16)
		}
		if got := hashOf(clips); got != c.clips {
			t.Errorf("%s: the saturated codes of all bf16 hash to %s, want %s", c.t, got, c.clips)
		}
	}
}

// The hashes are those of onnx.numpy_helper.to_float8e8m0 (onnx 1.23) over all positive normal bf16 values.
func TestE8M0(t *testing.T) {
	for mode, want := range map[Rounding]string{RoundUp: "08c2c1031c64e887", RoundDown: "4e3a6818865a9c3b",
		RoundNearest: "e8e5c889bef3cc19"} {
		var b []byte
		for h := 0x80; h < 0x7f80; h++ {
			b = append(b, EncodeE8M0(float64(BF16ToF32(uint16(h))), true, mode))
		}
		if got := hashOf(b); got != want {
			t.Errorf("%s: the codes hash to %s, want %s", mode, got, want)
		}
	}
	for _, c := range []struct {
		x        float64
		saturate bool
		mode     Rounding
		want     uint8
	}{ // the table in the documentation of ONNX Cast
		{0, true, RoundUp, 0}, {0, false, RoundNearest, 255}, {math.NaN(), true, RoundUp, 255},
		{math.Inf(1), true, RoundUp, 254}, {math.Inf(1), false, RoundNearest, 255},
		{math.Ldexp(1.5, 127), true, RoundUp, 254}, {math.Ldexp(1.5, 127), false, RoundNearest, 255},
		{math.Ldexp(1, -130), true, RoundUp, 0}, {math.Ldexp(1, -130), false, RoundNearest, 255},
	} {
		if got := EncodeE8M0(c.x, c.saturate, c.mode); got != c.want {
			t.Errorf("E8M0 of %g (saturate %v, %s) = %d, want %d", c.x, c.saturate, c.mode, got, c.want)
		}
	}
}

// NumPy 2.3 on x86-64: np.array(v, float32).astype(type).
func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		t    DType
		x    float64
		want int64
	}{
		{I8, 1000, -24}, {I8, -1000, 24}, {I8, math.Inf(1), 0}, {U8, 1000, 232}, {U8, -9.2, 247}, {I16, 1e10, 0},
		{I32, 3e9, math.MinInt32}, {I32, math.NaN(), math.MinInt32}, {I32, -7.9, -7}, {U32, 3e9, 3000000000},
		{U32, 1e10, 1410065408}, {U32, math.NaN(), 0}, {I64, math.Inf(1), math.MinInt64}, {I64, -1e19, math.MinInt64},
		{U64, 9999999980506447872, -8446744093203103744}, {U64, -9.2, -9}, {I4, 1000, -8}, {U4, -5, 11}, {I2, 3.5, -1},
	} {
		if got := c.t.Truncate(c.x); got != c.want {
			t.Errorf("%g to %s is %d, want %d", c.x, c.t, got, c.want)
		}
	}
	for _, c := range []struct {
		t       DType
		v, want int64
	}{{I4, 9, -7}, {U4, -1, 15}, {I2, 2, -2}, {U2, 7, 3}, {I8, 200, -56}, {U64, -1, -1}} {
		if got := c.t.Wrap(c.v); got != c.want {
			t.Errorf("%d as %s is %d, want %d", c.v, c.t, got, c.want)
		}
	}
}
