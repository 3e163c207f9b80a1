//go:build unix

package mapfile

import (
	"fmt"
	"os"
	"syscall"
)

func (m *File) load(f *os.File, size int) error {
	data, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping %d bytes: %w", size, err)
	}
	m.Data, m.mapped = data, true
	return nil
}

func unload(data []byte) error { return syscall.Munmap(data) }
