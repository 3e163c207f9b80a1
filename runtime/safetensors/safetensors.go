// Package safetensors reads and writes the safetensors format.
//
// A file is the length of the header (8 bytes, little-endian), the header (a JSON
// object, at most 100 MB, optionally padded with spaces) and the data. The header maps
// each tensor's name to {"dtype": "F32", "shape": [2, 3], "data_offsets": [from, to]},
// offsets counting from the end of the header; the key "__metadata__" maps strings to
// strings. Tensors are little-endian and row-major; they fill the data without gaps
// or overlaps. Source: https://github.com/huggingface/safetensors#format
//
// Files are not trusted: every claim of the header is checked against the bytes that
// are there before any tensor is handed out.
package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/gtc-compiler/gtc/runtime/internal/mapfile"
)

// MaxHeader is the largest header, in bytes, that the format allows.
const MaxHeader = 100_000_000

// metaKey is the header's key that is not a tensor.
const metaKey = "__metadata__"

// bits is the size of one element of each of the format's types.
var bits = map[string]int{
	"BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
	"F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}

// Tensor is one tensor of a file.
type Tensor struct {
	Name  string
	DType string // the format's name: "F32", "BF16", "F8_E4M3", ...; writing also takes gtc's "f32"
	Shape []int  // outermost dim first; empty for a scalar
	Data  []byte // little-endian, row-major; must not be written to when it came from a File
}

// Elem is the short name that gtc uses for the tensor's type: "f32", "bf16", "bool", ...
func (t *Tensor) Elem() string { return strings.ToLower(t.DType) }

// ByteSize is the size of a tensor of the given type (either spelling) and shape, or an
// error if the type is unknown, a dim is negative, the size overflows or, for types
// under 8 bits, is not a whole number of bytes.
func ByteSize(dtype string, shape []int) (int, error) {
	n, zero := int64(bits[strings.ToUpper(dtype)]), false
	if n == 0 {
		return 0, fmt.Errorf("type %q is not one of the safetensors format", dtype)
	}
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative dim", shape)
		}
		if d == 0 {
			zero = true
			continue
		}
		if n > (1<<62)/int64(d) {
			return 0, fmt.Errorf("shape %v of %s overflows", shape, dtype)
		}
		n *= int64(d)
	}
	switch {
	case zero:
		return 0, nil
	case n%8 != 0:
		return 0, fmt.Errorf("shape %v of %s is not a whole number of bytes", shape, dtype)
	case n/8 != int64(int(n/8)):
		return 0, fmt.Errorf("shape %v of %s is more than this machine can address", shape, dtype)
	}
	return int(n / 8), nil
}

// File is an open safetensors file. Its methods may be called from several goroutines.
type File struct {
	path    string
	m       *mapfile.File
	tensors []Tensor
	index   map[string]int
	meta    map[string]string
}

// Open maps the file at path and checks its header.
func Open(path string) (*File, error) {
	m, err := mapfile.Open(path)
	if err != nil {
		return nil, err
	}
	tensors, meta, err := Parse(m.Data)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := &File{path: path, m: m, tensors: tensors, meta: meta, index: make(map[string]int, len(tensors))}
	for i := range tensors {
		f.index[tensors[i].Name] = i
	}
	return f, nil
}

// Close gives the mapping back; the tensors' data must not be used afterwards.
func (f *File) Close() error { return f.m.Close() }

// Path is the file's path as given to Open.
func (f *File) Path() string { return f.path }

// Bytes is the whole file.
func (f *File) Bytes() []byte { return f.m.Data }

// Tensors lists the tensors in the order of their data.
func (f *File) Tensors() []Tensor { return f.tensors }

// Names lists the tensors' names in the order of their data.
func (f *File) Names() []string {
	names := make([]string, len(f.tensors))
	for i := range f.tensors {
		names[i] = f.tensors[i].Name
	}
	return names
}

// Metadata is the file's free-form part; nil if it has none.
func (f *File) Metadata() map[string]string { return f.meta }

// Tensor returns the tensor name; its Data is a view of the mapped file.
func (f *File) Tensor(name string) (Tensor, error) {
	i, ok := f.index[name]
	if !ok {
		return Tensor{}, fmt.Errorf("%s: there is no tensor %q among its %d", f.path, name, len(f.tensors))
	}
	return f.tensors[i], nil
}

// entry is a tensor's value in the header.
type entry struct {
	DType   *string  `json:"dtype"`
	Shape   *[]int64 `json:"shape"`
	Offsets *[]int64 `json:"data_offsets"`
}

// span is a checked entry.
type span struct {
	Tensor
	from, to int64
}

