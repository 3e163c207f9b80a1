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

func unmap(data []byte) error { return syscall.Munmap(data) }
