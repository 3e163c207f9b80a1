package train

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/mesh"
)

var reduceOps = map[string]comm.ReduceOp{"": comm.Sum, "sum": comm.Sum, "max": comm.Max, "min": comm.Min, "prod": comm.Prod, "avg": comm.Avg}

// prepareComm prepares a collective, or a message to or from one rank.
func (m *machine) prepareComm(s *step, c *Comm) error {
	if c.Kind == "shard_slice" {
		s.do = doSlice
		return m.prepareSlice(c)
	}
	g := m.axes[c.Axis]
	if g == nil {
		return fmt.Errorf("BUG: %s over axis %q, which mesh %s does not have", c.Kind, c.Axis, m.plan.mesh)
	}
	dt, ok := commType(c.DType)
	op, ok2 := reduceOps[c.Op]
	if !ok || !ok2 {
		return fmt.Errorf("BUG: %s of %s by %q", c.Kind, c.DType, c.Op)
	}
	s.dtype, s.op, s.line = dt, op, g.line
	s.site = comm.Site{Collective: c.Kind, Tensor: c.Tensor, Loc: c.Loc}
	to, from := c.Bytes, c.Bytes
	switch c.Kind {
	case "all_reduce":
		s.do, from = doReduce, 0
	case "all_gather":
		s.do, from = doGather, c.Bytes/g.size
	case "reduce_scatter":
		s.do, from = doScatter, c.Bytes*g.size
	case "all_to_all":
		s.do = doExchange
	case "send":
		s.do, to = doSend, 0
	case "recv":
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
	if to > 0 && m.dev == nil {
		s.dst = m.arena.Bytes(c.Offset, to)
	}
	if from > 0 && m.dev == nil {
		s.src = m.arena.Bytes(c.Source, from)
	}
	switch {
	case s.do == doSend || s.do == doRecv:
		err = m.preparePair(s, c)
	case g.size == 1:
		if s.do != doReduce && c.Offset != c.Source {
			s.before = append(slices.Clone(s.before), Copy{From: c.Source, To: c.Offset, Bytes: to})
		}
		s.do = doNothing
	}
	if err != nil || m.dev == nil {
		return err
	}
	return m.prepareRemoteComm(s, to, from)
}

// preparePair gives a message its line.
func (m *machine) preparePair(s *step, c *Comm) error {
	n := m.peers[peer{c.Axis, c.Peer}]
	if n == nil {
		return fmt.Errorf("BUG: %s between coordinates %d and %d of axis %s, which the plan does not list", c.Kind, m.axes[c.Axis].coord, c.Peer, c.Axis)
	}
	s.to, s.line = n.rank, n.from
	if s.do == doSend {
		s.line = n.to
	}
	return nil
}

// prepareSlice checks a shard_slice; it is executed from the Comm itself.
func (m *machine) prepareSlice(c *Comm) error {
	n := max(c.Outer, 1)
	if c.Axis != mesh.TimeAxis && m.axes[c.Axis] == nil {
		return fmt.Errorf("BUG: shard_slice over axis %q, which mesh %s does not have", c.Axis, m.plan.mesh)
	}
	each := c.Bytes / n
	last := c.Source + (n-1)*c.Stride + m.plan.size(c.Axis)*each
	if each*n != c.Bytes || !m.holds(c.Offset, c.Bytes) || c.Source < 0 || last > m.size() {
		return fmt.Errorf("BUG: shard_slice of %d x %d bytes from %d, stride %d, to %d leaves the arena of %d", n, each, c.Source, c.Stride, c.Offset, m.size())
	}
	return nil
}

// commType is the type by which a collective moves elements of an abi type. Those of 8 bits and fewer that hold no numbers
// to compute with are bytes.
func commType(name string) (comm.DType, bool) {
	if name != "i8" && elemSizes[name] == 1 {
		name = "u8"
	}
	for d := comm.F32; d.Size() > 0; d++ {
		if d.String() == name {
			return d, true
		}
	}
	return 0, false
}

// communicate starts a collective or a message, or makes the copies that stand for it.
func (m *machine) communicate(s *step, micro int) {
	m.copyAll(s.before)
	switch s.do {
	case doSlice:
		m.slice(s.call.Comm, micro)
		return
	case doReduce:
		s.seq = s.line.queue.AllReduce(&s.site, s.dst, s.dtype, s.op)
	case doGather:
		s.seq = s.line.queue.AllGather(&s.site, s.dst, s.src, s.dtype)
	case doScatter:
		s.seq = s.line.queue.ReduceScatter(&s.site, s.dst, s.src, s.dtype, s.op)
	case doExchange:
		s.seq = s.line.queue.AllToAll(&s.site, s.dst, s.src, s.dtype)
	case doSend:
		s.seq = s.line.queue.Send(&s.site, s.src, s.dtype, s.to)
	case doRecv:
		s.seq = s.line.queue.Recv(&s.site, s.dst, s.dtype, s.to)
	default:
		return
	}
	s.line.last = s.seq
}

// slice takes this rank's, or this micro-batch's, part of each of the Outer slices.
func (m *machine) slice(c *Comm, micro int) {
	k, n := micro, max(c.Outer, 1)
	if c.Axis != mesh.TimeAxis {
		k = m.axes[c.Axis].coord
	}
	each := c.Bytes / n
	for i := range n {
		copy(m.arena.Bytes(c.Offset+i*each, each), m.arena.Bytes(c.Source+i*c.Stride+k*each, each))
	}
}
