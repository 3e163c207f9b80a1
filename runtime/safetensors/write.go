package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"unicode/utf8"
)

// align is where the data start: a multiple of a cache line, so that mapped tensors of
// whole lines can be used in place.
const align = 64

// layout returns the tensors in the order they are written, widest elements first and
// then by name (so that every tensor is aligned to its own elements), and the file's
// bytes before the data.
func layout(tensors []Tensor, meta map[string]string) ([]*Tensor, []byte, error) {
	order := make([]*Tensor, len(tensors))
	seen := map[string]bool{}
	for i := range tensors {
		t := &tensors[i]
		want, err := ByteSize(t.DType, t.Shape)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		case t.Name == metaKey || !utf8.ValidString(t.Name):
			return nil, nil, fmt.Errorf("tensor %q: the format does not allow this name", t.Name)
		case seen[t.Name]:
			return nil, nil, fmt.Errorf("tensor %q occurs twice", t.Name)
		case want != len(t.Data):
			return nil, nil, fmt.Errorf("tensor %q: %s%v needs %d bytes, but %d are given", t.Name, t.DType, t.Shape, want, len(t.Data))
		}
		seen[t.Name] = true
		order[i] = t
	}
	width := func(t *Tensor) int { return bits[strings.ToUpper(t.DType)] }
	sort.Slice(order, func(i, j int) bool {
		if wi, wj := width(order[i]), width(order[j]); wi != wj {
			return wi > wj
		}
		return order[i].Name < order[j].Name
	})
	head, err := header(order, meta)
	return order, head, err
}

// header prints the header in the tensors' order; maps come out sorted, so equal input
// gives equal bytes.
func header(order []*Tensor, meta map[string]string) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 8))
	sep := byte('{')
	put := func(key string, v any) error {
		b.WriteByte(sep)
		sep = ','
		k, err := json.Marshal(key)
		if err != nil {
			return err
		}
		b.Write(k)
		b.WriteByte(':')
		text, err := json.Marshal(v)
		b.Write(text)
		return err
	}
	if len(meta) > 0 {
		if err := put(metaKey, meta); err != nil {
			return nil, err
		}
	}
	end := 0
	for _, t := range order {
		from := end
		end += len(t.Data)
		shape := t.Shape
		if shape == nil {
			shape = []int{} // null is not a shape
		}
		if err := put(t.Name, struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}{strings.ToUpper(t.DType), shape, [2]int{from, end}}); err != nil {
			return nil, err
		}
	}
	if sep == '{' {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	for b.Len()%align != 0 {
		b.WriteByte(' ')
	}
	if b.Len()-8 > MaxHeader {
		return nil, fmt.Errorf("the header would be %d bytes; the format allows %d", b.Len()-8, MaxHeader)
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(b.Len()-8))
	return b.Bytes(), nil
}

// Write writes a file of the tensors, which may come in any order, with the free-form
// metadata (nil for none). Equal input gives equal bytes.
func Write(w io.Writer, tensors []Tensor, meta map[string]string) error {
	order, head, err := layout(tensors, meta)
	if err != nil {
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, t := range order {
		if _, err := w.Write(t.Data); err != nil {
			return err
		}
	}
	return nil
}

// WriteFile writes the tensors to path through a temporary file beside it, so that path
// holds either what it held before or the whole new file.
func WriteFile(path string, tensors []Tensor, meta map[string]string) error {
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	err = Write(f, tensors, meta)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		os.Remove(path + ".tmp")
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
