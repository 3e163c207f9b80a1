package machine

import (
	"encoding/binary"
	"runtime"
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/device/cpu"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// Memory is where the arena lies: on a device, which may be this process itself.
type Memory struct {
	Dev         device.Device
	Local       device.Local // Dev, where the arena is in this process's memory; else nil
	large       int          // bytes of the plan's arena
	RuntimeArea              // what follows the plan's arena; nothing where Local is set
}

// here is the device of programs that name none: the processor that the process is on.
var here = program.Device{Open: cpu.Open}

// OpenMemory opens the device of p for this rank, which the launcher calls by its number on the host, and makes the arena of x there; end
// gives both back. A device is bound to the thread of the calling goroutine, except one that is Local. log tells what takes long.
func OpenMemory(p *program.Program, x *program.Plan, number int, log func(format string, args ...any)) (where Memory, end func(), err error) {
	on := p.Device
	if on == nil {
		on = &here
	}
	runtime.LockOSThread()
	where, err = openOn(on, layRuntimeArea(x, p), device.Options{Number: number, ArenaBytes: x.Prog.ArenaBytes, Log: log})
	if err != nil || where.Local != nil {
		runtime.UnlockOSThread()
	}
	if err != nil {
		return where, nil, err
	}
	return where, func() {
		where.Dev.Close()
		if where.Local == nil {
			runtime.UnlockOSThread()
		}
	}, nil
}

// openOn opens a device, with b behind the arena where that is not in this process.
func openOn(on *program.Device, b RuntimeArea, o device.Options) (Memory, error) {
	o.RuntimeBytes = b.End - o.ArenaBytes
	dev, err := on.Open(&on.Code, o)
	if err != nil {
		return Memory{}, err
	}
	m := Memory{Dev: dev, large: o.ArenaBytes}
	if m.Local, _ = dev.(device.Local); m.Local != nil {
		return m, nil
	}
	m.RuntimeArea = b
	words := slices.Repeat(binary.NativeEndian.AppendUint64(nil, NoRow), b.Limit)
	if err := dev.Put(b.Words, words); err != nil {
		dev.Close()
		return Memory{}, err
	}
	return m, nil
}

// size is that of the arena, in bytes.
func (m *Memory) size() int { return m.large }

// holds reports whether n bytes at offset lie inside.
func (m *Memory) holds(offset, n int) bool {
	return offset >= 0 && n >= 0 && offset <= m.size()-n
}

// Stretch is n bytes at offset, to be read: the arena itself, or a copy of a device's.
func (m *Memory) Stretch(offset, n int) ([]byte, error) {
	if m.Local != nil {
		return m.Local.Bytes(offset, n), nil
	}
	b := make([]byte, n)
	return b, m.Dev.Get(b, offset)
}

// Contents are those of a tensor, to be read.
func (m *Memory) Contents(t *abi.Tensor) ([]byte, error) { return m.Stretch(t.Offset, t.Bytes) }

// Fill has f write all of a tensor.
func (m *Memory) Fill(t *abi.Tensor, f func(b []byte) error) error {
	if m.Local != nil {
		return f(m.Local.Bytes(t.Offset, t.Bytes))
	}
	b := make([]byte, t.Bytes)
	if err := f(b); err != nil {
		return err
	}
	return m.Dev.Put(t.Offset, b)
}

// Edit has f change a tensor.
func (m *Memory) Edit(t *abi.Tensor, f func(b []byte) error) error {
	b, err := m.Contents(t)
	if err == nil {
		err = f(b)
	}
	if err != nil || m.Local != nil {
		return err
	}
	return m.Dev.Put(t.Offset, b)
}

// Write puts b at offset.
func (m *Memory) Write(offset int, b []byte) error { return m.Dev.Put(offset, b) }

// Scalar is a one-element result as a float64.
func (m *Memory) Scalar(t *abi.Tensor) (float64, error) {
	b, err := m.Contents(t)
	if err != nil {
		return 0, err
	}
	return program.FirstValue(b, t.DType), nil
}
