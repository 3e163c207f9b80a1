package nccl

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

func init() {
	comm.RegisterDevice(comm.DeviceBackend{Name: "nccl", Here: here, Suits: suits, Open: openDevice})
}

// sharing is the version from which on ranks may share a GPU, and shareVariable
// lets them.
const (
	sharing       = 23000
	shareVariable = "NCCL_MULTI_RANK_GPU_ENABLE"
)

func here() (int, error) {
	lib, err := open()
	if err != nil {
		return 0, err
	}
	return int(lib.version), nil
}

// suits says whether ranks with those GPUs and libraries can talk.
func suits(ranks []comm.DeviceState) error {
	by := map[[16]byte]int{}
	for r, s := range ranks {
		if s.Version == 0 {
			return fmt.Errorf("rank %d could not load NCCL", r)
		}
		if s.Version != ranks[0].Version {
			return fmt.Errorf("rank 0 has NCCL %s, but rank %d has %s", release(ranks[0].Version), r, release(s.Version))
		}
		first, shared := by[s.ID]
		if shared && s.Version < sharing {
			return fmt.Errorf("ranks %d and %d share a GPU, which NCCL %s refuses (2.30 allows it)", first, r, release(s.Version))
		}
		if shared {
			os.Setenv(shareVariable, "1")
		}
		if !shared {
			by[s.ID] = r
		}
	}
	return nil
}

// release is a version as people write it.
func release(version int) string {
	return fmt.Sprintf("%d.%d.%d", version/10000, version%10000/100, version%100)
}

// onDevice implements comm.DeviceComm.
type onDevice struct {
	lib         *library
	ranks, rank int
	nccl        uintptr
	closed      bool
}

// openDevice makes a communicator of NCCL for the members of base.
func openDevice(base comm.Communicator, bind func() error) (comm.DeviceComm, error) {
	lib, err := open()
	if err != nil {
		return nil, err
	}
	var id uniqueID
	if base.Rank() == 0 {
		if err := lib.nccl("ncclGetUniqueId", lib.getUniqueID(&id)); err != nil {
			return nil, err
		}
	}
	if err := base.Broadcast(site, id.internal[:], comm.U8, 0); err != nil {
		return nil, err
	}
	c := &onDevice{lib: lib, ranks: base.Size(), rank: base.Rank()}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the device is bound to the thread, which ends with this
		err := bind()
		if err == nil {
			err = lib.nccl("ncclCommInitRank", lib.initRank(&c.nccl, int32(c.ranks), id, int32(c.rank)))
		}
		done <- err
	}()
	// It waits for all members, and cannot be told to give up: the job is watched meanwhile.
	d := &driver{base: base, opt: comm.Options{Timeout: startTimeout}}
	return c, d.watch(done, (c.rank+1)%c.ranks)
}

// startTimeout is how long the members wait for each other.
const startTimeout = 2 * time.Minute

// Enqueue implements comm.DeviceComm.
func (c *onDevice) Enqueue(d *comm.DeviceCall) error {
	lib := c.lib
	n := uintptr(d.Bytes)
	switch d.Op {
	case comm.OpAllReduce, comm.OpReduceScatter:
		dt := dataTypes[d.DType]
		if dt < 0 {
			return fmt.Errorf("NCCL cannot add up elements of type %s", d.DType)
		}
		if d.Op == comm.OpAllReduce {
			return lib.nccl("ncclAllReduce", lib.allReduce(d.Dst, d.Dst, n/uintptr(d.DType.Size()), dt, redOps[d.Reduce], c.nccl, d.Stream))
		}
		return lib.nccl("ncclReduceScatter", lib.reduceScatter(d.Src, d.Dst, n/uintptr(c.ranks*d.DType.Size()), dt, redOps[d.Reduce], c.nccl, d.Stream))
	case comm.OpAllGather:
		return lib.nccl("ncclAllGather", lib.allGather(d.Src, d.Dst, n, ncclUint8, c.nccl, d.Stream))
	case comm.OpAllToAll:
		ch := &channel{d: &driver{lib: lib}, ranks: c.ranks, rank: c.rank, nccl: c.nccl, stream: d.Stream}
		return ch.exchange(d.Src, d.Dst, d.Bytes/c.ranks, all, all)
	case comm.OpSend:
		return lib.nccl("ncclSend", lib.send(d.Src, n, ncclUint8, int32(d.Root), c.nccl, d.Stream))
	case comm.OpRecv:
		return lib.nccl("ncclRecv", lib.recv(d.Dst, n, ncclUint8, int32(d.Root), c.nccl, d.Stream))
	}
	return fmt.Errorf("BUG: collective %s cannot run on a device", d.Op)
}

// Failed implements comm.DeviceComm.
func (c *onDevice) Failed() error {
	if c.lib.asyncError == nil {
		return nil
	}
	const inProgress = 7
	var state int32
	if code := c.lib.asyncError(c.nccl, &state); code != 0 {
		return c.lib.nccl("ncclCommGetAsyncError", code)
	}
	if state == 0 || state == inProgress {
		return nil
	}
	return c.lib.nccl("a collective of NCCL", state)
}

// Abort implements comm.DeviceComm.
func (c *onDevice) Abort() {
	if !c.closed {
		c.closed = true
		c.lib.abort(c.nccl)
	}
}

// Close implements comm.DeviceComm.
func (c *onDevice) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	return c.lib.nccl("ncclCommDestroy", c.lib.destroy(c.nccl))
}
