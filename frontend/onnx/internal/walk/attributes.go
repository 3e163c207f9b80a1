package walk

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/roles"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// attributesText has a line for each standard operator: its name and all attributes that it has in some version.
// tests/torch/onnx_attributes.py writes it.
//
//go:embed attributes.tsv
var attributesText string

// StandardAttributes are those of each operator, by its name with its domain.
var StandardAttributes = func() map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(attributesText) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		out[cells[0]] = cells[1:]
	}
	return out
}()

// tellAttributes warns of attributes that no version of an operator has: they mean nothing, whatever they were meant to say.
func tellAttributes(m *model.File, nodes []*model.Node) {
	found := map[string][]string{}
	for _, n := range nodes {
		has, known := StandardAttributes[n.Op]
		if !known || n.Proto == nil {
			continue
		}
		for _, a := range n.Proto.Attribute {
			if name := a.GetName(); !slices.Contains(has, name) {
				key := fmt.Sprintf("%s has no attribute %q", printable.Line(n.Op), name)
				found[key] = append(found[key], n.Loc.String())
			}
		}
	}
	for i, key := range slices.Sorted(maps.Keys(found)) {
		if i == roles.MaxHints {
			m.Warn("and %d more attributes that their operators do not have", len(found)-i)
			return
		}
		m.Warn("%s in any version, so it is ignored: %s", key, listed(found[key]))
	}
}

// maxListed is the number of nodes of one kind that a warning names.
const maxListed = 6

// listed joins names, the first maxListed of them.
func listed(names []string) string {
	if n := len(names) - maxListed; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), n)
	}
	return strings.Join(names, ", ")
}
