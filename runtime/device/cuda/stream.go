package cuda

import (
	"errors"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/device/cuda/driver"
)

// stream implements device.Stream. One thread at a time uses it, so that the arguments of calls have a place that is not
// allocated anew for each.
type stream struct {
	d         *Device
	handle    uintptr
	capturing bool
	args      [11]uintptr
	rows      copy2D // of CopyRows
}

// copy2D is CUDA_MEMCPY2D of cuda.h.
type copy2D struct {
	srcX, srcY uintptr
	srcKind    uint32
	srcHost    uintptr
	srcDevice  uintptr
	srcArray   uintptr
	srcPitch   uintptr
	dstX, dstY uintptr
	dstKind    uint32
	dstHost    uintptr
	dstDevice  uintptr
	dstArray   uintptr
	dstPitch   uintptr
	width      uintptr
	height     uintptr
}

const onDevice = 2 // CU_MEMORYTYPE_DEVICE

func (d *Device) newStream(priority int) (*stream, error) {
	handle, err := d.drv.NewStream(priority)
	if err != nil {
		return nil, err
	}
	s := &stream{d: d, handle: handle}
	d.streams = append(d.streams, s)
	return s, nil
}

// NewStream implements device.Device.
func (d *Device) NewStream(urgent bool) (device.Stream, error) {
	priority := 0
	if urgent {
		priority = -1
	}
	s, err := d.newStream(priority)
	if err != nil {
		return nil, d.during("making a stream", err)
	}
	return s, nil
}

// NewEvent implements device.Device.
func (d *Device) NewEvent() (device.Event, error) {
	const disableTiming = 2 // CU_EVENT_DISABLE_TIMING: cheaper
	return d.newEvent(disableTiming)
}

func (d *Device) newEvent(flags uintptr) (device.Event, error) {
	var e uintptr
	if err := d.drv.Call(driver.EventCreate, uintptr(unsafe.Pointer(&e)), flags); err != nil {
		return 0, d.during("making an event", err)
	}
	d.events = append(d.events, device.Event(e))
	return device.Event(e), nil
}

// Done implements device.Device.
func (d *Device) Done(e device.Event) (bool, error) {
	return d.over(d.drv.Call(driver.EventQuery, uintptr(e)))
}

// over makes an answer of a query's error.
func (d *Device) over(err error) (bool, error) {
	if err == nil {
		return true, nil
	}
	var e *driver.Error
	if errors.As(err, &e) && e.NotReady() {
		return false, nil
	}
	return false, d.during("running kernels", err)
}

// call calls a function of the driver with the arguments of s.
func (s *stream) call(f driver.Func, n int) error {
	return s.d.during("queueing work", s.d.drv.Call(f, s.args[:n]...))
}

// Handle implements device.Stream.
func (s *stream) Handle() uintptr { return s.handle }

// Run implements device.Stream.
func (s *stream) Run(w device.Work) error { return w.Run(s) }

// Copy implements device.Stream.
func (s *stream) Copy(to, from, n int) error {
	if n == 0 || to == from {
		return nil
	}
	s.args = [11]uintptr{s.d.Address(to), s.d.Address(from), uintptr(n), s.handle}
	return s.call(driver.MemcpyDtoDAsync, 4)
}

// CopyRows implements device.Stream.
func (s *stream) CopyRows(to, toStride, from, fromStride, n, rows int) error {
	if n == 0 || rows == 0 {
		return nil
	}
	if rows == 1 {
		return s.Copy(to, from, n)
	}
	s.rows = copy2D{srcKind: onDevice, srcDevice: s.d.Address(from), srcPitch: uintptr(fromStride),
		dstKind: onDevice, dstDevice: s.d.Address(to), dstPitch: uintptr(toStride), width: uintptr(n), height: uintptr(rows)}
	s.args = [11]uintptr{uintptr(unsafe.Pointer(&s.rows)), s.handle}
	return s.call(driver.Memcpy2DAsync, 2)
}

// Upload implements device.Stream.
func (s *stream) Upload(to int, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	s.args = [11]uintptr{s.d.Address(to), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), s.handle}
	return s.call(driver.MemcpyHtoDAsync, 4)
}

// Download implements device.Stream.
func (s *stream) Download(b []byte, from int) error {
	if len(b) == 0 {
		return nil
	}
	s.args = [11]uintptr{uintptr(unsafe.Pointer(&b[0])), s.d.Address(from), uintptr(len(b)), s.handle}
	return s.call(driver.MemcpyDtoHAsync, 4)
}

// Record implements device.Stream.
func (s *stream) Record(e device.Event) error {
	s.args = [11]uintptr{uintptr(e), s.handle}
	return s.call(driver.EventRecord, 2)
}

// Wait implements device.Stream.
func (s *stream) Wait(e device.Event) error {
	s.args = [11]uintptr{s.handle, uintptr(e), 0}
	return s.call(driver.StreamWaitEvent, 3)
}

// Query implements device.Stream.
func (s *stream) Query() (bool, error) {
	s.args = [11]uintptr{s.handle}
	return s.d.over(s.d.drv.Call(driver.StreamQuery, s.args[:1]...))
}

// Sync implements device.Stream.
func (s *stream) Sync() error {
	s.args = [11]uintptr{s.handle}
	return s.d.during("running kernels", s.d.drv.Call(driver.StreamSynchronize, s.args[:1]...))
}
