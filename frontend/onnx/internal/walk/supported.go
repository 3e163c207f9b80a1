package walk

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

const (
	MaxKinds = 64 // unsupported operators that one error lists
	maxNamed = 8  // nodes that it names of each
)

// CheckSupported reports all nodes without a row in the table in one error, and with them what else will stop the import. The
// bodies of loops count; the branches of an If are only listed with others: a known condition chooses one, and the other may hold
// anything.
func CheckSupported(m *model.File, nodes []*model.Node) error {
	nodes, err := m.WithBodies(nodes)
	if err != nil {
		return err
	}
	tellAttributes(m, nodes)
	e := unsupported(m, nodes)
	if e == nil {
		return nil
	}
	inBranches, err := withBranches(m, nodes)
	if err != nil {
		return err
	}
	if more := unsupported(m, inBranches); more != nil {
		e.Note("in branches of If nodes, unless a known condition leaves them out: %s", more.Msg)
		e.Notes = append(e.Notes, more.Notes...)
	}
	noteUnknown(m, e, nodes)
	for _, in := range m.InputInfos {
		if m.Options.Fixed[in.GetName()] == nil && m.Options.Contents[in.GetName()] == nil {
			if t := in.GetType().GetTensorType(); t == nil {
				e.Note("input %q is a %s, not a tensor", in.GetName(), model.TypeName(in.Type, 0))
			} else if _, err := model.DTypeOf(t.GetElemType()); err != nil {
				e.Note("input %q: %v", in.GetName(), err)
			}
		}
	}
	return e
}

// unsupported is an error of all nodes without a row, with a note for each operator; nil when there are none.
func unsupported(m *model.File, nodes []*model.Node) *ir.Error {
	found := map[string][]string{}
	total := 0
	for _, n := range nodes {
		if row, why := Lookup(n); row == nil {
			total++
			key := fmt.Sprintf("%s (%s)%s", printable.Line(n.Op), operatorSet(m, n), why)
			found[key] = append(found[key], n.Loc.String())
		}
	}
	if total == 0 {
		return nil
	}
	e := ir.Errorf(ir.Loc{}, "%d nodes use operators that gtc cannot import", total)
	if total == 1 {
		e = ir.Errorf(ir.Loc{}, "1 node uses an operator that gtc cannot import")
	}
	keys := slices.Sorted(maps.Keys(found))
	for _, key := range keys[:min(len(keys), MaxKinds)] {
		list, count := found[key], ""
		if n := len(list); n > 1 {
			count = fmt.Sprintf("%d nodes, ", n)
		}
		if n := len(list) - maxNamed; n > 0 {
			list = append(slices.Clone(list[:maxNamed]), fmt.Sprintf("and %d more", n))
		}
		e.Note("%s: %s%s", key, count, strings.Join(list, ", "))
	}
	if n := len(keys) - MaxKinds; n > 0 {
		e.Note("and %d more operators", n)
	}
	return e
}

// operatorSet is the version of the operator set that n's operator is of: opset 17, or ai.onnx.ml 3.
func operatorSet(m *model.File, n *model.Node) string {
	domain := ""
	if n.Proto != nil {
		domain = model.StandardDomain(n.Proto.GetDomain())
	}
	if domain == "" {
		return fmt.Sprintf("opset %d", n.InFile())
	}
	imports := m.Proto.OpsetImport
	for _, f := range m.Proto.Functions { // of which one may have brought it
		imports = slices.Concat(imports, f.OpsetImport)
	}
	for _, o := range imports {
		if o.GetDomain() == domain {
			return fmt.Sprintf("%s %d", printable.Line(domain), o.GetVersion())
		}
	}
	return fmt.Sprintf("of %s, which the file does not import", printable.Line(domain))
}

// withBranches are the nodes of the branches of If nodes among nodes, at any depth, loops in them included.
func withBranches(m *model.File, nodes []*model.Node) ([]*model.Node, error) {
	var all []*model.Node
	for depth := 0; len(nodes) > 0 && depth < model.MaxInline; depth++ {
		var inner []*model.Node
		for _, n := range nodes {
			more, err := branches(m, n)
			if err != nil {
				return nil, err
			}
			inner = append(inner, more...)
		}
		all, nodes = append(all, inner...), inner
	}
	return all, nil
}

// branches are the nodes of both branches of an If, loops in them included; none for other nodes.
func branches(m *model.File, n *model.Node) ([]*model.Node, error) {
	var all []*model.Node
	for _, name := range []string{"then_branch", "else_branch"} {
		b, err := m.BodyOf(n, name)
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		inner, err := m.WithBodies(b.Nodes)
		if err != nil {
			return nil, err
		}
		all = append(all, inner...)
	}
	return all, nil
}

// CheckBranches is CheckSupported for the branches of an If of which the condition is not known.
func (w *Walker) CheckBranches(n *model.Node) {
	nodes, err := branches(w.File, n)
	if err != nil {
		panic(ir.Errorf(n.Located(), "%v", err))
	}
	if e := unsupported(w.File, nodes); e != nil {
		panic(e)
	}
}

// shapeOnly are the operators whose results depend on the shape of their operand, not on what it holds.
var shapeOnly = []string{"Shape", "Size", "EyeLike"}

// noteUnknown notes nodes that need their operands when compiling and get them from inputs of the model.
func noteUnknown(m *model.File, e *ir.Error, nodes []*model.Node) {
	open := map[string]bool{}
	for _, in := range m.InputInfos {
		open[in.GetName()] = m.Options.Fixed[in.GetName()] == nil
	}
	var list []string
	for _, n := range nodes {
		row, _ := Lookup(n)
		if slices.Contains(shapeOnly, n.Op) || !slices.ContainsFunc(n.In, func(name string) bool { return open[name] }) {
			continue
		}
		if row != nil && row.Rule == nil {
			list = append(list, fmt.Sprintf("%s (%s)", n.Loc, printable.Line(n.Op)))
		}
		for _, o := range n.Out {
			open[o] = true
		}
	}
	if n := len(list) - maxNamed; n > 0 {
		list = append(list[:maxNamed], fmt.Sprintf("and %d more", n))
	}
	if len(list) > 0 {
		e.Note("results whose size depends on what the model's inputs hold: %s", strings.Join(list, ", "))
	}
}
