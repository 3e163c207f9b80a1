// Package npz reads and writes NumPy's .npy and .npz files.
//
// An npy file is the magic "\x93NUMPY", two version bytes (1.0, 2.0 or 3.0), the
// length of the header (16 bits in version 1, 32 bits later, little-endian), the
// header (a Python dict literal with the keys descr, fortran_order and shape,
// padded so that the data starts at a multiple of 64) and the data. An npz file is
// a zip archive of npy files, stored (numpy.savez) or deflated
// (numpy.savez_compressed); the member "image.npy" holds the array "image".
// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
//
// Arrays come out little-endian with the last dim fastest, whatever the file has.
// Records, strings, complex numbers, dates and pickled objects are refused.
// Files are not trusted: no size that a file merely claims is allocated, and a
// member must have exactly the bytes that its header asks for.
package npz

import (
	"archive/zip"
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/internal/mapfile"
)

// Array is one array: little-endian, row-major (last dim fastest).
type Array struct {
	Name  string
	DType string // short name: "f32", "i64", "bool", ...
	Shape []int
	Data  []byte // Count(Shape) elements; must not be written to when it came from Read
}

// File is an open .npy or .npz file. Its methods may be called from several goroutines.
type File struct {
	path    string
	m       *mapfile.File
	names   []string
	members map[string]*zip.File // nil for a .npy file
}

// Open opens the .npz or .npy file at path; the content decides which it is. A .npy
// file has a single array, named like the file without its extension. Only the
// archive's directory is read: arrays are checked when they are asked for.
func Open(path string) (*File, error) {
	m, err := mapfile.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, m: m}
	if err := f.list(); err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func (f *File) list() error {
	b := f.m.Data
	if len(b) >= 6 && string(b[:6]) == magic {
		base := filepath.Base(f.path)
		f.names = []string{strings.TrimSuffix(base, filepath.Ext(base))}
		return nil
	}
	if len(b) < 4 || string(b[:2]) != "PK" {
		return fmt.Errorf("neither an npy nor an npz file: it starts with %q", b[:min(len(b), 6)])
	}
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return fmt.Errorf("npz: %w (is the file cut short?)", err)
	}
	f.members = make(map[string]*zip.File, len(z.File))
	for _, zf := range z.File {
		name, ok := strings.CutSuffix(zf.Name, ".npy")
		if !ok {
			continue // NumPy also lets raw members travel along; they are not arrays
		}
		if f.members[name] != nil {
			return fmt.Errorf("npz: member %q occurs twice", zf.Name)
		}
		f.members[name] = zf
		f.names = append(f.names, name)
	}
	return nil
}

// Close gives the mapping back; arrays that Read returned must not be used afterwards.
func (f *File) Close() error { return f.m.Close() }

// Path is the file's path as given to Open.
func (f *File) Path() string { return f.path }

// Names lists the arrays in the file's order.
func (f *File) Names() []string { return f.names }

// fail puts file and member before an error.
func (f *File) fail(name string, err error) error {
	if f.members == nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	return fmt.Errorf("%s: array %q: %w", f.path, name, err)
}

func (f *File) has(name string) error {
	for _, n := range f.names {
		if n == name {
			return nil
		}
	}
	return fmt.Errorf("%s: there is no array %q; there are %q", f.path, name, f.names)
}

// Header returns the description of the array name without reading its data.
func (f *File) Header(name string) (*Header, error) {
	if err := f.has(name); err != nil {
		return nil, err
	}
	if f.members == nil {
		h, err := parseHeader(f.m.Data)
		if err == nil {
			err = h.fits(uint64(len(f.m.Data)))
		}
		if err != nil {
			return nil, f.fail(name, err)
		}
		return h, nil
	}
	_, h, err := f.open(f.members[name])
	if err != nil {
		return nil, f.fail(name, err)
	}
	return h, nil
}

// fits checks that a file or member of total bytes is what the header describes.
func (h *Header) fits(total uint64) error {
	if have := int64(total) - int64(h.Offset); have != int64(h.Bytes()) {
		return fmt.Errorf("its header says %s%v, which takes %d bytes, but the file has %d", h.DType, h.Shape, h.Bytes(), have)
	}
	return nil
}

// maxRatio is more than deflate can compress (1,032 to 1).
const maxRatio = 1040

