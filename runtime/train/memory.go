package train

import (
	"encoding/binary"
	"math"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/mem"
)

// memory is where the arena lies: in this processor's memory, or in a device's.
type memory struct {
	arena *mem.Arena
	dev   device.Device // nil with an arena
	large int           // bytes of the plan's arena on the device
	behind
}

// size is that of the arena, in bytes.
func (m *memory) size() int {
	if m.dev != nil {
		return m.large
	}
	return m.arena.Size()
}

// holds reports whether n bytes at offset lie inside.
func (m *memory) holds(offset, n int) bool {
	return offset >= 0 && n >= 0 && offset <= m.size()-n
}

// stretch is n bytes at offset, to be read: the arena itself, or a copy of a device's.
func (m *memory) stretch(offset, n int) ([]byte, error) {
	if m.dev == nil {
		return m.arena.Bytes(offset, n), nil
	}
	b := make([]byte, n)
	return b, m.dev.Get(b, offset)
}

// contents are those of a tensor, to be read.
func (m *memory) contents(t *abi.Tensor) ([]byte, error) { return m.stretch(t.Offset, t.Bytes) }

// fill has f write all of a tensor.
func (m *memory) fill(t *abi.Tensor, f func(b []byte) error) error {
	if m.dev == nil {
		return f(m.arena.Bytes(t.Offset, t.Bytes))
	}
	b := make([]byte, t.Bytes)
	if err := f(b); err != nil {
		return err
	}
	return m.dev.Put(t.Offset, b)
}

// edit has f change a tensor.
func (m *memory) edit(t *abi.Tensor, f func(b []byte) error) error {
	b, err := m.contents(t)
	if err == nil {
		err = f(b)
	}
	if err != nil || m.dev == nil {
		return err
	}
	return m.dev.Put(t.Offset, b)
}

// write puts b at offset.
func (m *memory) write(offset int, b []byte) error {
	if m.dev != nil {
		return m.dev.Put(offset, b)
	}
	copy(m.arena.Bytes(offset, len(b)), b)
	return nil
}

// copyAll makes copies within an arena of this processor.
func (m *memory) copyAll(list []Copy) {
	for _, c := range list {
		copy(m.arena.Bytes(c.To, c.Bytes), m.arena.Bytes(c.From, c.Bytes))
	}
}

// scalar is a one-element result as a float64.
func (m *memory) scalar(t *abi.Tensor) (float64, error) {
	b, err := m.contents(t)
	if err != nil {
		return 0, err
	}
	return firstValue(b, t.DType), nil
}

// firstValue is the first element of b, of a type that results have; NaN for others.
func firstValue(b []byte, dtype string) float64 {
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
