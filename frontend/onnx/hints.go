package onnx

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/gtc-compiler/gtc/ir"
)

// fewValues is the number of different elements below which equal contents tell nothing: zeros and ones, identities, masks.
const fewValues = 8

// maxHints is the number of pairs of equal tensors that are listed one by one.
const maxHints = 4

// hintTies tells of trained matrices that are exact copies or transposes of one another and are trained apart: a model may
// hold them as one. They are not tied by that alone, since layers that were deep-copied start out equal and must part.
func (r *roles) hintTies() error {
	if r.m.record != nil { // it says which are one
		return nil
	}
	bound := r.bound()
	groups := map[string][]*Parameter{} // by what copies and transposes have in common
	var order []string
	for _, p := range r.params {
		if !bound[p] || p.Role != RoleParameter || p.absent || len(p.Type.Dims) < 2 || p.Type.Elems() < 16 || matches(r.m.opts.Untie, p.Initializer) {
			continue
		}
		read := p.data
		if t := r.m.inits[p.Initializer]; t != nil && p.Transposed {
			read = t.bytes // its ends are the same, and nothing is transposed for them
		}
		data, err := read()
		if err != nil {
			return err
		}
		size := p.Type.DType.Size()
		key := fmt.Sprintf("%s %d %x %x", p.Type.DType, p.Type.Elems(), data[:size], data[len(data)-size:])
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], p)
	}
	var found []string
	for _, key := range order {
		if len(groups[key]) > 1 {
			same, err := equalPairs(groups[key])
			if err != nil {
				return err
			}
			found = append(found, same...)
		}
	}
	for _, text := range found[:min(len(found), maxHints)] {
		r.m.warn("%s", text)
	}
	if n := len(found) - maxHints; n > 0 {
		r.m.warn("%d more trained tensors are exactly others, too, as layers that were copied when the model was made are: --tie COPY=ORIGINAL for those that are one", n)
	}
	return nil
}

// equalPairs says of each tensor that is a copy or the transpose of an earlier one which one that is.
func equalPairs(list []*Parameter) ([]string, error) {
	type form struct {
		dims string
		sum  [sha256.Size]byte
	}
	first := map[form]*Parameter{}
	var found []string
	for _, p := range list {
		data, err := p.data()
		if err != nil {
			return nil, err
		}
		if !telling(data, p.Type.DType.Size()) {
			continue
		}
		own := form{fmt.Sprint(p.Type.Dims), sha256.Sum256(data)}
		other := form{}
		if d := p.Type.Dims; len(d) == 2 {
			other = form{fmt.Sprint([]int{d[1], d[0]}), sha256.Sum256(transposeBytes(data, d[0], d[1], p.Type.DType.Size()))}
		}
		switch o, back := first[own], first[other]; {
		case o != nil && o.Initializer != p.Initializer:
			found = append(found, fmt.Sprintf("%q is exactly a copy of %q and trained apart from it: --tie %[3]s=%[4]s if they are one", p.Name, o.Name, argument(p.Name), argument(o.Name)))
		case o == nil && back != nil && back.Initializer != p.Initializer:
			found = append(found, fmt.Sprintf("%q is exactly %q transposed and trained apart from it: --tie %[3]s=%[4]s if they are one", p.Name, back.Name, argument(p.Name), argument(back.Name)))
		}
		if first[own] == nil {
			first[own] = p
		}
	}
	return found, nil
}

// telling reports whether data hold fewValues different elements or more.
func telling(data []byte, size int) bool {
	var seen []string
	for i := 0; i+size <= len(data) && len(seen) < fewValues; i += size {
		if v := string(data[i : i+size]); !slices.Contains(seen, v) {
			seen = append(seen, v)
		}
	}
	return len(seen) >= fewValues
}

// argument is name as a shell takes it.
func argument(name string) string {
	if strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("_./:-", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}) {
		return strconv.Quote(name)
	}
	return name
}

// hintPadding tells of the one row of zeros of a table that n looks rows up in: PyTorch's padding_idx begins with zeros and stays so,
// and many files do not say which row it is.
func (w *walker) hintPadding(n *node, dims []int) {
	from := w.reads(n, 0)
	if len(dims) != 2 || len(from) != 1 || n.fx.is("embedding") || w.m.record != nil || w.m.marks != nil {
		return // a record says whether there is one
	}
	p := from[0]
	if p.Role != RoleParameter || p.absent || !slices.Equal(p.Type.Dims, dims) || dims[0] < 2 || dims[1] < 2 {
		return
	}
	data, err := p.data()
	if err != nil {
		panic(ir.Errorf(n.located(), "%v", err))
	}
	size, zero := len(data)/dims[0], -1
	none := make([]byte, size)
	for i := range dims[0] {
		if bytes.Equal(data[i*size:(i+1)*size], none) {
			if zero >= 0 {
				return // several: rows that were never used, or a table that begins with zeros
			}
			zero = i
		}
	}
	if zero >= 0 {
		w.m.warn("row %d of the table %q is its only row of zeros, as a padding row is: --padding-idx %s=%d keeps it as it is", zero, p.Name, argument(p.Name), zero)
	}
}