// Parse reads a whole file from b; the tensors' data are views of it. Any tensor whose
// name, type, shape or place is not valid makes the whole file invalid.
func Parse(b []byte) ([]Tensor, map[string]string, error) {
	if len(b) < 8 {
		return nil, nil, fmt.Errorf("%d bytes are too few for a safetensors file", len(b))
	}
	length := binary.LittleEndian.Uint64(b)
	if length > MaxHeader {
		return nil, nil, fmt.Errorf("the header claims %d bytes; the format allows %d (is this a safetensors file?)",
			length, MaxHeader)
	}
	if length > uint64(len(b)-8) {
		return nil, nil, fmt.Errorf("the header claims %d bytes, only %d are there: the file is cut short", length, len(b)-8)
	}
	spans, meta, err := parseHeader(b[8:8+length], int64(len(b))-8-int64(length))
	if err != nil {
		return nil, nil, err
	}
	data := b[8+length:]
	end := int64(0)
	tensors := make([]Tensor, len(spans))
	for i := range spans {
		s := &spans[i]
		switch {
		case s.from < end:
			return nil, nil, fmt.Errorf("tensor %q: its data overlap those of %q", s.Name, spans[i-1].Name)
		case s.from > end:
			return nil, nil, fmt.Errorf("tensor %q: %d bytes before its data belong to no tensor", s.Name, s.from-end)
		}
		end = s.to
		s.Data = data[s.from:s.to:s.to]
		tensors[i] = s.Tensor
	}
	if end != int64(len(data)) {
		return nil, nil, fmt.Errorf("the file has %d bytes after the last tensor", int64(len(data))-end)
	}
	return tensors, meta, nil
}

// parseHeader reads the JSON object token by token, because decoding it into a map
// would let the second of two equal names win unnoticed.
func parseHeader(text []byte, size int64) ([]span, map[string]string, error) {
	if len(text) == 0 || text[0] != '{' {
		return nil, nil, fmt.Errorf("the header does not start with '{'")
	}
	if !utf8.Valid(text) {
		return nil, nil, fmt.Errorf("the header is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	var spans []span
	var meta map[string]string
	seen := map[string]bool{}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return nil, nil, fmt.Errorf("header: %w", err)
		}
		name := tok.(string) // a key: the decoder has checked
		if seen[name] {
			return nil, nil, fmt.Errorf("tensor %q occurs twice", name)
		}
		seen[name] = true
		if name == metaKey {
			if err := dec.Decode(&meta); err != nil {
				return nil, nil, fmt.Errorf("header: %s: %w", metaKey, err)
			}
			continue
		}
		var e entry
		if err := dec.Decode(&e); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		s, err := e.check(name, size)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		spans = append(spans, s)
	}
	if _, err := dec.Token(); err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	if rest := bytes.TrimLeft(text[dec.InputOffset():], " \t\r\n"); len(rest) != 0 {
		return nil, nil, fmt.Errorf("header: %q follows the closing '}'", rest[:min(len(rest), 20)])
	}
	sort.SliceStable(spans, func(i, j int) bool {
		a, b := &spans[i], &spans[j]
		return a.from < b.from || a.from == b.from && a.to < b.to
	})
	return spans, meta, nil
}

func (e *entry) check(name string, size int64) (span, error) {
	if e.DType == nil || e.Shape == nil || e.Offsets == nil {
		return span{}, fmt.Errorf("dtype, shape or data_offsets is missing")
	}
	if bits[*e.DType] == 0 {
		return span{}, fmt.Errorf("unknown dtype %q", *e.DType)
	}
	shape := make([]int, len(*e.Shape))
	for i, d := range *e.Shape {
		if shape[i] = int(d); int64(shape[i]) != d {
			return span{}, fmt.Errorf("dim %d has size %d, more than this machine can address", i, d)
		}
	}
	want, err := ByteSize(*e.DType, shape)
	if err != nil {
		return span{}, err
	}
	off := *e.Offsets
	if len(off) != 2 {
		return span{}, fmt.Errorf("data_offsets must have 2 numbers, not %d", len(off))
	}
	if off[0] < 0 || off[1] < off[0] || off[1] > size {
		return span{}, fmt.Errorf("data_offsets %v are outside the %d bytes of data", off, size)
	}
	if off[1]-off[0] != int64(want) {
		return span{}, fmt.Errorf("%s%v needs %d bytes, but data_offsets %v span %d", *e.DType, shape, want, off, off[1]-off[0])
	}
	return span{Tensor: Tensor{Name: name, DType: *e.DType, Shape: shape}, from: off[0], to: off[1]}, nil
}
