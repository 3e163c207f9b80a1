// Package device says what the run-time asks of a processor beside the one that it runs on. runtime/device/cuda is one; a
// program that has none runs its kernels itself.
package device

import "github.com/gtc-compiler/gtc/runtime/abi"

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
	Number     int // of the device, modulo their number, among those that CUDA_VISIBLE_DEVICES leaves
	ArenaBytes int // what the plan needs
	Log        func(format string, args ...any)
}

// Opener opens a device, loads code onto it and makes an arena of zeros there. The calling goroutine must be locked to its
// thread, to which the device is bound.
type Opener func(code *Code, o Options) (Device, error)

// Info describes a device.
type Info struct {
	Name   string   // NVIDIA H200
	Number int      // among those that the process sees
	Arch   string   // sm_90
	ID     [16]byte // the same for every process that uses it
	Memory int      // bytes
	Image  string   // the Arch of the image that was loaded
	Driver string   // the CUDA that the driver supports, such as 13.0
}

// Usage is what a device is doing, for all processes together. Numbers that nobody tells are -1.
type Usage struct {
	Used, Total int // bytes of memory
	Busy        int // percent of the last moments in which a kernel ran
}

// Task is what a call does: launches, or a product or convolution that a library may do in their place.
type Task struct {
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
	// Address is where an offset lies, for libraries that work on the device's memory.
	Address(offset int) uintptr
	// Pinned gives n bytes of host memory that the device reads and writes beside other work, until Close.
	Pinned(n int) ([]byte, error)
	Drop(g Graph)
	Close() error
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
