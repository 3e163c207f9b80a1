package npz

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// npyHeader is the version 1.0 header of a, padded so that data begins at a multiple of 64.
func npyHeader(a *Array) ([]byte, error) {
	code, size := "", 0
	for _, k := range kinds {
		if k.name == a.DType {
			code, size = k.code, k.size
		}
	}
	if code == "" {
		return nil, fmt.Errorf("array %q: NumPy files cannot hold %s", a.Name, a.DType)
	}
	want := size
	var shape strings.Builder
	for _, d := range a.Shape {
		want *= d
		shape.WriteString(strconv.Itoa(d) + ", ")
	}
	if want != len(a.Data) {
		return nil, fmt.Errorf("array %q: %s%v needs %d bytes, but %d are given", a.Name, a.DType, a.Shape, want, len(a.Data))
	}
	dims := strings.TrimSuffix(shape.String(), " ")
	if len(a.Shape) != 1 {
		dims = strings.TrimSuffix(dims, ",")
	}
	order := "<"
	if size == 1 {
		order = "|"
	}
	text := fmt.Sprintf("{'descr': '%s%s', 'fortran_order': False, 'shape': (%s), }", order, code, dims)
	total := (10 + len(text) + 1 + 63) / 64 * 64
	if total-10 > 0xffff {
		return nil, fmt.Errorf("array %q: %d dims are too many", a.Name, len(a.Shape))
	}
	b := append(make([]byte, 0, total), magic...)
	b = append(b, 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(total-10))
	b = append(b, text...)
	for len(b) < total-1 {
		b = append(b, ' ')
	}
	return append(b, '\n'), nil
}

// WriteNpy writes a as one npy file.
func WriteNpy(w io.Writer, a *Array) error {
	head, err := npyHeader(a)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err = w.Write(a.Data)
	return err
}

// Write writes arrays as an npz file, deflated if compress is set. Equal arrays give
// equal bytes: the members carry no times.
func Write(w io.Writer, arrays []Array, compress bool) error {
	z := zip.NewWriter(w)
	seen := map[string]bool{}
	for i := range arrays {
		a := &arrays[i]
		if seen[a.Name] {
			return fmt.Errorf("array %q occurs twice", a.Name)
		}
		seen[a.Name] = true
		head := &zip.FileHeader{Name: a.Name + ".npy", Method: zip.Store}
		if compress {
			head.Method = zip.Deflate
		}
		m, err := z.CreateHeader(head)
		if err != nil {
			return err
		}
		if err := WriteNpy(m, a); err != nil {
			return err
		}
	}
	return z.Close()
}

// WriteFile writes arrays to path: as npy when path ends in ".npy" (exactly one
// array), else as an npz file with stored members. On an error no file is left.
func WriteFile(path string, arrays []Array) error {
	if strings.HasSuffix(path, ".npy") && len(arrays) != 1 {
		return fmt.Errorf("%s: an npy file holds one array, not %d", path, len(arrays))
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if strings.HasSuffix(path, ".npy") {
		err = WriteNpy(f, &arrays[0])
	} else {
		err = Write(f, arrays, false)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
