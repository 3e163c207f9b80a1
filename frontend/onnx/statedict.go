package onnx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
)

// Entry is a tensor of a PyTorch state dict: dense little-endian data of its type.
type Entry struct {
	Name string
	Type ir.Type
	Data []byte
}

// Beside lists what the state dict of the PyTorch module holds beside weights, the trained parameters and the statistics by name:
// the other names of tied tensors, each with its contents, and parameters and buffers that nothing updates. Only names that
// the file tells are there; those of parameters on which no result depends are not (Absent). Import must have succeeded.
func (m *Model) Beside(weights map[string][]byte) ([]Entry, error) {
	if m.roles == nil {
		return nil, fmt.Errorf("%s: the state dict before import", m.Name)
	}
	contents := func(p *Parameter) ([]byte, error) {
		if data, ok := weights[p.Name]; ok {
			if len(data) != p.Type.Bytes() {
				return nil, fmt.Errorf("parameter %q is %s; %d bytes are given for it", p.Name, p.Type, len(data))
			}
			return data, nil
		}
		return p.data()
	}
	var out []Entry
	held := map[string]bool{}
	add := func(name string, t ir.Type, data []byte, err error) error {
		if err == nil && !held[name] {
			held[name] = true
			out = append(out, Entry{name, t, data})
		}
		return err
	}
	own := map[string]bool{}
	for name := range weights {
		held[name] = true
	}
	for _, p := range m.roles.params {
		own[p.Name] = true
	}
	for _, p := range m.roles.params {
		for _, name := range p.Aliases {
			if held[name] || own[name] {
				continue
			}
			data, err := contents(p)
			if err := add(name, p.Type, data, err); err != nil {
				return nil, m.located(err)
			}
		}
	}
	for _, t := range m.initList {
		if t.bad != nil || t.absent || held[t.name] || !m.inStateDict(t.name) {
			continue
		}
		typ, data, err := t.typ, []byte(nil), error(nil)
		switch s := m.roles.byName[t.name]; {
		case s != nil && !s.constant() && s.param().Name == t.name:
			typ = s.param().Type
			data, err = contents(s.param())
		case s != nil && !s.constant():
			data, err = s.form.bytes(contents)
		default:
			data, err = t.bytes()
		}
		if err := add(t.name, typ, data, err); err != nil {
			return nil, m.located(err)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// inStateDict reports whether the file tells that an initializer's name is one of the module's state dict.
func (m *Model) inStateDict(name string) bool {
	switch {
	case m.record != nil:
		return m.record.roles[name] != "" && !m.record.transient[name] && (m.record.roles[name] != keyBuffers || m.record.transient != nil)
	case m.marks != nil && m.marks.transient[name]:
		return false
	case m.torch.known():
		return m.torch.kinds[name] == "PARAMETER" || m.torch.persistent[name]
	}
	return m.torchScript() && !m.autoNamed(name)
}

// Absent are what names lacks of the PyTorch module's state dict, as far as the file tells: parameters on which no result depends,
// and buffers that the file does not hold, but for the counters that PyTorch fills in itself. Parameters that an exporter folded
// are CompareTorch's to tell.
func (m *Model) Absent(names []string) []string {
	has := map[string]bool{}
	for _, n := range names {
		has[n] = true
	}
	var out []string
	for _, r := range []*record{m.record, m.marks} {
		if r != nil {
			out = append(out, r.unused...)
		}
	}
	for n, persistent := range m.torch.persistent {
		if persistent && m.record == nil && !strings.HasSuffix(n, "num_batches_tracked") {
			out = append(out, n)
		}
	}
	out = slices.DeleteFunc(out, func(n string) bool { return has[n] })
	slices.Sort(out)
	return slices.Compact(out)
}

// ScopedNames are the names that a TorchScript file does not record of tied parameters: its nodes' scopes tell them. After Import.
func (m *Model) ScopedNames() []string {
	var out []string
	if m.roles != nil && m.record == nil && m.marks == nil && m.torchScript() {
		for _, p := range m.roles.params {
			out = append(out, p.Aliases...)
		}
	}
	return out
}

// tellScoped notes the other names of tied parameters, which a TorchScript file holds once, under the first of them: a module
// such as /lm_head that reads another's parameter, in its place, is one that shares it. Scopes of nodes are the names of modules.
func (r *roles) tellScoped() {
	layers := r.layerScopes()
	for _, t := range r.m.initList {
		for _, u := range r.uses[t.name] {
			s := r.byUse[u]
			if s == nil {
				s = r.byName[t.name]
			}
			scope := scopeOf(u.n.loc.Node)
			if s == nil || s.constant() || !layers[scope] {
				continue
			}
			p := s.param()
			dot := strings.LastIndexByte(p.Name, '.')
			if dot < 0 || r.m.autoNamed(p.Name) {
				continue
			}
			module, last := p.Name[:dot], p.Name[dot:]
			name := scope + last
			switch {
			case last != ".weight" && last != ".bias", scope == module, strings.HasPrefix(module, scope+"."), calledAgain(p.Name, u.n.loc.Node):
			case r.named[name] != nil, r.m.inits[name] != nil:
			case slices.ContainsFunc(p.Aliases, func(a string) bool { return a == name || calledAgain(a, u.n.loc.Node) }):
			default:
				p.Aliases = append(p.Aliases, name)
				p.Reason += fmt.Sprintf("; %q is the same tensor, by the scope of the node that reads it", name)
			}
		}
	}
}

// layerScopes are the scopes whose nodes are those of one layer with weights, Linear, Embedding, a convolution or a norm, and no more.
func (r *roles) layerScopes() map[string]bool {
	kinds := map[string]int{} // how many nodes of a layer a scope has; below 0 when it has others
	for _, n := range r.m.nodes {
		scope := scopeOf(n.loc.Node)
		switch n.op {
		case "MatMul", "Gemm", "Gather", "Conv", "ConvTranspose", "LayerNormalization", "GroupNormalization", "InstanceNormalization":
			kinds[scope] += 1000
		case "Transpose", "Add":
		default:
			kinds[scope] -= 1 << 20
		}
		for up := scope; ; { // what has scopes inside is a module of modules
			dot := strings.LastIndexByte(up, '.')
			if dot < 0 {
				break
			}
			up = up[:dot]
			kinds[up] -= 1 << 20
		}
	}
	out := map[string]bool{}
	for scope, k := range kinds {
		out[scope] = scope != "" && k == 1000
	}
	return out
}

// scopeOf is the module that a node of a TorchScript file is in: lm_head of /lm_head/MatMul.
func scopeOf(node string) string {
	if !strings.HasPrefix(node, "/") {
		return ""
	}
	parts := strings.Split(node[1:], "/")
	return strings.Join(parts[:len(parts)-1], ".")
}
