package train

import (
	"fmt"

	"github.com/gtc-compiler/gtc/distributed/mesh"
)

// prepareRemoteComm prepares a collective on the device's memory, which writes and reads so many bytes.
func (m *machine) prepareRemoteComm(s *step, to, from int) error {
	if s.line == nil && s.do != doSend && s.do != doRecv {
		return nil // of one rank
	}
	return fmt.Errorf("collectives of several ranks on a device are not there yet")
}

// communicateRemote starts a collective or a message on a device, or makes the copies that stand for it.
func (m *machine) communicateRemote(s *step, micro int) error {
	main := m.remote.main
	for _, c := range s.before {
		if err := main.Copy(c.To, c.From, c.Bytes); err != nil {
			return err
		}
	}
	switch s.do {
	case doNothing:
		return nil
	case doSlice:
		return m.sliceRemote(s.call.Comm, micro)
	}
	return nil
}

// sliceRemote is slice on a device.
func (m *machine) sliceRemote(c *Comm, micro int) error {
	k, n := micro, max(c.Outer, 1)
	if c.Axis != mesh.TimeAxis {
		k = m.axes[c.Axis].coord
	}
	each := c.Bytes / n
	return m.remote.main.CopyRows(c.Offset, each, c.Source+k*each, c.Stride, each, n)
}

// await has later kernels wait for a collective.
func (m *machine) await(*step) error { return nil }

// awaitLine has later kernels wait for everything on a line.
func (m *machine) awaitLine(*line) error { return nil }

// recordable reports whether a step can be recorded as a graph: all of its collectives run on the device.
func (m *machine) recordable() bool { return true }
