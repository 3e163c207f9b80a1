package onnx

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/runtime/printable"
)

// attributesText has a line for each standard operator: its name and all attributes that it has in some version.
// tests/torch/onnx_attributes.py writes it.
//
//go:embed attributes.tsv
var attributesText string

// standardAttributes are those of each operator, by its name with its domain.
var standardAttributes = func() map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(attributesText) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		out[cells[0]] = cells[1:]
	}
	return out
}()

// tellAttributes warns of attributes that no version of an operator has: they mean nothing, whatever they were meant to say.
func (m *Model) tellAttributes(nodes []*node) {
	found := map[string][]string{}
	for _, n := range nodes {
		has, known := standardAttributes[n.op]
		if !known || n.proto == nil {
			continue
		}
		for _, a := range n.proto.Attribute {
			if name := a.GetName(); !slices.Contains(has, name) {
				key := fmt.Sprintf("%s has no attribute %q", printable.Line(n.op), name)
				found[key] = append(found[key], n.loc.String())
			}
		}
	}
	for i, key := range slices.Sorted(maps.Keys(found)) {
		if i == maxHints {
			m.warn("and %d more attributes of operators that have none of their name", len(found)-i)
			return
		}
		m.warn("%s in any version, so that it means nothing: %s", key, listed(found[key]))
	}
}
