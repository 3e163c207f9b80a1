// Package driver calls the CUDA driver, libcuda, without cgo. Names and numbers are those of cuda.h 13.0; the functions have
// been there since CUDA 12.0.
package driver

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/dynlib"
)

// Variable names the environment variable that names the driver's file, where the system's search does not find it or another
// one is meant.
const Variable = "GTC_CUDA_LIB"

// Func is a function of the driver.
type Func int

// The functions that gtc calls.
const (
	Init Func = iota
	DriverGetVersion
	GetErrorName
	GetErrorString
	DeviceGetCount
	DeviceGet
	DeviceGetName
	DeviceGetAttribute
	DeviceTotalMem
	DeviceGetUUID
	DeviceGetPCIBusID
	DevicePrimaryCtxRetain
	DevicePrimaryCtxRelease
	CtxSetCurrent
	MemGetInfo
	MemAlloc
	MemFree
	MemHostAlloc
	MemFreeHost
	MemcpyHtoDAsync
	MemcpyDtoHAsync
	MemcpyDtoDAsync
	Memcpy2DAsync
	MemsetD8Async
	MemsetD32Async
	StreamCreateWithPriority
	StreamCreate
	StreamDestroy
	StreamSynchronize
	StreamQuery
	StreamWaitEvent
	StreamBeginCapture
	StreamEndCapture
	EventCreate
	EventDestroy
	EventRecord
	EventRecordWithFlags
	EventSynchronize
	EventQuery
	EventElapsedTime
	ModuleLoadDataEx
	ModuleUnload
	ModuleGetFunction
	FuncSetAttribute
	FuncGetAttribute
	LaunchKernel
	GraphInstantiate
	GraphLaunch
	GraphDestroy
	GraphExecDestroy
	numFuncs
)

// symbols are the functions' names in the library: those with a suffix have another form without it, for programs of long ago.
var symbols = [numFuncs]string{
	"cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString",
	"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute", "cuDeviceTotalMem_v2", "cuDeviceGetUuid_v2", "cuDeviceGetPCIBusId",
	"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent",
	"cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuMemFreeHost",
	"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpy2DAsync_v2", "cuMemsetD8Async", "cuMemsetD32Async",
	"cuStreamCreateWithPriority", "cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize", "cuStreamQuery", "cuStreamWaitEvent",
	"cuStreamBeginCapture_v2", "cuStreamEndCapture",
	"cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventRecordWithFlags", "cuEventSynchronize", "cuEventQuery", "cuEventElapsedTime",
	"cuModuleLoadDataEx", "cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute", "cuFuncGetAttribute", "cuLaunchKernel",
	"cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphDestroy", "cuGraphExecDestroy",
}

// String is the name without the suffix.
func (f Func) String() string {
	s := symbols[f]
	if n := len(s); n > 3 && s[n-3:n-1] == "_v" {
		s = s[:n-3]
	}
	return s
}

// Driver is the opened library. Contexts, streams, events and addresses on a device are numbers.
type Driver struct {
	Version int  // of CUDA that it supports, such as 13000 for 13.0; 0 when it does not tell
	StandIn bool // it is gtc's own for tests, which runs kernels on this processor
	at      [numFuncs]uintptr
}

// standIn is a symbol of the stand-in alone.
const standIn = "gtcStandIn"

// Open finds and starts the driver, once for the process. The error says what is missing.
var Open = sync.OnceValues(func() (*Driver, error) {
	lib, err := dynlib.Open(Variable, "libcuda.so.1", "libcuda.so")
	if err != nil {
		return nil, fmt.Errorf("no NVIDIA driver: libcuda.so.1 cannot be loaded: %w (set %s to its file if it lies elsewhere; a program of gtc compile --arch host needs none)", err, Variable)
	}
	return start(lib)
})

// OpenStandIn starts the stand-in for a GPU and its driver that a program for tests carries with it. Where Variable names
// a driver, that is opened instead.
func OpenStandIn(library []byte) (*Driver, error) {
	if os.Getenv(Variable) != "" {
		return Open()
	}
	lib, err := dynlib.Load(library)
	if err != nil {
		return nil, fmt.Errorf("the stand-in for a GPU cannot be loaded: %w", err)
	}
	return start(lib)
}

// start binds and initialises a driver.
func start(lib uintptr) (*Driver, error) {
	d := &Driver{StandIn: dynlib.Symbol(lib, standIn) != 0}
	for f, name := range symbols {
		d.at[f] = dynlib.Symbol(lib, name)
	}
	if err := d.Call(Init, 0); err != nil {
		return nil, fmt.Errorf("the NVIDIA driver does not start: %w", err)
	}
	n, err := d.Devices()
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.New("the NVIDIA driver shows no GPU (does CUDA_VISIBLE_DEVICES hide them?)")
	}
	var version int32
	if d.at[DriverGetVersion] != 0 && d.Call(DriverGetVersion, uintptr(unsafe.Pointer(&version))) == nil {
		d.Version = int(version)
	}
	return d, nil
}

// Call calls a function. It allocates nothing when args is a slice that the caller keeps and all is well.
//
//go:uintptrescapes
func (d *Driver) Call(f Func, args ...uintptr) error {
	if d.at[f] == 0 {
		return fmt.Errorf("the NVIDIA driver is too old: it lacks %s", symbols[f])
	}
	if code := dynlib.Call(d.at[f], args...); code != 0 {
		return d.failure(f, code)
	}
	return nil
}

// Release is a version as people write it: 12.4 for 12040.
func Release(version int) string { return fmt.Sprintf("%d.%d", version/1000, version%1000/10) }

// Devices is the number of GPUs that CUDA_VISIBLE_DEVICES leaves.
func (d *Driver) Devices() (int, error) {
	var n int32
	if err := d.Call(DeviceGetCount, uintptr(unsafe.Pointer(&n))); err != nil {
		var e *Error
		if errors.As(err, &e) && e.Code == noDevice {
			return 0, nil
		}
		return 0, err
	}
	return int(n), nil
}
