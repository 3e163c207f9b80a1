package onnx

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/roles"
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
		return nil, fmt.Errorf("%s: the model must be imported before its state dict is listed", m.Name)
	}
	contents := func(p *Parameter) ([]byte, error) {
		if data, ok := weights[p.Name]; ok {
			if len(data) != p.Type.Bytes() {
				return nil, fmt.Errorf("parameter %q is %s, but %d bytes are given for it", p.Name, p.Type, len(data))
			}
			return data, nil
		}
		return p.Data()
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
	for _, p := range m.roles.Params {
		own[p.Name] = true
	}
	for _, p := range m.roles.Params {
		for _, name := range p.Aliases {
			if held[name] || own[name] {
				continue
			}
			data, err := contents(p)
			if err := add(name, p.Type, data, err); err != nil {
				return nil, m.Located(err)
			}
		}
	}
	for _, t := range m.InitList {
		if t.Bad != nil || t.Absent || held[t.Name] || !m.inStateDict(t.Name) {
			continue
		}
		typ, data, err := t.Type, []byte(nil), error(nil)
		switch s := m.roles.ByName[t.Name]; {
		case s != nil && !s.Constant() && s.Param().Name == t.Name:
			typ = s.Param().Type
			data, err = contents(s.Param())
		case s != nil && !s.Constant():
			data, err = s.Form.Bytes(contents)
		default:
			data, err = t.Bytes()
		}
		if err := add(t.Name, typ, data, err); err != nil {
			return nil, m.Located(err)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// inStateDict reports whether the file tells that an initializer's name is one of the module's state dict.
func (m *Model) inStateDict(name string) bool {
	switch {
	case m.Record != nil:
		return m.Record.Roles[name] != "" && !m.Record.Transient[name] && (m.Record.Roles[name] != model.KeyBuffers || m.Record.Transient != nil)
	case m.Marks != nil && m.Marks.Transient[name]:
		return false
	case m.Torch.Known():
		return m.Torch.Kinds[name] == "PARAMETER" || m.Torch.Persistent[name]
	}
	return m.TorchScript() && !roles.AutoNamed(m.File, name)
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
	for _, r := range []*model.Record{m.Record, m.Marks} {
		if r != nil {
			out = append(out, r.Unused...)
		}
	}
	for n, persistent := range m.Torch.Persistent {
		if persistent && m.Record == nil && !strings.HasSuffix(n, "num_batches_tracked") {
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
	if m.roles != nil && m.Record == nil && m.Marks == nil && m.TorchScript() {
		for _, p := range m.roles.Params {
			out = append(out, p.Aliases...)
		}
	}
	return out
}

// CompareTorch compares the names of tensors with those of the PyTorch module that the model was exported from, after
// Import: foreign are those that the module has no tensor of, missing the module's trained parameters without a tensor.
// Beside gives the second names of tied ones.
// The dynamo exporters record the module's names. TorchScript does not: there, names of its own form (onnx::MatMul_12)
// are foreign, and nothing is known to be missing.
func (m *Model) CompareTorch(names []string) (foreign, missing []string) {
	if m.Record != nil { // all of the module's that a graph needs are in the file
		for _, n := range names {
			if m.Record.Roles[n] == "" {
				foreign = append(foreign, n)
			}
		}
		return foreign, nil
	}
	if !m.Torch.Known() {
		for _, n := range names {
			if m.TorchScript() && strings.Contains(n, "::") {
				foreign = append(foreign, n)
			}
		}
		return foreign, nil
	}
	has := map[string]bool{}
	for _, n := range names {
		has[n] = true
		if _, ok := m.Torch.Kinds[n]; !ok {
			foreign = append(foreign, n)
		}
	}
	for _, p := range m.Parameters() {
		has[p.Name] = true // one that is frozen is not exported and has not changed
	}
	for _, n := range m.Torch.Params {
		if !has[n] {
			missing = append(missing, n)
		}
	}
	slices.Sort(missing)
	return foreign, missing
}
