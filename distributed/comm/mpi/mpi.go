//go:build mpi

package mpi

// #include "gtc_mpi.h"
import "C"

import (
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

func init() {
	comm.Register(comm.Backend{Name: "mpi", Here: here, Open: open})
}

// here reports whether an MPI launcher started this process.
func here() bool {
	for _, name := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// open starts MPI and checks that its ranks are those of the job.
func open(opt comm.Options) (comm.Driver, error) {
	var rank, size, threads C.int
	if err := fault(C.gtc_mpi_init(&rank, &size, &threads), 0, 0); err != nil {
		return nil, fmt.Errorf("MPI_Init: %w", err)
	}
	switch {
	case threads == 0:
		return nil, fmt.Errorf("this MPI does not let several threads call it at once (MPI_THREAD_MULTIPLE), which gtc needs to overlap communication")
	case int(size) != opt.World:
		return nil, fmt.Errorf("MPI has %s, but the job has %d: start the program with mpirun -n %d", printable.Count(int(size), "rank"), opt.World, opt.World)
	case int(rank) != opt.Rank:
		return nil, fmt.Errorf("MPI says that this is rank %d, but the environment (RANK) says rank %d", int(rank), opt.Rank)
	}
	return newDriver(C.gtc_mpi_world(), int(rank), int(size), opt.Timeout), nil
}

// finalized is set once MPI is over: groups that are closed later have nothing
// to give back.
var finalized atomic.Bool

// driver is one group.
type driver struct {
	c          C.MPI_Comm
	rank, size int
	timeout    time.Duration
	world      bool

	// Of the collective in progress: counts and places for MPI, and the parts
	// of all ranks that are summed.
	sn, sat, rn, rat []C.int
	parts            [][]byte
	scratch          []byte
}

func newDriver(c C.MPI_Comm, rank, size int, timeout time.Duration) *driver {
	four := make([]C.int, 4*size)
	return &driver{
		c: c, rank: rank, size: size, timeout: timeout, world: c == C.gtc_mpi_world(),
		sn: four[:size], sat: four[size : 2*size], rn: four[2*size : 3*size], rat: four[3*size:],
		parts: make([][]byte, size),
	}
}

// Sub implements comm.Driver.
func (d *driver) Sub(ranks []int) (comm.Driver, error) {
	list := make([]C.int, len(ranks))
	me := 0
	for i, r := range ranks {
		list[i] = C.int(r)
		if r == d.rank {
			me = i
		}
	}
	var c C.MPI_Comm
	if err := fault(C.gtc_mpi_sub(d.c, C.int(len(list)), &list[0], 0, &c), 0, d.timeout); err != nil {
		return nil, err
	}
	return newDriver(c, me, len(ranks), d.timeout), nil
}

// abortGrace is how long a rank that aborts has to end by itself.
const abortGrace = 3 * time.Second

// Abort implements comm.Driver. mpirun ends the other ranks when this one ends.
func (d *driver) Abort(string) {
	C.gtc_mpi_stop()
	time.AfterFunc(abortGrace, func() {
		if !finalized.Load() {
			C.gtc_mpi_abort(comm.ExitPeerLost)
		}
	})
}

// Close implements comm.Driver.
func (d *driver) Close() error {
	switch {
	case d.world && !finalized.Swap(true):
		return fault(C.gtc_mpi_finalize(), 0, 0)
	case !d.world && !finalized.Load():
		return fault(C.gtc_mpi_free(d.c), 0, 0)
	}
	return nil
}

// fault is the error of an MPI call that waited for rank peer, or nil.
func fault(code C.int, peer int, timeout time.Duration) error {
	switch code {
	case 0:
		return nil
	case C.GTC_MPI_HUNG:
		return comm.HungFault(peer, timeout)
	case C.GTC_MPI_STOPPED:
		return &comm.Fault{Kind: comm.KindAborted, Rank: peer, Detail: "the job was aborted"}
	}
	var text [256]C.char
	C.gtc_mpi_text(code, &text[0], C.int(len(text)))
	return fmt.Errorf("MPI: %s", C.GoString(&text[0]))
}

// Do implements comm.Driver.
func (d *driver) Do(c *comm.Call) error {
	if n := max(len(c.Dst), len(c.Src)); c.Op != comm.OpBarrier && n/c.DType.Size() > math.MaxInt32 {
		return fmt.Errorf("a buffer of %d bytes has more elements than MPI can count (2^31)", n)
	}
	switch c.Op {
	case comm.OpAllReduce, comm.OpReduce:
		return d.reduce(c)
	case comm.OpReduceScatter:
		return d.reduceScatter(c)
	case comm.OpSend:
		return d.fault(c, C.gtc_mpi_send(at(c.Src), count(c.Src, c), size(c), C.int(c.Root), d.c, d.seconds()))
	case comm.OpRecv:
		return d.recv(c)
	}
	return d.fault(c, d.move(c))
}

// fault is fault for call c. Collectives cannot tell whom they waited for: the
// root is the best guess where there is one, else the next rank.
func (d *driver) fault(c *comm.Call, code C.int) error {
	peer := c.Root
	if peer == d.rank {
		peer = (d.rank + 1) % d.size
	}
	return fault(code, peer, d.timeout)
}

func (d *driver) recv(c *comm.Call) error {
	var got C.int
	code := C.gtc_mpi_recv(at(c.Dst), count(c.Dst, c), size(c), C.int(c.Root), d.c, d.seconds(), &got)
	if code == C.GTC_MPI_SHORT || code == C.GTC_MPI_ELEMENT {
		return &comm.Fault{Kind: comm.KindMismatch, Rank: c.Root,
			Detail: fmt.Sprintf("the message has %d elements, not %d", int(got), len(c.Dst)/c.DType.Size())}
	}
	return d.fault(c, code)
}

// move is the operations that only move data.
func (d *driver) move(c *comm.Call) C.int {
	root, es, t := C.int(c.Root), size(c), d.seconds()
	switch c.Op {
	case comm.OpBroadcast:
		return C.gtc_mpi_bcast(at(c.Dst), count(c.Dst, c), es, root, d.c, t)
	case comm.OpAllGather:
		return C.gtc_mpi_allgather(at(c.Dst), at(c.Src), count(c.Src, c), es, own(c.Src, c.Dst, d.rank), d.c, t)
	case comm.OpAllToAll:
		return C.gtc_mpi_alltoall(at(c.Dst), at(c.Src), count(c.Src, c)/C.int(d.size), es, d.c, t)
	case comm.OpGather:
		in := C.int(0)
		if c.Root == d.rank {
			in = own(c.Src, c.Dst, d.rank)
		}
		return C.gtc_mpi_gather(at(c.Dst), at(c.Src), count(c.Src, c), es, in, root, d.c, t)
	case comm.OpScatter:
		in := C.int(0)
		if c.Root == d.rank {
			in = own(c.Dst, c.Src, d.rank)
		}
		return C.gtc_mpi_scatter(at(c.Dst), at(c.Src), count(c.Dst, c), es, in, root, d.c, t)
	}
	return C.gtc_mpi_barrier(d.c, t)
}

func (d *driver) seconds() C.double { return C.double(d.timeout.Seconds()) }

// at is where b starts. MPI gets an address for no bytes too.
func at(b []byte) C.uintptr_t {
	if len(b) == 0 {
		b = nothing[:]
	}
	return C.uintptr_t(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

var nothing [8]byte

func count(b []byte, c *comm.Call) C.int { return C.int(len(b) / c.DType.Size()) }

func size(c *comm.Call) C.int {
	if c.Op == comm.OpBarrier {
		return 1
	}
	return C.int(c.DType.Size())
}

// own is 1 when block is rank's block of whole, in the same memory.
func own(block, whole []byte, rank int) C.int {
	if len(block) > 0 && len(whole) > rank*len(block) && &whole[rank*len(block)] == &block[0] {
		return 1
	}
	return 0
}
