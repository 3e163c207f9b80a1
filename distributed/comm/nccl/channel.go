package nccl

import (
	"runtime"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

// channel is one of NCCL's communicators with a stream, staging memory and a
// thread. Its calls are done there one after another; the caller watches over
// them, since neither NCCL nor a synchronisation can be told to give up.
type channel struct {
	d      *driver
	ranks  int
	rank   int
	nccl   uintptr
	stream uintptr
	stage  [2]memory // what is given, or both in place; what is got
	jobs   chan *comm.Call
	done   chan error
	stuck  bool // a call was given up: nothing more can be done here
}

// memory is staging memory on the device, which grows.
type memory struct{ at, size uintptr }

// channel makes a communicator of so many ranks that have id.
func (d *driver) channel(id uniqueID, ranks, rank int) (*channel, error) {
	ch := &channel{d: d, ranks: ranks, rank: rank, jobs: make(chan *comm.Call), done: make(chan error, 1)}
	go ch.work(id)
	if err := d.watch(ch.done, (rank+1)%ranks); err != nil {
		return nil, err
	}
	return ch, nil
}

// work is the channel's thread.
func (ch *channel) work(id uniqueID) {
	runtime.LockOSThread() // a context is current on a thread
	err := ch.start(id)
	ch.done <- err
	if err != nil {
		return
	}
	for c := range ch.jobs {
		err := ch.run(c)
		if err == nil {
			err = ch.d.lib.cuda.Synchronize(ch.stream)
		}
		ch.done <- err
	}
	lib := ch.d.lib
	lib.destroy(ch.nccl)
	for _, m := range ch.stage {
		if m.size > 0 {
			lib.cuda.Free(m.at)
		}
	}
	lib.cuda.DestroyStream(ch.stream)
	ch.done <- nil
}

func (ch *channel) start(id uniqueID) error {
	lib := ch.d.lib
	if err := lib.cuda.SetContext(ch.d.context); err != nil {
		return err
	}
	stream, err := lib.cuda.NewStream(0)
	if err != nil {
		return err
	}
	ch.stream = stream
	return lib.nccl("ncclCommInitRank", lib.initRank(&ch.nccl, int32(ch.ranks), id, int32(ch.rank)))
}

// do has the thread carry out c.
func (ch *channel) do(c *comm.Call) error {
	if ch.stuck {
		return &comm.Fault{Kind: comm.KindAborted, Rank: ch.rank, Detail: "an earlier call was given up"}
	}
	ch.jobs <- c
	peer := c.Root
	if peer == ch.rank || c.Op != comm.OpSend && c.Op != comm.OpRecv {
		peer = (ch.rank + 1) % ch.ranks
	}
	err := ch.d.watch(ch.done, peer)
	if err != nil {
		// The thread may still be in the call; abort ends it.
		ch.stuck = true
		ch.d.lib.abort(ch.nccl)
	}
	return err
}

// close ends the thread and gives everything back, unless a call is stuck in
// it: better a leak than a wait without end.
func (ch *channel) close() {
	if ch.stuck {
		return
	}
	ch.stuck = true
	close(ch.jobs)
	<-ch.done
}

// room is n bytes of staging memory.
func (ch *channel) room(i int, n int) (uintptr, error) {
	m := &ch.stage[i]
	if m.size >= uintptr(n) {
		return m.at, nil
	}
	lib := ch.d.lib
	if m.size > 0 {
		if err := lib.cuda.Free(m.at); err != nil {
			return 0, err
		}
		m.size = 0
	}
	at, err := lib.cuda.Alloc(n)
	if err != nil {
		return 0, err
	}
	m.at, m.size = at, uintptr(n)
	return m.at, nil
}

// put copies b to the device, get from it.
func (ch *channel) put(at uintptr, b []byte) error {
	return ch.d.lib.cuda.ToDevice(at, b, ch.stream)
}

func (ch *channel) get(b []byte, at uintptr) error {
	return ch.d.lib.cuda.ToHost(b, at, ch.stream)
}
