package cuda

import (
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/device/cuda/driver"
)

// Capture implements device.Stream. Other threads may go on calling the driver meanwhile.
func (s *stream) Capture() error {
	const threadLocal = 1 // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
	s.capturing = true
	return s.d.during("recording a graph", s.d.drv.Call(driver.StreamBeginCapture, s.handle, threadLocal))
}

// End implements device.Stream.
func (s *stream) End() (device.Graph, error) {
	s.capturing = false
	var graph, exec uintptr
	if err := s.d.drv.Call(driver.StreamEndCapture, s.handle, uintptr(unsafe.Pointer(&graph))); err != nil {
		return 0, s.d.during("recording a graph", err)
	}
	err := s.d.drv.Call(driver.GraphInstantiate, uintptr(unsafe.Pointer(&exec)), graph, 0)
	if graph != 0 {
		s.d.drv.Call(driver.GraphDestroy, graph)
	}
	if err != nil {
		return 0, s.d.during("making a graph", err)
	}
	return device.Graph(exec), nil
}

// Publish implements device.Stream.
func (s *stream) Publish(e device.Event) error {
	if !s.capturing {
		return s.Record(e)
	}
	const external = 1 // CU_EVENT_RECORD_EXTERNAL
	s.args = [11]uintptr{uintptr(e), s.handle, external}
	return s.call(driver.EventRecordWithFlags, 3)
}

// Launch implements device.Stream.
func (s *stream) Launch(g device.Graph) error {
	s.args = [11]uintptr{uintptr(g), s.handle}
	return s.call(driver.GraphLaunch, 2)
}

// Drop implements device.Device.
func (d *Device) Drop(g device.Graph) {
	if g != 0 {
		d.drv.Call(driver.GraphExecDestroy, uintptr(g))
	}
}
