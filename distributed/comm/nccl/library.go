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
	"os"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

// The environment variables that name the libraries' files, where the system's
// search does not find them.
const (
	LibraryVariable = "GTC_NCCL_LIB"
	DriverVariable  = "GTC_CUDA_LIB"
)

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

// library is the functions of NCCL and of the CUDA driver, all of which return
// 0 when all is well. Addresses on the device, streams and communicators are
// numbers here.
type library struct {
	version int32

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
	recv          func(dst uintptr, n uintptr, dt, peer int32, c, stream uintptr) int32

	deviceCount   func(n *int32) int32
	device        func(dev *int32, ordinal int32) int32
	retainContext func(ctx *uintptr, dev int32) int32
	setContext    func(ctx uintptr) int32
	alloc         func(at *uintptr, bytes uintptr) int32
	free          func(at uintptr) int32
	toDevice      func(dst uintptr, src unsafe.Pointer, bytes uintptr, stream uintptr) int32
	toHost        func(dst unsafe.Pointer, src uintptr, bytes uintptr, stream uintptr) int32
	streamCreate  func(stream *uintptr, flags uint32) int32
	streamDestroy func(stream uintptr) int32
	synchronize   func(stream uintptr) int32
	errorName     func(code int32, text **byte) int32
}

// open finds both libraries, once.
var open = sync.OnceValues(func() (*library, error) {
	nccl, err := dlopen(LibraryVariable, "libnccl.so.2", "libnccl.so")
	if err != nil {
		return nil, fmt.Errorf("no NCCL: %w (%s can name its file)", err, LibraryVariable)
	}
	cuda, err := dlopen(DriverVariable, "libcuda.so.1", "libcuda.so")
	if err != nil {
		return nil, fmt.Errorf("no CUDA driver, so no GPU: %w (%s can name its file)", err, DriverVariable)
	}
	l := &library{}
	if err := l.bindNCCL(nccl); err != nil {
		return nil, err
	}
	if err := l.bindCUDA(cuda); err != nil {
		return nil, err
	}
	return l, nil
})

func dlopen(variable string, names ...string) (uintptr, error) {
	if name := os.Getenv(variable); name != "" {
		names = []string{name}
	}
	var all error
	for _, name := range names {
		h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err == nil {
			return h, nil
		}
		all = errors.Join(all, err)
	}
	return 0, all
}

// bind makes the function name of library h callable as *f.
func bind(h uintptr, f any, name string) error {
	at, err := purego.Dlsym(h, name)
	if err != nil {
		return fmt.Errorf("the library has no %s: it is too old: %w", name, err)
	}
	purego.RegisterFunc(f, at)
	return nil
}

// bindNCCL takes NCCL's functions, and its version, which must be 2.10 or newer
// (the first with bf16).
func (l *library) bindNCCL(h uintptr) error {
	var getVersion func(*int32) int32
	err := errors.Join(
		bind(h, &getVersion, "ncclGetVersion"),
		bind(h, &l.getUniqueID, "ncclGetUniqueId"), bind(h, &l.initRank, "ncclCommInitRank"),
		bind(h, &l.destroy, "ncclCommDestroy"), bind(h, &l.abort, "ncclCommAbort"),
		bind(h, &l.errorString, "ncclGetErrorString"),
		bind(h, &l.groupStart, "ncclGroupStart"), bind(h, &l.groupEnd, "ncclGroupEnd"),
		bind(h, &l.allReduce, "ncclAllReduce"), bind(h, &l.reduce, "ncclReduce"), bind(h, &l.broadcast, "ncclBroadcast"),
		bind(h, &l.allGather, "ncclAllGather"), bind(h, &l.reduceScatter, "ncclReduceScatter"),
		bind(h, &l.send, "ncclSend"), bind(h, &l.recv, "ncclRecv"),
	)
	if err != nil {
		return err
	}
	if code := getVersion(&l.version); code != 0 {
		return fmt.Errorf("ncclGetVersion: %s", l.errorString(code))
	}
	const oldest = 21000
	if l.version < oldest {
		return fmt.Errorf("NCCL is of version %d, and 2.10 is the oldest that serves", l.version)
	}
	return nil
}

// bindCUDA takes the driver's functions and starts it.
func (l *library) bindCUDA(h uintptr) error {
	var start func(flags uint32) int32
	err := errors.Join(
		bind(h, &start, "cuInit"), bind(h, &l.deviceCount, "cuDeviceGetCount"), bind(h, &l.device, "cuDeviceGet"),
		bind(h, &l.retainContext, "cuDevicePrimaryCtxRetain"), bind(h, &l.setContext, "cuCtxSetCurrent"),
		bind(h, &l.alloc, "cuMemAlloc_v2"), bind(h, &l.free, "cuMemFree_v2"),
		bind(h, &l.toDevice, "cuMemcpyHtoDAsync_v2"), bind(h, &l.toHost, "cuMemcpyDtoHAsync_v2"),
		bind(h, &l.streamCreate, "cuStreamCreate"), bind(h, &l.streamDestroy, "cuStreamDestroy_v2"),
		bind(h, &l.synchronize, "cuStreamSynchronize"), bind(h, &l.errorName, "cuGetErrorName"),
	)
	if err != nil {
		return err
	}
	if err := l.cuda("cuInit", start(0)); err != nil {
		return err
	}
	var n int32
	if err := l.cuda("cuDeviceGetCount", l.deviceCount(&n)); err != nil {
		return err
	}
	if n == 0 {
		return errors.New("there is no GPU")
	}
	return nil
}

// cuda is the error of a driver's function.
func (l *library) cuda(what string, code int32) error {
	if code == 0 {
		return nil
	}
	var text *byte
	if l.errorName(code, &text) == 0 && text != nil {
		n := 0
		for *(*byte)(unsafe.Add(unsafe.Pointer(text), n)) != 0 {
			n++
		}
		return fmt.Errorf("%s: %s", what, unsafe.String(text, n))
	}
	return fmt.Errorf("%s: error %d", what, code)
}

// nccl is the error of one of NCCL's functions.
func (l *library) nccl(what string, code int32) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", what, l.errorString(code))
}
