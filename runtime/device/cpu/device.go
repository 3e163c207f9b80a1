package cpu

import (
	"errors"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/mem"
)

// processor is this process as a device. It implements device.Local: calls run on the thread that asks for them, so that there
// is nothing to wait for, and one stream, main, is as good as many.
type processor struct {
	arena *mem.Arena
	main  *stream
}

// Open implements device.Opener: it makes the arena, of zeros. Programs for it have functions in place of code.
func Open(_ *device.Code, o device.Options) (device.Device, error) {
	arena, err := mem.New(o.ArenaBytes)
	if err != nil {
		return nil, err
	}
	p := &processor{arena: arena}
	p.main = &stream{p}
	return p, nil
}

// Info implements device.Device.
func (p *processor) Info() device.Info { return device.Info{Name: "cpu"} }

// Usage implements device.Device: what the process uses is told of every run.
func (p *processor) Usage() device.Usage { return device.Usage{Used: -1, Total: -1, Busy: -1} }

// Bind implements device.Device.
func (p *processor) Bind() error { return nil }

// Main implements device.Device.
func (p *processor) Main() device.Stream { return p.main }

// NewStream implements device.Device.
func (p *processor) NewStream(bool) (device.Stream, error) { return p.main, nil }

// NewEvent implements device.Device.
func (p *processor) NewEvent() (device.Event, error) { return 0, nil }

// Done implements device.Device.
func (p *processor) Done(device.Event) (bool, error) { return true, nil }

// Put implements device.Device.
func (p *processor) Put(offset int, data []byte) error {
	copy(p.arena.Bytes(offset, len(data)), data)
	return nil
}

// Get implements device.Device.
func (p *processor) Get(data []byte, offset int) error {
	copy(data, p.arena.Bytes(offset, len(data)))
	return nil
}

// Address implements device.Device.
func (p *processor) Address(offset int) uintptr { return uintptr(p.arena.Base()) + uintptr(offset) }

// Pinned implements device.Device.
func (p *processor) Pinned(n int) ([]byte, error) { return make([]byte, n), nil }

// Drop implements device.Device.
func (p *processor) Drop(device.Graph) {}

// Close implements device.Device.
func (p *processor) Close() error { return p.arena.Close() }

// Bytes implements device.Local.
func (p *processor) Bytes(offset, n int) []byte { return p.arena.Bytes(offset, n) }

// Populate implements device.Local.
func (p *processor) Populate() { p.arena.Populate() }

// Prepare implements device.Device.
func (p *processor) Prepare(t *device.Task) (device.Work, error) {
	if t.Run == nil {
		return nil, errors.New("BUG: a call for another device")
	}
	return &work{run: t.Run, base: p.arena.Base(), at: t.At}, nil
}

// work is a prepared call.
type work struct {
	run  func(b unsafe.Pointer, at []int) int64
	base unsafe.Pointer
	at   []int
}

// Run implements device.Work.
func (w *work) Run(device.Stream) error {
	if row := w.run(w.base, w.at); row >= 0 {
		return device.Refused(row)
	}
	return nil
}

// stream does its work at once. It implements device.Stream.
type stream struct{ p *processor }

// Run implements device.Stream.
func (s *stream) Run(w device.Work) error { return w.Run(s) }

// Copy implements device.Stream.
func (s *stream) Copy(to, from, n int) error {
	copy(s.p.arena.Bytes(to, n), s.p.arena.Bytes(from, n))
	return nil
}

// CopyRows implements device.Stream.
func (s *stream) CopyRows(to, toStride, from, fromStride, n, rows int) error {
	for i := range rows {
		copy(s.p.arena.Bytes(to+i*toStride, n), s.p.arena.Bytes(from+i*fromStride, n))
	}
	return nil
}

// Upload implements device.Stream.
func (s *stream) Upload(to int, b []byte) error { return s.p.Put(to, b) }

// Download implements device.Stream.
func (s *stream) Download(b []byte, from int) error { return s.p.Get(b, from) }

// Record implements device.Stream: what came before is over.
func (s *stream) Record(device.Event) error { return nil }

// Publish implements device.Stream.
func (s *stream) Publish(device.Event) error { return nil }

// Wait implements device.Stream.
func (s *stream) Wait(device.Event) error { return nil }

// Query implements device.Stream.
func (s *stream) Query() (bool, error) { return true, nil }

// Sync implements device.Stream.
func (s *stream) Sync() error { return nil }

// errGraph is why nothing is recorded here: a call costs no more than to play it back would.
var errGraph = errors.New("the CPU cannot record graphs")

// Capture implements device.Stream.
func (s *stream) Capture() error { return errGraph }

// End implements device.Stream.
func (s *stream) End() (device.Graph, error) { return 0, errGraph }

// Launch implements device.Stream.
func (s *stream) Launch(device.Graph) error { return errGraph }

// Handle implements device.Stream: there is no library that would know it.
func (s *stream) Handle() uintptr { return 0 }
