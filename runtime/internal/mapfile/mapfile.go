// Package mapfile gives read-only views of whole files. Where the system can map
// files into memory it does, so that opening a file of any size costs nothing
// until its bytes are looked at; elsewhere the file is read.
package mapfile

import (
	"errors"
	"fmt"
	"os"
)

// File is a file's bytes. Data must not be written to, nor used after Close.
// A file that another process shortens while it is mapped ends this process
// (SIGBUS), as with every use of mmap; checkpoints and data sets are therefore
// replaced by rename, never rewritten in place.
type File struct {
	Path string
	Data []byte

	mapped bool
}

// Open maps the regular file at path. An empty file gives empty Data.
func Open(path string) (*File, error) {
	if path == "" {
		return nil, errors.New("no file is named: its path is empty")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file (%s)", path, st.Mode().Type())
	}
	size := st.Size()
	if size != int64(int(size)) {
		return nil, fmt.Errorf("%s: %d bytes are more than this machine can address", path, size)
	}
	m := &File{Path: path}
	if size == 0 {
		return m, nil
	}
	if err := m.load(f, int(size)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// Close gives the memory back. It may be called twice.
func (m *File) Close() error {
	data := m.Data
	m.Data = nil
	if !m.mapped || data == nil {
		return nil
	}
	return unload(data)
}
