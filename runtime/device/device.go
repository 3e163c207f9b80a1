// Package device says what the run-time asks of a processor: runtime/device/cpu is the one that the process runs on, with its
// memory; runtime/device/cuda is one beside it. The run-time drives all of them through Device. Where it can do better with an
// arena that it reaches itself, it asks whether a Device is Local, and never which one it is.
package device

import (
	"fmt"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Image is the compiled kernels of a program for one kind of processor.
type Image struct {
	Arch string // sm_90: cubins; compute_90: PTX; source: CUDA C++, compiled at the first start; host: a library for this processor
	Data []byte // of sm_NN and compute_NN units as abi.UnpackUnits reads them; else the one text, which needs no headers, or library
}

// Code is the kernels of a program.
type Code struct {
	Kernels []string // names of the functions, by the number that launches give
	Images  []Image  // in order of preference
	StandIn []byte   // library of the stand-in that the host image runs on, in place of a driver
	Driver  int      // the oldest CUDA that the driver must support, such as 13000 where a cubin is NVRTC 13's; 0 asks for 12.0
}

// Options say which device is opened and for whom.
type Options struct {
	Number       int // of the device, modulo their number, among those that CUDA_VISIBLE_DEVICES leaves
	ArenaBytes   int // what the plan needs
	RuntimeBytes int // bytes that follow them, for the run-time itself where work is queued ahead; a Local device makes none
	Log          func(format string, args ...any)
}

// Opener opens a device, loads code onto it and makes an arena of zeros there. The calling goroutine must be locked to its
// thread, to which the device is bound.
type Opener func(code *Code, o Options) (Device, error)

// Info describes a device. What one does not have is left out.
type Info struct {
	Name    string   // NVIDIA H200; cpu
	Kind    string   // GPU
	Number  int      // among those that the process sees
	Arch    string   // sm_90
	ID      [16]byte // the same for every process that uses it
	Memory  int      // bytes
	Image   string   // the Arch of the image that was loaded
	Driver  string   // what the driver supports, such as CUDA 13.0
	Library string   // the comm.DeviceBackend whose collectives work on its memory, such as nccl
}

// Usage is what a device is doing, for all processes together. Numbers that nobody tells are -1.
type Usage struct {
	Used, Total int // bytes of memory
	Busy        int // percent of the last moments in which a kernel ran
}

// Task is what a call does: a function of this process, on a Local device; else launches, or a product or convolution that a
// library may do in their place.
type Task struct {
	Run         func(b unsafe.Pointer, at []int) int64 // on the arena at b: -1, or the first row whose index was out of range
	At          []int                                  // what Run is given
	Launches    []abi.Launch
	Product     *abi.Product
	Convolution *abi.Convolution
	Status      int // offset of the call's status word; -1 for none
}

// Work is a prepared Task, to be run any number of times.
type Work interface{ Run(s Stream) error }

// Event is a point in a stream that others wait for.
type Event uintptr

// Graph is the recorded work of streams, to be launched as one.
type Graph uintptr

// Device holds the arena and runs calls. Offsets are bytes from the start of the arena. A device is used by threads that Bind
// was called on, one at a time; streams by one thread each.
type Device interface {
	Info() Info
	Usage() Usage
	// Bind prepares the calling thread, to which its goroutine is locked.
	Bind() error
	// Main is the stream of the kernels.
	Main() Stream
	// NewStream makes another; urgent work goes before that of other streams where the device can choose.
	NewStream(urgent bool) (Stream, error)
	NewEvent() (Event, error)
	// Done reports whether an event is over, as one never recorded is.
	Done(e Event) (bool, error)
	Prepare(t *Task) (Work, error)
	// Put copies data to the arena, and Get from there, after all work of Main; they return when it is done.
	Put(offset int, data []byte) error
	Get(data []byte, offset int) error
	// Address is where an offset lies, for libraries that work on the device's memory; of a Local device, in this process's.
	Address(offset int) uintptr
	// Pinned gives n bytes of host memory that the device reads and writes beside other work, until Close.
	Pinned(n int) ([]byte, error)
	Drop(g Graph)
	Close() error
}

// Local is a Device in this process: its arena lies in the process's memory, of ArenaBytes alone, and its streams have done
// what they were given when their methods return. Nothing is queued ahead on one, and nothing copied to be looked at.
type Local interface {
	Device
	// Bytes are n bytes of the arena itself. It panics when they are not inside.
	Bytes(offset, n int) []byte
	// Populate has the system find the memory for all of the arena now, not when a call first meets it.
	Populate()
}

// Refused is the error of a call on a Local device that met an index out of range, in that row. Elsewhere the call's status word
// tells, later.
type Refused int64

// Error implements error.
func (r Refused) Error() string {
	return fmt.Sprintf("row %d has an index that is out of range", int64(r))
}

// Stream is a queue of work on a device. Its methods return before the work is done; errors of earlier work come with any later
// method.
type Stream interface {
	Run(w Work) error
	// Copy copies n bytes within the arena; CopyRows rows of n bytes, which are so many bytes apart there and here.
	Copy(to, from, n int) error
	CopyRows(to, toStride, from, fromStride, n, rows int) error
	// Upload and Download copy between the arena and pinned memory, which must stay as it is until the work is done.
	Upload(to int, b []byte) error
	Download(b []byte, from int) error
	// Record puts an event here, Wait has later work wait for it. Publish is Record for an event that streams outside of a graph
	// wait for, each time that the graph runs.
	Record(e Event) error
	Publish(e Event) error
	Wait(e Event) error
	// Query reports whether all work is done; Sync waits for it.
	Query() (bool, error)
	Sync() error
	// Capture records what follows, on this stream and on those that wait for its events, until End makes a graph of it; nothing
	// runs meanwhile. Launch runs a graph.
	Capture() error
	End() (Graph, error)
	Launch(g Graph) error
	// Handle is the stream as libraries know it.
	Handle() uintptr
}

// Failure is an error of a device that tells whether anything can go on there.
type Failure interface {
	error
	Lost() bool
}
