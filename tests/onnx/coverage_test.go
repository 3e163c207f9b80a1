package onnx

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxtest"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// coverageFile is what the importer embeds for gtc ops --onnx and docs/ops.md.
const coverageFile = "../../frontend/onnx/coverage.tsv"

// shown is what the cases of one operator showed.
type shown struct {
	cases, passed, compared int
	core                    map[string]bool
}

// TestCoverage holds frontend/onnx/coverage.tsv to what the cases of single operators show: which pass (TestBackend keeps the
// lists), whose gradient agrees with central differences, and which core ops the operator becomes. -update writes it.
func TestCoverage(t *testing.T) {
	cases, err := onnxtest.Read(fixtures.Path(t, backendData), func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	unsupported, notYet := readList(t, "unsupported.tsv"), readList(t, "notyet.tsv")
	found := map[string]*shown{}
	for i, c := range cases {
		op := alone(t, c)
		if op == "" || len(c.Sets) == 0 {
			continue
		}
		s := found[op]
		if s == nil {
			s = &shown{core: map[string]bool{}}
			found[op] = s
		}
		s.cases++
		_, out := unsupported[c.Name]
		_, later := notYet[c.Name]
		if !out && !later {
			s.passed++
		}
		if gradient(c, uint64(i)) == nil {
			s.compared++
		}
		s.lower(c)
	}
	var b strings.Builder
	for _, op := range slices.Sorted(maps.Keys(found)) {
		s := found[op]
		fmt.Fprintf(&b, "%s\t%d\t%d\t%d\t%s\n", op, s.cases, s.passed, s.compared, strings.Join(slices.Sorted(maps.Keys(s.core)), " "))
	}
	if *update {
		if err := os.WriteFile(coverageFile, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	old, err := os.ReadFile(coverageFile)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for line := range strings.Lines(string(old)) {
		have[line] = true
	}
	for line := range strings.Lines(b.String()) {
		if !have[line] {
			t.Errorf("%s does not have the line\n\t%sgo test ./tests/onnx -run TestCoverage -update writes it; then go generate ./cmd/gtc", coverageFile, line)
		}
		delete(have, line)
	}
	for line := range have {
		t.Errorf("%s has a line that is no longer so:\n\t%s", coverageFile, line)
	}
}

// alone is the operator that the case consists of; "" when there are several.
func alone(t *testing.T, c *onnxtest.Case) string {
	var m onnxpb.ModelProto
	if err := m.Unmarshal(c.Model); err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	if c.Suite != "node" || len(m.Graph.Node) != 1 || strings.HasSuffix(c.Name, "_expanded") || strings.Contains(c.Name, "_expanded_") {
		return ""
	}
	n := m.Graph.Node[0]
	if d := n.GetDomain(); d != "" && d != "ai.onnx" {
		return d + "." + n.GetOpType()
	}
	return n.GetOpType()
}

// lower notes the core ops that the case becomes in the first form that imports.
func (s *shown) lower(c *onnxtest.Case) {
	tr := &trial{c: c}
	for _, mode := range modes {
		m, _, err := tr.load(mode.fix, c.Sets[0])
		if err != nil {
			continue
		}
		mod, err := m.Import()
		if err != nil {
			continue
		}
		for _, op := range mod.Funcs[0].Ops {
			if op.Def != ops.ConstDef {
				s.core[op.Def.Name] = true
			}
		}
		return
	}
}
