package walk

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/roles"
	"github.com/gtc-compiler/gtc/ir"
)

// padding is padding_idx of the embedding that PyTorch's record says n was made from, -1 when there is none.
func padding(n *model.Node, dims []int) int {
	if !n.Torch.Is("embedding") || len(n.Torch.Args) < 3 {
		return -1
	}
	i, err := strconv.Atoi(n.Torch.Args[2])
	if err != nil || i < 0 || i >= dims[0] {
		return -1
	}
	return i
}

// HintPadding tells of the one row of zeros of a table that n looks rows up in: PyTorch's padding_idx begins with zeros and stays so,
// and many files do not say which row it is.
func (w *Walker) HintPadding(n *model.Node, dims []int) {
	from := w.reads(n, 0)
	if len(dims) != 2 || len(from) != 1 || n.Torch.Is("embedding") || w.File.Record != nil || w.File.Marks != nil {
		return // a record says whether there is one
	}
	p := from[0]
	if p.Role != roles.RoleParameter || p.Absent || !slices.Equal(p.Type.Dims, dims) || dims[0] < 2 || dims[1] < 2 {
		return
	}
	data, err := p.Data()
	if err != nil {
		panic(ir.Errorf(n.Located(), "%v", err))
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
		w.File.Warn("row %d of the table %q is its only row of zeros, as a padding row is: --padding-idx %s=%d keeps it as it is", zero, p.Name, roles.Argument(p.Name), zero)
	}
}

// reads lists the parameters that operand i of n is made of; nil for inputs, results of nodes and constants.
func (w *Walker) reads(n *model.Node, i int) []*roles.Parameter {
	s := w.Roles.ByUse[model.Operand{Node: n, Index: i}]
	if s == nil {
		s = w.Roles.ByName[n.Input(i)]
	}
	if s == nil {
		return nil
	}
	return s.Form.Leaves()
}

// Frozen reports whether operand i of n is a parameter that --freeze names.
func (w *Walker) Frozen(n *model.Node, i int) bool {
	return slices.ContainsFunc(w.reads(n, i), func(p *roles.Parameter) bool {
		return p.Role == roles.RoleBuffer && strings.HasPrefix(p.Reason, roles.FrozenBy)
	})
}

// PaddingRow is the row of table n reads that stays as it is: PyTorch's padding_idx as recorded, or --padding-idx; -1 for
// none.
func (w *Walker) PaddingRow(n *model.Node, dims []int) int {
	if w.File == nil { // a node that is evaluated by its rule
		return padding(n, dims)
	}
	for i, spec := range w.File.Options.PaddingIdx {
		pattern, text, ok := strings.Cut(spec, "=")
		if !ok {
			pattern, text = "*", spec
		}
		for _, p := range w.reads(n, 0) {
			if len(dims) != 2 || !roles.Matches([]string{pattern, "*." + pattern}, p.Name) {
				continue
			}
			row, err := strconv.Atoi(text)
			if row < 0 {
				row += dims[0]
			}
			if err != nil || row < 0 || row >= dims[0] {
				n.Fail("--padding-idx %q: %q has rows 0 to %d", spec, p.Name, dims[0]-1)
			}
			w.padded[i] = true
			return row
		}
	}
	for _, r := range []*model.Record{w.File.Record, w.File.Marks} {
		if r == nil || len(dims) != 2 {
			continue
		}
		for _, p := range w.reads(n, 0) {
			for _, name := range append([]string{p.Name}, p.Aliases...) {
				if row, ok := r.Rows[name]; ok && row >= 0 && row < dims[0] {
					return row
				}
			}
		}
	}
	return padding(n, dims)
}

// checkPadding refuses a --padding-idx that no embedding reads.
func (w *Walker) checkPadding() error {
	for i, spec := range w.File.Options.PaddingIdx {
		if !w.padded[i] {
			return fmt.Errorf("--padding-idx %q matches no table of an embedding; gtc inspect lists the parameters", spec)
		}
	}
	return nil
}
