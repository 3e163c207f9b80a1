package machine

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

var reduceOps = map[string]comm.ReduceOp{"": comm.Sum, "sum": comm.Sum, "max": comm.Max, "min": comm.Min, "prod": comm.Prod, "avg": comm.Avg}

// prepareComm prepares a collective, or a message to or from one rank.
func (m *Machine) prepareComm(s *Step, c *program.Comm) error {
	if c.Kind == mesh.ShardSlice {
		s.do = doSlice
		return m.prepareSlice(c)
	}
	g := m.Axes[c.Axis]
	if g == nil {
		return fmt.Errorf("BUG: %s over axis %q, which mesh %s does not have", c.Kind, c.Axis, m.Plan.Grid)
	}
	dt, ok := commType(c.DType)
	op, ok2 := reduceOps[c.Op]
	if !ok || !ok2 {
		return fmt.Errorf("BUG: %s cannot combine %s by %q", c.Kind, c.DType, c.Op)
	}
	s.dtype, s.op, s.stream = dt, op, g.stream
	s.site = comm.Site{Collective: string(c.Kind), Tensor: c.Tensor, Loc: c.Loc}
	to, from := c.Bytes, c.Bytes
	switch c.Kind {
	case mesh.AllReduce:
		s.do, from = doReduce, 0
	case mesh.AllGather:
		s.do, from = doGather, c.Bytes/g.Size
	case mesh.ReduceScatter:
		s.do, from = doScatter, c.Bytes*g.Size
	case mesh.AllToAll:
		s.do = doExchange
	case mesh.Send:
		s.do, to = doSend, 0
	case mesh.Recv:
		s.do, from = doRecv, 0
	default:
		return fmt.Errorf("BUG: there is no collective %q", c.Kind)
	}
	if to != 0 && !m.holds(c.Offset, to) || from != 0 && !m.holds(c.Source, from) {
		return fmt.Errorf("BUG: %s of %d bytes from %d to %d leaves the arena of %d", c.Kind, c.Bytes, c.Source, c.Offset, m.size())
	}
	var err error
	if s.before, err = m.moves(c.Before); err != nil {
		return err
	}
	switch {
	case s.do == doSend || s.do == doRecv:
		err = m.preparePair(s, c)
	case g.Size == 1:
		if s.do != doReduce && c.Offset != c.Source {
			s.before = append(slices.Clone(s.before), program.Copy{From: c.Source, To: c.Offset, Bytes: to})
		}
		s.do = doNothing
	}
	if err != nil || s.stream == nil {
		return err
	}
	return m.prepareOn(s.stream, s, to, from)
}

// preparePair gives a message its stream.
func (m *Machine) preparePair(s *Step, c *program.Comm) error {
	n := m.peers[ranks.Peer{Axis: c.Axis, Coord: c.Peer}]
	if n == nil {
		return fmt.Errorf("BUG: %s between coordinates %d and %d of axis %s, which the plan does not list", c.Kind, m.Axes[c.Axis].coord, c.Peer, c.Axis)
	}
	s.to, s.stream = n.rank, n.from
	if s.do == doSend {
		s.stream = n.to
	}
	return nil
}

// prepareSlice checks a shard_slice; it is executed from the Comm itself.
func (m *Machine) prepareSlice(c *program.Comm) error {
	n := max(c.Outer, 1)
	if c.Axis != mesh.TimeAxis && m.Axes[c.Axis] == nil {
		return fmt.Errorf("BUG: shard_slice over axis %q, which mesh %s does not have", c.Axis, m.Plan.Grid)
	}
	each := c.Bytes / n
	last := c.Source + (n-1)*c.Stride + m.Plan.Size(c.Axis)*each
	if each*n != c.Bytes || !m.holds(c.Offset, c.Bytes) || c.Source < 0 || last > m.size() {
		return fmt.Errorf("BUG: shard_slice of %d x %d bytes from %d, stride %d, to %d leaves the arena of %d", n, each, c.Source, c.Stride, c.Offset, m.size())
	}
	return nil
}

// commType is the type by which a collective moves elements of an abi type. Those of 8 bits and fewer that hold no numbers
// to compute with are bytes.
func commType(name string) (comm.DType, bool) {
	if name != "i8" && program.ElemSize(name) == 1 {
		name = "u8"
	}
	for d := comm.F32; d.Size() > 0; d++ {
		if d.String() == name {
			return d, true
		}
	}
	return 0, false
}

// openStream makes what a stream has on the device. direct may be nil.
func (m *Machine) openStream(l *stream, direct comm.DeviceComm) (err error) {
	l.direct = direct
	l.on, err = m.Dev.NewStream(true)
	return err
}

var opOf = map[int]comm.Op{doReduce: comm.OpAllReduce, doGather: comm.OpAllGather, doScatter: comm.OpReduceScatter, doExchange: comm.OpAllToAll,
	doSend: comm.OpSend, doRecv: comm.OpRecv}

