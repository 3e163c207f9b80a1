package roles

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
)

// fromRecord gives each float initializer the role that the record says.
func (r *Roles) fromRecord(rec *model.Record) {
	for _, t := range r.m.InitList {
		if t.Bad != nil || !t.Type.DType.IsFloat() {
			continue
		}
		role, reason := RoleConstant, "neither a parameter nor a buffer of the PyTorch module"
		switch rec.Roles[t.Name] {
		case model.KeyParameters:
			role, reason = RoleParameter, "a parameter of the PyTorch module, as gtc.export recorded"
			if others := rec.Tied[t.Name]; len(others) > 0 {
				reason += fmt.Sprintf("; tied to it there: %s", strings.Join(others, ", "))
			}
		case model.KeyFrozen:
			role, reason = RoleBuffer, "a parameter with requires_grad=False, as gtc.export recorded"
		case model.KeyBuffers:
			role, reason = RoleConstant, "a buffer of the PyTorch module that nothing updates"
			for _, u := range r.Uses[t.Name] {
				if model.IsStatistic(u) {
					role, reason = RoleBuffer, ofStatistics
				}
			}
		}
		p := r.add(t, t.Name, direct, role, reason)
		p.Aliases = rec.Tied[t.Name]
		r.ByName[t.Name] = &Source{leafOf(p)}
	}
}

// applyMarks freezes the parameters that gtc.record has marked, by any of their names, and gives tied ones theirs.
func (r *Roles) applyMarks(marks *model.Record) {
	groups := map[string][]string{} // all names of a tied tensor by each of them
	for first, others := range marks.Tied {
		group := append([]string{first}, others...)
		for _, name := range group {
			groups[name] = group
		}
	}
	found := map[string]bool{}
	for _, p := range r.Params {
		for _, name := range groups[p.Name] {
			if name != p.Name && r.Named[name] == nil && !slices.Contains(p.Aliases, name) {
				p.Aliases = append(p.Aliases, name)
			}
		}
		for _, name := range slices.Concat([]string{p.Name, p.Origin}, groups[p.Name]) {
			if marks.Roles[name] != model.KeyFrozen {
				continue
			}
			found[name] = true
			if p.Role == RoleParameter {
				p.Role, p.Reason = RoleBuffer, "a parameter with requires_grad=False, as gtc.record noted"
			}
		}
	}
	var lost []string
	for name := range marks.Roles {
		if !found[name] {
			lost = append(lost, name)
		}
	}
	if slices.Sort(lost); len(lost) > 0 {
		r.m.Warn("the file has no tensor of the frozen parameters %s (requires_grad=False): no result depends on them, or the exporter folded "+
			"them into others, which are trained; gtc.export keeps them apart", strings.Join(lost, ", "))
	}
}