// open starts reading a member: the reader stands after the header, which has been
// checked against the member's size.
func (f *File) open(zf *zip.File) (io.Reader, *Header, error) {
	if zf.Flags&1 != 0 {
		return nil, nil, fmt.Errorf("the member is encrypted")
	}
	size := zf.UncompressedSize64
	switch {
	case zf.Method != zip.Store && zf.Method != zip.Deflate:
		return nil, nil, fmt.Errorf("zip method %d is not supported: only stored (0) and deflated (8) are", zf.Method)
	case zf.CompressedSize64 > uint64(len(f.m.Data)):
		return nil, nil, fmt.Errorf("the member claims %d bytes of a file of %d", zf.CompressedSize64, len(f.m.Data))
	case zf.Method == zip.Store && size != zf.CompressedSize64:
		return nil, nil, fmt.Errorf("a stored member claims %d bytes, but has %d", size, zf.CompressedSize64)
	case size > zf.CompressedSize64*maxRatio:
		return nil, nil, fmt.Errorf("the member claims %d bytes, more than %d deflated ones can hold", size, zf.CompressedSize64)
	}
	r, err := zf.Open()
	if err != nil {
		return nil, nil, err
	}
	head := make([]byte, 12)
	if n, err := io.ReadFull(r, head); err != nil {
		return nil, nil, fmt.Errorf("reading the header: %w after %d bytes", err, n)
	}
	length := 10 + int(head[8]) + int(head[9])<<8
	if head[6] > 1 {
		length = 12 + int(head[8]) + int(head[9])<<8 + int(head[10])<<16 + int(head[11])<<24
	}
	if length > 12 && length <= maxHeader+12 {
		rest := make([]byte, length-12)
		n, err := io.ReadFull(r, rest)
		if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
			return nil, nil, err
		}
		head = append(head, rest[:n]...)
	}
	h, err := parseHeader(head)
	if err != nil {
		return nil, nil, err
	}
	if h.Offset < len(head) { // a version 1 header of fewer than 2 bytes cannot be valid
		return nil, nil, fmt.Errorf("npy header of %d bytes is too short", h.Offset)
	}
	return r, h, h.fits(size)
}

// Read returns the array name. Its Data is a view of the file where the file has the
// bytes as they are needed (npy, or a stored npz member, little-endian, row-major),
// else a copy. The checksum of an npz member is verified.
func (f *File) Read(name string) (*Array, error) {
	h, err := f.Header(name)
	if err != nil {
		return nil, err
	}
	var data []byte
	switch zf := f.members[name]; {
	case f.members == nil:
		data = f.m.Data[h.Offset:]
	case zf.Method == zip.Store:
		data, err = f.view(zf, h)
	default:
		data, err = f.inflate(zf)
	}
	if err != nil {
		return nil, f.fail(name, err)
	}
	if h.BigEndian {
		data = swapped(data, h.Size)
	}
	if h.Fortran {
		data = rowMajor(data, h.Shape, h.Size)
	}
	return &Array{Name: name, DType: h.DType, Shape: h.Shape, Data: data}, nil
}

// view finds a stored member's bytes in the mapping.
func (f *File) view(zf *zip.File, h *Header) ([]byte, error) {
	off, err := zf.DataOffset()
	if err != nil {
		return nil, err
	}
	if off < 0 || uint64(off)+zf.UncompressedSize64 > uint64(len(f.m.Data)) {
		return nil, fmt.Errorf("the member reaches beyond the end of the file")
	}
	all := f.m.Data[off : off+int64(zf.UncompressedSize64)]
	if got := crc32.ChecksumIEEE(all); got != zf.CRC32 {
		return nil, fmt.Errorf("its checksum is %08x, but the archive says %08x: the file is damaged", got, zf.CRC32)
	}
	return all[h.Offset:], nil
}

// inflate reads a deflated member. The buffer starts at what an ordinary array needs
// and grows only as bytes really arrive, so a small file that claims to be huge costs
// no memory before it has delivered.
func (f *File) inflate(zf *zip.File) ([]byte, error) {
	r, h, err := f.open(zf)
	if err != nil {
		return nil, err
	}
	want := h.Bytes()
	data := make([]byte, 0, min(want, 1<<20+64*int(zf.CompressedSize64)))
	for len(data) < want {
		if len(data) == cap(data) {
			grown := make([]byte, len(data), min(want, 2*cap(data)))
			copy(grown, data)
			data = grown
		}
		n, err := io.ReadFull(r, data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err != nil {
			return nil, fmt.Errorf("inflating: %w after %d of %d bytes", err, len(data), want)
		}
	}
	// The checksum is compared when the reader meets the end.
	if n, err := io.ReadFull(r, make([]byte, 1)); err != io.EOF {
		if n != 0 {
			err = fmt.Errorf("the data are longer than the archive says")
		}
		return nil, fmt.Errorf("inflating: %w: the file is damaged", err)
	}
	return data, nil
}

// swapped copies data with the bytes of each element reversed.
func swapped(data []byte, size int) []byte {
	out := make([]byte, len(data))
	for i := 0; i < len(data); i += size {
		for j := range size {
			out[i+j] = data[i+size-1-j]
		}
	}
	return out
}

// rowMajor copies an array whose first dim is fastest into one whose last dim is.
func rowMajor(data []byte, shape []int, size int) []byte {
	wide := 0
	for _, d := range shape {
		if d != 1 {
			wide++
		}
	}
	if wide < 2 || len(data) == 0 {
		return data
	}
	strides := make([]int, len(shape)) // in bytes, of the source
	step := size
	for i, d := range shape {
		strides[i] = step
		step *= d
	}
	out := make([]byte, len(data))
	index := make([]int, len(shape))
	src := 0
	for dst := 0; dst < len(out); dst += size {
		copy(out[dst:dst+size], data[src:src+size])
		for i := len(shape) - 1; i >= 0; i-- {
			index[i]++
			src += strides[i]
			if index[i] < shape[i] {
				break
			}
			src -= strides[i] * shape[i]
			index[i] = 0
		}
	}
	return out
}
