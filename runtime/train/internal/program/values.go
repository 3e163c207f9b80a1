package program

import (
	"encoding/binary"
	"math"
)

// FirstValue is the first element of b, of a type that results have; NaN for others.
func FirstValue(b []byte, dtype string) float64 {
	switch dtype {
	case "f32":
		return float64(math.Float32frombits(binary.NativeEndian.Uint32(b)))
	case "f64":
		return math.Float64frombits(binary.NativeEndian.Uint64(b))
	case "i64":
		return float64(int64(binary.NativeEndian.Uint64(b)))
	case "i32":
		return float64(int32(binary.NativeEndian.Uint32(b)))
	}
	return math.NaN()
}

// FirstIndex is the first element of b, when it is of a type that indices have.
func FirstIndex(b []byte, dtype string) (int64, bool) {
	switch dtype {
	case "i64":
		return int64(binary.NativeEndian.Uint64(b)), true
	case "i32":
		return int64(int32(binary.NativeEndian.Uint32(b))), true
	case "u8":
		return int64(b[0]), true
	}
	return 0, false
}

// FirstBad finds the first NaN and the first infinity among elements of a type; -1 for none. at is the lesser.
func FirstBad(b []byte, dtype string) (at, nan, inf int) {
	nan, inf = -1, -1
	look := func(i int, exp, frac bool) bool {
		if exp && frac && nan < 0 {
			nan = i
		} else if exp && inf < 0 {
			inf = i
		}
		return nan < 0
	}
	size := ElemSize(dtype)
	for i := 0; size > 0 && (i+1)*size <= len(b); i++ {
		more := true
		switch dtype {
		case "f32":
			v := binary.LittleEndian.Uint32(b[4*i:])
			if v&0x7f800000 == 0x7f800000 {
				more = look(i, true, v&0x7fffff != 0)
			}
		case "f64":
			v := binary.LittleEndian.Uint64(b[8*i:])
			if v<<1>>53 == 0x7ff {
				more = look(i, true, v<<12 != 0)
			}
		case "f16":
			v := binary.LittleEndian.Uint16(b[2*i:])
			more = look(i, v&0x7c00 == 0x7c00, v&0x3ff != 0)
		case "bf16":
			v := binary.LittleEndian.Uint16(b[2*i:])
			more = look(i, v&0x7f80 == 0x7f80, v&0x7f != 0)
		default:
			return -1, -1, -1
		}
		if !more {
			break
		}
	}
	if at = inf; at < 0 || nan >= 0 && nan < at {
		at = nan
	}
	return at, nan, inf
}
