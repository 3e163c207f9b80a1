package npz

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// magic opens every npy file; two version bytes follow.
const magic = "\x93NUMPY"

// maxHeader bounds the text of a header. NumPy itself refuses more than 10,000
// bytes unless told otherwise; real headers have about 100.
const maxHeader = 1 << 20

// maxDims is NumPy's own limit (NPY_MAXDIMS, 64 since NumPy 2).
const maxDims = 64

// Header describes the array of one npy file or npz member.
type Header struct {
	DType     string // short name: "f32", "i64", "bool", ...
	Shape     []int  // outermost dim first; empty for a scalar
	Fortran   bool   // stored with the first dim fastest
	BigEndian bool   // stored most significant byte first
	Size      int    // bytes of one element
	Offset    int    // bytes before the data, from the start of the npy file
}

// Count is the number of elements.
func (h *Header) Count() int {
	n := 1
	for _, d := range h.Shape {
		n *= d
	}
	return n
}

// Bytes is the size of the data.
func (h *Header) Bytes() int { return h.Count() * h.Size }

// kinds maps NumPy's type codes, without the byte order, to short names.
var kinds = []struct {
	code, name string
	size       int
}{
	{"b1", "bool", 1},
	{"i1", "i8", 1}, {"i2", "i16", 2}, {"i4", "i32", 4}, {"i8", "i64", 8},
	{"u1", "u8", 1}, {"u2", "u16", 2}, {"u4", "u32", 4}, {"u8", "u64", 8},
	{"f2", "f16", 2}, {"f4", "f32", 4}, {"f8", "f64", 8},
}

// parseHeader reads the header at the start of b, which may be longer or shorter
// than the header. It never looks at nor counts on the data.
func parseHeader(b []byte) (*Header, error) {
	if len(b) < 10 {
		return nil, fmt.Errorf("%d bytes are too few for an npy header", len(b))
	}
	if string(b[:6]) != magic {
		return nil, fmt.Errorf("not an npy file: it starts with %q, not %q", b[:6], magic)
	}
	major, minor := b[6], b[7]
	start, length := 10, int64(binary.LittleEndian.Uint16(b[8:]))
	switch {
	case major < 1 || major > 3 || minor != 0:
		return nil, fmt.Errorf("npy version %d.%d is not one of 1.0, 2.0, 3.0", major, minor)
	case major > 1 && len(b) < 12:
		return nil, fmt.Errorf("%d bytes are too few for an npy header", len(b))
	case major > 1:
		start, length = 12, int64(binary.LittleEndian.Uint32(b[8:]))
	}
	if length > maxHeader {
		return nil, fmt.Errorf("npy header claims %d bytes; at most %d are accepted", length, maxHeader)
	}
	end := start + int(length)
	if end > len(b) {
		return nil, fmt.Errorf("npy header claims %d bytes, only %d are there", length, len(b)-start)
	}
	p := &parser{s: string(b[start:end])}
	h, err := p.header()
	if err != nil {
		return nil, fmt.Errorf("npy header %q: %w", clip(p.s), err)
	}
	h.Offset = end
	return h, nil
}

// clip shortens header text for messages.
func clip(s string) string {
	s = strings.TrimRight(s, " \n")
	if len(s) > 120 {
		s = s[:120] + "..."
	}
	return s
}

// parser reads the Python dict literal of a header: string keys, and as values
// strings, booleans and tuples of non-negative integers.
type parser struct {
	s string
	i int
}

func (p *parser) space() {
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.i]) >= 0 {
		p.i++
	}
}

// take skips white space and then c, if c comes next.
func (p *parser) take(c byte) bool {
	p.space()
	if p.i < len(p.s) && p.s[p.i] == c {
		p.i++
		return true
	}
	return false
}

func (p *parser) header() (*Header, error) {
	h := &Header{}
	seen := map[string]bool{}
	if !p.take('{') {
		return nil, fmt.Errorf("expected '{'")
	}
	for !p.take('}') {
		key, err := p.str()
		if err != nil {
			return nil, err
		}
		if seen[key] {
			return nil, fmt.Errorf("key %q occurs twice", key)
		}
		seen[key] = true
		if !p.take(':') {
			return nil, fmt.Errorf("expected ':' after key %q", key)
		}
		if err := p.value(h, key); err != nil {
			return nil, err
		}
		if !p.take(',') {
			if !p.take('}') {
				return nil, fmt.Errorf("expected ',' or '}' after the value of %q", key)
			}
			break
		}
	}
	if p.space(); p.i != len(p.s) {
		return nil, fmt.Errorf("%q follows the closing '}'", clip(p.s[p.i:]))
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return nil, fmt.Errorf("key %q is missing", key)
		}
	}
	return h, h.check()
}

