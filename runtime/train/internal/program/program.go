// Package program says what a generated rank program declares, and reads the plan in it as one rank sees it: which part it has
// of each tensor, in the arena, in files and among the ranks.
package program

import (
	"strings"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
)

// Program is one compiled rank program, as generated code declares it.
type Program struct {
	// Plan is the JSON of abi.Manifest, the same for every rank.
	Plan []byte
	// Index is the position of this program in Manifest.Programs, from 0.
	Index int
	// Funcs has, for each function that the plan lists, by name, what it does, in order.
	Funcs map[string][]Call
	// Copies has, by name of a function, the copies within the arena that are made when it ends; nothing for most.
	Copies map[string][]Copy
	// Device is what the calls run on: calls then have Launches, Product or Convolution in place of Run. Nil: the CPU of this process.
	Device *Device
	// SetThreads sets the number of threads that each generated kernel uses, at least 1.
	SetThreads func(n int)
}

// Device is the code of a program for a device, and how that is opened.
type Device struct {
	Code device.Code   // its kernels, for each kind of chip
	Open device.Opener // takes the device of this rank
}

// What programs are made of is declared where the compiler, which writes it, sees it, too.
type (
	Call = abi.Call // one step of a function
	Comm = abi.Comm // a collective, part of a call
	Copy = abi.Copy // of a stretch of the arena to another place in it
	Span = abi.Span // a stretch of the arena that holds elements of one type
)

// Place is where the model says loc, for errors.
func Place(loc string) string {
	if strings.TrimSpace(loc) == "" {
		return "an op without a location"
	}
	return loc
}
