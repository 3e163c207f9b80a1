//go:build !unix

package mapfile

import (
	"io"
	"os"
)

func (m *File) load(f *os.File, size int) error {
	m.Data = make([]byte, size)
	_, err := io.ReadFull(f, m.Data)
	return err
}

func unload([]byte) error { return nil }
