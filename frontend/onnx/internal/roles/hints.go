package roles

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// fewValues is the number of different elements below which equal contents tell nothing: zeros and ones, identities, masks.
const fewValues = 8

// MaxHints is the number of pairs of equal tensors that are listed one by one.
const MaxHints = 4

// hintTies tells of trained matrices that are exact copies or transposes of one another and are trained apart: a model may
// hold them as one. They are not tied by that alone, since layers that were deep-copied start out equal and must part.
func (r *Roles) hintTies() error {
	if r.m.Record != nil { // it says which are one
		return nil
	}
	bound := r.bound()
	groups := map[string][]*Parameter{} // by what copies and transposes have in common
	var order []string
	for _, p := range r.Params {
		if !bound[p] || p.Role != RoleParameter || p.Absent || len(p.Type.Dims) < 2 || p.Type.Elems() < 16 || Matches(r.m.Options.Untie, p.Initializer) {
			continue
		}
		read := p.Data
		if t := r.m.Inits[p.Initializer]; t != nil && p.Transposed {
			read = t.Bytes // its ends are the same, and nothing is transposed for them
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
	for _, text := range found[:min(len(found), MaxHints)] {
		r.m.Warn("%s", text)
	}
	if n := len(found) - MaxHints; n > 0 {
		r.m.Warn("%d more trained tensors hold exactly the values of others, as layers do that were copied when the model was made: give --tie COPY=ORIGINAL for those that are one parameter", n)
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
		data, err := p.Data()
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
			found = append(found, fmt.Sprintf("%q holds exactly the values of %q and is trained separately: give --tie %[3]s=%[4]s if they are one parameter", p.Name, o.Name, Argument(p.Name), Argument(o.Name)))
		case o == nil && back != nil && back.Initializer != p.Initializer:
			found = append(found, fmt.Sprintf("%q holds exactly the values of %q, transposed, and is trained separately: give --tie %[3]s=%[4]s if they are one parameter", p.Name, back.Name, Argument(p.Name), Argument(back.Name)))
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

// Argument is name as a shell takes it.
func Argument(name string) string {
	if strings.ContainsFunc(name, func(c rune) bool {
		return !strings.ContainsRune("_./:-", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}) {
		return strconv.Quote(name)
	}
	return name
}