func (p *parser) value(h *Header, key string) error {
	switch key {
	case "descr":
		if p.space(); p.i < len(p.s) && p.s[p.i] == '[' {
			return fmt.Errorf("structured (record) arrays are not supported; save each field as an array of its own")
		}
		code, err := p.str()
		if err != nil {
			return err
		}
		return h.setType(code)
	case "fortran_order":
		p.space()
		for word, v := range map[string]bool{"True": true, "False": false} {
			if strings.HasPrefix(p.s[p.i:], word) {
				p.i += len(word)
				h.Fortran = v
				return nil
			}
		}
		return fmt.Errorf("fortran_order is neither True nor False")
	case "shape":
		shape, err := p.tuple()
		h.Shape = shape
		return err
	}
	return fmt.Errorf("unknown key %q", key)
}

// str reads a quoted string without escapes.
func (p *parser) str() (string, error) {
	p.space()
	if p.i >= len(p.s) || (p.s[p.i] != '\'' && p.s[p.i] != '"') {
		return "", fmt.Errorf("expected a quoted string at byte %d", p.i)
	}
	n := strings.IndexByte(p.s[p.i+1:], p.s[p.i])
	if n < 0 {
		return "", fmt.Errorf("the string at byte %d does not end", p.i)
	}
	s := p.s[p.i+1 : p.i+1+n]
	if strings.Contains(s, `\`) {
		return "", fmt.Errorf("escape in %q is not supported", s)
	}
	p.i += n + 2
	return s, nil
}

// tuple reads (), (3,) or (3, 4); an L after a number, as Python 2 wrote it, is skipped.
func (p *parser) tuple() ([]int, error) {
	if !p.take('(') {
		return nil, fmt.Errorf("shape is not a tuple")
	}
	shape := []int{}
	for !p.take(')') {
		p.space()
		start := p.i
		for p.i < len(p.s) && p.s[p.i] >= '0' && p.s[p.i] <= '9' {
			p.i++
		}
		text := p.s[start:p.i]
		if text == "" {
			return nil, fmt.Errorf("shape has something other than a non-negative integer at byte %d", start)
		}
		d, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("dim %d of the shape, %s, does not fit in 64 bits", len(shape), text)
		}
		if len(shape) == maxDims {
			return nil, fmt.Errorf("shape has more than %d dims", maxDims)
		}
		shape = append(shape, int(d))
		if p.i < len(p.s) && p.s[p.i] == 'L' {
			p.i++
		}
		if !p.take(',') {
			if !p.take(')') {
				return nil, fmt.Errorf("expected ',' or ')' in the shape")
			}
			break
		}
	}
	return shape, nil
}

// setType decodes a NumPy type string such as "<f4".
func (h *Header) setType(code string) error {
	order, kind := byte('|'), code
	if code != "" && strings.IndexByte("<>|=", code[0]) >= 0 {
		order, kind = code[0], code[1:]
	}
	for _, k := range kinds {
		if k.code == kind {
			if k.size > 1 && order == '|' {
				return fmt.Errorf("type %q says nothing of the byte order", code)
			}
			h.DType, h.Size, h.BigEndian = k.name, k.size, order == '>' && k.size > 1
			return nil
		}
	}
	switch {
	case strings.HasPrefix(kind, "V"):
		return fmt.Errorf("type %q is raw bytes (NumPy writes bfloat16 so); store such arrays as safetensors", code)
	case strings.HasPrefix(kind, "O"):
		return fmt.Errorf("type %q holds pickled Python objects, which are never loaded", code)
	}
	return fmt.Errorf("type %q is not supported: only bool, i8..i64, u8..u64, f16, f32 and f64 are", code)
}

// check refuses shapes whose size does not fit in an int.
func (h *Header) check() error {
	n, zero := int64(h.Size), false
	for _, d := range h.Shape {
		if d == 0 {
			zero = true
			continue
		}
		if n > (1<<62)/int64(d) {
			return fmt.Errorf("shape %v of %s overflows", h.Shape, h.DType)
		}
		n *= int64(d)
	}
	if !zero && n != int64(int(n)) {
		return fmt.Errorf("shape %v of %s is more than this machine can address", h.Shape, h.DType)
	}
	return nil
}
