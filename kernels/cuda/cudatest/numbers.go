package cudatest

import (
	"encoding/binary"
	"math"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// Bytes stores numbers as elements of type d: f32, f64, f16 or bf16, rounded, or integers.
func Bytes(d dtype.DType, x ...float64) []byte {
	var b []byte
	for _, v := range x {
		switch d {
		case dtype.F32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
		case dtype.F64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		case dtype.F16:
			b = binary.LittleEndian.AppendUint16(b, dtype.F32ToF16(float32(v)))
		case dtype.BF16:
			b = binary.LittleEndian.AppendUint16(b, dtype.F32ToBF16(float32(v)))
		default:
			b = append(b, binary.LittleEndian.AppendUint64(nil, uint64(int64(v)))[:d.Size()]...)
		}
	}
	return b
}

// Numbers reads elements of type d, as Bytes stores them.
func Numbers(d dtype.DType, b []byte) []float64 {
	var x []float64
	for ; len(b) >= d.Size(); b = b[d.Size():] {
		var full [8]byte
		copy(full[:], b[:d.Size()])
		bits := binary.LittleEndian.Uint64(full[:])
		switch d {
		case dtype.F32:
			x = append(x, float64(math.Float32frombits(uint32(bits))))
		case dtype.F64:
			x = append(x, math.Float64frombits(bits))
		case dtype.F16:
			x = append(x, float64(dtype.F16ToF32(uint16(bits))))
		case dtype.BF16:
			x = append(x, float64(dtype.BF16ToF32(uint16(bits))))
		default:
			shift := 64 - 8*d.Size()
			if d.Signed() {
				x = append(x, float64(int64(bits<<shift)>>shift))
			} else {
				x = append(x, float64(bits))
			}
		}
	}
	return x
}
