// Package device says what the run-time asks of a processor beside the one that it runs on. runtime/device/cuda is one; a
// program that has none runs its kernels itself.
package device

// Image is the compiled kernels of a program for one kind of processor.
type Image struct {
	Arch string // sm_90: cubins; compute_90: PTX; source: CUDA C++, compiled at the first start; host: a library for this processor
	Data []byte // of sm_NN and compute_NN units as abi.UnpackUnits reads them; else the one text, which needs no headers, or library
}

// Code is the kernels of a program.
type Code struct {
	Kernels []string // names of the functions, by the number that launches give
	Images  []Image  // in order of preference
}

// Options say which device is opened and for whom.
type Options struct {
	Number     int // of the device, among those that CUDA_VISIBLE_DEVICES leaves
	ArenaBytes int // what the plan needs
}

// Opener opens a device and loads code onto it.
type Opener func(code *Code, o Options) (Device, error)

// Device holds the arena and runs calls.
type Device interface {
	Close() error
}
