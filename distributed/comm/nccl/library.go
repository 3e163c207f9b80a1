// Package nccl has NVIDIA's NCCL move and add the data of distributed/comm
// between the GPUs of the ranks. Importing it registers the backend, which
// serves with GTC_COMM=nccl.
//
// libnccl and the CUDA driver are opened at run time, so a program that has
// this package also runs where they are not. Names and numbers are those of
// nccl.h 2.28.3 (they have not changed since 2.10) and of cuda.h 12.
//
// Buffers are in host memory and are staged through the GPU's: a rank copies
// what it gives to the device, has NCCL work there, and copies what it gets
// back. Ranks of a host take GPUs by their local rank.
//
// A `local` communicator stands behind every group: by it the ranks meet and
// exchange NCCL's ids, and by it a rank that dies, aborts or leaves is known to
// the others, whose operations are aborted.
//
// Two promises of comm are not kept, since NCCL makes the sums: they follow the
// order of its algorithms, which depends on the topology, so that the bits
// differ from the other backends' (not from run to run); and Max and Min need
// not give NaN for NaN. i16 and u16, which NCCL does not know, are added on the
// host, in comm's tree.
package nccl

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gtc-compiler/gtc/distributed/comm"
	cuda "github.com/gtc-compiler/gtc/runtime/device/cuda/driver"
	"github.com/gtc-compiler/gtc/runtime/dynlib"
)

// LibraryVariable names the library's file, where the system's search does not
// find it. That of the CUDA driver is cuda.Variable.
const LibraryVariable = "GTC_NCCL_LIB"

// uniqueID is ncclUniqueId: how the ranks of a group find each other.
type uniqueID struct{ internal [128]byte }

// ncclDataType_t.
const (
	ncclInt8 = iota
	ncclUint8
	ncclInt32
	ncclUint32
	ncclInt64
	ncclUint64
	ncclFloat16
	ncclFloat32
	ncclFloat64
	ncclBfloat16
)

// dataTypes are NCCL's types by comm's; -1 where it has none.
var dataTypes = [...]int32{
	comm.F32: ncclFloat32, comm.F64: ncclFloat64, comm.F16: ncclFloat16, comm.BF16: ncclBfloat16,
	comm.I8: ncclInt8, comm.I16: -1, comm.I32: ncclInt32, comm.I64: ncclInt64,
	comm.U8: ncclUint8, comm.U16: -1, comm.U32: ncclUint32, comm.U64: ncclUint64,
}

// redOps are ncclRedOp_t by comm's reductions.
var redOps = [...]int32{comm.Sum: 0, comm.Prod: 1, comm.Max: 2, comm.Min: 3, comm.Avg: 4}

// library is the functions of NCCL, all of which return 0 when all is well, and
// the CUDA driver. Addresses on the device, streams and communicators are
// numbers here.
type library struct {
	version int32
	cuda    *cuda.Driver

	getUniqueID   func(id *uniqueID) int32
	initRank      func(c *uintptr, ranks int32, id uniqueID, rank int32) int32
	destroy       func(c uintptr) int32
	abort         func(c uintptr) int32
	errorString   func(code int32) string
	groupStart    func() int32
	groupEnd      func() int32
	allReduce     func(src, dst uintptr, n uintptr, dt, op int32, c, stream uintptr) int32
	reduce        func(src, dst uintptr, n uintptr, dt, op, root int32, c, stream uintptr) int32
	broadcast     func(src, dst uintptr, n uintptr, dt, root int32, c, stream uintptr) int32
	allGather     func(src, dst uintptr, n uintptr, dt int32, c, stream uintptr) int32
	reduceScatter func(src, dst uintptr, n uintptr, dt, op int32, c, stream uintptr) int32
	send          func(src uintptr, n uintptr, dt, peer int32, c, stream uintptr) int32
	asyncError    func(c uintptr, state *int32) int32 // nil where there is none
	recv          func(dst uintptr, n uintptr, dt, peer int32, c, stream uintptr) int32
}

// open finds both libraries, once.
var open = sync.OnceValues(func() (*library, error) {
	nccl, err := dynlib.Open(LibraryVariable, "libnccl.so.2", "libnccl.so")
	if err != nil {
		return nil, fmt.Errorf("NCCL cannot be loaded: %w (set %s to its file if it lies elsewhere)", err, LibraryVariable)
	}
	l := &library{}
	if l.cuda, err = cuda.Open(); err != nil {
		return nil, err
	}
	if err := l.bindNCCL(nccl); err != nil {
		return nil, err
	}
	return l, nil
})

// bindIfThere is dynlib.Bind for a function that one can do without.
func bindIfThere(h uintptr, f any, name string) error {
	if dynlib.Symbol(h, name) == 0 {
		return nil
	}
	return dynlib.Bind(h, f, name)
}

// bindNCCL takes NCCL's functions, and its version, which must be 2.10 or newer
// (the first with bf16).
func (l *library) bindNCCL(h uintptr) error {
	var getVersion func(*int32) int32
	err := errors.Join(
		dynlib.Bind(h, &getVersion, "ncclGetVersion"),
		dynlib.Bind(h, &l.getUniqueID, "ncclGetUniqueId"), dynlib.Bind(h, &l.initRank, "ncclCommInitRank"),
		dynlib.Bind(h, &l.destroy, "ncclCommDestroy"), dynlib.Bind(h, &l.abort, "ncclCommAbort"),
		dynlib.Bind(h, &l.errorString, "ncclGetErrorString"),
		dynlib.Bind(h, &l.groupStart, "ncclGroupStart"), dynlib.Bind(h, &l.groupEnd, "ncclGroupEnd"),
		dynlib.Bind(h, &l.allReduce, "ncclAllReduce"), dynlib.Bind(h, &l.reduce, "ncclReduce"), dynlib.Bind(h, &l.broadcast, "ncclBroadcast"),
		dynlib.Bind(h, &l.allGather, "ncclAllGather"), dynlib.Bind(h, &l.reduceScatter, "ncclReduceScatter"),
		bindIfThere(h, &l.asyncError, "ncclCommGetAsyncError"), dynlib.Bind(h, &l.send, "ncclSend"), dynlib.Bind(h, &l.recv, "ncclRecv"),
	)
	if err != nil {
		return err
	}
	if code := getVersion(&l.version); code != 0 {
		return fmt.Errorf("ncclGetVersion: %s", l.errorString(code))
	}
	const oldest = 21000
	if l.version < oldest {
		return fmt.Errorf("NCCL has version %s, but gtc needs 2.10 or newer", release(int(l.version)))
	}
	return nil
}

// remoteError is ncclRemoteError: another rank left or aborted (nccl.h).
const remoteError = 6

// elsewhere is an error of NCCL's for which another rank is to blame.
type elsewhere struct{ error }

// nccl is the error of one of NCCL's functions.
func (l *library) nccl(what string, code int32) error {
	if code == 0 {
		return nil
	}
	err := fmt.Errorf("%s: %s", what, l.errorString(code))
	if code == remoteError {
		return elsewhere{err}
	}
	return err
}
