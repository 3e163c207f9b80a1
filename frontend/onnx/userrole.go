package onnx

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// frozenBy begins the reason of a parameter that the user wants to stay as it is.
const frozenBy = "frozen by --freeze "

// reads lists the parameters that operand i of n is made of; nil for inputs, results of nodes and constants.
func (w *walker) reads(n *node, i int) []*Parameter {
	s := w.r.byUse[operand{n, i}]
	if s == nil {
		s = w.r.byName[n.input(i)]
	}
	if s == nil {
		return nil
	}
	return s.form.leaves()
}

// frozen reports whether operand i of n is a parameter that --freeze names.
func (w *walker) frozen(n *node, i int) bool {
	return slices.ContainsFunc(w.reads(n, i), func(p *Parameter) bool {
		return p.Role == RoleBuffer && strings.HasPrefix(p.Reason, frozenBy)
	})
}

// paddingRow is the row of table n reads that stays as it is: PyTorch's padding_idx as recorded, or --padding-idx; -1 for
// none.
func (w *walker) paddingRow(n *node, dims []int) int {
	if w.m == nil { // a node that is evaluated by its rule
		return n.padding(dims)
	}
	for i, spec := range w.m.opts.PaddingIdx {
		pattern, text, ok := strings.Cut(spec, "=")
		if !ok {
			pattern, text = "*", spec
		}
		for _, p := range w.reads(n, 0) {
			if len(dims) != 2 || !matches([]string{pattern, "*." + pattern}, p.Name) {
				continue
			}
			row, err := strconv.Atoi(text)
			if row < 0 {
				row += dims[0]
			}
			if err != nil || row < 0 || row >= dims[0] {
				n.fail("--padding-idx %q: %q has rows 0 to %d", spec, p.Name, dims[0]-1)
			}
			w.padded[i] = true
			return row
		}
	}
	for _, r := range []*record{w.m.record, w.m.marks} {
		if r == nil || len(dims) != 2 {
			continue
		}
		for _, p := range w.reads(n, 0) {
			for _, name := range append([]string{p.Name}, p.Aliases...) {
				if row, ok := r.rows[name]; ok && row >= 0 && row < dims[0] {
					return row
				}
			}
		}
	}
	return n.padding(dims)
}

// checkPadding refuses a --padding-idx that no embedding reads.
func (w *walker) checkPadding() error {
	for i, spec := range w.m.opts.PaddingIdx {
		if !w.padded[i] {
			return fmt.Errorf("--padding-idx %q matches no table of an embedding; gtc inspect lists the parameters", spec)
		}
	}
	return nil
}
