//go:build !linux

package mem

import "unsafe"

// page is the alignment that a mapping would have.
const page = 4096

func (a *Arena) allocate(size int) error {
	b := make([]byte, size+page)
	off := int(-uintptr(unsafe.Pointer(&b[0])) & (page - 1))
	a.data = b[off : off+size : off+size]
	return nil
}

func populate([]byte) {}

func unmap([]byte) error { return nil }
