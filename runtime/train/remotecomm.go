package train

import (
	"fmt"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/device"
)

// A line on a device has a stream of its own, on which its collectives run one after the other beside the kernels: those of
// a library that works on devices' memory, or those of comm, by way of memory of the host that the device copies to and from.
// Events order them with the kernels on both sides.

// remoteLine is a line's part on a device.
type remoteLine struct {
	stream  device.Stream
	direct  comm.DeviceComm // nil: by way of the host
	room    int             // bytes of host memory that the largest of its calls takes
	staging []byte
	last    *step // the last call that was issued, unless the kernels wait for it already
}

var opOf = map[int]comm.Op{doReduce: comm.OpAllReduce, doGather: comm.OpAllGather, doScatter: comm.OpReduceScatter, doExchange: comm.OpAllToAll,
	doSend: comm.OpSend, doRecv: comm.OpRecv}

// openLine makes a line's stream. direct may be nil.
func (m *machine) openLine(l *line, direct comm.DeviceComm) (err error) {
	if m.dev == nil {
		return nil
	}
	l.remote.direct = direct
	l.remote.stream, err = m.dev.NewStream(true)
	return err
}

// prepareRemoteComm prepares a collective that writes and reads so many bytes of the device's memory.
func (m *machine) prepareRemoteComm(s *step, to, from int) error {
	if s.line == nil { // of one rank
		return nil
	}
	r := &s.remote
	var err error
	if r.ready, err = m.dev.NewEvent(); err == nil {
		r.done, err = m.dev.NewEvent()
	}
	if err != nil {
		return err
	}
	l, c := &s.line.remote, s.call.Comm
	if l.direct != nil {
		r.direct = comm.DeviceCall{Op: opOf[s.do], DType: s.dtype, Reduce: s.op, Root: s.to, Bytes: from, Stream: l.stream.Handle()}
		if from == 0 {
			r.direct.Bytes = to
		}
		if to > 0 {
			r.direct.Dst = m.dev.Address(c.Offset)
		}
		if from > 0 {
			r.direct.Src = m.dev.Address(c.Source)
		}
		return nil
	}
	l.room = max(l.room, aligned(to)+aligned(from))
	r.job = func(c comm.Communicator) error { return m.byHost(c, s, to, from) }
	return nil
}

// stage makes the host memory of the lines.
func (m *machine) stage() (err error) {
	if m.dev == nil {
		return nil
	}
	for _, list := range [][]*line{m.lines, m.sends} {
		for _, l := range list {
			if r := &l.remote; r.room > 0 && err == nil {
				r.staging, err = m.dev.Pinned(r.room)
			}
		}
	}
	return err
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
	if err := main.Record(s.remote.ready); err != nil {
		return err
	}
	l := &s.line.remote
	s.remote.epoch, s.remote.issued, l.last = m.remote.epoch, true, s
	if l.direct == nil {
		s.seq = s.line.queue.Do(s.remote.job)
		s.line.last = s.seq
		return nil
	}
	if err := l.stream.Wait(s.remote.ready); err != nil {
		return err
	}
	if err := l.direct.Enqueue(&s.remote.direct); err != nil {
		return fmt.Errorf("%s, at %s: %w", s.call.Name, or(s.call.Loc, "an op without a location"), err)
	}
	return l.stream.Record(s.remote.done)
}

// byHost is a collective by way of host memory, on its line's thread. The stream is waited for before anything is done there:
// what it copies of an earlier call lies in the same place.
func (m *machine) byHost(c comm.Communicator, s *step, to, from int) error {
	if err := m.dev.Bind(); err != nil {
		return err
	}
	l := &s.line.remote
	dst, src := l.staging[:to], l.staging[aligned(to):][:from]
	err := l.stream.Wait(s.remote.ready)
	if err == nil && s.do == doReduce {
		err = l.stream.Download(dst, s.call.Comm.Offset)
	}
	if err == nil {
		err = l.stream.Download(src, s.call.Comm.Source)
	}
	if err == nil {
		err = m.until(l.stream.Query)
	}
	if err != nil {
		return err
	}
	switch s.do {
	case doReduce:
		err = c.AllReduce(&s.site, dst, s.dtype, s.op)
	case doGather:
		err = c.AllGather(&s.site, dst, src, s.dtype)
	case doScatter:
		err = c.ReduceScatter(&s.site, dst, src, s.dtype, s.op)
	case doExchange:
		err = c.AllToAll(&s.site, dst, src, s.dtype)
	case doSend:
		err = c.Send(&s.site, src, s.dtype, s.to)
	case doRecv:
		err = c.Recv(&s.site, dst, s.dtype, s.to)
	}
	if err == nil {
		err = l.stream.Upload(s.call.Comm.Offset, dst)
	}
	if err == nil {
		err = l.stream.Record(s.remote.done)
	}
	return err
}

// await has later kernels wait for a collective of this step.
func (m *machine) await(s *step) error {
	r := &s.remote
	if !r.issued || r.epoch != m.remote.epoch {
		return nil // over since an earlier step, or never begun
	}
	if s.line.remote.direct == nil { // which records the event when it is through
		if err := s.line.queue.Wait(s.seq); err != nil {
			return err
		}
	}
	return m.remote.main.Wait(r.done)
}

// awaitLine has later kernels wait for everything on a line.
func (m *machine) awaitLine(l *line) error {
	s := l.remote.last
	if s == nil {
		return nil
	}
	l.remote.last = nil
	return m.await(s)
}

// recordable reports whether a step can be recorded as a graph: all of its collectives run on the device.
func (m *machine) recordable() bool {
	for _, list := range [][]*line{m.lines, m.sends} {
		for _, l := range list {
			if l.remote.room > 0 {
				return false
			}
		}
	}
	return true
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
