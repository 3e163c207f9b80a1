package onnx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
)

// PEFT is what the package peft keeps of a module with adapters (its LoraConfig and adapter_model.safetensors), by its names.
type PEFT struct {
	Rank        int
	Alpha       float64
	Targets     []string // modules with an adapter, by their whole names
	Others      []string // modules whose parameters the file holds that peft, which looks for ends of names, may take for targets
	Saved       []string // modules of which parameters or statistics have changed beside adapters; Tensors has all of theirs
	FanInFanOut bool     // a weight lies [in, out], as that of Conv1D in transformers
	Tensors     []Entry
}

// PEFT gives the adapters, with their contents in weights, in peft's form. It is an error that names the weight when peft would
// compute something else with them, or has no place for them. steps is how many the training took. Import must have succeeded.
func (m *Model) PEFT(weights map[string][]byte, steps int64) (*PEFT, error) {
	if m.roles == nil {
		return nil, fmt.Errorf("%s: adapters before import", m.Name)
	}
	out := &PEFT{Rank: m.Options.LoRA.Rank}
	contents := func(p *Parameter) ([]byte, error) {
		if data, ok := weights[p.Name]; ok {
			return data, nil
		}
		return p.Data()
	}
	var errs []error
	adapters, modules := m.roles.Adapters(), map[string]bool{}
	for _, p := range m.roles.Params {
		if adapters[p] {
			continue
		}
		modules[model.ModuleOf(p.Name)] = true
		if p.Adapter == nil {
			continue
		}
		if why := m.unlikePEFT(p); why != "" {
			errs = append(errs, fmt.Errorf("peft has no form for the adapter of %q: %s", p.Name, why))
			continue
		}
		out.Targets = append(out.Targets, model.ModuleOf(p.Name))
		out.Alpha = p.Adapter.Scale * float64(out.Rank)
		out.FanInFanOut = out.FanInFanOut || p.Adapter.InOut
		for _, q := range []*Parameter{p.Adapter.A, p.Adapter.B} {
			data, err := contents(q)
			if err != nil {
				return nil, m.Located(err)
			}
			out.Tensors = append(out.Tensors, Entry{q.Name, q.Type, data})
		}
	}
	all := map[string][]byte{} // of the model without adapters
	for _, p := range m.roles.Params {
		if adapters[p] || p.Role == RoleConstant {
			continue
		}
		if err := out.save(p, weights[p.Name], modules); err != nil {
			errs = append(errs, err)
		}
		data, err := contents(p)
		if err != nil {
			return nil, m.Located(err)
		}
		all[p.Name] = data
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := m.addSaved(out, all, steps); err != nil {
		return nil, err
	}
	for name := range modules {
		if !slices.Contains(out.Targets, name) {
			out.Others = append(out.Others, name)
		}
	}
	slices.Sort(out.Others)
	return out, nil
}

// addSaved gives out the whole state dicts of the modules that it saves, as peft wants them: all is what the model's file knows by
// name, but for adapters. The counters that batch normalisation has in PyTorch count the steps of this training.
func (m *Model) addSaved(out *PEFT, all map[string][]byte, steps int64) error {
	var entries []Entry
	for _, p := range m.roles.Params {
		if data, ok := all[p.Name]; ok {
			entries = append(entries, Entry{p.Name, p.Type, data})
		}
		if p.Statistic && strings.HasSuffix(p.Name, "running_mean") {
			counter := model.ModuleOf(p.Name) + ".num_batches_tracked"
			entries = append(entries, Entry{counter, ir.Type{DType: dtype.I64}, binary.LittleEndian.AppendUint64(nil, uint64(steps))})
		}
	}
	beside, err := m.Beside(all)
	if err != nil {
		return err
	}
	for _, e := range append(entries, beside...) {
		if slices.Contains(out.Saved, model.ModuleOf(e.Name)) {
			e.Name = "base_model.model." + e.Name
			out.Tensors = append(out.Tensors, e)
		}
	}
	return nil
}

// unlikePEFT says why peft's adapter of p, if it had one, would be another; "" when it is the same.
func (m *Model) unlikePEFT(p *Parameter) string {
	of := model.ModuleOf(p.Name)
	switch {
	case !strings.HasSuffix(p.Name, ".weight"):
		return "it adapts the weights of modules, named MODULE.weight"
	case m.roles.Named[of[:max(strings.LastIndexByte(of, '.')+1, 0)]+"in_proj_weight"] != nil:
		return "it adapts a MultiheadAttention only as a whole"
	case len(p.Aliases) > 0:
		return fmt.Sprintf("it is tied to %s, and peft gives each module an adapter of its own", strings.Join(p.Aliases, ", "))
	case p.Adapter.Shared:
		return "it is looked up and multiplied with, and peft has one form for each"
	case p.Adapter.Grouped:
		return "it is that of a convolution in groups, of which peft splits the adapter too"
	}
	return ""
}

// save adds p's module to those that are saved beside the adapters when data, its contents now, differ from the file's; nil for as in
// the file.
func (e *PEFT) save(p *Parameter, data []byte, modules map[string]bool) error {
	if data == nil {
		return nil
	}
	initial, err := p.Data()
	if err != nil || bytes.Equal(initial, data) {
		return err
	}
	for _, name := range append([]string{p.Name}, p.Aliases...) {
		of := model.ModuleOf(name)
		inside := func(other string) bool { return strings.HasPrefix(other, of+".") }
		switch {
		case slices.Contains(e.Targets, of):
			return fmt.Errorf("%q has been trained beside the adapter of %s.weight: peft keeps one or the other of a module", name, of)
		case of == "":
			return fmt.Errorf("%q has been trained, and is in no module that peft could save", name)
		}
		for other := range modules {
			if inside(other) {
				return fmt.Errorf("%q has been trained, and peft would save %s as a whole, with the modules inside", name, of)
			}
		}
		if !slices.Contains(e.Saved, of) {
			e.Saved = append(e.Saved, of)
		}
	}
	return nil
}

// inGroups reports whether one of the convolutions is one in groups.
func inGroups(convs []*ir.Op) bool {
	return slices.ContainsFunc(convs, func(op *ir.Op) bool { return op.Attrs.(ops.ConvAttrs).Groups > 1 })
}
