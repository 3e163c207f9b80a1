// Package dynlib opens shared libraries at run time, without cgo: a program that uses one also starts where it is not.
package dynlib

import (
	"errors"
	"fmt"
	"os"

	"github.com/ebitengine/purego"
)

// Open opens the first of the files names that the system's loader finds, or the one that the environment variable names.
func Open(variable string, names ...string) (uintptr, error) {
	if name := os.Getenv(variable); name != "" {
		names = []string{name}
	}
	var all error
	for _, name := range names {
		lib, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err == nil {
			return lib, nil
		}
		all = errors.Join(all, err)
	}
	return 0, all
}

// Load opens a library that a program carries with it, by way of a file that is gone afterwards.
func Load(library []byte) (uintptr, error) {
	f, err := os.CreateTemp("", "gtc-*.so")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(library)
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	return purego.Dlopen(f.Name(), purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

// Symbol is the address of a function of lib; 0 where it has none of that name.
func Symbol(lib uintptr, name string) uintptr {
	at, err := purego.Dlsym(lib, name)
	if err != nil {
		return 0
	}
	return at
}

// Bind makes the function name of lib callable as *f, a variable of a func type. Such calls allocate; see Call.
func Bind(lib uintptr, f any, name string) error {
	at := Symbol(lib, name)
	if at == 0 {
		return fmt.Errorf("the library is too old: it lacks %s", name)
	}
	purego.RegisterFunc(f, at)
	return nil
}

// Call calls the function at fn with integers and addresses and gives its int result. It allocates nothing when args is a slice
// that the caller keeps. What the addresses in a call's own expression point to stays where it is until the call is over.
//
//go:uintptrescapes
func Call(fn uintptr, args ...uintptr) int32 {
	r, _, _ := purego.SyscallN(fn, args...)
	return int32(r)
}
