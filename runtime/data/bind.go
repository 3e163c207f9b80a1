package data

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
)

// TargetNames are the array names under which a target is looked for when there is none
// of its own name.
var TargetNames = []string{"target", "targets", "label", "labels", "y"}

// bind finds the array of every input, by the rules in the package comment. An array is
// used once unless Map says otherwise.
func bind(inputs []Input, names []string, mapped map[string]string) ([]string, error) {
	b := &binder{inputs: inputs, names: names, key: make([]string, len(inputs)), used: map[string]bool{}}
	for _, name := range slices.Sorted(maps.Keys(mapped)) {
		key := mapped[name]
		i := slices.IndexFunc(inputs, func(in Input) bool { return in.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("the model has no input %q to map array %q to; it has %s", name, key, b.inputNames())
		}
		if !slices.Contains(names, key) {
			return nil, fmt.Errorf("there is no array %q for input %q; there are %s", key, name, quoted(names))
		}
		b.key[i], b.used[key] = key, true
	}
	b.pass(func(i int) []string { return []string{inputs[i].Name} })
	others := b.others()
	b.pass(func(i int) []string {
		switch k := slices.Index(others, i); {
		case k < 0:
			return TargetNames
		case len(others) == 1:
			return []string{"in0", "x"}
		default:
			return []string{fmt.Sprintf("in%d", k)}
		}
	})
	return b.key, b.rest()
}

type binder struct {
	inputs []Input
	names  []string
	key    []string // of each input; empty as long as it has none
	used   map[string]bool
}

// others lists the inputs that are no targets: neither declared so nor named so.
func (b *binder) others() []int {
	var out []int
	for i, in := range b.inputs {
		if !in.Target && !slices.Contains(TargetNames, in.Name) {
			out = append(out, i)
		}
	}
	return out
}

// pass gives each input that has no array yet the one unused array among its candidates.
func (b *binder) pass(candidates func(i int) []string) {
	for i := range b.inputs {
		if b.key[i] != "" {
			continue
		}
		var found []string
		for _, c := range candidates(i) {
			if slices.Contains(b.names, c) && !b.used[c] {
				found = append(found, c)
			}
		}
		if len(found) == 1 {
			b.key[i], b.used[found[0]] = found[0], true
		}
	}
}

// rest pairs a last input with a last array and complains about any other input without one.
func (b *binder) rest() error {
	var open []int
	for i := range b.inputs {
		if b.key[i] == "" {
			open = append(open, i)
		}
	}
	var free []string
	for _, n := range b.names {
		if !b.used[n] {
			free = append(free, n)
		}
	}
	if len(open) == 1 && len(free) == 1 {
		b.key[open[0]] = free[0]
		return nil
	}
	if len(open) == 0 {
		return nil
	}
	var missing []string
	for _, i := range open {
		missing = append(missing, b.inputs[i].Name)
	}
	return fmt.Errorf("no array for input %s; there are %s (an array of another name is given with --map %s=ARRAY)",
		quoted(missing), quoted(b.names), missing[0])
}

func (b *binder) inputNames() string {
	var names []string
	for _, in := range b.inputs {
		names = append(names, in.Name)
	}
	return quoted(names)
}

// quoted lists names for a message, at most 20 of them.
func quoted(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	var out []string
	for _, n := range names[:min(len(names), 20)] {
		out = append(out, fmt.Sprintf("%q", n))
	}
	if n := len(names) - 20; n > 0 {
		out = append(out, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(out, ", ")
}

// sameShape reports whether two shapes are equal but for dims of size 1, which do not
// change how a row-major array lies in memory.
func sameShape(a, b []int) bool {
	wide := func(s []int) []int { return slices.DeleteFunc(slices.Clone(s), func(d int) bool { return d == 1 }) }
	return slices.Equal(wide(a), wide(b))
}

// batchDim is the dim of an array of that shape, not empty, which samples of the input lie along: the first, or the one that the model
// has. An array that could be either is refused.
func (in *Input) batchDim(shape []int) (int, error) {
	front := sameShape(shape[1:], in.Shape)
	d := in.BatchDim
	along := d > 0 && len(shape) == len(in.Shape)+1 && sameShape(slices.Delete(slices.Clone(shape), d, d+1), in.Shape)
	switch {
	case front && along && shape[0] != 1:
		return 0, fmt.Errorf("its shape is %v, and its samples may lie along dim %d, as in the model, or along the first: leave one sample out of the file, so that the sizes tell", shape, d)
	case along:
		return d, nil
	case front:
		return 0, nil
	case d > 0:
		return 0, fmt.Errorf("its shape is %v, but input %q needs samples of %v, along dim %d or the first", shape, in.Name, in.Shape, d)
	}
	return 0, fmt.Errorf("a sample has shape %v, but input %q needs %v", shape[1:], in.Name, in.Shape)
}

// find is the part that holds row i of the column; first rows ascend.
func find(parts []part, i int64, first func(*part) int64) *part {
	k := sort.Search(len(parts), func(k int) bool { return first(&parts[k]) > i })
	return &parts[k-1]
}
