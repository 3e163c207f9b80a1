package comm

import (
	"runtime"
	"sync"
)

// queueDepth is how many calls may be outstanding before an issue waits.
const queueDepth = 256

// Queue runs calls of one communicator in the order of issue, on a thread of
// its own, while the issuing goroutine goes on: generated programs overlap the
// exchange of gradients with the rest of the backward pass. Nobody else may
// use the communicator while calls are outstanding, except that of two queues
// one may send while the other receives.
//
// Each issue returns a number to wait for; numbers grow by one from 1. After
// the first error no further call is run, and every later Wait returns it.
type Queue struct {
	c    Communicator
	jobs chan queued

	mu     sync.Mutex
	cond   *sync.Cond
	issued uint64
	done   uint64
	err    error
	ended  chan struct{}
}

type queued struct {
	op   Op
	site *Site
	args
	f func(Communicator) error // in place of op
}

// NewQueue starts a queue on c.
func NewQueue(c Communicator) *Queue {
	q := &Queue{c: c, jobs: make(chan queued, queueDepth), ended: make(chan struct{})}
	q.cond = sync.NewCond(&q.mu)
	go q.run()
	return q
}

func (q *Queue) run() {
	runtime.LockOSThread()
	defer close(q.ended)
	for j := range q.jobs {
		q.mu.Lock()
		err := q.err
		q.mu.Unlock()
		if err == nil {
			err = q.call(j)
		}
		q.mu.Lock()
		q.done++
		q.err = err
		q.cond.Broadcast()
		q.mu.Unlock()
	}
}

func (q *Queue) call(j queued) error {
	if j.f != nil {
		return j.f(q.c)
	}
	switch c := q.c; j.op {
	case OpAllReduce:
		return c.AllReduce(j.site, j.dst, j.dt, j.red)
	case OpReduce:
		return c.Reduce(j.site, j.dst, j.dt, j.red, j.root)
	case OpBroadcast:
		return c.Broadcast(j.site, j.dst, j.dt, j.root)
	case OpAllGather:
		return c.AllGather(j.site, j.dst, j.src, j.dt)
	case OpReduceScatter:
		return c.ReduceScatter(j.site, j.dst, j.src, j.dt, j.red)
	case OpAllToAll:
		return c.AllToAll(j.site, j.dst, j.src, j.dt)
	case OpGather:
		return c.Gather(j.site, j.dst, j.src, j.dt, j.root)
	case OpScatter:
		return c.Scatter(j.site, j.dst, j.src, j.dt, j.root)
	case OpSend:
		return c.Send(j.site, j.src, j.dt, j.root)
	case OpRecv:
		return c.Recv(j.site, j.dst, j.dt, j.root)
	default:
		return c.Barrier(j.site)
	}
}

func (q *Queue) issue(op Op, s *Site, a args) uint64 { return q.add(queued{op: op, site: s, args: a}) }

func (q *Queue) add(j queued) uint64 {
	q.mu.Lock()
	q.issued++
	seq := q.issued
	q.mu.Unlock()
	q.jobs <- j
	return seq
}

// Do issues whatever f does, on the queue's thread and in its turn; f may call the communicator.
func (q *Queue) Do(f func(c Communicator) error) uint64 { return q.add(queued{f: f}) }

// Wait returns when call seq, and with it every earlier one, is done, or with
// the error that ended the queue. Results are in the buffers then.
func (q *Queue) Wait(seq uint64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.done < min(seq, q.issued) {
		q.cond.Wait()
	}
	return q.err
}

// WaitAll waits for everything issued so far.
func (q *Queue) WaitAll() error { return q.Wait(^uint64(0)) }

// Close waits for everything issued and ends the queue; the communicator stays
// open. Nothing may be issued afterwards.
func (q *Queue) Close() error {
	close(q.jobs)
	<-q.ended
	return q.err
}

// AllReduce issues Communicator.AllReduce; buf may not be touched until Wait.
func (q *Queue) AllReduce(s *Site, buf []byte, dt DType, op ReduceOp) uint64 {
	return q.issue(OpAllReduce, s, args{dst: buf, dt: dt, red: op})
}

// Reduce issues Communicator.Reduce.
func (q *Queue) Reduce(s *Site, buf []byte, dt DType, op ReduceOp, root int) uint64 {
	return q.issue(OpReduce, s, args{dst: buf, dt: dt, red: op, root: root})
}

// Broadcast issues Communicator.Broadcast.
func (q *Queue) Broadcast(s *Site, buf []byte, dt DType, root int) uint64 {
	return q.issue(OpBroadcast, s, args{dst: buf, dt: dt, root: root})
}

// AllGather issues Communicator.AllGather.
func (q *Queue) AllGather(s *Site, dst, src []byte, dt DType) uint64 {
	return q.issue(OpAllGather, s, args{dst: dst, src: src, dt: dt})
}

// ReduceScatter issues Communicator.ReduceScatter.
func (q *Queue) ReduceScatter(s *Site, dst, src []byte, dt DType, op ReduceOp) uint64 {
	return q.issue(OpReduceScatter, s, args{dst: dst, src: src, dt: dt, red: op})
}

// AllToAll issues Communicator.AllToAll.
func (q *Queue) AllToAll(s *Site, dst, src []byte, dt DType) uint64 {
	return q.issue(OpAllToAll, s, args{dst: dst, src: src, dt: dt})
}

// Gather issues Communicator.Gather.
func (q *Queue) Gather(s *Site, dst, src []byte, dt DType, root int) uint64 {
	return q.issue(OpGather, s, args{dst: dst, src: src, dt: dt, root: root})
}

// Scatter issues Communicator.Scatter.
func (q *Queue) Scatter(s *Site, dst, src []byte, dt DType, root int) uint64 {
	return q.issue(OpScatter, s, args{dst: dst, src: src, dt: dt, root: root})
}

// Send issues Communicator.Send.
func (q *Queue) Send(s *Site, buf []byte, dt DType, to int) uint64 {
	return q.issue(OpSend, s, args{src: buf, dt: dt, root: to})
}

// Recv issues Communicator.Recv.
func (q *Queue) Recv(s *Site, buf []byte, dt DType, from int) uint64 {
	return q.issue(OpRecv, s, args{dst: buf, dt: dt, root: from})
}

// Barrier issues Communicator.Barrier.
func (q *Queue) Barrier(s *Site) uint64 { return q.issue(OpBarrier, s, args{}) }
