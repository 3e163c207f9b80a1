package mem

import "syscall"

func (a *Arena) allocate(size int) error {
	data, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return err
	}
	a.data, a.mapped = data, true
	// Fewer TLB misses; a kernel without huge pages refuses, which is no loss.
	_ = syscall.Madvise(data, syscall.MADV_HUGEPAGE)
	return nil
}

// madvPopulateWrite is MADV_POPULATE_WRITE of Linux 5.14, which package syscall does not name.
const madvPopulateWrite = 23

func populate(data []byte) { _ = syscall.Madvise(data, madvPopulateWrite) }

func unmap(data []byte) error { return syscall.Munmap(data) }
