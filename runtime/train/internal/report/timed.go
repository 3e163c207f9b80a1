package report

import (
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/internal/trace"
)

// timed is a communicator that puts its collectives into a trace, on the thread that makes them.
type timed struct {
	comm.Communicator
	trace *trace.Writer
}

// Timed makes what a communicator does part of w's trace.
func (w *Watcher) Timed(c comm.Communicator) comm.Communicator { return timed{c, w.Trace} }

func (t timed) add(s *comm.Site, start time.Time) {
	t.trace.Add(trace.LaneComm, s.Tensor, s.Loc, start, time.Since(start))
}

func (t timed) Send(s *comm.Site, buf []byte, dt comm.DType, to int) error {
	start := time.Now()
	err := t.Communicator.Send(s, buf, dt, to)
	t.trace.Add(trace.LaneSends, s.Tensor, s.Loc, start, time.Since(start))
	return err
}

func (t timed) Recv(s *comm.Site, buf []byte, dt comm.DType, from int) error {
	start := time.Now()
	err := t.Communicator.Recv(s, buf, dt, from)
	t.trace.Add(trace.LaneRecvs, s.Tensor, s.Loc, start, time.Since(start))
	return err
}

func (t timed) AllToAll(s *comm.Site, dst, src []byte, dt comm.DType) error {
	defer t.add(s, time.Now())
	return t.Communicator.AllToAll(s, dst, src, dt)
}

func (t timed) AllReduce(s *comm.Site, buf []byte, dt comm.DType, op comm.ReduceOp) error {
	defer t.add(s, time.Now())
	return t.Communicator.AllReduce(s, buf, dt, op)
}

func (t timed) AllGather(s *comm.Site, dst, src []byte, dt comm.DType) error {
	defer t.add(s, time.Now())
	return t.Communicator.AllGather(s, dst, src, dt)
}

func (t timed) ReduceScatter(s *comm.Site, dst, src []byte, dt comm.DType, op comm.ReduceOp) error {
	defer t.add(s, time.Now())
	return t.Communicator.ReduceScatter(s, dst, src, dt, op)
}
