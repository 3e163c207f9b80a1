package nccl

import (
	"fmt"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

// run issues a call on the channel's stream.
func (ch *channel) run(c *comm.Call) error {
	switch c.Op {
	case comm.OpAllReduce, comm.OpReduce, comm.OpReduceScatter:
		if dataTypes[c.DType] < 0 {
			return ch.reduceOnHost(c)
		}
		if c.Op == comm.OpReduceScatter {
			return ch.reduceScatter(c)
		}
		return ch.reduce(c)
	case comm.OpBroadcast:
		return ch.broadcast(c)
	case comm.OpAllGather:
		return ch.allGather(c)
	case comm.OpAllToAll:
		return ch.allToAll(c.Dst, c.Src)
	case comm.OpGather:
		return ch.gather(c)
	case comm.OpScatter:
		return ch.scatter(c)
	case comm.OpSend, comm.OpRecv:
		return ch.message(c)
	case comm.OpBarrier:
		return ch.barrier()
	}
	return fmt.Errorf("BUG: NCCL cannot do collective %s", c.Op)
}

// reduce is all_reduce and reduce, in place on the device.
func (ch *channel) reduce(c *comm.Call) error {
	lib := ch.d.lib
	at, err := ch.room(0, len(c.Dst))
	if err != nil {
		return err
	}
	if err := ch.put(at, c.Dst); err != nil {
		return err
	}
	n, dt, op := uintptr(len(c.Dst)/c.DType.Size()), dataTypes[c.DType], redOps[c.Reduce]
	if c.Op == comm.OpAllReduce {
		err = lib.nccl("ncclAllReduce", lib.allReduce(at, at, n, dt, op, ch.nccl, ch.stream))
	} else {
		err = lib.nccl("ncclReduce", lib.reduce(at, at, n, dt, op, int32(c.Root), ch.nccl, ch.stream))
	}
	if err != nil || c.Op == comm.OpReduce && ch.rank != c.Root {
		return err
	}
	return ch.get(c.Dst, at)
}

func (ch *channel) reduceScatter(c *comm.Call) error {
	lib := ch.d.lib
	at, err := ch.room(0, len(c.Src))
	if err != nil {
		return err
	}
	if err := ch.put(at, c.Src); err != nil {
		return err
	}
	mine := at + uintptr(ch.rank*len(c.Dst))
	n := uintptr(len(c.Dst) / c.DType.Size())
	if err := lib.nccl("ncclReduceScatter", lib.reduceScatter(at, mine, n, dataTypes[c.DType], redOps[c.Reduce], ch.nccl, ch.stream)); err != nil {
		return err
	}
	return ch.get(c.Dst, mine)
}

func (ch *channel) broadcast(c *comm.Call) error {
	lib := ch.d.lib
	at, err := ch.room(0, len(c.Dst))
	if err != nil {
		return err
	}
	if ch.rank == c.Root {
		if err := ch.put(at, c.Dst); err != nil {
			return err
		}
	}
	if err := lib.nccl("ncclBroadcast", lib.broadcast(at, at, uintptr(len(c.Dst)), ncclUint8, int32(c.Root), ch.nccl, ch.stream)); err != nil {
		return err
	}
	if ch.rank == c.Root {
		return nil
	}
	return ch.get(c.Dst, at)
}

func (ch *channel) allGather(c *comm.Call) error {
	at, err := ch.gathered(c.Src)
	if err != nil {
		return err
	}
	return ch.get(c.Dst, at)
}

// gathered has the blocks of all ranks on the device.
func (ch *channel) gathered(block []byte) (uintptr, error) {
	lib := ch.d.lib
	at, err := ch.room(0, ch.ranks*len(block))
	if err != nil {
		return 0, err
	}
	mine := at + uintptr(ch.rank*len(block))
	if err := ch.put(mine, block); err != nil {
		return 0, err
	}
	return at, lib.nccl("ncclAllGather", lib.allGather(mine, at, uintptr(len(block)), ncclUint8, ch.nccl, ch.stream))
}

// exchange sends the blocks of src and receives those of dst, to and from the
// ranks for which to and from say so.
func (ch *channel) exchange(src, dst uintptr, block int, to, from func(r int) bool) error {
	lib := ch.d.lib
	if err := lib.nccl("ncclGroupStart", lib.groupStart()); err != nil {
		return err
	}
	var first error
	for r := range ch.ranks {
		at := uintptr(r * block)
		if first == nil && to(r) {
			first = lib.nccl("ncclSend", lib.send(src+at, uintptr(block), ncclUint8, int32(r), ch.nccl, ch.stream))
		}
		if first == nil && from(r) {
			first = lib.nccl("ncclRecv", lib.recv(dst+at, uintptr(block), ncclUint8, int32(r), ch.nccl, ch.stream))
		}
	}
	if err := lib.nccl("ncclGroupEnd", lib.groupEnd()); first == nil {
		first = err
	}
	return first
}

func all(int) bool  { return true }
func none(int) bool { return false }

func (ch *channel) allToAll(dst, src []byte) error {
	given, err := ch.room(0, len(src))
	if err != nil {
		return err
	}
	got, err := ch.room(1, len(dst))
	if err != nil {
		return err
	}
	if err := ch.put(given, src); err != nil {
		return err
	}
	if err := ch.exchange(given, got, len(src)/ch.ranks, all, all); err != nil {
		return err
	}
	return ch.get(dst, got)
}

func (ch *channel) gather(c *comm.Call) error {
	size := len(c.Src)
	given, err := ch.room(0, size)
	if err != nil {
		return err
	}
	if err := ch.put(given, c.Src); err != nil {
		return err
	}
	if ch.rank != c.Root {
		// Of the blocks of src there is one, for every r.
		at := given - uintptr(c.Root*size)
		return ch.exchange(at, 0, size, func(r int) bool { return r == c.Root }, none)
	}
	got, err := ch.room(1, ch.ranks*size)
	if err != nil {
		return err
	}
	if err := ch.exchange(given-uintptr(c.Root*size), got, size, func(r int) bool { return r == c.Root }, all); err != nil {
		return err
	}
	return ch.get(c.Dst, got)
}

func (ch *channel) scatter(c *comm.Call) error {
	size := len(c.Dst)
	got, err := ch.room(1, size)
	if err != nil {
		return err
	}
	to, given := none, uintptr(0)
	if ch.rank == c.Root {
		to = all
		if given, err = ch.room(0, ch.ranks*size); err != nil {
			return err
		}
		if err := ch.put(given, c.Src); err != nil {
			return err
		}
	}
	if err := ch.exchange(given, got-uintptr(c.Root*size), size, to, func(r int) bool { return r == c.Root }); err != nil {
		return err
	}
	return ch.get(c.Dst, got)
}

// message is send and recv; in the pair's communicator the sender is rank 0.
func (ch *channel) message(c *comm.Call) error {
	lib := ch.d.lib
	b := c.Src
	if c.Op == comm.OpRecv {
		b = c.Dst
	}
	at, err := ch.room(0, len(b))
	if err != nil {
		return err
	}
	if c.Op == comm.OpRecv {
		if err := lib.nccl("ncclRecv", lib.recv(at, uintptr(len(b)), ncclUint8, 0, ch.nccl, ch.stream)); err != nil {
			return err
		}
		return ch.get(b, at)
	}
	if err := ch.put(at, b); err != nil {
		return err
	}
	return lib.nccl("ncclSend", lib.send(at, uintptr(len(b)), ncclUint8, 1, ch.nccl, ch.stream))
}

// barrier is an all_reduce of one number, which nobody reads.
func (ch *channel) barrier() error {
	lib := ch.d.lib
	at, err := ch.room(0, 4)
	if err != nil {
		return err
	}
	if err := ch.put(at, make([]byte, 4)); err != nil {
		return err
	}
	return lib.nccl("ncclAllReduce", lib.allReduce(at, at, 1, ncclInt32, redOps[comm.Sum], ch.nccl, ch.stream))
}

// reduceOnHost is for types that NCCL does not add: everything that is to be
// added comes here.
func (ch *channel) reduceOnHost(c *comm.Call) error {
	part := c.Dst
	blocks := make([]byte, ch.ranks*len(part))
	if c.Op == comm.OpReduceScatter {
		if err := ch.allToAll(blocks, c.Src); err != nil {
			return err
		}
	} else {
		at, err := ch.gathered(part)
		if err != nil {
			return err
		}
		if err := ch.get(blocks, at); err != nil {
			return err
		}
	}
	lib := ch.d.lib
	if err := lib.cuda.Synchronize(ch.stream); err != nil {
		return err
	}
	if c.Op == comm.OpReduce && ch.rank != c.Root {
		return nil
	}
	parts := make([][]byte, ch.ranks)
	for r := range parts {
		parts[r] = blocks[r*len(part):][:len(part)]
	}
	comm.Combine(part, parts, c.DType, c.Reduce)
	return nil
}