// prepareOn prepares a collective on its stream, which writes and reads so many bytes of the arena.
func (m *Machine) prepareOn(l *stream, s *Step, to, from int) (err error) {
	if s.ready, err = m.Dev.NewEvent(); err == nil {
		s.done, err = m.Dev.NewEvent()
	}
	if err != nil {
		return err
	}
	c := s.Call.Comm
	switch {
	case l.direct != nil:
		s.direct = comm.DeviceCall{Op: opOf[s.do], DType: s.dtype, Reduce: s.op, Root: s.to, Bytes: from, Stream: l.on.Handle()}
		if from == 0 {
			s.direct.Bytes = to
		}
		if to > 0 {
			s.direct.Dst = m.Dev.Address(c.Offset)
		}
		if from > 0 {
			s.direct.Src = m.Dev.Address(c.Source)
		}
	case m.Local != nil:
		var dst, src []byte
		if to > 0 {
			dst = m.Local.Bytes(c.Offset, to)
		}
		if from > 0 {
			src = m.Local.Bytes(c.Source, from)
		}
		s.job = func(c comm.Communicator) error { return s.exchange(c, dst, src) }
	default:
		l.room = max(l.room, aligned(to)+aligned(from))
		s.job = func(c comm.Communicator) error { return m.byHost(c, s, to, from) }
	}
	return nil
}

// stage makes the host memory of the streams.
func (m *Machine) stage() (err error) {
	for _, list := range [][]*stream{m.streams, m.sends} {
		for _, l := range list {
			if l.room > 0 && err == nil {
				l.staging, err = m.Dev.Pinned(l.room)
			}
		}
	}
	return err
}

// communicate starts a collective or a message, or makes the copies that stand for it.
func (m *Machine) communicate(s *Step, micro int) error {
	for _, c := range s.before {
		if err := m.Main.Copy(c.To, c.From, c.Bytes); err != nil {
			return err
		}
	}
	switch s.do {
	case doNothing:
		return nil
	case doSlice:
		return m.slice(s.Call.Comm, micro)
	}
	if err := m.Main.Record(s.ready); err != nil {
		return err
	}
	l := s.stream
	s.epoch, s.issued, l.last = m.epoch, true, s
	if l.direct == nil {
		s.seq = l.queue.Do(s.job)
		return nil
	}
	if err := l.on.Wait(s.ready); err != nil {
		return err
	}
	if err := l.direct.Enqueue(&s.direct); err != nil {
		return fmt.Errorf("%s, at %s: %w", s.Call.Name, program.Place(s.Call.Loc), err)
	}
	return l.on.Record(s.done)
}

// byHost is a collective by way of host memory, on its stream's thread. The device is waited for before anything is done there:
// what it copies of an earlier call lies in the same place.
func (m *Machine) byHost(c comm.Communicator, s *Step, to, from int) error {
	if err := m.Dev.Bind(); err != nil {
		return err
	}
	l := s.stream
	dst, src := l.staging[:to], l.staging[aligned(to):][:from]
	err := l.on.Wait(s.ready)
	if err == nil && s.do == doReduce {
		err = l.on.Download(dst, s.Call.Comm.Offset)
	}
	if err == nil {
		err = l.on.Download(src, s.Call.Comm.Source)
	}
	if err == nil {
		err = m.Until(l.on.Query)
	}
	if err == nil {
		err = s.exchange(c, dst, src)
	}
	if err == nil {
		err = l.on.Upload(s.Call.Comm.Offset, dst)
	}
	if err == nil {
		err = l.on.Record(s.done)
	}
	return err
}

// exchange is a collective or a message itself, on memory of this process.
func (s *Step) exchange(c comm.Communicator, dst, src []byte) error {
	switch s.do {
	case doReduce:
		return c.AllReduce(&s.site, dst, s.dtype, s.op)
	case doGather:
		return c.AllGather(&s.site, dst, src, s.dtype)
	case doScatter:
		return c.ReduceScatter(&s.site, dst, src, s.dtype, s.op)
	case doExchange:
		return c.AllToAll(&s.site, dst, src, s.dtype)
	case doSend:
		return c.Send(&s.site, src, s.dtype, s.to)
	}
	return c.Recv(&s.site, dst, s.dtype, s.to)
}

// Recordable reports whether a step can be recorded as a graph: all of its collectives run on the device.
func (m *Machine) Recordable() bool {
	for _, list := range [][]*stream{m.streams, m.sends} {
		for _, l := range list {
			if l.room > 0 {
				return false
			}
		}
	}
	return true
}

// slice takes this rank's, or this micro-batch's, part of each of the Outer slices.
func (m *Machine) slice(c *program.Comm, micro int) error {
	k, n := micro, max(c.Outer, 1)
	if c.Axis != mesh.TimeAxis {
		k = m.Axes[c.Axis].coord
	}
	each := c.Bytes / n
	return m.Main.CopyRows(c.Offset, each, c.Source+k*each, c.Stride, each, n)
}
