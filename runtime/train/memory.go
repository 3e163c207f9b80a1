package train

import (
	"encoding/binary"
	"runtime"
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/device/cpu"
)

// memory is where the arena lies: on a device, which may be this process itself.
type memory struct {
	dev    device.Device
	local  device.Local // dev, where the arena is in this process's memory; else nil
	large  int          // bytes of the plan's arena
	behind              // nothing with a local device
}

// here is the device of programs that name none: the processor that the process is on.
var here = Device{Open: cpu.Open}

// openMemory opens the device of p for this rank, which the launcher calls by its number on the host, and makes the arena of x there; end
// gives both back. A device is bound to the thread of the calling goroutine, except one that is Local. log tells what takes long.
func openMemory(p *Program, x *plan, number int, log func(format string, args ...any)) (where memory, end func(), err error) {
	on := p.Device
	if on == nil {
		on = &here
	}
	runtime.LockOSThread()
	where, err = openOn(on, layBehind(x, p), device.Options{Number: number, ArenaBytes: x.prog.ArenaBytes, Log: log})
	if err != nil || where.local != nil {
		runtime.UnlockOSThread()
	}
	if err != nil {
		return where, nil, err
	}
	return where, func() {
		where.dev.Close()
		if where.local == nil {
			runtime.UnlockOSThread()
		}
	}, nil
}

// openOn opens a device, with b behind the arena where that is not in this process.
func openOn(on *Device, b behind, o device.Options) (memory, error) {
	o.Behind = b.end - o.ArenaBytes
	dev, err := on.Open(&on.Code, o)
	if err != nil {
		return memory{}, err
	}
	m := memory{dev: dev, large: o.ArenaBytes}
	if m.local, _ = dev.(device.Local); m.local != nil {
		return m, nil
	}
	m.behind = b
	words := slices.Repeat(binary.NativeEndian.AppendUint64(nil, noRow), b.limit)
	if err := dev.Put(b.words, words); err != nil {
		dev.Close()
		return memory{}, err
	}
	return m, nil
}

// size is that of the arena, in bytes.
func (m *memory) size() int { return m.large }

// holds reports whether n bytes at offset lie inside.
func (m *memory) holds(offset, n int) bool {
	return offset >= 0 && n >= 0 && offset <= m.size()-n
}

// stretch is n bytes at offset, to be read: the arena itself, or a copy of a device's.
func (m *memory) stretch(offset, n int) ([]byte, error) {
	if m.local != nil {
		return m.local.Bytes(offset, n), nil
	}
	b := make([]byte, n)
	return b, m.dev.Get(b, offset)
}

// contents are those of a tensor, to be read.
func (m *memory) contents(t *abi.Tensor) ([]byte, error) { return m.stretch(t.Offset, t.Bytes) }

// fill has f write all of a tensor.
func (m *memory) fill(t *abi.Tensor, f func(b []byte) error) error {
	if m.local != nil {
		return f(m.local.Bytes(t.Offset, t.Bytes))
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
	if err != nil || m.local != nil {
		return err
	}
	return m.dev.Put(t.Offset, b)
}

// write puts b at offset.
func (m *memory) write(offset int, b []byte) error { return m.dev.Put(offset, b) }

// scalar is a one-element result as a float64.
func (m *memory) scalar(t *abi.Tensor) (float64, error) {
	b, err := m.contents(t)
	if err != nil {
		return 0, err
	}
	return firstValue(b, t.DType), nil
}
