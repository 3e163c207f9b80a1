//go:build !unix

package model

import (
	"fmt"
	"io"
	"os"
)

// mapFile reads a regular file whole: this system has no portable memory map.
func mapFile(f *os.File) ([]byte, func() error, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file", f.Name())
	}
	data, err := io.ReadAll(f)
	return data, func() error { return nil }, err
}
